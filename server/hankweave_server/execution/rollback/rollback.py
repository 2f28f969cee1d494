"""Roll back to a checkpoint so that a crash at any moment is repaired at the next start.

A rollback changes five things that no single system call can change together: the files of the work
tree, HEAD of the shadow repository, the rig archive, the sessions of agents and sentinels, and the
execution's history in the journal. The process can die between any two of these changes, the disk
can fill up, and a person can edit a file at any time. Three properties must hold:

1. Nothing is lost. Every byte that a rollback overwrites or deletes is in a checkpoint first.
2. To clients a rollback has either happened or not. The files on disk may be half restored, but no
   codon ever runs on them.
3. A rollback that has started is finished, or is set aside explicitly with an error. If the system
   refuses to change some paths, it is finished with exceptions: they are named, with their errors.

The solution is an intent file, as in a redo log:

    plan       read the whole target, compute the changes, check the space: refuse here
    quiesce    end the running codon, or freeze its agent; nothing else can start
    safety     a checkpoint of every path that will be touched, tracked or not
    intent     write `rollback.intent`: one record of the write-ahead log makes it durable
               together with the safety checkpoint; `rollback.started` is queued
    restore    change the files from safety to target, path by path; one flush makes them
               and HEAD durable; then the data link, the rig archive, the sessions
    record     one journal batch: codons passed, end of the old run, new run, plan, report
    forget     remove the intent, without a flush, while the reply is on its way

Everything that can be refused is refused in `plan`, before anything changes. While a codon runs,
the plan is made twice, because its agent may still write during the first one; the second one,
after `quiesce`, is the one that is carried out.

`restore` changes a path only if its content is what the safety checkpoint or the target has.
Content that no checkpoint holds is therefore never overwritten, and every step is idempotent: doing
it again finds the target's content and changes nothing. So recovery never needs to know how far the
restore got. What has changed meanwhile, such as a log that grows, is saved and restored again, a
few times. Paths that cannot be restored are left as they are, so an undo leaves them alone as well;
`unrestored` has the sentences, and no codon starts by itself while the content of one differs.

The commit point is the journal batch. `has_happened` looks for it, because the intent file alone
cannot show it. This is what a start does (`finish_interrupted`) after a crash

- before the intent: nothing has moved, and there is no safety checkpoint either.
- after the intent, with a checkpoint, a codon or another rollback in the journal behind it: that
  was acknowledged, and is not taken back. The intent is set aside without touching a file.
- after the intent, before the batch: take another safety checkpoint, since the files may be the
  target's, the old ones, or a person's work since the crash. Restore from there to the target, but
  keep what neither checkpoint of the rollback has, and record the batch with `recovered: true`.
- inside the batch: a power cut can keep the beginning of a batch only. If the new run is in the
  journal (or, for files alone, the event that makes it undoable), the rollback counts as done and
  only the missing events are recorded; restoring again could destroy work that followed. If it is
  missing, the whole restore is repeated.
- after the batch: only the intent is left to remove. Its removal is durable with the next record
  of the log, so a power cut can bring it back long after. The batch is then found in the journal,
  which is searched from the moment that the rollback left.

An intent is for a crash, and for a full disk, which does not end the process: the intent stays,
`rollback.failed` is recorded, `TreeGuard.is_half_restored` keeps codons from starting and clients
from taking checkpoints, and `finish_when_space_is_free` retries. If the target itself is lost or
damaged, no start could ever finish: the intent is renamed (`.given-up-...`), as is one that was
overtaken, and an error names the safety checkpoint. So is an intent that an earlier version left
because of a single path (`intents.overtaken`).

Variants: an undo is a rollback to the safety checkpoint of the rollback that it undoes. A rollback
of some paths, one under a frozen agent, and one before a retry end no run (`to_run` is None). They
move files (a retry may rewind sessions, too), HEAD stays on its branch, and a second checkpoint
after the restore keeps the restored content from passing for people's edits. A rollback without a
request (`RollbackRequest.is_automatic`) keeps people's edits, and what other programs have open
or change meanwhile. The undo of a retry opens a run.

Read `Rollback.perform` first, then `Restoration.prepare` and `perform` in `restoration`, then
`finish_interrupted`, and `has_happened` and `overtaken` in `intents`. `planner` has the checks,
`events` builds the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CheckpointRollback, RollbackFailed
from hankweave_protocol.records import Notice, RollbackIntent, RollbackReport
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.targets import RollbackTarget
from hankweave_server.execution.codon.run import CodonRun, Halt
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback.events import RollbackEvents, place_of, report_of
from hankweave_server.execution.rollback.intents import (
    Overtaken,
    has_event,
    has_happened,
    is_in_journal,
    overtaken,
    standing,
)
from hankweave_server.execution.rollback.planner import (
    RollbackPlanner,
    RollbackRequest,
    refuse_half_a_rewind,
)
from hankweave_server.execution.rollback.restoration import (
    NOTHING,
    Causes,
    Restoration,
    keeping,
    paths_of,
)
from hankweave_server.execution.rollback.unrestored import in_one
from hankweave_server.execution.runner import ROLLED_BACK, Runner
from hankweave_server.git.errors import ShadowRepositoryError, is_out_of_space
from hankweave_server.logs import logger

log = logger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two attempts to finish: each takes a safety checkpoint and records its result."""

