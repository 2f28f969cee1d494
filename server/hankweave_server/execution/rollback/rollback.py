"""Roll back to a checkpoint so that a crash at any moment is repaired at the next start.

A rollback changes five things that no single system call can change together: the files of the work
tree, HEAD of the shadow repository, the rig archive, the sessions of agents and sentinels, and the
execution's history in the journal. The process can die between any two of these changes, the disk
can fill up, and a person can edit a file at any time. Three properties must hold:

1. Nothing is lost. Every byte that a rollback overwrites or deletes is in a checkpoint first.
2. To clients a rollback has either happened or not. The files on disk may be half restored, but no
   codon ever runs on them.
3. A rollback that has started is finished, or is set aside explicitly with an error.

The solution is an intent file, as in a redo log:

    plan       read the whole target, compute the changes, check the space: refuse here
    quiesce    end the running codon, or freeze its agent; nothing else can start
    safety     a checkpoint of every path that will be touched, tracked or not
    intent     write `rollback.intent` durably, then `rollback.started` to the journal
    restore    change the files from safety to target, path by path; then the data link,
               the rig archive, the sessions, HEAD
    record     one journal batch: codons passed, end of the old run, new run, plan, report
    forget     remove the intent durably

Everything that can be refused is refused in `plan`, before anything changes. The plan is made
twice, because the first one runs while an agent may still write; the second one, after `quiesce`,
is the one that is carried out.

`restore` changes a path only if its content is what the safety checkpoint or the target has.
Content that no checkpoint holds is therefore never overwritten, and every step is idempotent: doing
it again finds the target's content and changes nothing. So recovery never needs to know how far the
restore got.

The commit point is the journal batch. `has_happened` looks for it, because the intent file alone
cannot tell. This is what a start does (`finish_interrupted`) after a crash

- before the intent: nothing has moved. The safety checkpoint is an ordinary checkpoint.
- after the intent, before the batch: take another safety checkpoint, since the files may be the
  target's, the old ones, or a person's work since the crash. Restore from there to the target and
  record the batch with `recovered: true`.
- inside the batch: a power cut can keep the beginning of a batch only. If the new run is in the
  journal (or, for files alone, the event that makes it undoable), the rollback counts as done and
  only the missing events are recorded; restoring again could destroy work that followed. If it is
  missing, the whole restore is repeated.
- after the batch: only the intent is left to remove.

Two failures do not end the process. If some paths cannot be restored, or the disk is full, the
intent stays, `rollback.failed` is recorded, and `Runner.is_blocked` keeps codons from starting.
`finish_when_there_is_room` retries after a full disk. For the rest, the user rolls back to
something else, or the next start retries, and refuses to serve if it fails too. If the target
itself is lost or damaged, no start could ever finish: the intent is renamed (`.given-up-...`) and
an error names the safety checkpoint.

Variants: an undo is a rollback to the safety checkpoint of the rollback that it undoes. A rollback
of some paths, one under a frozen agent, and one before a retry end no run (`to_run` is None). They
move files (a retry may rewind sessions, too), HEAD stays on its branch, and a second checkpoint
after the restore keeps the restored content from passing for people's edits.

Read `Rollback.perform` first, then `_prepare`, `_restore_and_tell`, `finish_interrupted` and
`has_happened`. `planner` has the checks, `events` builds the batch.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager

import anyio.to_thread
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CheckpointRollback, Info, RollbackCompleted, RollbackFailed
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import (
    CheckpointRecord,
    Notice,
    RollbackIntent,
    RollbackReport,
)
from hankweave_protocol.state import State
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import RestoreIncomplete
from hankweave_server.checkpoints.model import RestorePlan, RestoreReport, Skipped
from hankweave_server.domain import targets, undo
from hankweave_server.domain.history import conversation_of, newest_run, run_named, waiting_run
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.domain.timelines import BEFORE_ROLLBACK
from hankweave_server.domain.undo import leftovers
from hankweave_server.execution.archive import ArchiveReturn
from hankweave_server.execution.codon.file_changes import PERSON, FileChangeReporter
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits
from hankweave_server.execution.rollback.events import RollbackStory, report_of
from hankweave_server.execution.rollback.planner import (
    RollbackPlanner,
    RollbackRequest,
    refuse_half_a_rewind,
)
from hankweave_server.execution.runner import Runner
from hankweave_server.git.errors import InsufficientSpace, is_for_want_of_room
from hankweave_server.logs import logger
from hankweave_server.meter import Meter
from hankweave_server.paths import DATA_SOURCE
from hankweave_server.worktree import data_source
from hankweave_server.worktree.names import meant_by, shown

TOLD_WITHIN = 500
"""Journal lines searched from the end for a rollback's last event: its batch is far smaller."""


