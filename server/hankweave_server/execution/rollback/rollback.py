"""Going back to a checkpoint, so that a crash at any moment of it is finished at the next start.

    plan       read the whole target, compute what will change, check the space: refuse here
    quiesce    no codon runs, or the one that does is frozen; nothing else begins
    safety     a checkpoint of every path that will be touched: nothing can be lost
    intent     `rollback.intent` durable, then `rollback.started` in the journal
    restore    safety -> target, per path, idempotent
    tell       one batch: what was passed, the old run's end, the new run, the plan, the report
    forget     the intent is removed

Until the batch is in the journal the rollback has not happened for anybody: a start that finds an
intent and no journey of its name restores again and then tells (`recovered: true`). Once the
journey is in the journal, all that is left is to remove the intent (DESIGN 8; seed 000, "Rolling
Back"). An undo is a rollback to the safety checkpoint of the one it undoes; a rollback of some
paths, or under a frozen agent, moves files alone: no run ends (seed 004, "Partial rollback").

The intent of a rollback, once it lies on the disk: whether there is one, and how far it came.
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
from hankweave_server.execution.codon.file_changes import PERSON, FileNews
from hankweave_server.execution.codon.run import Halt
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.rollback import user_edits
from hankweave_server.execution.rollback.events import RollbackStory, report_of
from hankweave_server.execution.rollback.planner import Journey, Outlook, refuse_half_a_rewind
from hankweave_server.execution.runner import Runner
from hankweave_server.execution.session_files import Memories
from hankweave_server.git.errors import InsufficientSpace, is_for_want_of_room
from hankweave_server.logs import logger
from hankweave_server.meter import Meter
from hankweave_server.paths import DATA_SOURCE
from hankweave_server.worktree import data_source
from hankweave_server.worktree.names import meant_by, shown

TOLD_WITHIN = 500
"""How far back in the journal the end of a rollback is looked for: its batch is far smaller."""


def standing(around: Surroundings) -> RollbackIntent | None:
    """Reads the intent of the rollback that was cut short; None where there is none."""
    try:
        data = around.layout.rollback_intent.read_bytes()
    except FileNotFoundError:
        return None

    return codec.decode_value(RollbackIntent, data)


def has_happened(around: Surroundings, intent: RollbackIntent) -> bool:
    """Tells whether the journey is on record, so that nothing may be restored again."""
    state = around.state
    return (
        undo.is_told(state, intent.operation_id)
        or (intent.to_run not in (None, intent.from_run) and _has_begun(state, intent.to_run))
        or (intent.direction == "retry" and is_in_journal(around, intent))
    )


def _has_begun(state: State, run_id: RunId | None) -> bool:
    """Return whether the rollback's own run is there; one that it took over was there before."""
    return run_named(state, run_id) is not None


def is_in_journal(around: Surroundings, intent: RollbackIntent) -> bool:
    """Return whether all of it was told: its last event is among the newest lines."""
    last = CheckpointRollback.TYPE if intent.to_run is None else RollbackCompleted.TYPE
    return has_event(around, intent, last)


def has_event(around: Surroundings, intent: RollbackIntent, event_type: str) -> bool:
    """Return whether an event of this type about the rollback is among the newest lines."""
    operation = f'"operationId":"{intent.operation_id}"'.encode()
    name = f'"type":"{event_type}"'.encode()
    lines = around.ledger.tail(TOLD_WITHIN)
    return any(operation in line and name in line for line in lines)


def moments_of(intent: RollbackIntent) -> tuple[int, ...]:
    """The events that source and target name: the causal parents of all that is told."""
    moments = (intent.source, intent.target.coordinate)
    return tuple(sorted({moment.event_seq for moment in moments if moment and moment.event_seq}))


def paths_of(intent: RollbackIntent) -> frozenset[bytes] | None:
    """The paths it is confined to; None means the whole work tree."""
    return None if intent.paths is None else meant_by(intent.paths)