_LOST = (ErrorCode.CHECKPOINT_NOT_FOUND, ErrorCode.CHECKPOINT_DAMAGED)


class Rollback:
    """The rollbacks of one execution, performed one at a time."""

    def __init__(self, ctx: ExecutionContext, runner: Runner) -> None:
        self._ctx = ctx
        self._runner = runner
        self._planner = RollbackPlanner(ctx)
        self._restoration = Restoration(ctx)
        self._events = RollbackEvents(ctx)
        self._done: list[RollbackIntent] = []
        """Intents whose outcomes are in the journal, to be removed after the replies."""
        self._wake = anyio.Event()
        self._is_tidied = False

    async def preview(
        self, request: RollbackRequest, causes: Causes = (), *, patch: bool = False
    ) -> RollbackReport:
        """Return the report that `perform` would return now, without touching anything."""
        beside_codon = self._runner.active is not None
        return await self._planner.preview(request, causes, beside_codon=beside_codon, patch=patch)

    async def perform(self, request: RollbackRequest, causes: Causes = ()) -> RollbackReport:
        """Roll back; raise Refused if nothing was touched.

        Paths that cannot be restored are exceptions of the report. Raises CutShort with the intent
        kept and `rollback.failed` recorded.
        """
        refuse_half_a_rewind(request)
        with self._rolling_back(causes):
            self._refuse_if_running(request)
            if self._runner.is_busy:
                await self._plan(request, beside_codon=self._runner.active is not None)

            async with self._quiesced(request) as beside_codon:
                is_still = not (beside_codon or request.after_crash)
                leftovers, plan = await self._plan(
                    request, beside_codon=beside_codon, reports=is_still
                )
                await self._restoration.note_edits(plan)
                if not beside_codon and self._planner.is_there_already(request, plan):
                    intent, report = await self._complete_unchanged(request, plan, causes)
                    has_idled = False
                else:
                    intent = await self._restoration.prepare(
                        request, plan, leftovers, beside_codon=beside_codon
                    )
                    has_idled = intent.to_run is not None and not intent.auto_restart
                    report = await self._restoration.perform(
                        intent,
                        plan,
                        causes,
                        is_automatic=request.is_automatic,
                        afterwards=lambda: (
                            self._runner.idle_after_rollback(causes) if has_idled else None
                        ),
                    )

                is_asked = intent.to_run is not None and not request.after_crash
                if is_asked or report.leaves_files_different:
                    self._runner.leave_to_clients()

        # No command is refused meanwhile: a client that has seen the events may send one.
        self._done.append(intent)
        if self._is_tidied:
            self._wake.set()
        else:
            await self._forget_done()

        if intent.to_run is not None and not has_idled:
            await self._ctx.ledger.record(self._runner.snapshot(), causes=causes)
            await self._continue(intent, report)

        return report

    @contextmanager
    def _rolling_back(self, causes: Causes = ()) -> Iterator[None]:
        with self._ctx.guard.rolling_back():
            self._runner.reset_outcome()
            try:
                with self._restoration.watching(causes):
                    yield
            finally:
                self._ctx.ledger.write_now()

    async def _plan(
        self, request: RollbackRequest, *, beside_codon: bool, reports: bool = False
    ) -> tuple[tuple[str, ...], RestorePlan]:
        """Return what rigs have left behind, and what will change."""
        leftovers = self._planner.leftovers(request, beside_codon=beside_codon)
        plan = await self._planner.plan(request.sha, request.paths, leftovers, reports=reports)
        return leftovers, plan

    async def _complete_unchanged(
        self, request: RollbackRequest, plan: RestorePlan, causes: Causes
    ) -> tuple[RollbackIntent, RollbackReport]:
        """Answer a rollback to where the execution already is: no run, no checkpoint, no undo.

        No file moves, so no intent is needed on disk; clients get the usual events.
        """
        intent = self._restoration.to_present(request)
        report = msgspec.structs.replace(
            report_of(intent, NOTHING, skipped=plan.kept, recovered=False),
            safety=None,
            note=intent.note or "The execution is already there; nothing was changed.",
            runs_again=self._planner.runs_again(intent.after_codon, place_of(intent)),
        )
        await self._ctx.ledger.record(
            *self._events.unchanged(intent, report), run_id=intent.from_run, causes=causes
        )
        return intent, report

    async def _continue(self, intent: RollbackIntent, report: RollbackReport) -> None:
        if self._runner.is_busy or self._ctx.guard.is_rolling_back:
            return  # Another client was first; its command reports for itself.

        if report.leaves_files_different:
            why = in_one(report.cannot_restore, report.counts.cannot_restore)
            await self._runner.idle("rollback-completed", f"{ROLLED_BACK} {why}")
        elif intent.auto_restart:
            await self._runner.start_next_if_any()
        else:
            await self._runner.idle("rollback-completed", ROLLED_BACK)

    # --- the running codon -----------------------------------------------------------------------

    def _refuse_if_running(self, request: RollbackRequest) -> None:
        """Raise Refused while a codon runs that the request neither ends nor may freeze."""
        active = self._runner.active
        if active is not None and active.is_waiting and request.on_running != "pause":
            return  # No agent works: the wait ends with the rollback.

        if request.on_running == "refuse" or (request.on_running == "pause" and active is None):
            self._runner.refuse_while_running()
        elif active is not None and self._leaves_running(active, request):
            active.refuse_unless_pausable()

    @asynccontextmanager
    async def _quiesced(self, request: RollbackRequest) -> AsyncIterator[bool]:
        """Keep everything out of the work tree while the block runs.

        Yields whether a codon is frozen and goes on afterwards.
        """
        active = self._runner.active
        if active is not None and self._leaves_running(active, request):
            async with active.frozen():
                yield True

            if (notice := self._ctx.state.notice) is not None:
                await active.leave_notice(notice)  # Until it is acknowledged, the next gets it too.

            return

        if active is not None and request.on_running == "pause":
            await active.leave_notice(self._notice_of_end(request))

        why = f"Rolled back to {request.sha[:12]} while it was running."
        await self._runner.quiesce(Halt(why))
        yield False

    def _leaves_running(self, active: CodonRun, request: RollbackRequest) -> bool:
        """Return whether the running codon continues afterwards: only files move under it."""
        if request.on_running != "pause":
            return False

        return request.paths is not None or self._is_of(active, request.target)

    def _is_of(self, active: CodonRun, target: RollbackTarget) -> bool:
        """Return whether the target belongs to the codon that runs now.

        That holds for its own checkpoints and for safety checkpoints taken while it was frozen.
        """
        place = target.checkpoint.coordinate
        newest = next(reversed(thread(self._ctx.state)), None)
        return (
            newest is not None
            and place.run_id == newest.run_id
            and (target.is_in_place or place.codon_id == newest.codon.codon_id)
            and place.event_seq >= active.first_seq
        )

    def _notice_of_end(self, request: RollbackRequest) -> Notice:
        """Return the notice for an agent whose codon does not exist at the target."""
        return Notice(
            operation_id=uuid.uuid4().hex,
            direction="back",
            target=request.target.place,
            timestamp=self._ctx.now_text(),
            reason=(
                f"{request.reason or ''} Your step is not part of that checkpoint, and ends now."
            ).strip(),
        )

    # --- after the reply -------------------------------------------------------------------------

    async def clean_up(self) -> None:
        """Remove the intents of rollbacks after their replies; until cancelled.

        An intent that stays behind is recognized by the next start, so that no reply waits.
        """
        self._is_tidied = True
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                try:
                    await self._forget_done()
                except (ShadowRepositoryError, OSError) as error:
                    log.warning("The intent of a finished rollback is left: %s", error)
        finally:
            self._is_tidied = False
            with anyio.CancelScope(shield=True):
                await self._forget_done()

    async def _forget_done(self) -> None:
        while self._done:
            await self._restoration.forget(self._done[0])
            del self._done[0]

    # --- rollbacks that were cut short -----------------------------------------------------------

    async def finish_when_space_is_free(self) -> None:
        """Finish a rollback that was cut short, each time the disk has space again.

        Runs until cancelled. A rollback that cannot be finished waits for the next time or the
        next start.
        """
        guard, ledger = self._ctx.guard, self._ctx.ledger
        while True:
            await ledger.space.wait_for_recovery()
            if not guard.is_half_restored or self._runner.is_busy:
                continue

            try:
                intent = standing(self._ctx.layout)
                report = await ledger.space.retry(
                    self.finish_interrupted,
                    is_short=is_out_of_space,
                    longest_pause=LONGEST_PAUSE,
                )
            except Refused as error:
                log.warning("The interrupted rollback cannot be completed yet: %s", error)
            else:
                if intent is not None and intent.to_run and report is not None:
                    await ledger.record(self._runner.snapshot())
                    await self._continue(intent, report)

    async def finish_interrupted(self) -> RollbackReport | None:
        """Finish the rollback that was cut short; return None if there is none."""
        intent = standing(self._ctx.layout)
        if intent is None:
            return None

        if await has_happened(self._ctx, intent):
            await self._record_rest(intent)
            await self._restoration.forget(intent)
            self._ctx.guard.leave(half_restored=False)
            return None

        why = await overtaken(self._ctx, intent)
        if why is not None:
            await self._set_aside(
                intent,
                f"The rollback to {intent.target.sha[:12]} was interrupted, and is not completed "
                f"any more: {why.value}. No file was changed now.",
                half_restored=why is not Overtaken.BY_PLACE,
            )
            return None

        with self._rolling_back():
            try:
                plan = await self._restoration.plan_again(intent, paths_of(intent))
            except Refused as refusal:
                if refusal.code not in _LOST:
                    raise

                # The target was lost since: no later start could finish it either.
                await self._set_aside(
                    intent,
                    f"{refusal.message} The rollback to it was interrupted and cannot be "
                    "completed, so some files may already be restored.",
                    half_restored=True,
                )
                return None

            # The work tree may now hold the target's files, the old files, or a person's work since
            # the crash, which stays. It is saved once more, so that the rest may be replaced.
            edited = await self._restoration.edits_since(intent)
            present = await self._restoration.save(plan, intent.from_run)
            if edited:
                intent = await self._restoration.with_newer(
                    keeping(intent, edited), present.sha, edited
                )

            report = await self._restoration.perform(
                intent, plan, is_automatic=True, recovered=True, present=present.sha
            )
            await self._restoration.forget(intent)
            return report

    async def _record_rest(self, intent: RollbackIntent) -> None:
        """Record the end of a batch of which a power cut kept only the beginning."""
        if await is_in_journal(self._ctx, intent):
            return

        rest = self._events.rest(
            intent,
            report_of(intent, NOTHING, recovered=True),
            has_checkpoint_event=await has_event(self._ctx, intent, CheckpointRollback.TYPE),
        )
        await self._ctx.ledger.record(*rest, run_id=intent.to_run or intent.from_run)

    async def _set_aside(
        self, intent: RollbackIntent, message: str, *, half_restored: bool
    ) -> None:
        """Give up a rollback that no start may finish, and say where the previous files are.

        If the files are half restored, no codon runs on them until a rollback succeeds.
        """
        path = self._ctx.layout.rollback_intent
        kept = path.with_name(f"{path.name}.given-up-{intent.operation_id[:8]}")
        message = (
            f"{message} The previous files are in safety checkpoint {intent.safety.sha[:12]} "
            f"(`hankweave rollback --to {intent.safety.sha[:12]}`); the intent is kept as "
            f"{kept.name}. `hankweave rollback` goes back again."
        )
        await self._ctx.ledger.record(
            RollbackFailed(target=intent.target.coordinate, message=message)
        )
        await self._ctx.checkpointer.call(lambda engine: engine.intent.set_aside(kept.name))
        self._ctx.guard.leave(half_restored=half_restored)
