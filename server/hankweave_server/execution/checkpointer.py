"""Take checkpoints and record them in the journal.

The engine makes the commit durable first; the journal names it second. A crash between the two
leaves a commit without a record: `adopt` finds it at the next start, exactly once. The engine
blocks, so it runs in a worker thread, one call at a time under one lock.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.events import CheckpointPartial, StoreRepaired
from hankweave_protocol.ids import CodonId, RunId, Sha, branch_of
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    Conversation,
    Coordinate,
    MovedRef,
    SkippedFile,
    StoreRepair,
)
from hankweave_protocol.state import CodonExecution
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.checkpoints.detach import DetachedRef
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.gc import Pruned
from hankweave_server.checkpoints.model import (
    REASONS_THAT_LOSE_CONTENT,
    CheckpointMade,
    CheckpointRequest,
    FileChange,
    RestorePlan,
    Skipped,
)
from hankweave_server.checkpoints.repair import Repaired
from hankweave_server.checkpoints.repo_init import StoreMoved
from hankweave_server.clock import Clock
from hankweave_server.domain.history import session_of
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.execution.maintenance.progress import ProgressWatch
from hankweave_server.fsutil import is_broken
from hankweave_server.git.errors import ShadowRepositoryError, is_for_want_of_room
from hankweave_server.ledger.writer import Ledger
from hankweave_server.meter import Meter
from hankweave_server.worktree.open_files import OpenFiles, files_open_for_writing

T = TypeVar("T")
P = ParamSpec("P")


class Checkpointer:
    """The checkpoints of one execution: those that exist, and the making of new ones."""

    def __init__(
        self,
        engine: CheckpointEngine,
        ledger: Ledger,
        clock: Clock,
        *,
        clean: Callable[[str], str] = str,
        require_lock: Callable[[], None] = lambda: None,
        memory: Callable[[frozenset[str]], Mapping[str, Path]] = lambda _also: {},
        on_head_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`require_lock` ends the process if the execution's lock is lost.

        It is called in a worker thread when the store turns out to have moved: another process that
        put a different directory in its place may own that one, and our cleanup must not touch it.
        `memory` finds the session files of agents and sentinels, and those named in its argument;
        it is called in the worker thread. `on_head_moved` is called when HEAD has a new commit.
        """
        self.engine = engine
        self._require_lock = require_lock
        self.clean = clean
        """Removes secrets from a text that goes into a commit, a tag or the journal."""
        self.progress = ProgressWatch()
        """Tracks long operations; reports nothing until it runs and has a receiver."""
        self._ledger = ledger
        self._clock = clock
        self._gate = anyio.Lock()
        self._branch: RunId | None = None
        self.known: dict[Sha, CheckpointRecord] = {}
        """All checkpoints on our refs, oldest first."""
        self.missing: frozenset[Sha] = frozenset()
        """Checkpoints that the journal names and the repository does not have."""
        self._on_head_moved = on_head_moved
        self._on_taken: list[Callable[[], None]] = []
        self._memory = memory
        self._highest_epoch = 0
        self._writers: list[Callable[[], Iterable[int]]] = []

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a checkpoint has been recorded."""
        self._on_taken.append(callback)

    def _announce_taken(self) -> None:
        for callback in self._on_taken:
            callback()

    @contextmanager
    def watching(self, processes: Callable[[], Iterable[int]]) -> Iterator[None]:
        """Mark what these processes have open for writing as unstable while the block runs.

        `processes` returns pids; it is called in a worker thread.
        """
        self._writers.append(processes)
        try:
            yield
        finally:
            self._writers.remove(processes)

    def _open_files(self) -> OpenFiles:
        pids = [pid for processes in tuple(self._writers) for pid in processes()]
        return files_open_for_writing(pids, self.engine.work_tree)

    async def load(self, recorded: frozenset[Sha] = frozenset()) -> None:
        """Read from the shadow repository what its commits and pins list.

        `recorded` are the checkpoints that should exist by the journal; those that cannot be found
        are in `missing` afterwards.
        """
        commits = await self._blocking(lambda: list(self.engine.commits(recorded)))
        pins = await self._blocking(self.engine.housekeeping.pins)
        skipped = await self._blocking(self.engine.skipped)
        records = (record_of(each, skipped.get(each.sha, ())) for each in reversed(commits))
        self.known = {record.sha: _with_pin(record, pins) for record in records}
        epochs = (record.coordinate.memory_epoch for record in self.known.values())
        self._highest_epoch = max(epochs, default=0)
        self.note_recorded(recorded)

    def note_recorded(self, recorded: frozenset[Sha]) -> None:
        """Note which checkpoints the journal names: entry points into a history with gaps."""
        self.engine.note_recorded(recorded)
        self.missing = recorded - self.known.keys()

    async def repair(self, work: Callable[[], Repaired], recorded: frozenset[Sha]) -> Repaired:
        """Repair the store while all other callers wait, and reload what it holds."""
        async with self._gate:
            given_up: frozenset[Sha] = frozenset()
            try:
                repaired = await self._blocking(work)
                given_up = frozenset(repaired.lost)
            finally:
                self._branch = None
                await self.load(recorded - given_up)
                self._on_head_moved()

            return repaired

    async def prune(self, work: Callable[[], Pruned]) -> Pruned:
        """Prune checkpoints; the next caller of the engine finds them forgotten as well."""
        async with self._gate:
            try:
                pruned = await self._blocking(work)
            except BaseException:
                present = await self._blocking(lambda: {each.sha for each in self.engine.commits()})
                for sha in self.known.keys() - present:
                    del self.known[sha]

                raise

            for sha in pruned.checkpoints:
                self.known.pop(sha, None)

            return pruned

    async def adopt(self, recorded: frozenset[Sha]) -> tuple[CheckpointRecord, ...]:
        """Record the commits that a server made but did not journal before it died."""
        orphans = tuple(record for sha, record in self.known.items() if sha not in recorded)
        for record in orphans:
            await self._ledger.record(
                CheckpointCreated(checkpoint=record, recovered=True),
                run_id=record.coordinate.run_id,
                codon_id=record.coordinate.codon_id,
            )

        return orphans

    async def take(
        self,
        kind: CheckpointKind,
        *,
        run_id: RunId,
        codon: CodonExecution | None,
        codon_name: str,
        patterns: Iterable[str],
        message_id: str | None = None,
        label: str | None = None,
        before: RestorePlan | None = None,
        duration_ms: int | None = None,
        causes: tuple[int | str, ...] = (),
        waits_for_room: bool = True,
    ) -> CheckpointRecord:
        """Capture the work tree; return when commit and journal line are durable.

        All earlier decisions are durable before it. If the disk is full, it waits for space, or
        raises InsufficientSpace.
        """
        request = CheckpointRequest(
            kind=kind,
            codon_id=None if codon is None else codon.codon_id,
            codon_name=self.clean(codon_name),
            run_id=run_id,
            timestamp=self._clock.now(),
            duration_ms=duration_ms,
            operation_id=uuid.uuid4().hex,
            event_seq=await self._ledger.catch_up(insists=waits_for_room),
            session_id=None if codon is None else session_of(codon),
            message_id=message_id,
            memory_epoch=0,
            label=None if label is None else self.clean(label),
            patterns=tuple(patterns),
            before=before,
            open_files=self._open_files,
            codon_state=_STATE_OF_KIND.get(kind, _status_of(codon)),
        )
        with self.progress.watching("capture", causes) as meter:
            commit = functools.partial(self.run, self._commit, request, meter)
            space = self._ledger.space
            if waits_for_room:
                request, made = await space.insist(commit, is_short=is_for_want_of_room)
            else:
                request, made = await commit()

        record = _record_made(request, made)
        self.known[record.sha] = record
        entries: list[CheckpointCreated | CheckpointPartial] = [
            CheckpointCreated(checkpoint=record)
        ]
        if record.partial:
            entries.append(CheckpointPartial(checkpoint=record.coordinate, skipped=record.skipped))

        moved, self.engine.detached = self.engine.detached, ()
        if moved:
            await self._ledger.record(
                StoreRepaired(repair=StoreRepair(moved_refs=moved_refs(moved)))
            )

        await self._ledger.record(*entries, run_id=run_id, codon_id=request.codon_id, causes=causes)
        self._on_head_moved()
        self._announce_taken()
        return record

    def _commit(
        self, request: CheckpointRequest, meter: Meter
    ) -> tuple[CheckpointRequest, CheckpointMade]:
        """Commit on the run's branch, which is created with its first checkpoint."""
        places = self._memory(self._overwritten(request.before))
        epoch = self.engine.remember(places, beyond=self._highest_epoch)
        request = replace(request, memory_epoch=epoch)
        made = self.engine.checkpoint(request, meter)
        if request.before is None:
            self._branch = request.run_id

        self._highest_epoch = max(self._highest_epoch, epoch)
        return request, made

    def _overwritten(self, plan: RestorePlan | None) -> frozenset[str]:
        """Return the session files that a rewind along with the restore would overwrite."""
        if plan is None or plan.target not in self.known:
            return frozenset()

        return self.engine.names_in_epoch(self.known[plan.target].coordinate.memory_epoch)

    async def detach(self, at: Sha) -> None:
        """Detach HEAD at a commit: the branch it was on keeps all its commits."""
        await self.run(self.engine.detach, at)
        self._branch = None
        self._on_head_moved()

    @property
    def current_branch(self) -> str | None:
        """The branch HEAD is on; None while it is detached after a rollback."""
        return None if self._branch is None else branch_of(self._branch)

    def reattached(self, sha: Sha, run_id: RunId, codon_id: CodonId) -> CheckpointCreated:
        """Return the event for a codon that starts from a rig set up by an earlier run."""
        record = self.known[sha]
        coordinate = msgspec.structs.replace(record.coordinate, run_id=run_id, codon_id=codon_id)
        return CheckpointCreated(checkpoint=msgspec.structs.replace(record, coordinate=coordinate))

    async def changes(self, patterns: Iterable[str]) -> tuple[FileChange, ...]:
        """Return what changed in the tracked files since the last scan."""
        return await self.run(self.engine.scan_changes, tuple(patterns))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call of the engine in a worker thread, alone."""
        async with self._gate:
            result = await self._blocking(functools.partial(work, *args, **kwargs))

        return result

    @property
    def is_waited_for(self) -> bool:
        """Return whether another caller waits for the engine."""
        return self._gate.statistics().tasks_waiting > 0

    async def _blocking(self, work: Callable[[], T]) -> T:
        # A cancelled caller must not leave the engine halfway: the call is awaited to its end.
        try:
            with anyio.CancelScope(shield=True):
                result = await anyio.to_thread.run_sync(self._in_place, work)
        except ShadowRepositoryError as error:
            is_moved = isinstance(error, StoreMoved)
            if is_moved or error.is_of_a_broken_disk or is_broken(error):
                self._ledger.distrust(error)

            raise

        return result

    def _in_place(self, work: Callable[[], T]) -> T:
        """Call the engine; raise StoreMoved if its store was taken away before or meanwhile."""
        try:
            self.engine.require_unmoved()
            try:
                return work()
            except Exception:
                self.engine.require_unmoved()
                raise
        except StoreMoved:
            self._require_lock()
            raise


def moved_refs(detached: Iterable[DetachedRef]) -> tuple[MovedRef, ...]:
    return tuple(MovedRef(ref=each.ref, was=each.was, now=each.now) for each in detached)


def record_of(facts: CommitFacts, skipped: Iterable[Skipped] = ()) -> CheckpointRecord:
    """Read a checkpoint's record back from its commit, and from its note about missing content."""
    left_out = tuple(skipped)
    return CheckpointRecord(
        sha=facts.sha,
        kind=_kind(facts.kind),
        coordinate=Coordinate(
            checkpoint_sha=facts.sha,
            event_seq=facts.event_seq or 0,
            run_id=facts.run_id,
            codon_id=facts.codon_id,
            codon_state=facts.codon_state or _STATE_OF_KIND.get(facts.kind),
            memory_epoch=facts.memory_epoch,
        ),
        codon_name=facts.codon_name,
        timestamp=_text(facts.timestamp),
        operation_id=facts.operation_id or "",
        label=facts.label,
        partial=any(item.reason in REASONS_THAT_LOSE_CONTENT for item in left_out),
        skipped=_listed(left_out),
        conversation=_conversation(facts),
    )