def standing(ctx: ExecutionContext) -> RollbackIntent | None:
    """Return the intent of the rollback that was cut short; None if there is none."""
    try:
        data = ctx.layout.rollback_intent.read_bytes()
    except FileNotFoundError:
        return None

    return codec.decode_value(RollbackIntent, data)


def has_happened(ctx: ExecutionContext, intent: RollbackIntent) -> bool:
    """Return whether the rollback is in the journal, so that nothing may be restored again."""
    state = ctx.state
    return (
        undo.is_told(state, intent.operation_id)
        or (intent.to_run not in (None, intent.from_run) and _has_begun(state, intent.to_run))
        or (intent.direction == "retry" and is_in_journal(ctx, intent))
    )


def _has_begun(state: State, run_id: RunId | None) -> bool:
    """Return whether the run is in the state; do not ask for a run that was taken over."""
    return run_named(state, run_id) is not None


def is_in_journal(ctx: ExecutionContext, intent: RollbackIntent) -> bool:
    """Return whether the rollback's last event is among the newest lines of the journal."""
    last = CheckpointRollback.TYPE if intent.to_run is None else RollbackCompleted.TYPE
    return has_event(ctx, intent, last)


def has_event(ctx: ExecutionContext, intent: RollbackIntent, event_type: str) -> bool:
    """Return whether an event of this type about the rollback is among the newest lines."""
    operation = f'"operationId":"{intent.operation_id}"'.encode()
    name = f'"type":"{event_type}"'.encode()
    lines = ctx.ledger.tail(TOLD_WITHIN)
    return any(operation in line and name in line for line in lines)


def moments_of(intent: RollbackIntent) -> tuple[int, ...]:
    """Return the events that source and target name: the causal parents of the whole batch."""
    moments = (intent.source, intent.target.coordinate)
    return tuple(sorted({moment.event_seq for moment in moments if moment and moment.event_seq}))


def paths_of(intent: RollbackIntent) -> frozenset[bytes] | None:
    """Return the paths that the rollback is confined to; None means the whole work tree."""
    return None if intent.paths is None else meant_by(intent.paths)


