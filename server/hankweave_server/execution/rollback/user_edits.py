"""Find what a rollback would take from people.

While no agent works, whatever changes since the last checkpoint was changed by a person; while one
works, whatever its calls do not reach (see `codon.authorship`). Such edits are journaled with the
SHA-256 of each file, at the latest when a codon begins and when a person takes a checkpoint. A file
belongs to the agent again once an agent or rig writes it. Content that a rollback finds and that is
in no checkpoint is also a user edit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.events import (
    AgentOutput,
    AssistantAction,
    CodonCompletedEvent,
    EventData,
    PermissionRequested,
    PermissionResolved,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import KeptFile, RollbackIntent
from hankweave_protocol.state import State
from hankweave_protocol.transitions import CodonStarted, EditsNoticed, EditsOvertaken
from hankweave_server.checkpoints.model import RestorePlan, RestoreReport
from hankweave_server.execution.codon.authorship import RELEVANT, Reach, WorkSoFar, reach_of
from hankweave_server.git.checkout import UNSET_PERMISSIONS
from hankweave_server.ledger.writer import Ledger
from hankweave_server.worktree.databases import base_of
from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent
from hankweave_server.worktree.names import is_within, shown


def conflicts(
    state: State,
    plan: RestorePlan,
    *,
    leftovers: Iterable[str] = (),
    agents_rested: bool = True,
    held: frozenset[bytes] = frozenset(),
) -> dict[bytes, str]:
    """Return the user edits that a plan would take away, with their SHA-256 if known.

    They include `held`, the files that other programs have open for writing. A deletion is an edit
    too: the plan would bring the file back. Content that is in no checkpoint is a person's only if
    no agent (`agents_rested`) and no rig can have written it since the last one; `leftovers` are
    the untracked targets of rigs.
    """
    endangered = [entry.path for entry in (*plan.added, *plan.updated, *plan.removed)]
    known = state.edits
    rigs = frozenset(map(os.fsencode, leftovers))
    unsaved = {path for path in plan.unsaved if agents_rested and not _is_below(path, rigs)}
    found = {
        path: known.get(shown(path), "")
        for path in endangered
        if shown(path) in known or path in unsaved or path in held
    }
    # A database is one with its companions: some of them alone would be malformed.
    edited = {base for path in found if (base := base_of(path)) in plan.databases}
    return {p: known.get(shown(p), "") for p in endangered if base_of(p) in edited} | found


def _is_below(path: bytes, folders: frozenset[bytes]) -> bool:
    return bool(folders) and is_within(path, folders)


PAGE = 1000
"""Journal lines that are searched at once."""


async def work_since(ledger: Ledger, seq: int) -> WorkSoFar:
    """Return what agents and people changed after `seq`, by the journal and the state."""
    work = WorkSoFar()
    async for line in ledger.lines_after(seq):
        if any(name in line for name in RELEVANT):
            work.handle(codec.decode_event(line).data)

    work.edited(ledger.state.edits)  # The newest may not be published yet.
    return work


_OF_CALLS = tuple(
    f'"{kind.TYPE}"'.encode()
    for kind in (
        AgentOutput,
        AssistantAction,
        CodonCompletedEvent,
        PermissionRequested,
        PermissionResolved,
        TokenUsage,
        ToolResult,
    )
)


async def events_since_start(ledger: Ledger, codon_id: CodonId) -> list[EventData]:
    """Return the events about the calls of a codon's newest attempt, oldest first."""
    start = (f'"{CodonStarted.TYPE}"'.encode(), codec.encode(codon_id))
    found: list[bytes] = []
    end = ledger.last_seq
    while end > 0:
        since = max(0, end - PAGE)
        for line in reversed(await ledger.lines(since, end - since)):
            if all(word in line for word in start):
                end = 0
                break

            if any(word in line for word in _OF_CALLS):
                found.append(line)
        else:
            end = since

    return [codec.decode_event(line).data for line in reversed(found)]


def where_restored(intent: RollbackIntent, restored: RestoreReport) -> RollbackIntent:
    """Return the intent without the edits that it has neither taken nor brought back.

    A path that could not be restored has the content that it had, so it is whose it was.
    """
    left = (*restored.unrestored, *restored.skipped)
    stays = {shown(each.path) for each in left if each.reason != UNSET_PERMISSIONS}

    def moved(edits: Mapping[str, str]) -> dict[str, str]:
        return {path: digest for path, digest in edits.items() if path not in stays}

    return msgspec.structs.replace(
        intent,
        edits=moved(intent.edits),
        restored_edits=moved(intent.restored_edits),
        contested=tuple(path for path in intent.contested if path not in stays),
    )


def listed(edits: Iterable[bytes]) -> tuple[KeptFile, ...]:
    return tuple(KeptFile(path=os.fsdecode(path), reason="edited") for path in sorted(edits))


PART_BYTES = 256 * 1024
"""Approximate size of the paths in one entry: common clients reject frames above 1 MiB."""


def by_people(digests: Mapping[bytes, str]) -> tuple[EditsNoticed, ...]:
    """Return the journal entries for files that people changed; empty if there are none."""
    edits = {shown(path): digest for path, digest in digests.items()}
    return tuple(EditsNoticed(edits={path: edits[path] for path in part}) for part in _parts(edits))


def by_agents(state: State, paths: Iterable[bytes]) -> tuple[EditsOvertaken, ...]:
    """Return the journal entries for files that an agent or rig wrote after people changed them."""
    if not state.edits:
        return ()

    overtaken = sorted(state.edits.keys() & {shown(path) for path in paths})
    return tuple(EditsOvertaken(paths=part) for part in _parts(overtaken))


def _parts(paths: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Divide paths into parts that fit into one entry each."""
    part: list[str] = []
    size = 0
    for path in paths:
        added = len(codec.encode(path)) + _ENTRY_BYTES
        if part and size + added > PART_BYTES:
            yield tuple(part)
            part, size = [], 0

        part.append(path)
        size += added

    if part:
        yield tuple(part)


_ENTRY_BYTES = 68
"""Of a digest and punctuation."""


def sha256_of(descent: Descent, path: bytes) -> str:
    """Return the SHA-256 of a file as it is now.

    It is empty for a path that is gone, is no file, or lies behind a symbolic link.
    """
    try:
        descriptor = os.open(path.rpartition(b"/")[2], FILE_FLAGS, dir_fd=descent.folder_of(path))
    except OSError as problem:
        if problem.errno in GONE or isinstance(problem, PermissionError):
            return ""

        raise

    with open(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reach_in(work_tree: Path, tool: str, given: Mapping[str, object]) -> Reach:
    """Return what a tool call may change; the paths in its input may lead through links."""
    written, real = os.fsencode(work_tree), os.fsencode(os.path.realpath(work_tree))
    roots = (written, real)

    def places(path: str) -> Iterator[bytes]:
        absolute = os.path.normpath(os.path.join(real, os.fsencode(path)))
        for named in dict.fromkeys((absolute, os.path.realpath(absolute))):
            for root in roots:
                if named.startswith(root + b"/"):
                    yield named[len(root) + 1 :]

    return reach_of(tool, given, places)
