"""Call the checkpoint engine from the event loop, and know which checkpoints it holds.

`CheckpointEngine` is the facade of the checkpoints: it blocks, and two of its calls must not
overlap. `call` runs one in a worker thread while all other callers wait, in the order in which they
came. A call is always awaited to its end: a caller that is cancelled must not leave the engine
halfway.

A method here does more than pass on. It keeps `known` right when checkpoints are made or removed;
it makes a decision and the act that relies on it one call, so that nothing comes between them; or
it awaits something in the middle of an operation. A gc, for example, may prune a checkpoint while
its caller waits; `plan_restore`, `clone` and `pin` find that out in the worker thread. What such a
call has to ask its caller is a callable, called there.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from hankweave_protocol.ids import RunId, Sha, branch_of
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.checkpoints.capture import Capture, CapturedChanges
from hankweave_server.checkpoints.clone import ClonePlan
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointNotFound
from hankweave_server.checkpoints.imports import ForeignCheckpoint
from hankweave_server.checkpoints.merge import write_conflicts
from hankweave_server.checkpoints.model import (
    CheckpointMade,
    CheckpointRequest,
    RestorePlan,
    RestoreReport,
    Skipped,
)
from hankweave_server.checkpoints.pruning import Pruned
from hankweave_server.checkpoints.records import all_records, record_made
from hankweave_server.checkpoints.repair import Repaired, Source
from hankweave_server.checkpoints.repo_init import StoreMoved
from hankweave_server.checkpoints.rewrite import renamed_shas
from hankweave_server.domain.path_merge import ConflictPolicy, Decision
from hankweave_server.domain.retention import Pruning
from hankweave_server.fsutil import is_broken
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.line_merge import LineMerger, SideNames
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout

if TYPE_CHECKING:
    from hankweave_server.execution.session_files import SessionFiles

IntentOf: TypeAlias = Callable[[CheckpointRecord], bytes]
"""Returns the intent of the restore for which a safety checkpoint is taken."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """How the changes are reported that a checkpoint is about to hold."""

    report: Callable[[CapturedChanges, CheckpointRequest], Awaitable[CheckpointRequest]]
    """Report the changes; return the request with its new place in the journal."""
    digests_up_to: int
    """Number of changed files up to which their digests are wanted."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The result of a merge: conflicts, a new checkpoint, or nothing to do."""

    conflicts: tuple[Decision, ...] = ()
    record: CheckpointRecord | None = None
    changed: frozenset[bytes] = frozenset()
    """The paths that the merge changes in our files."""