def _with_pin(record: CheckpointRecord, pins: Mapping[Sha, str | None]) -> CheckpointRecord:
    if record.sha not in pins:
        return record

    return msgspec.structs.replace(record, pinned=True, name=pins[record.sha])


_STATE_OF_KIND = {
    "rig-setup": "starting",
    "completed": "completed",
    "error": "failed",
    "skipped": "skipped",
    "tool": "running",
    "turn": "running",
}


def _record_made(request: CheckpointRequest, made: CheckpointMade) -> CheckpointRecord:
    return CheckpointRecord(
        sha=made.sha,
        kind=_kind(request.kind),
        coordinate=Coordinate(
            checkpoint_sha=made.sha,
            event_seq=request.event_seq,
            run_id=request.run_id,
            codon_id=request.codon_id,
            codon_state=request.codon_state,
            memory_epoch=request.memory_epoch,
        ),
        codon_name=request.codon_name,
        timestamp=_text(request.timestamp),
        operation_id=request.operation_id,
        label=request.label,
        partial=made.partial,
        skipped=_listed(made.skipped),
        conversation=_conversation(request),
    )


def _conversation(told: CheckpointRequest | CommitFacts) -> Conversation | None:
    if not told.session_id:
        return None

    return Conversation(session_id=told.session_id, message_id=told.message_id)


def _listed(skipped: Iterable[Skipped]) -> tuple[SkippedFile, ...]:
    return tuple(SkippedFile(path=os.fsdecode(item.path), reason=item.reason) for item in skipped)


def _text(moment: datetime) -> str:
    return instants.to_text(moment)


def _kind(kind: str) -> CheckpointKind:
    return kind  # type: ignore[return-value]  # the engine keeps the kind as the text it is in git


def _status_of(codon: CodonExecution | None) -> str | None:
    return None if codon is None else str(codon.__struct_config__.tag)
