"""Restore the work tree to a checkpoint: save what is there, record the intent, restore, publish.

The one implementation for rollbacks that clients ask for, for rollbacks that a start finishes, and
for the retry of a failed codon. Nothing else may change the work tree meanwhile; the caller sees to
that. `rollback` explains the protocol.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial

import anyio.to_thread
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import Info, RollbackFailed
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointRecord, RollbackIntent, RollbackReport
from hankweave_protocol.state import Run
from hankweave_server import fsutil
from hankweave_server.checkpoints.model import RestorePlan, RestoreReport, Skipped
from hankweave_server.domain import targets
from hankweave_server.domain.execution_thread import conversation_of, newest_run, waiting_run
from hankweave_server.domain.path_merge import ConflictPolicy
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.domain.timelines import BEFORE_ROLLBACK
from hankweave_server.domain.undo import leftovers
from hankweave_server.execution.archive import ArchiveReturn
from hankweave_server.execution.checkpoint_access import IntentOf
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits, warnings
from hankweave_server.execution.rollback.events import RollbackEvents, place_of, report_of
from hankweave_server.execution.rollback.planner import (
    RollbackPlanner,
    RollbackRequest,
    files_of_both,
)
from hankweave_server.execution.rollback.unrestored import has_changed, in_one, may_succeed_later
from hankweave_server.git.checkout import OS_ERROR
from hankweave_server.git.errors import InsufficientSpace, is_out_of_space
from hankweave_server.logs import logger
from hankweave_server.meter import Meter
from hankweave_server.paths import DATA_SOURCE
from hankweave_server.plain_text import counted
from hankweave_server.worktree import data_source
from hankweave_server.worktree.databases import base_of
from hankweave_server.worktree.names import meant_by, shown

log = logger(__name__)

Causes = tuple[int | str, ...]

NOTHING = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())

ATTEMPTS = 3
"""How often files that change while they are restored are saved and restored again."""

FEW = 1000
"""Up to this many files, a restore takes so little time that its beginning is told with its end."""


class CutShort(InsufficientSpace):
    """The disk filled up during the restore.

    The intent stays, and `Rollback.finish_when_space_is_free` continues.
    """


class NotAsBefore(Exception):
    """Files could not be restored to what an attempt of a codon needs; all others are."""

    def __init__(self, report: RollbackReport) -> None:
        super().__init__(in_one(report.cannot_restore, report.counts.cannot_restore))


class Restoration:
    """Restores the files of one execution, and what goes with them, to a checkpoint."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._planner = RollbackPlanner(ctx)
        self._events = RollbackEvents(ctx)
        self._archives = ArchiveReturn(ctx)

    async def before_retry(self, codon_id: CodonId) -> Sha | None:
        """Restore the files to where a codon's failed attempt began; wait while the disk is full.

        Sessions are rewound too if the attempt began inside the codon's work: not every agent can
        drop the later part of its conversation. User edits made since then stay, except in files
        that the attempt changed too. Returns the checkpoint of the rig that is in place then. The
        runner calls this between two codons. Raises Refused, and NotAsBefore if the content of a
        file could not be restored.
        """
        return await self._ctx.ledger.space.retry(
            partial(self._before_retry, codon_id), is_short=is_out_of_space
        )

    async def _before_retry(self, codon_id: CodonId) -> Sha | None:
        state, known = self._ctx.state, self._ctx.checkpointer.known
        start = targets.attempt_start(state, known, codon_id)
        if start is None:
            return None

        request = RollbackRequest(
            RollbackTarget(start.checkpoint, after_codon=None, passed=()),
            direction="retry",
            is_automatic=True,
            rewind_memory=conversation_of(state, codon_id) is not None,
            reason=f"Codon {codon_id} is being retried.",
        )
        with self._ctx.guard.rolling_back(), self.watching():
            try:
                plan = await self._planner.plan(request.sha, None, reports=True)
                await self.note_edits(plan)
                if not plan.changes_nothing or request.rewinds:
                    intent = await self.prepare(request, plan)
                    report = await self.perform(intent, plan, is_automatic=True)
                    await self.forget(intent)
                    if report.leaves_files_different:
                        raise NotAsBefore(report)
            finally:
                self._ctx.ledger.write_now()

        return start.rig

    def watching(self, causes: Causes = ()) -> AbstractContextManager[Meter]:
        """Report progress to all clients; a whole rollback counts as one operation."""
        return self._ctx.checkpointer.progress.watching("restore", causes)

    async def note_edits(self, plan: RestorePlan) -> None:
        """Journal the edits that a plan reports, before the safety checkpoint has them as history.

        They are written with what comes next, so the caller ends with `Ledger.write_now`.
        """
        run = newest_run(self._ctx.state)
        run_id = None if run is None else run.run_id
        await FileChangeReporter(self._ctx).report_edits(plan.unreported, run_id)

    async def edits_since(self, intent: RollbackIntent) -> frozenset[bytes]:
        """Journal the user edits since a rollback was cut short, and return their paths.

        The files are half restored: content that one of its checkpoints has at a path is no edit.
        """
        sides = intent.safety.sha, intent.target.sha

        async def by_people(paths: Iterable[bytes]) -> frozenset[bytes]:
            return await self._ctx.checkpointer.call(
                lambda engine: engine.paths_not_in(paths, *sides)
            )

        return await FileChangeReporter(self._ctx).report_people(intent.from_run, by_people)

    # --- preparation -----------------------------------------------------------------------------

    async def prepare(
        self,
        request: RollbackRequest,
        plan: RestorePlan,
        leftovers: tuple[str, ...] = (),
        *,
        beside_codon: bool = False,
    ) -> RollbackIntent:
        """Take the safety checkpoint, and make it and the intent durable together.

        `beside_codon` is true if a codon is frozen and goes on afterwards.
        """
        ctx, run = self._ctx, _run_left(self._ctx)
        needs_safety = not plan.changes_nothing or request.rewinds
        if not needs_safety:
            await ctx.ledger.catch_up(waits_for_space=False)

        held, contested = frozenset[bytes](), frozenset[str]()
        if request.is_automatic:
            held = await warnings.held_open(plan, ctx.layout.work_tree)
            contested = await files_of_both(ctx.ledger, request, plan, held)

        edits = user_edits.conflicts(
            ctx.state, plan, leftovers=leftovers, agents_rested=not request.after_crash, held=held
        )
        moves_files_only = request.moves_files_only or beside_codon
        to_run = None if moves_files_only else await self._next_run()
        intent = self._intent(
            request, run.run_id, request.target.checkpoint, to_run, edits, contested
        )
        # A safety checkpoint is needed only if something is overwritten; otherwise the target
        # already holds everything.
        if not needs_safety:
            await ctx.checkpointer.call(lambda engine: engine.intent.write(codec.encode(intent)))
            return intent

        def with_safety(safety: CheckpointRecord) -> RollbackIntent:
            return msgspec.structs.replace(intent, safety=safety)

        safety = await self.save(
            plan,
            run.run_id,
            edited=len(edits),
            intent_of=lambda safety: codec.encode(with_safety(safety)),
        )
        return with_safety(safety)

    async def forget(self, intent: RollbackIntent) -> None:
        """Remove an intent whose outcome is durable.

        A power cut can bring it back until the next checkpoint; `has_happened` tells it then.
        """
        data = fsutil.content_of(self._ctx.layout.rollback_intent)
        if data is None:
            return

        if codec.decode_value(RollbackIntent, data).operation_id == intent.operation_id:
            await self._ctx.checkpointer.call(lambda engine: engine.intent.forget(data))

    def to_present(self, request: RollbackRequest) -> RollbackIntent:
        """Return the intent of a rollback to where the execution already is; it is not stored."""
        run_id = _run_left(self._ctx).run_id
        return self._intent(request, run_id, request.target.checkpoint, run_id, {})

    async def _next_run(self) -> RunId:
        """Return the run that continues from the target.

        A run that a rollback opened and that has no checkpoint yet is reused, so that several
        rollbacks in a row leave one run.
        """
        waiting = waiting_run(self._ctx.state)
        if waiting is None:
            return self._ctx.new_run_id()

        tip = await self._ctx.checkpointer.call(lambda engine: engine.tip(waiting.run_id))
        return waiting.run_id if tip is None else self._ctx.new_run_id()

    def _intent(
        self,
        request: RollbackRequest,
        from_run: RunId,
        safety: CheckpointRecord,
        to_run: RunId | None,
        edits: Mapping[bytes, str],
        contested: Collection[str] = (),
    ) -> RollbackIntent:
        target, undone = request.target, request.target.undone
        keeps = request.keep_edits or request.is_automatic
        kept = {path for path in edits if keeps and shown(path) not in contested}
        return RollbackIntent(
            operation_id=uuid.uuid4().hex,
            target=target.checkpoint,
            safety=safety,
            source=self._planner.now(),
            from_run=from_run,
            to_run=to_run,
            after_codon=target.after_codon,
            checkpoint_type=target.checkpoint.kind,
            codons_to_process=tuple(entry.codon.codon_id for entry in target.passed),
            auto_restart=request.auto_restart,
            started_at=self._ctx.now_text(),
            direction=request.direction,
            place=target.place,
            paths=request.path_texts,
            keep=tuple(sorted(kept)),
            edits={shown(path): digest for path, digest in edits.items() if path not in kept},
            contested=tuple(sorted(contested)),
            restored_edits={} if undone is None else undone.edits,
            reason=request.reason,
            rewind_memory=request.rewinds,
            undone=None if undone is None else undone.operation_id,
            note=target.note,
            reuse_after=self._reuse_after(request),
        )

    def _reuse_after(self, request: RollbackRequest) -> CodonId | None:
        """Return the codon after which the new run takes over results; a crash changes nothing."""
        newest = newest_run(self._ctx.state)
        if request.is_automatic and newest is not None:
            return newest.reuse_after

        return request.reuse_after

    async def save(
        self,
        plan: RestorePlan,
        run_id: RunId,
        *,
        edited: int = 0,
        intent_of: IntentOf | None = None,
    ) -> CheckpointRecord:
        """Take the safety checkpoint: every path that will be touched, tracked or not."""
        label = f"before rollback to {plan.target[:12]}"
        return await self._ctx.checkpointer.take(
            "safety",
            run_id=run_id,
            codon=None,
            codon_name=BEFORE_ROLLBACK,
            patterns=self._ctx.patterns(),
            label=f"{label}; holds {counted(edited, 'edit')} by people" if edited else label,
            before=plan,
            waits_for_space=False,
            intent_of=intent_of,
        )

    # --- restore and publish ---------------------------------------------------------------------

    async def perform(
        self,
        intent: RollbackIntent,
        plan: RestorePlan,
        causes: Causes = (),
        *,
        is_automatic: bool = False,
        recovered: bool = False,
        present: Sha | None = None,
        afterwards: Callable[[], None] = lambda: None,
    ) -> RollbackReport:
        """Carry out an intent: restore everything, and record it as one batch; `forget` comes next.

        If it `is_automatic`, files that change meanwhile stay. `present` is the checkpoint that
        holds the files as they are, if not the intent's own. `afterwards` queues what is published
        with the batch, behind it. Paths that cannot be restored are exceptions of the report.
        Raises CutShort with the intent kept and `rollback.failed` recorded.
        """
        ctx, moments = self._ctx, (*causes, *_moments_of(intent))
        beginning = tuple(self._events.beginning(intent, recovered=recovered))
        if beginning:
            is_short = len(plan.touched) <= FEW
            ctx.ledger.leave(
                *beginning, run_id=intent.from_run, causes=moments, urgent=not is_short
            )

        effects = await self._planner.effects_since(intent.place or intent.target.coordinate)
        warned = await warnings.of_rollback(
            ctx.state,
            ctx.layout.work_tree,
            plan,
            intent.keep,
            direction=intent.direction,
            passed=() if intent.to_run is None else intent.codons_to_process,
            rewinds=intent.rewind_memory,
        )
        try:
            restored = await self._restore(intent, present or intent.safety.sha, paths_of(intent))
            intent, restored = await self._tried_again(intent, restored, is_automatic)
            archived = await self._archives.follow_rollback(intent)
            lost = await self._rewind_sessions(intent)
            if intent.to_run is None and (
                present is not None or intent.safety.sha != intent.target.sha
            ):
                await self._settle(intent)
        except Exception as error:
            ctx.guard.leave(half_restored=True)
            if is_out_of_space(error):
                await self._record_failure(intent, error, causes)

            if isinstance(error, InsufficientSpace):
                raise CutShort(error.need, error.free) from error

            raise

        ctx.guard.leave(half_restored=False)
        conflicts = {*intent.keep, *map(os.fsencode, (*intent.edits, *intent.contested))}
        intent = user_edits.where_restored(intent, restored)
        report = report_of(
            intent,
            restored,
            skipped=(*plan.kept, *lost),
            conflicts=user_edits.listed(conflicts),
            effects=effects,
            warnings=(*warned, *warnings.of_attributes(restored.lost_attributes)),
            again=None
            if intent.to_run is None
            else self._planner.runs_again(intent.after_codon, place_of(intent)),
            recovered=recovered,
        )
        if report.leaves_files_different:
            intent = msgspec.structs.replace(intent, auto_restart=False)

        batch = self._events.whole(intent, report, archived)
        run_id = intent.to_run or intent.from_run
        ctx.ledger.leave(*batch, run_id=run_id, causes=moments)
        afterwards()
        await ctx.ledger.catch_up(waits_for_space=True)
        return report

    async def _restore(
        self, intent: RollbackIntent, present: Sha, paths: frozenset[bytes] | None
    ) -> RestoreReport:
        target, keep = intent.target.sha, frozenset(intent.keep)
        with self.watching() as meter:
            report = await self._ctx.checkpointer.restore(
                target,
                present,
                paths,
                keep,
                meter,
                detaches=intent.to_run is not None,
            )

        unlinked = await self._restore_data_link()
        if unlinked is None:
            return report

        return dataclasses.replace(report, unrestored=(*report.unrestored, unlinked))

    async def _tried_again(
        self, intent: RollbackIntent, restored: RestoreReport, is_automatic: bool
    ) -> tuple[RollbackIntent, RestoreReport]:
        """Restore again what changed meanwhile, each time after another safety checkpoint of it.

        The safety checkpoint of the intent gets the newer content too, so that an undo returns to
        it. What still cannot be restored after a few attempts is left as it is. An automatic
        restore leaves what changes to whoever changes it: the agents have ended.
        """
        for _ in range(ATTEMPTS):
            left = [each for each in restored.unrestored if may_succeed_later(each)]
            if not left:
                break

            again = frozenset(each.path for each in left)
            try:
                plan = await self.plan_again(intent, again)
                newer = await self.save(plan, intent.from_run)
                if is_automatic:
                    changed = (each.path for each in left if has_changed(each))
                    # Other parts of a database may be restored already.
                    kept = {path for path in changed if base_of(path) not in plan.databases}
                    intent = keeping(intent, kept)

                intent = await self.with_newer(intent, newer.sha, plan.touched)
            except (Refused, InsufficientSpace) as refusal:
                log.warning("Changed files cannot be saved and restored again: %s", refusal)
                break

            done = await self._restore(intent, newer.sha, again)
            restored = restored.continued(again, done)

        return intent, restored

    async def with_newer(
        self, intent: RollbackIntent, newer: Sha, paths: frozenset[bytes]
    ) -> RollbackIntent:
        """Return the intent with a safety checkpoint that has these paths as in a newer one.

        It replaces the stored intent if anything differs.
        """
        merged = await self._ctx.checkpointer.merge(
            intent.safety.sha,
            intent.safety,
            newer,
            paths=paths,
            policy=ConflictPolicy.THEIRS,
            conflicts_in=None,
            kind="safety",
            codon_name=BEFORE_ROLLBACK,
            label=f"before rollback to {intent.target.sha[:12]}; with files that changed meanwhile",
            causes=(),
        )
        if merged.record is None:
            return intent

        intent = msgspec.structs.replace(intent, safety=merged.record)
        await self._ctx.checkpointer.call(lambda engine: engine.intent.write(codec.encode(intent)))
        return intent

    async def plan_again(
        self, intent: RollbackIntent, paths: frozenset[bytes] | None
    ) -> RestorePlan:
        """Return what is still to be done of a rollback, or of some paths of it; raise Refused."""
        sha, state = intent.target.sha, self._ctx.state
        if sha not in self._ctx.checkpointer.known:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"A rollback to {sha[:12]} was interrupted, and that checkpoint no longer exists.",
            )

        left = () if intent.to_run is None else leftovers(state, intent.codons_to_process)
        return await self._planner.plan(sha, paths, left)

    async def _restore_data_link(self) -> Skipped | None:
        """Recreate the link to the data, which no checkpoint holds; return it if that fails."""
        layout, now = self._ctx.layout, instants.epoch_ms(self._ctx.clock.now())
        try:
            displaced = await anyio.to_thread.run_sync(data_source.restore_link, layout, now)
        except OSError as error:
            if is_out_of_space(error):
                raise

            return Skipped(os.fsencode(DATA_SOURCE), OS_ERROR, error.errno or 0)

        if displaced is not None:
            await self._ctx.ledger.post(Info(message=displaced.sentence))

        return None

    async def _rewind_sessions(self, intent: RollbackIntent) -> tuple[Skipped, ...]:
        """Restore the sessions of agents and sentinels; return those that could not be restored."""
        if not intent.rewind_memory:
            return ()

        return await self._ctx.checkpointer.rewind_sessions(intent.target.coordinate.memory_epoch)

    async def _settle(self, intent: RollbackIntent) -> None:
        """Take a checkpoint after a rollback that moved only files.

        HEAD stays on the run's branch, and any difference from it while no agent works counts as a
        user edit. Without this checkpoint the restored files would count as such.
        """
        await self._ctx.checkpointer.take(
            "safety",
            run_id=intent.from_run,
            codon=None,
            codon_name="After a rollback of files",
            patterns=self._ctx.patterns(),
            label=f"after rollback to {intent.target.sha[:12]}",
            waits_for_space=False,
        )

    async def _record_failure(
        self, intent: RollbackIntent, error: Exception, causes: Causes
    ) -> None:
        if is_out_of_space(error):
            self._ctx.ledger.space.note(error)

        failure = RollbackFailed(target=intent.target.coordinate, message=_cut_short(error))
        self._ctx.ledger.leave(failure, causes=causes)
        await self._ctx.ledger.settle()


def keeping(intent: RollbackIntent, paths: Collection[bytes]) -> RollbackIntent:
    """Return the intent without the changes of these paths."""
    return msgspec.structs.replace(intent, keep=tuple(sorted({*intent.keep, *paths})))


def paths_of(intent: RollbackIntent) -> frozenset[bytes] | None:
    """Return the paths that the rollback is confined to; None means the whole work tree."""
    return None if intent.paths is None else meant_by(intent.paths)


def _moments_of(intent: RollbackIntent) -> tuple[int, ...]:
    """Return the events that source and target name: the causal parents of the whole batch."""
    moments = (intent.source, intent.target.coordinate)
    return tuple(sorted({moment.event_seq for moment in moments if moment and moment.event_seq}))


def _run_left(ctx: ExecutionContext) -> Run:
    run = newest_run(ctx.state)
    assert run is not None, "where there is a checkpoint there is a run"
    return run


def _cut_short(error: Exception) -> str:
    return (
        f"The rollback was interrupted: {error}. It will be completed when disk space is available."
    )