class CheckpointAccess:
    """The checkpoints of one execution, for the event loop."""

    def __init__(
        self,
        engine: CheckpointEngine,
        *,
        sessions: SessionFiles | None = None,
        require_lock: Callable[[], None] = lambda: None,
        on_broken: Callable[[Exception], None] = lambda _error: None,
        on_head_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`require_lock` ends the process if the execution's lock is lost.

        It is called in a worker thread when the store turns out to have moved: another process that
        put a different directory in its place may own that one, and our cleanup must not touch it.
        `on_broken` is called when the store or its disk fails; `on_head_moved`, when HEAD has a new
        commit.
        """
        self._engine = engine
        self._sessions = sessions
        self._require_lock = require_lock
        self._on_broken = on_broken
        self._on_head_moved = on_head_moved
        self._lock = anyio.Lock()
        self._branch: RunId | None = None
        self.known: dict[Sha, CheckpointRecord] = {}
        """All checkpoints on our refs, oldest first."""
        self.missing: frozenset[Sha] = frozenset()
        """Checkpoints that the journal names and the repository does not have."""
        self._highest_epoch = 0
        self._on_planned: list[Callable[[Sha], None]] = []

    @functools.cached_property
    def renamed(self) -> Mapping[Sha, Sha]:
        """The present sha of each checkpoint that a redaction has rewritten."""
        return renamed_shas(self._engine.layout)

    def when_planned(self, callback: Callable[[Sha], None]) -> None:
        """Call `callback` with each checkpoint to which a restore was planned."""
        self._on_planned.append(callback)

    @property
    def current_branch(self) -> str | None:
        """The branch HEAD is on; None while it is detached after a rollback."""
        return None if self._branch is None else branch_of(self._branch)

    @property
    def is_in_use(self) -> bool:
        """Return whether the engine is at work; may be asked in any thread."""
        return self._lock.locked()

    @property
    def is_waited_for(self) -> bool:
        """Return whether another caller waits for the engine."""
        return self._lock.statistics().tasks_waiting > 0

    async def load(self, recorded: frozenset[Sha] = frozenset()) -> None:
        """Read from the shadow repository what its commits and pins list.

        `recorded` are the checkpoints that should exist by the journal; those that cannot be found
        are in `missing` afterwards.
        """
        self.known = await self._in_thread(lambda: all_records(self._engine, recorded))
        epochs = (record.coordinate.memory_epoch for record in self.known.values())
        self._highest_epoch = max(epochs, default=0)
        self.note_recorded(recorded)

    def note_recorded(self, recorded: frozenset[Sha]) -> None:
        """Note which checkpoints the journal names: entry points into a history with gaps."""
        self._engine.note_recorded(recorded)
        self.missing = recorded - self.known.keys()

    async def call(self, work: Callable[[CheckpointEngine], T]) -> T:
        """Run work with the engine in a worker thread while all other callers wait.

        What makes or removes checkpoints has a method of its own, which keeps `known` right.
        """
        async with self._lock:
            return await self._in_thread(lambda: work(self._engine))

    async def call_concurrently(self, work: Callable[[CheckpointEngine], T]) -> T:
        """Run work with the engine in a worker thread, beside the calls of others.

        It may use only what tolerates them, such as a consolidation.
        """
        return await self._in_thread(lambda: work(self._engine))

    # --- checkpoint ----------------------------------------------------------------------------

    async def _commit(
        self,
        request: CheckpointRequest,
        meter: Meter,
        intent_of: IntentOf | None,
        reporting: Reporting | None,
    ) -> CheckpointRecord:
        """Commit on the run's branch, which is created with its first checkpoint."""
        async with self._lock:
            if reporting is None:
                work = functools.partial(self._committed, request, meter, intent_of)
                record = await self._in_thread(work)
            else:
                record = await self._commit_reporting(request, meter, reporting)

        self.known[record.sha] = record
        return record

    def _committed(
        self, request: CheckpointRequest, meter: Meter, intent_of: IntentOf | None
    ) -> CheckpointRecord:
        request = self._with_sessions(request)
        if intent_of is not None:
            plain = request
            request = replace(request, intent_of=lambda made: intent_of(record_made(plain, made)))

        return self._recorded(request, self._engine.checkpoint(request, meter))

    async def _commit_reporting(
        self, request: CheckpointRequest, meter: Meter, reporting: Reporting
    ) -> CheckpointRecord:
        """Commit, and report changes before; each file is read once. The lock must be held."""

        def begin() -> tuple[CheckpointRequest, CheckpointRecord | CapturedChanges]:
            whole, engine = self._with_sessions(request), self._engine
            found = engine.checkpoint_unless_changed(whole, reporting.digests_up_to, meter)
            if isinstance(found, CapturedChanges):
                return whole, found

            return whole, self._recorded(whole, found)

        def complete(capture: Capture, reported: CheckpointRequest) -> CheckpointRecord:
            return self._recorded(reported, self._engine.complete(capture, reported, meter))

        whole, captured = await self._in_thread(begin)
        if not isinstance(captured, CapturedChanges):
            return captured

        try:
            reported = await reporting.report(captured, whole)
        except BaseException:
            await self._in_thread(functools.partial(self._engine.abandon, captured.capture))
            raise

        return await self._in_thread(functools.partial(complete, captured.capture, reported))

    def _with_sessions(self, request: CheckpointRequest) -> CheckpointRequest:
        """Stage the session files, to be published with the checkpoint."""
        files = self._session_files(request)
        epoch = self._engine.sessions.save(files, beyond=self._highest_epoch)
        return replace(request, memory_epoch=epoch)

    def _recorded(self, request: CheckpointRequest, made: CheckpointMade) -> CheckpointRecord:
        if request.before is None:
            self._branch = request.run_id

        self._highest_epoch = max(self._highest_epoch, request.memory_epoch)
        return record_made(request, made)

    def _session_files(self, request: CheckpointRequest) -> Mapping[str, Path]:
        """Return the files to save: also those that a rewind after the checkpoint overwrites."""
        if self._sessions is None:
            return {}

        target = None if request.before is None else self.known.get(request.before.target)
        if target is None:
            return self._sessions.of_checkpoint(request.session_files)

        overwritten = self._engine.sessions.names(target.coordinate.memory_epoch)
        return self._sessions.of_checkpoint(overwritten)

    # --- restore -------------------------------------------------------------------------------

    async def plan_restore(
        self,
        sha: Sha,
        patterns: Callable[[], Iterable[str]],
        paths: frozenset[bytes] | None,
        meter: Meter,
        leftovers: frozenset[bytes],
        *,
        reports: bool = False,
    ) -> RestorePlan:
        """Return what a restore would do to the files that match `patterns`, and to `leftovers`.

        `reports` as for `CheckpointEngine.plan_restore`. Raises CheckpointNotFound,
        CheckpointDamaged or InsufficientSpace.
        """

        def plan(engine: CheckpointEngine) -> RestorePlan:
            self._require_known(sha)
            return engine.plan_restore(sha, patterns(), paths, meter, leftovers, reports=reports)

        planned = await self.call(plan)
        for callback in self._on_planned:
            callback(sha)

        return planned

    async def restore(
        self,
        target: Sha,
        safety: Sha,
        paths: frozenset[bytes] | None,
        keep: frozenset[bytes],
        meter: Meter,
        *,
        detaches: bool,
    ) -> RestoreReport:
        """Take the work tree from the safety checkpoint to the target, and flush it.

        With `detaches`, HEAD is detached at the target: the branch it was on keeps all its commits.
        """
        async with self._lock:
            report = await self._in_thread(
                lambda: self._engine.restore(target, safety, paths, keep, meter, detaches=detaches)
            )

        if detaches:
            self._branch = None
            self._on_head_moved()

        self._note_written()
        return report

    def _note_written(self) -> None:
        """Note that files of the work tree were written just now."""

    async def rewind_sessions(self, epoch: int) -> tuple[Skipped, ...]:
        """Restore the session files of an epoch; return those that could not be restored."""
        sessions = self._sessions
        if sessions is None:
            return ()

        return await self.call(lambda engine: engine.sessions.rewind(epoch, *sessions.of_rewind()))

    async def restore_session(
        self, epoch: int, session_id: str
    ) -> tuple[frozenset[str], tuple[Skipped, ...]]:
        """Restore the files of one agent's session; return their names, and what is missing.

        All other sessions stay as they are.
        """
        sessions = self._sessions
        if sessions is None:
            return frozenset(), ()

        beginning = f"sessions/{session_id}/"

        def restore(engine: CheckpointEngine) -> tuple[frozenset[str], tuple[Skipped, ...]]:
            place_of, _ = sessions.of_rewind()
            skipped = engine.sessions.rewind(epoch, place_of, (), beginning)
            names = engine.sessions.names(epoch)
            return frozenset(name for name in names if name.startswith(beginning)), skipped

        return await self.call(restore)

    async def copy_sessions(self, epoch: int) -> tuple[Skipped, ...]:
        """Give a branch its copies of the session files of an epoch; return what it did not get."""
        sessions = self._sessions
        if sessions is None:
            return ()

        return await self.call(lambda engine: engine.sessions.rewind(epoch, sessions.of_branch, ()))

    # --- maintain ------------------------------------------------------------------------------

    async def pin(self, record: CheckpointRecord) -> bool:
        """Pin a checkpoint, or remove its pin, as its record says; return False if it is gone."""

        def pin(engine: CheckpointEngine) -> bool:
            if record.sha not in self.known:
                return False

            if record.pinned:
                engine.pins.pin(record.sha, record.name)
            else:
                engine.pins.unpin(record.sha)

            return True

        is_there = await self.call(pin)
        if is_there:
            self.known[record.sha] = record

        return is_there

    async def prune(
        self,
        choose: Callable[[CheckpointEngine], Pruning],
        should_stop: Callable[[], bool],
        meter: Meter,
    ) -> Pruned:
        """Prune what `choose` finds in the store; the next caller finds it forgotten as well."""
        async with self._lock:
            try:
                pruned = await self._in_thread(
                    lambda: self._engine.prune(choose(self._engine), should_stop, meter)
                )
            except BaseException:
                present = await self._in_thread(
                    lambda: {each.sha for each in self._engine.commits()}
                )
                for sha in self.known.keys() - present:
                    del self.known[sha]

                raise

            for sha in pruned.checkpoints:
                self.known.pop(sha, None)

            return pruned

    async def repair(
        self,
        recorded: frozenset[Sha],
        patterns: Callable[[], Iterable[str]],
        others: Iterable[Source],
        stamp: str,
        meter: Meter,
    ) -> Repaired:
        """Repair the store while all other callers wait, and reload what it holds."""
        async with self._lock:
            given_up: frozenset[Sha] = frozenset()
            try:
                repaired = await self._in_thread(
                    lambda: self._engine.repair(recorded, patterns(), others, stamp, meter)
                )
                given_up = frozenset(repaired.lost)
            finally:
                self._branch = None
                await self.load(recorded - given_up)
                self._on_head_moved()

            return repaired

    async def clone(
        self,
        sha: Sha,
        copy: Layout,
        *,
        before_copy: Callable[[ClonePlan], None],
        should_stop: Callable[[], bool],
        meter: Meter,
    ) -> ClonePlan:
        """Copy a checkpoint and all its ancestors into a new repository; return what was copied.

        A gc would remove objects meanwhile, so it has to wait like all other callers.
        `before_copy` is called when the size is known; an error that it raises prevents the copy.
        """

        def clone(engine: CheckpointEngine) -> ClonePlan:
            self._require_known(sha)
            return engine.clone(sha, copy, before_copy, should_stop, meter)

        return await self.call(clone)

    async def import_checkpoint(
        self, foreign: ForeignCheckpoint, request: CheckpointRequest, parent: Sha
    ) -> CheckpointRecord:
        """Import a checkpoint of another execution on the request's branch, behind `parent`.

        Raises CheckpointNotFound, CheckpointDamaged, InsufficientSpace or ShadowRepositoryError.
        """

        def work(engine: CheckpointEngine) -> CheckpointRecord:
            self._require_known(parent)
            whole, made = engine.import_checkpoint(
                foreign, request, parent, highest_epoch=self._highest_epoch
            )
            self._highest_epoch = max(self._highest_epoch, whole.memory_epoch)
            return record_made(whole, made)

        record = await self.call(work)
        self.known[record.sha] = record
        return record

    async def merged(
        self,
        origin: Sha,
        ours: Sha,
        theirs: Sha,
        request: CheckpointRequest,
        *,
        paths: frozenset[bytes] | None,
        policy: ConflictPolicy,
        conflicts_in: Path | None,
    ) -> MergeOutcome:
        """Merge two checkpoints, and store the result as a checkpoint unless there is a conflict.

        The versions of conflicting files are written to `conflicts_in`. Raises CheckpointNotFound,
        CheckpointDamaged, InsufficientSpace or ShadowRepositoryError.
        """

        def work(engine: CheckpointEngine) -> MergeOutcome:
            for sha in (origin, ours, theirs):
                self._require_known(sha)

            with engine.merge(origin, ours, theirs, paths=paths, policy=policy) as merge:
                conflicts = merge.merged.conflicts
                if conflicts:
                    if conflicts_in is not None:
                        names = SideNames("now", "attempt")
                        write_conflicts(merge, conflicts_in, names, LineMerger())

                    return MergeOutcome(conflicts=conflicts)

                changed = frozenset(merge.merged.changes)
                if merge.changes_nothing:
                    return MergeOutcome()

                made = engine.commit_merge(request, merge)
                return MergeOutcome(record=record_made(request, made), changed=changed)

        outcome = await self.call(work)
        if outcome.record is not None:
            self.known[outcome.record.sha] = outcome.record

        return outcome

    def _require_known(self, sha: Sha) -> None:
        """Raise CheckpointNotFound for a checkpoint that was pruned while its caller waited."""
        if sha not in self.known:
            raise CheckpointNotFound(sha)

    # --- the worker thread ---------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # A cancelled caller must not leave the engine halfway: the call is awaited to its end.
        try:
            with anyio.CancelScope(shield=True):
                result = await anyio.to_thread.run_sync(self._run, work)
        except ShadowRepositoryError as error:
            is_moved = isinstance(error, StoreMoved)
            if is_moved or error.is_of_a_broken_disk or is_broken(error):
                self._on_broken(error)

            raise

        return result

    def _run(self, work: Callable[[], T]) -> T:
        """Call the engine; raise StoreMoved if its store was taken away before or meanwhile."""
        try:
            self._engine.require_same_store()
            try:
                return work()
            except Exception:
                self._engine.require_same_store()
                raise
        except StoreMoved:
            self._require_lock()
            raise