log = logger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two tries to finish: each takes a safety checkpoint and tells how it ended."""


_LOST = (ErrorCode.CHECKPOINT_NOT_FOUND, ErrorCode.CHECKPOINT_DAMAGED)


class CutShort(InsufficientSpace):
    """The disk was full in mid-way; the intent stands, and `finish_when_there_is_room` goes on."""


class Rollback:
    """Performs rollbacks of one execution, one at a time."""

    def __init__(self, around: Surroundings, runner: Runner) -> None:
        self._around = around
        self._runner = runner
        self.outlook = Outlook(around, runner)
        self._story = RollbackStory(around)
        self._memories = Memories(around)
        self._archives = ArchiveReturn(around)

    async def perform(self, journey: Journey, causes: tuple[int | str, ...] = ()) -> RollbackReport:
        """Rolls back; raises Refused, with nothing touched.

        Raises RestoreIncomplete or CutShort, with the intent kept and `rollback.failed` told.
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
            await self._around.ledger.record(self._runner.snapshot(), causes=causes)
            await self._continue(intent)

        return report

    async def _stay(
        self, journey: Journey, plan: RestorePlan, causes: tuple[int | str, ...]
    ) -> tuple[RollbackIntent, RollbackReport]:
        """Answer a rollback to where the execution is already: no run, no checkpoint, no undo.

        Nothing is moved, so that no intent has to be on the disk; clients hear the usual events.
        """
        run = newest_run(self._around.state)
        assert run is not None, "where there is a checkpoint there is a run"
        intent = self._intended(journey, run.run_id, journey.target.checkpoint, run.run_id)
        nothing = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())
        report = msgspec.structs.replace(
            report_of(intent, nothing, skipped=plan.kept, recovered=False),
            safety=None,
            note=intent.note or "The execution is there already; nothing has changed.",
        )
        await self._around.ledger.record(
            *self._story.unchanged(intent, report), run_id=run.run_id, causes=causes
        )
        return intent, report

    async def take_back(self, codon_id: CodonId) -> Sha | None:
        """Takes the files back to where a codon's failed attempt began, before the next one.

        What agents remember goes back, too, where that is in the midst of the codon's work: not
        every agent can leave out of its conversation what came later. Gives the rig that stands
        there then. What people changed meanwhile stays. Asked by the runner, between two codons.
        Raises Refused and RestoreIncomplete as `perform`.
        """
        state, known = self._around.state, self._around.checkpointer.known
        start = targets.attempt_start(state, known, codon_id)
        if start is None:
            return None

        target = RollbackTarget(start.checkpoint, after_codon=None, passed=())
        reason = f"Codon {codon_id} is tried again."
        journey = Journey(
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
        """Finishes, each time the disk has room again, what it cut short; until cancelled.

        What cannot be finished waits for the next time, or the next start.
        """
        while True:
            await self._around.ledger.space.relief()
            if not self._runner.blocked or self._runner.is_busy:
                continue

            try:
                intent = standing(self._around)
                await self._around.ledger.space.insist(
                    self.finish_interrupted,
                    is_short=is_for_want_of_room,
                    longest_pause=LONGEST_PAUSE,
                )
            except (Refused, RestoreIncomplete) as error:
                log.warning("The rollback that was cut short cannot be finished yet: %s", error)
            else:
                self._runner.blocked = False
                if intent is not None and intent.to_run is not None:
                    await self._around.ledger.record(self._runner.snapshot())
                    await self._continue(intent)

    async def finish_interrupted(self) -> RollbackReport | None:
        """Finishes the rollback that was cut short; None where there is none to finish."""
        path = self._around.layout.rollback_intent
        intent = standing(self._around)
        if intent is None:
            return None

        if has_happened(self._around, intent):
            await self._tell_the_rest(intent)
            await anyio.to_thread.run_sync(fsutil.remove_durably, path)
            return None

        with self._runner.rolling_back(), self._watching():
            # What stands there now may be the target's, the past's, or a person's work since the
            # crash: it is saved once more, so that the restore may replace all of it.
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

    # --- before anything moves -----------------------------------------------------------------

    @asynccontextmanager
    async def _stillness(self, journey: Journey) -> AsyncIterator[None]:
        """Lets nothing work in the work tree while the block runs."""
        active = self._runner.active
        if active is not None and self.outlook.ends_active_codon(journey):
            await active.say(self._word_to_the_stopped(journey))

        if self._runner.active is None or not self.outlook.keeps_active_codon(journey):
            await self._runner.quiesce(Halt(f"Rolled back to {journey.sha[:12]} while it ran."))
            if not journey.after_crash:
                await self._note_edits()

            yield
            return

        assert active is not None, "a codon that is kept is there"
        async with active.frozen():
            yield

        await active.tell_of_rollback()

    def _word_to_the_stopped(self, journey: Journey) -> Notice:
        """Return what an agent is told whose codon does not exist at the target."""
        return Notice(
            operation_id=uuid.uuid4().hex,
            direction="back",
            target=journey.target.place,
            timestamp=self._around.now_text(),
            reason=f"{journey.reason or ''} Your step is not part of it, and ends now.".strip(),
        )

    async def _note_edits(self) -> None:
        """Journals what people changed, before the safety checkpoint makes it part of history."""
        run = newest_run(self._around.state)
        await FileNews(self._around).tell(PERSON, None if run is None else run.run_id, None)

    async def _prepare(
        self, journey: Journey, plan: RestorePlan, leftovers: tuple[str, ...] = ()
    ) -> RollbackIntent:
        """Takes the safety checkpoint, then makes the intent durable."""
        around, target = self._around, journey.target
        run = newest_run(around.state)
        assert run is not None, "where there is a checkpoint there is a run"
        await around.ledger.catch_up(insists=False)
        found = user_edits.conflicts(
            around.state, plan, leftovers=leftovers, agents_rested=not journey.after_crash
        )
        # What is overwritten is saved; where nothing is, the target holds all that there is.
        overwrites = not plan.changes_nothing or journey.rewinds
        safety = await self._save(plan, run.run_id, edited=len(found)) if overwrites else None
        moves_files_only = journey.moves_files_only or self._runner.active is not None
        to_run = None if moves_files_only else await self._next_run()
        intent = self._intended(journey, run.run_id, safety or target.checkpoint, to_run, found)
        await anyio.to_thread.run_sync(
            fsutil.replace_durably, around.layout.rollback_intent, codec.encode(intent)
        )
        return intent

    async def _next_run(self) -> RunId:
        """Return the run that goes on from the target.

        One that a rollback opened, and in which nothing has happened yet, is taken over, so that
        several rollbacks in a row leave one run.
        """
        checkpointer = self._around.checkpointer
        waiting = waiting_run(self._around.state)
        if waiting is None:
            return self._around.new_run_id()

        tip = await checkpointer.run(checkpointer.engine.tip, waiting.run_id)
        return waiting.run_id if tip is None else self._around.new_run_id()

    def _intended(
        self,
        journey: Journey,
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
            started_at=self._around.now_text(),
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
        """Takes the safety checkpoint: every path that will be touched, tracked or not."""
        label = f"before rollback to {plan.target[:12]}"
        return await self._around.checkpointer.take(
            "safety",
            run_id=run_id,
            codon=None,
            codon_name=BEFORE_ROLLBACK,
            patterns=self._around.patterns(),
            label=f"{label}; holds {edited} edits by people" if edited else label,
            before=plan,
            waits_for_room=False,
        )

    async def _settle(self, intent: RollbackIntent) -> None:
        """Checkpoints what stands after files alone moved: else it would pass for people's edits.

        HEAD stays on the run's branch, and what differs from it while no agent works, people did.
        """
        await self._around.checkpointer.take(
            "safety",
            run_id=intent.from_run,
            codon=None,
            codon_name="After a rollback of files",
            patterns=self._around.patterns(),
            label=f"after rollback to {intent.target.sha[:12]}",
            waits_for_room=False,
        )

    async def _announce(
        self, intent: RollbackIntent, causes: tuple[int | str, ...], *, recovered: bool
    ) -> None:
        beginning = tuple(self._story.beginning(intent, recovered=recovered))
        if beginning:
            await self._around.ledger.record(
                *beginning, run_id=intent.from_run, causes=(*causes, *moments_of(intent))
            )

    # --- the way there, and what follows -------------------------------------------------------

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
                await self._around.checkpointer.detach(intent.target.sha)
        except Exception as error:
            if not isinstance(error, RestoreIncomplete) and not is_for_want_of_room(error):
                raise

            await self._tell_failure(intent, error, causes)
            if isinstance(error, InsufficientSpace):
                raise CutShort(error.need, error.free) from error

            raise

        self._runner.blocked = False
        report = report_of(
            intent,
            restored,
            skipped=(*plan.kept, *forgotten),
            conflicts=user_edits.listed({*intent.keep, *map(os.fsencode, intent.edits)}),
            effects=outside,
            recovered=recovered,
        )
        await self._around.ledger.record(
            *self._story.whole(intent, report, archived),
            run_id=intent.to_run or intent.from_run,
            causes=(*causes, *moments_of(intent)),
        )
        await anyio.to_thread.run_sync(fsutil.remove_durably, self._around.layout.rollback_intent)
        return report

    async def _restore(self, intent: RollbackIntent, safety: Sha) -> RestoreReport:
        checkpointer = self._around.checkpointer
        with self._watching() as meter:
            report = await checkpointer.run(
                checkpointer.engine.restore,
                intent.target.sha,
                safety,
                paths_of(intent),
                frozenset(intent.keep),
                meter,
            )

        await self._restore_data_link(report)
        return report

    async def _restore_data_link(self, report: RestoreReport) -> None:
        """Remake the link to the data, which no checkpoint holds; raises RestoreIncomplete."""
        layout, now = self._around.layout, instants.epoch_ms(self._around.clock.now())
        try:
            displaced = await anyio.to_thread.run_sync(data_source.restore_link, layout, now)
        except OSError as error:
            if is_for_want_of_room(error):
                raise

            unfinished = Skipped(os.fsencode(DATA_SOURCE), "os-error")
            raise RestoreIncomplete(report, (unfinished,)) from error

        if displaced is not None:
            await self._around.ledger.post(Info(message=displaced.sentence))

    def _watching(self, causes: tuple[int | str, ...] = ()) -> AbstractContextManager[Meter]:
        """Lets everybody know how far it is; all that a rollback does is one work."""
        return self._around.checkpointer.progress.watching("restore", causes)

    async def _tell_failure(
        self, intent: RollbackIntent, error: Exception, causes: tuple[int | str, ...]
    ) -> None:
        """Lets no codon run on files that are half restored, and says so."""
        self._runner.blocked = True
        if is_for_want_of_room(error):
            self._around.ledger.space.note(error)

        message = _unfinished(error) if isinstance(error, RestoreIncomplete) else _cut_short(error)
        self._around.ledger.leave(
            RollbackFailed(target=intent.target.coordinate, message=message), causes=causes
        )
        await self._around.ledger.settle()

    async def _rewind_memory(self, intent: RollbackIntent) -> tuple[Skipped, ...]:
        """Puts back what agents and sentinels remembered; gives what could not be."""
        if not intent.rewind_memory:
            return ()

        return await self._memories.rewind(intent.target.coordinate.memory_epoch)

    async def _tell_the_rest(self, intent: RollbackIntent) -> None:
        """Tells the end of a batch of which a power cut kept only the beginning."""
        if is_in_journal(self._around, intent):
            return

        nothing = RestoreReport(added=(), updated=(), removed=(), kept=(), skipped=())
        report = report_of(intent, nothing, recovered=True)
        await self._around.ledger.record(
            *self._story.rest(
                intent,
                report,
                has_checkpoint_event=has_event(self._around, intent, CheckpointRollback.TYPE),
            ),
            run_id=intent.to_run or intent.from_run,
        )

    def _leftovers_of(self, intent: RollbackIntent) -> tuple[str, ...]:
        return leftovers(self._around.state, intent.codons_to_process)

    async def _give_up(self, intent: RollbackIntent, refusal: Refused) -> None:
        """Set an intent aside whose target was lost since: no later start could finish it either.

        No codon runs on files that are half restored, until a rollback to something else succeeds.
        """
        path = self._around.layout.rollback_intent
        kept = path.with_name(f"{path.name}.given-up-{intent.operation_id[:8]}")
        message = (
            f"{refusal.message} The rollback to it was cut short and cannot be finished: some "
            f"files may be as in it. What was there before is in safety checkpoint "
            f"{intent.safety.sha[:12]}; the intent is kept as {kept.name}."
        )
        await self._around.ledger.record(
            RollbackFailed(target=intent.target.coordinate, message=message)
        )
        await anyio.to_thread.run_sync(path.rename, kept)
        self._runner.blocked = True

    def _sha_again(self, intent: RollbackIntent) -> Sha:
        sha = intent.target.sha
        if sha not in self._around.checkpointer.known:
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"A rollback to {sha[:12]} was cut short, and that checkpoint is gone",
            )

        return sha

    async def _continue(self, intent: RollbackIntent) -> None:
        if self._runner.is_busy or self._runner.is_rolling_back:
            return  # Another client was quicker; what it started tells its own story.

        if intent.auto_restart:
            await self._runner.start_next_if_any()
        else:
            await self._runner.idle("rollback-completed", "Rolled back; waiting for a command.")


def _cut_short(error: Exception) -> str:
    return f"The rollback was cut short: {error}. It is finished when the disk has room again."


def _unfinished(error: RestoreIncomplete) -> str:
    first = error.unfinished[0]
    return (
        f"{len(error.unfinished)} paths could not be restored, first "
        f"{os.fsdecode(first.path)!r} ({first.reason}); the next start tries again."
    )