log = logger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two attempts to finish: each takes a safety checkpoint and records its result."""


_LOST = (ErrorCode.CHECKPOINT_NOT_FOUND, ErrorCode.CHECKPOINT_DAMAGED)


class CutShort(InsufficientSpace):
    """The disk filled up during the restore.

    The intent stays, and `finish_when_there_is_room` continues.
    """


class Rollback:
    """The rollbacks of one execution, performed one at a time."""

    def __init__(self, ctx: ExecutionContext, runner: Runner) -> None:
        self._ctx = ctx
        self._runner = runner
        self.outlook = RollbackPlanner(ctx, runner)
        self._story = RollbackStory(ctx)
        self._archives = ArchiveReturn(ctx)

    async def perform(
        self, journey: RollbackRequest, causes: tuple[int | str, ...] = ()
    ) -> RollbackReport:
        """Roll back; raise Refused if nothing was touched.

        Raises RestoreIncomplete or CutShort with the intent kept and `rollback.failed` recorded.
        """
        refuse_half_a_rewind(journey)
        with self._runner.rolling_back(), self._watching(causes):
            self.outlook.refuse_if_running(journey)
            await self.outlook.plan(journey.sha, journey.paths, self.outlook.leftovers(journey))
            async with self._stillness(journey):
                leftovers = self.outlook.leftovers(journey)
                plan = await self.outlook.plan(journey.sha, journey.paths, leftovers)
                if self.outlook.is_there_already(journey, plan):
                    intent, report = await self._stay(journey, plan, causes)
                else:
                    intent = await self._prepare(journey, plan, leftovers)
                    await self._announce(intent, causes, recovered=False)
                    report = await self._restore_and_tell(intent, plan, causes, recovered=False)

        if intent.to_run is not None:
            await self._ctx.ledger.record(self._runner.snapshot(), causes=causes)
            await self._continue(intent)

        return report

    async def _stay(
        self, journey: RollbackRequest, plan: RestorePlan, causes: tuple[int | str, ...]
    ) -> tuple[RollbackIntent, RollbackReport]:
        """Answer a rollback to where the execution already is: no run, no checkpoint, no undo.

        No file moves, so no intent is needed on disk; clients get the usual events.
        """
        run = newest_run(self._ctx.state)
        assert run is not None, "where there is a checkpoint there is a run"
        intent = self._intended(journey, run.run_id, journey.target.checkpoint, run.run_id)
        nothing = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())
        report = msgspec.structs.replace(
            report_of(intent, nothing, skipped=plan.kept, recovered=False),
            safety=None,
            note=intent.note or "The execution is already there; nothing was changed.",
        )
        await self._ctx.ledger.record(
            *self._story.unchanged(intent, report), run_id=run.run_id, causes=causes
        )
        return intent, report

    async def take_back(self, codon_id: CodonId) -> Sha | None:
        """Restore the files to where a codon's failed attempt began, before the next attempt.

        Sessions are rewound too if the attempt began inside the codon's work: not every agent can
        drop the later part of its conversation. User edits made since then stay. Returns the
        checkpoint of the rig that is in place then. The runner calls this between two codons.
        Raises Refused and RestoreIncomplete as `perform` does.
        """
        state, known = self._ctx.state, self._ctx.checkpointer.known
        start = targets.attempt_start(state, known, codon_id)
        if start is None:
            return None

        target = RollbackTarget(start.checkpoint, after_codon=None, passed=())
        reason = f"Codon {codon_id} is being retried."
        journey = RollbackRequest(
            target,
            direction="retry",
            keep_edits=True,
            rewind_memory=conversation_of(state, codon_id) is not None,
            reason=reason,
        )
        with self._runner.rolling_back(), self._watching():
            await self._note_edits()
            plan = await self.outlook.plan(journey.sha, None)
            if not plan.changes_nothing or journey.rewinds:
                intent = await self._prepare(journey, plan)
                await self._restore_and_tell(intent, plan, (), recovered=False)

        return start.rig

    async def finish_when_there_is_room(self) -> None:
        """Finish a rollback that was cut short, each time the disk has space again.

        Runs until cancelled. A rollback that cannot be finished waits for the next time or the
        next start.
        """
        while True:
            await self._ctx.ledger.space.relief()
            if not self._runner.is_blocked or self._runner.is_busy:
                continue

            try:
                intent = standing(self._ctx)
                await self._ctx.ledger.space.insist(
                    self.finish_interrupted,
                    is_short=is_for_want_of_room,
                    longest_pause=LONGEST_PAUSE,
                )
            except (Refused, RestoreIncomplete) as error:
                log.warning("The interrupted rollback cannot be completed yet: %s", error)
            else:
                # An intent that was given up has left the files half restored.
                if intent is not None and intent.to_run and not self._runner.is_blocked:
                    await self._ctx.ledger.record(self._runner.snapshot())
                    await self._continue(intent)

    async def finish_interrupted(self) -> RollbackReport | None:
        """Finish the rollback that was cut short; return None if there is none."""
        path = self._ctx.layout.rollback_intent
        intent = standing(self._ctx)
        if intent is None:
            return None

        if has_happened(self._ctx, intent):
            await self._tell_the_rest(intent)
            await anyio.to_thread.run_sync(fsutil.remove_durably, path)
            self._runner.unblock()
            return None

        with self._runner.rolling_back(), self._watching():
            # The work tree may now hold the target's files, the old files, or a person's work since
            # the crash. It is saved once more so that the restore may replace all of it.
            left = () if intent.to_run is None else self._leftovers_of(intent)
            try:
                sha, paths = self._sha_again(intent), paths_of(intent)
                plan = await self.outlook.plan(sha, paths, left)
            except Refused as refusal:
                if refusal.code not in _LOST:
                    raise

                await self._give_up(intent, refusal)
                return None

            present = await self._save(plan, intent.from_run, edited=0)
            await self._announce(intent, (), recovered=True)
            return await self._restore_and_tell(
                intent, plan, (), recovered=True, present=present.sha
            )

    # --- preparation -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _stillness(self, journey: RollbackRequest) -> AsyncIterator[None]:
        """Keep everything out of the work tree while the block runs."""
        active = self._runner.active
        if active is not None and self.outlook.ends_active_codon(journey):
            await active.say(self._word_to_the_stopped(journey))

        if self._runner.active is None or not self.outlook.keeps_active_codon(journey):
            await self._runner.quiesce(
                Halt(f"Rolled back to {journey.sha[:12]} while it was running.")
            )
            if not journey.after_crash:
                await self._note_edits()

            yield
            return

        assert active is not None, "a codon that is kept is there"
        async with active.frozen():
            yield

        await active.tell_of_rollback()

    def _word_to_the_stopped(self, journey: RollbackRequest) -> Notice:
        """Return the notice for an agent whose codon does not exist at the target."""
        return Notice(
            operation_id=uuid.uuid4().hex,
            direction="back",
            target=journey.target.place,
            timestamp=self._ctx.now_text(),
            reason=(
                f"{journey.reason or ''} Your step is not part of that checkpoint, and ends now."
            ).strip(),
        )

    async def _note_edits(self) -> None:
        """Journal user edits before the safety checkpoint makes them part of history."""
        run = newest_run(self._ctx.state)
        await FileChangeReporter(self._ctx).tell(PERSON, None if run is None else run.run_id, None)

    async def _prepare(
        self, journey: RollbackRequest, plan: RestorePlan, leftovers: tuple[str, ...] = ()
    ) -> RollbackIntent:
        """Take the safety checkpoint, then make the intent durable."""
        ctx, target = self._ctx, journey.target
        run = newest_run(ctx.state)
        assert run is not None, "where there is a checkpoint there is a run"
        await ctx.ledger.catch_up(insists=False)
        found = user_edits.conflicts(
            ctx.state, plan, leftovers=leftovers, agents_rested=not journey.after_crash
        )
        # A safety checkpoint is needed only if something is overwritten; otherwise the target
        # already holds everything.
        overwrites = not plan.changes_nothing or journey.rewinds
        safety = await self._save(plan, run.run_id, edited=len(found)) if overwrites else None
        moves_files_only = journey.moves_files_only or self._runner.active is not None
        to_run = None if moves_files_only else await self._next_run()
        intent = self._intended(journey, run.run_id, safety or target.checkpoint, to_run, found)
        await anyio.to_thread.run_sync(
            fsutil.replace_durably, ctx.layout.rollback_intent, codec.encode(intent)
        )
        return intent

    async def _next_run(self) -> RunId:
        """Return the run that continues from the target.

        A run that a rollback opened and that has no checkpoint yet is reused, so that several
        rollbacks in a row leave one run.
        """
        waiting = waiting_run(self._ctx.state)
        if waiting is None:
            return self._ctx.new_run_id()

        tip = await self._ctx.checkpointer.tip(waiting.run_id)
        return waiting.run_id if tip is None else self._ctx.new_run_id()

    def _intended(
        self,
        journey: RollbackRequest,
        from_run: RunId,
        safety: CheckpointRecord,
        to_run: RunId | None,
        found: Mapping[bytes, str] | None = None,
    ) -> RollbackIntent:
        target, found = journey.target, found or {}
        undone = target.undone
        return RollbackIntent(
            operation_id=uuid.uuid4().hex,
            target=target.checkpoint,
            safety=safety,
            source=self.outlook.now(),
            from_run=from_run,
            to_run=to_run,
            after_codon=target.after_codon,
            checkpoint_type=target.checkpoint.kind,
            codons_to_process=tuple(entry.codon.codon_id for entry in target.passed),
            auto_restart=journey.auto_restart,
            started_at=self._ctx.now_text(),
            direction=journey.direction,
            place=target.place,
            paths=journey.path_texts,
            keep=tuple(sorted(found)) if journey.keep_edits else (),
            edits={} if journey.keep_edits else {shown(p): d for p, d in found.items()},
            restored_edits={} if undone is None else undone.edits,
            reason=journey.reason,
            rewind_memory=journey.rewinds,
            undone=None if undone is None else undone.operation_id,
            note=target.note,
        )

    async def _save(self, plan: RestorePlan, run_id: RunId, *, edited: int) -> CheckpointRecord:
        """Take the safety checkpoint: every path that will be touched, tracked or not."""
        label = f"before rollback to {plan.target[:12]}"
        return await self._ctx.checkpointer.take(
            "safety",
            run_id=run_id,
            codon=None,
            codon_name=BEFORE_ROLLBACK,
            patterns=self._ctx.patterns(),
            label=f"{label}; holds {edited} edits by people" if edited else label,
            before=plan,
            waits_for_room=False,
        )

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
            waits_for_room=False,
        )

    async def _announce(
        self, intent: RollbackIntent, causes: tuple[int | str, ...], *, recovered: bool
    ) -> None:
        beginning = tuple(self._story.beginning(intent, recovered=recovered))
        if beginning:
            await self._ctx.ledger.record(
                *beginning, run_id=intent.from_run, causes=(*causes, *moments_of(intent))
            )

    # --- restore and record ----------------------------------------------------------------------

    async def _restore_and_tell(
        self,
        intent: RollbackIntent,
        plan: RestorePlan,
        causes: tuple[int | str, ...],
        *,
        recovered: bool,
        present: Sha | None = None,
    ) -> RollbackReport:
        outside = await self.outlook.effects_since(intent.place or intent.target.coordinate)
        try:
            restored = await self._restore(intent, present or intent.safety.sha)
            archived = await self._archives.go_along(intent)
            forgotten = await self._rewind_memory(intent)
            if intent.to_run is None:
                if present is not None or intent.safety.sha != intent.target.sha:
                    await self._settle(intent)
            else:
                await self._ctx.checkpointer.detach(intent.target.sha)
        except Exception as error:
            self._runner.block()
            if not isinstance(error, RestoreIncomplete) and not is_for_want_of_room(error):
                raise

            await self._tell_failure(intent, error, causes)
            if isinstance(error, InsufficientSpace):
                raise CutShort(error.need, error.free) from error

            raise

        self._runner.unblock()
        report = report_of(
            intent,
            restored,
            skipped=(*plan.kept, *forgotten),
            conflicts=user_edits.listed({*intent.keep, *map(os.fsencode, intent.edits)}),
            effects=outside,
            recovered=recovered,
        )
        await self._ctx.ledger.record(
            *self._story.whole(intent, report, archived),
            run_id=intent.to_run or intent.from_run,
            causes=(*causes, *moments_of(intent)),
        )
        await anyio.to_thread.run_sync(fsutil.remove_durably, self._ctx.layout.rollback_intent)
        return report

    async def _restore(self, intent: RollbackIntent, safety: Sha) -> RestoreReport:
        target, keep = intent.target.sha, frozenset(intent.keep)
        with self._watching() as meter:
            report = await self._ctx.checkpointer.restore(
                target, safety, paths_of(intent), keep, meter
            )

        await self._restore_data_link(report)
        return report

    async def _restore_data_link(self, report: RestoreReport) -> None:
        """Recreate the link to the data, which no checkpoint holds; raise RestoreIncomplete."""
        layout, now = self._ctx.layout, instants.epoch_ms(self._ctx.clock.now())
        try:
            displaced = await anyio.to_thread.run_sync(data_source.restore_link, layout, now)
        except OSError as error:
            if is_for_want_of_room(error):
                raise

            unfinished = Skipped(os.fsencode(DATA_SOURCE), "os-error")
            raise RestoreIncomplete(report, (unfinished,)) from error

        if displaced is not None:
            await self._ctx.ledger.post(Info(message=displaced.sentence))

    def _watching(self, causes: tuple[int | str, ...] = ()) -> AbstractContextManager[Meter]:
        """Report progress to all clients; a whole rollback counts as one operation."""
        return self._ctx.checkpointer.progress.watching("restore", causes)

    async def _tell_failure(
        self, intent: RollbackIntent, error: Exception, causes: tuple[int | str, ...]
    ) -> None:
        """Record that a rollback did not finish."""
        if is_for_want_of_room(error):
            self._ctx.ledger.space.note(error)

        message = _unfinished(error) if isinstance(error, RestoreIncomplete) else _cut_short(error)
        self._ctx.ledger.leave(
            RollbackFailed(target=intent.target.coordinate, message=message), causes=causes
        )
        await self._ctx.ledger.settle()

    async def _rewind_memory(self, intent: RollbackIntent) -> tuple[Skipped, ...]:
        """Restore the sessions of agents and sentinels; return those that could not be restored."""
        if not intent.rewind_memory:
            return ()

        return await self._ctx.checkpointer.rewind_sessions(intent.target.coordinate.memory_epoch)

    async def _tell_the_rest(self, intent: RollbackIntent) -> None:
        """Record the end of a batch of which a power cut kept only the beginning."""
        if is_in_journal(self._ctx, intent):
            return

        nothing = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())
        report = report_of(intent, nothing, recovered=True)
        await self._ctx.ledger.record(
            *self._story.rest(
                intent,
                report,
                has_checkpoint_event=has_event(self._ctx, intent, CheckpointRollback.TYPE),
            ),
            run_id=intent.to_run or intent.from_run,
        )

    def _leftovers_of(self, intent: RollbackIntent) -> tuple[str, ...]:
        return leftovers(self._ctx.state, intent.codons_to_process)

    async def _give_up(self, intent: RollbackIntent, refusal: Refused) -> None:
        """Set aside an intent whose target was lost since: no later start could finish it either.

        No codon runs on the half-restored files until a rollback to another target succeeds.
        """
        path = self._ctx.layout.rollback_intent
        kept = path.with_name(f"{path.name}.given-up-{intent.operation_id[:8]}")
        message = (
            f"{refusal.message} The rollback to it was interrupted and cannot be completed, "
            "so some files may already be restored. The previous files are in safety "
            f"checkpoint {intent.safety.sha[:12]}; the intent is kept as {kept.name}."
        )
        await self._ctx.ledger.record(
            RollbackFailed(target=intent.target.coordinate, message=message)
        )
        await anyio.to_thread.run_sync(path.rename, kept)
        self._runner.block()

    def _sha_again(self, intent: RollbackIntent) -> Sha:
        sha = intent.target.sha
        if sha not in self._ctx.checkpointer.known:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                (
                    f"A rollback to {sha[:12]} was interrupted, and that checkpoint no longer "
                    "exists."
                ),
            )

        return sha

    async def _continue(self, intent: RollbackIntent) -> None:
        if self._runner.is_busy or self._runner.is_rolling_back:
            return  # Another client was first; its command reports for itself.

        if intent.auto_restart:
            await self._runner.start_next_if_any()
        else:
            await self._runner.idle("rollback-completed", "Rolled back; waiting for a command.")


def _cut_short(error: Exception) -> str:
    return (
        f"The rollback was interrupted: {error}. It will be completed when disk space is available."
    )


def _unfinished(error: RestoreIncomplete) -> str:
    first = error.unfinished[0]
    return (
        f"{len(error.unfinished)} paths could not be restored, first "
        f"{os.fsdecode(first.path)!r} ({first.reason}); the next start will retry."
    )
