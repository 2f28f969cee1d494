"""Say what a rollback does not take care of: programs at work, and the agents' conversations."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import anyio.to_thread

from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import Movement, RestoreWarning
from hankweave_protocol.state import State
from hankweave_server.checkpoints.model import CAPTURED_ANYWAY, LostAttributes, RestorePlan, Skipped
from hankweave_server.domain.execution_thread import session_of, thread
from hankweave_server.listing import first_of
from hankweave_server.plain_text import counted
from hankweave_server.worktree.databases import base_of, family
from hankweave_server.worktree.dirfd import FILE_FLAGS
from hankweave_server.worktree.open_files import Writer, has_writer, writers_of

NAMED = 20
"""Writers listed by name; of any more, only the number is reported."""

FEW = 5000
"""Up to this many files, the kernel is asked about each, in microseconds, before every process of
the machine is."""

CONVERSATION = (
    "The agents' conversations stay ahead of the files; the next agent is told what was rolled "
    "back. To rewind them too: rewindMemory."
)


async def of_rollback(
    state: State,
    work_tree: Path,
    plan: RestorePlan,
    keep: Collection[bytes],
    *,
    direction: Movement,
    passed: Collection[CodonId],
    rewinds: bool,
) -> tuple[RestoreWarning, ...]:
    """Return the warnings of a rollback by this plan.

    `passed` are the codons that it goes back through: none if only files move.
    """
    kept = {base_of(path) for path in keep}
    databases = {base: lost for base, lost in plan.databases.items() if base not in kept}
    found = [*_of_databases(databases)]
    parts = {path: base for base in databases for path in family(base)}
    replaced = [entry.path for entry in (*plan.updated, *plan.removed) if entry.path not in keep]
    if replaced or parts:
        paths = [*dict.fromkeys([*replaced, *parts])]
        writers = await anyio.to_thread.run_sync(_writers, paths, work_tree)
        found += _of_writers(writers, parts)

    if direction == "back" and not rewinds and _has_conversation(state, passed):
        found.append(RestoreWarning(kind="conversation", path=None, sentence=CONVERSATION))

    return tuple(found)


async def held_open(plan: RestorePlan, work_tree: Path) -> frozenset[bytes]:
    """Return the files of a plan to which programs could go on writing after their replacement.

    What they write then is lost. No agent is at work.
    """
    paths = [entry.path for entry in (*plan.updated, *plan.removed)]
    writers = await anyio.to_thread.run_sync(_writers, paths, work_tree)
    return frozenset(each.path for each in writers)


def of_attributes(losses: Iterable[LostAttributes]) -> tuple[RestoreWarning, ...]:
    """Return a warning for each file, or for the first of very many."""
    return first_of(
        RestoreWarning(kind="attributes", path=os.fsdecode(each.path), sentence=each.sentence)
        for each in losses
    )


def _has_conversation(state: State, passed: Collection[CodonId]) -> bool:
    return any(
        entry.codon.codon_id in passed and session_of(entry.codon) is not None
        for entry in thread(state)
    )


def _writers(paths: list[bytes], work_tree: Path) -> tuple[Writer, ...]:
    """Return the processes that can write to these files without opening them again."""
    if len(paths) <= FEW:
        paths = [path for path in paths if _may_have_writer(work_tree, path)]

    return writers_of(paths, work_tree)


def _may_have_writer(work_tree: Path, path: bytes) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(os.fsencode(work_tree), path), FILE_FLAGS)
        try:
            return has_writer(descriptor) is not False
        finally:
            os.close(descriptor)

    return False


def _of_databases(databases: Mapping[bytes, tuple[Skipped, ...]]) -> Iterator[RestoreWarning]:
    for base, missing in databases.items():
        for each in missing:
            database, name = os.fsdecode(base), os.fsdecode(each.path)
            what = f"{name} is not restored with this database ({each.reason})"
            if each.reason == CAPTURED_ANYWAY:
                what = f"{name} was being written when it was captured"

            yield RestoreWarning(
                kind="database",
                path=database,
                sentence=f"{what}, so that the database may be damaged. Before a checkpoint, close "
                "the programs that use it, or run "
                f"`sqlite3 {shlex.quote(database)} 'PRAGMA wal_checkpoint(TRUNCATE)'`.",
            )


def _of_writers(
    writers: tuple[Writer, ...], parts: Mapping[bytes, bytes]
) -> Iterator[RestoreWarning]:
    """Yield a warning for each writer, but for a database only one; `parts` are their files."""
    opened = {(parts[each.path], each.pid): each for each in writers if each.path in parts}
    for (base, pid), each in list(opened.items())[:NAMED]:
        yield RestoreWarning(
            kind="database",
            path=os.fsdecode(base),
            sentence=f"{each.program} (process {pid}) has this database open, and would mix its "
            "old and new content. Close it before the rollback.",
        )

    writers = tuple(each for each in writers if each.path not in parts)
    for each in writers[:NAMED]:
        holds = "has it mapped" if each.is_mapping else "has it open for writing"
        yield RestoreWarning(
            kind="open-writer",
            path=os.fsdecode(each.path),
            sentence=f"{each.program} (process {each.pid}) {holds}: what it writes from the "
            "rollback on goes to the old file and is lost. Close it first, or restart it after.",
        )

    if len(writers) > NAMED:
        others = counted(len(writers) - NAMED, "more program has", "more programs have")
        more = f"{others} a file open that the rollback replaces."
        yield RestoreWarning(kind="open-writer", path=None, sentence=more)
