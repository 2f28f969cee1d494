"""Preview the merge of an attempt into the present files, in a server or on the files it left.

A merge compares the result of the attempt with a checkpoint of the present files. A preview takes
that checkpoint in a copy of the store, which is removed afterwards: the store and the journal of
the execution stay as they are, and a server may use them meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from hankweave_protocol.commands import ExplorationAdopt, RollbackPreview
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.state import State
from hankweave_server.api.rollback import RollbackRequests, meant_paths
from hankweave_server.background_tasks import context_in_thread
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import CheckpointRequest
from hankweave_server.checkpoints.records import record_made
from hankweave_server.clock import Clock
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.path_merge import ConflictPolicy
from hankweave_server.domain.targets import target_of
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.execution.rollback.planner import (
    EffectsJournal,
    PlanContext,
    RollbackPlanner,
    RollbackRequest,
)
from hankweave_server.features.exploration import adoption
from hankweave_server.features.exploration.explorations import attempt_named, result_of
from hankweave_server.fsutil import temporary_folder
from hankweave_server.paths import Layout
from hankweave_server.worktree.names import shown

_COPIES = 3
"""Times that a folder is copied until it has not changed meanwhile."""


class StoreKeepsChanging(Exception):
    """The checkpoints changed each time while they were copied."""


async def merge_preview(
    ctx: PlanContext, command: ExplorationAdopt, last_seq: int
) -> RollbackReport:
    """Return the report that the merge would return now; `last_seq` is that of the journal.

    Raises Refused, for a conflict as well, StoreKeepsChanging, and the errors of checkpoints.
    """
    exploration, attempt = attempt_named(ctx.state, command.attempt_id, "$.data.attemptId")
    result = result_of(attempt, "$.data.attemptId")
    conflicts_in = adoption.new_folder(command.conflicts_in, ctx.layout.work_tree)
    async with context_in_thread(_copied(ctx.layout)) as engine:
        store = CheckpointAccess(engine)
        await store.load(frozenset(ctx.ledger.digest.checkpoints().standing))
        present = _request(ctx, f"attempt {attempt.attempt_id}, merged", last_seq)
        made = await store.call(lambda engine: engine.checkpoint(present))
        store.known[made.sha] = record_made(present, made)
        # The merge itself notices these edits before it takes its checkpoint.
        edits = dict.fromkeys((shown(each.path) for each in made.changed), "")
        state = msgspec.structs.replace(ctx.state, edits={**edits, **ctx.state.edits})
        sources = _OnCopy(ctx, state, store)
        outcome = await store.merged(
            exploration.checkpoint_sha,
            made.sha,
            result,
            present,
            paths=meant_paths(command.paths),
            policy=ConflictPolicy(command.on_conflict),
            conflicts_in=conflicts_in,
        )
        if outcome.conflicts:
            raise adoption.conflict(outcome.conflicts, conflicts_in)

        if outcome.record is None:
            # Nothing differs: report it in the words of a rollback to where the files are.
            nothing = RollbackPreview(checkpoint_sha=made.sha, paths=command.paths)
            request = await RollbackRequests(sources).previewed(nothing)
        else:
            request = RollbackRequest(
                target_of(state, store.known, outcome.record.sha),
                paths=outcome.changed,
                reason=adoption.adoption_reason(attempt),
            )

        return await RollbackPlanner(sources).preview(request, (), beside_codon=False, patch=False)


@dataclass(frozen=True, slots=True)
class _OnCopy:
    """The sources of a plan, with a copy of the checkpoints in place of the store."""

    origin: PlanContext
    state: State
    checkpointer: CheckpointAccess

    @property
    def layout(self) -> Layout:
        return self.origin.layout

    @property
    def clock(self) -> Clock:
        return self.origin.clock

    @property
    def progress(self) -> ProgressWatch:
        return self.origin.progress

    @property
    def ledger(self) -> EffectsJournal:
        return self.origin.ledger

    def patterns(self) -> tuple[str, ...]:
        return self.origin.patterns()


def _request(ctx: PlanContext, label: str, last_seq: int) -> CheckpointRequest:
    entries = thread(ctx.state)
    return CheckpointRequest(
        kind="manual",
        codon_id=entries[-1].codon.codon_id if entries else None,
        codon_name="",
        run_id=ctx.state.runs[0].run_id,
        timestamp=ctx.clock.now(),
        duration_ms=None,
        operation_id=uuid.uuid4().hex,
        event_seq=last_seq,
        session_id=None,
        memory_epoch=0,
        label=label,
        patterns=ctx.patterns(),
    )


@contextmanager
def _copied(layout: Layout) -> Iterator[CheckpointEngine]:
    """Open a copy of the checkpoints, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="hankweave-merge-", dir=temporary_folder()) as folder:
        copy = replace(layout, private_folder=Path(folder))
        _copy_consistently(layout.checkpoints, copy.checkpoints)
        with closing(CheckpointEngine.open(copy)) as engine:
            yield engine


def _copy_consistently(folder: Path, to: Path) -> None:
    """Copy a folder to which a server may write; raise StoreKeepsChanging if it does each time."""
    for _ in range(_COPIES):
        before = _listing(folder)
        try:
            shutil.copytree(folder, to)
        except (OSError, shutil.Error):
            if _listing(folder) == before:
                raise
        else:
            if _listing(folder) == before:
                return

        shutil.rmtree(to, ignore_errors=True)

    raise StoreKeepsChanging


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything below a folder."""
    facts = dict[str, tuple[int, int]]()
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            seen = path.lstat()
            facts[str(path)] = seen.st_size, seen.st_mtime_ns

    return facts
