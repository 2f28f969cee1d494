"""Bring an execution back to a consistent state at server start, before anything runs.

A server can die at any instruction: by `kill -9`, a power cut, or a full disk. What it leaves is
spread over four places that were not written together: the journal (and the state computed from
it), the shadow repository, the work tree, and small intent files. Each place is consistent by
itself: the journal cuts off a torn tail when it opens, a commit is durable before a ref names it,
and intent files are replaced by rename. Recovery makes the four agree with each other.

When `recover` runs, two facts hold. This process owns the execution's lock, so a run still marked
`running` belongs to a server that is dead. And agents that survived that server have been killed,
so nothing else writes to the work tree except people. (The daemon also finishes an interrupted
prune before, and an interrupted branch after.) From there, in this order:

1. Adopt. A checkpoint is committed first and journaled second. A commit that the journal does not
   name was made just before the crash; it is journaled now (`recovered: true`). This comes first
   because all later steps choose among the known checkpoints.
2. Mark the crash, unless the codon that was active waits for the end of a limit: it goes on. Any
   other becomes `failed` (retriable, without an error checkpoint) and its run `crashed`, in one
   batch. From here on the state never claims that an agent runs.
3. Clear the current run, if its server died before doing so.
4. Finish a rollback whose intent is on disk (see `rollback.rollback`), then an archiving whose
   intent is on disk (see `archive`). The rollback comes first because one that ends a run settles
   an unfinished archiving itself: it keeps the moves made so far and does not make the rest.
5. Undo broken work. If the thread still ends in a codon that its server's end cut short, its files
   are half-written. Roll back to the last success, with a safety checkpoint like any rollback, so
   the half-written files can be inspected and restored. Edits by people stay: those that were
   noticed while the codon ran, what changed after the agent had ended, and what the calls that were
   open when the server died cannot have changed (see `codon.authorship`). If the checkpoint of
   that success is damaged, try the one before it.

Every step is idempotent and derives what to do from what is recorded, never from what an earlier
step of this process saw: a start can be killed too, and the next one repeats the sequence from the
beginning. In step 5, for example, a first start may die after step 2. The second start finds no
`running` run, but it still finds a failed codon without an error checkpoint, and rolls back. (A
codon that failed in the ordinary way always has an error checkpoint, and its files stay. A codon
ended by an orderly shutdown has a checkpoint of kind `exit`, and is rolled back as well.)

A finished rollback in step 4 does not make step 5 unnecessary: it may have moved files alone, and
then the thread still ends in the broken codon. If there is no checkpoint to go back to, the files
stay as they are and an `error` event of severity `warning` says so.

`begin_if_new` runs after `recover`. It creates what a new execution lacks (plan, `initial`
checkpoint, first run), and repairs a creation that was interrupted, with the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ErrorEvent, FileSource
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import RollbackReport
from hankweave_protocol.state import (
    CodonExecution,
    FailedCodon,
    FailureReason,
    FreshStart,
    PlanEntry,
    Run,
)
from hankweave_protocol.transitions import (
    CodonTransitioned,
    InitialCheckpointSet,
    PlanSet,
    RunCrashed,
    RunStarted,
)
from hankweave_server.agents.process import leftovers
from hankweave_server.domain import lifecycle
from hankweave_server.domain import plan as plans
from hankweave_server.domain.execution_thread import (
    plan_entry,
    suspended_codon,
    thread,
)
from hankweave_server.domain.inheritance import NO_SERVER
from hankweave_server.domain.permissions import permissions_of
from hankweave_server.domain.reuse.decision import TAKING_OVER
from hankweave_server.domain.targets import last_success
from hankweave_server.execution.archive import Archives
from hankweave_server.execution.codon.agent_turn import NO_PROCESS
from hankweave_server.execution.codon.authorship import ANYTHING, Reach, left_running
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.resume import PlanConflict, grown, replanned, restarted_plan
from hankweave_server.execution.rollback.intents import standing
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.rollback.unrestored import in_one
from hankweave_server.execution.rollback.user_edits import events_since_start, reach_in
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.execution.runs import Runs, new_run
from hankweave_server.worktree.dirfd import Descent

LAST_MOMENT_NS = 200_000_000
"""How much later than the agent its keeper may notice that the server is gone."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery, for the daemon's log and the `server.started` event."""

    crashed_run: Run | None
    crashed_codon: CodonExecution | None
    adopted: int
    finished_rollback: bool


class Recovery:
    def __init__(
        self, ctx: ExecutionContext, runner: Runner, rollback: Rollback, recorded: frozenset[Sha]
    ) -> None:
        self._ctx = ctx
        self._runner = runner
        self._rollback = rollback
        self._recorded = recorded
        """The checkpoints that the journal names."""

    async def recover(self, *, keeps_wait: bool = True) -> Recovered:
        """Bring state, journal, repository and files into agreement.

        Without `keeps_wait`, a codon that waits for the end of a limit has crashed like any other.
        """
        adopted = await self._ctx.checkpointer.adopt(self._recorded)
        is_kept = keeps_wait and self._is_wait_to_be_kept()
        crashed_run, crashed_codon = (None, None) if is_kept else await self._mark_crashed()
        await Runs(self._ctx).clear_current()
        finished = await self._rollback.finish_interrupted()
        await Archives(self._ctx).finish_interrupted()
        # Needed even after a finished rollback, which may have moved files alone.
        undone = await self._undo_broken_work()
        leftovers.forget_last_moments(self._ctx.layout.agent_processes)
        await self._leave_to_clients_if_different(undone or finished)
        return Recovered(
            crashed_run=crashed_run,
            crashed_codon=crashed_codon,
            adopted=len(adopted),
            finished_rollback=finished is not None,
        )

    async def begin_if_new(
        self,
        *,
        other_hank: bool = False,
        keep_plan: bool = False,
        begin_at: CodonId | None = None,
    ) -> None:
        """Lay out the plan of a new execution, take its `initial` checkpoint, open its run.

        Each part is done only if it is missing, so a crash between them is repaired here. So is a
        crash that kept the plan from growing, and one after the last codon's success. With
        `other_hank` the plan follows the hank as it is now; if it cannot, PlanConflict is raised,
        or the plan stays because of `keep_plan`. With `begin_at` the execution begins again with
        that codon, in a run of its own, and nothing that ran from there on counts. Raises Refused
        if that is impossible, or if the codon that ends the plan is not in it; nothing has changed
        then.
        """
        ctx = self._ctx
        plan = self._plan(other_hank=other_hank, keep_plan=keep_plan, begin_at=begin_at)
        begins_again = begin_at is not None and bool(ctx.state.runs)
        if begin_at is not None:
            self._runner.refuse_where_nothing_may_run(begin_at, plan)

        self._runner.refuse_unknown_end(plan)

        if plan != ctx.state.execution_plan and not begins_again:
            await ctx.ledger.record(PlanSet(execution_plan=plan))

        run = new_run(ctx, FreshStart())
        if ctx.state.initial_checkpoint is None:
            sha = await self._initial_checkpoint(run.run_id, plan)
            await ctx.ledger.record(InitialCheckpointSet(checkpoint_sha=sha))

        if not ctx.state.runs:
            fresh = FreshStart(initial_checkpoint_sha=ctx.state.initial_checkpoint)
            opened = msgspec.structs.replace(run, starting_conditions=fresh)
            await ctx.ledger.record(RunStarted(run=opened), run_id=run.run_id)

        if begin_at is not None and begins_again:
            await self._begin_again(begin_at, plan)
        elif self._runner.upcoming is None:
            await self._runner.settle_past()

    async def _begin_again(self, codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> None:
        """Open a run that begins with any codon, once the newest one has no work pending."""
        await self._runner.settle_past(codon_id)
        if self._runner.outcome is not Outcome.FAILED:
            await Runs(self._ctx).open_at(codon_id, plan)

    def _plan(
        self, *, other_hank: bool, keep_plan: bool, begin_at: CodonId | None
    ) -> tuple[PlanEntry, ...]:
        state, hank = self._ctx.state, self._ctx.recorded.hank
        if other_hank and begin_at is not None:
            return restarted_plan(state, hank, begin_at)

        if other_hank:
            try:
                return replanned(state, hank)
            except PlanConflict:
                if not keep_plan:
                    raise

        return grown(state.execution_plan or plans.initial_plan(hank), hank, thread(state))

    async def _initial_checkpoint(self, run_id: RunId, plan: tuple[PlanEntry, ...]) -> Sha:
        known = self._ctx.checkpointer.known.values()
        made = next((record.sha for record in known if record.kind == "initial"), None)
        if made is not None:
            return made

        record = await self._ctx.checkpointer.take(
            "initial",
            run_id=run_id,
            codon=None,
            codon_name="Before any codon",
            patterns=self._all_patterns(plan),
        )
        return record.sha

    def _all_patterns(self, entries: tuple[PlanEntry, ...]) -> tuple[str, ...]:
        """Return all codons' patterns: the initial checkpoint holds what any of them will track."""
        tracked = plans.tracked_patterns(entries, entries[-1].codon_id) if entries else ()
        return tracked or self._ctx.default_patterns

    def _is_wait_to_be_kept(self) -> bool:
        """Return whether a codon waits for the end of a limit, and no rollback ends that."""
        return suspended_codon(self._ctx.state) is not None and standing(self._ctx.layout) is None

    async def _mark_crashed(self) -> tuple[Run | None, CodonExecution | None]:
        ctx = self._ctx
        crashed = next((run for run in ctx.state.runs if _has_crashed(run)), None)
        if crashed is None:
            return None, None

        active = [codon for codon in crashed.codons if not lifecycle.is_terminal(codon)]
        entries = [self._failure_of(crashed, codon) for codon in active]
        await ctx.ledger.record(
            *entries,
            RunCrashed(
                run_id=crashed.run_id,
                end_time=ctx.now_text(),
                server_pid=crashed.server_pid,
            ),
            run_id=crashed.run_id,
        )
        return crashed, active[-1] if active else None

    def _failure_of(self, run: Run, codon: CodonExecution) -> CodonTransitioned:
        failed = lifecycle.fail(
            lifecycle.active(codon),
            end_time=self._ctx.now_text(),
            exit_code=NO_PROCESS,
            reason=FailureReason(type="unknown", retriable=True, message="Server crashed"),
            checkpoint=None,
        )
        return CodonTransitioned(
            run_id=run.run_id, from_status=lifecycle.status_of(codon), codon=failed
        )

    async def _undo_broken_work(self) -> RollbackReport | None:
        """Roll the files back to the last success if a codon was cut short by its server's end.

        This is judged by the record and not by what this start found: a start may itself be killed.
        """
        if not self._ends_in_broken_work():
            return None

        if not self._ctx.checkpointer.known:
            await self._ctx.ledger.record(_no_checkpoint_left())
            return None

        await self._note_edits()
        known = dict(self._ctx.checkpointer.known)
        why = "The server ended while the codon was running."
        while True:
            try:
                target = last_success(self._ctx.state, known)
            except Refused as refusal:
                await self._report_degraded(refusal.message)
                return None

            request = RollbackRequest(target, reason=why, after_crash=True, is_automatic=True)
            try:
                return await self._rollback.perform(request)
            except Refused as refusal:
                if refusal.code is not ErrorCode.CHECKPOINT_DAMAGED:
                    raise

                await self._report_degraded(refusal.message)
                del known[target.checkpoint.sha]  # An older success may be intact.

    async def _leave_to_clients_if_different(self, report: RollbackReport | None) -> None:
        """Start no codon by itself on files that a rollback could not restore, or has not."""
        if report is not None and report.leaves_files_different:
            why = in_one(report.cannot_restore, report.counts.cannot_restore)
        elif self._ctx.guard.is_half_restored:
            why = "A rollback was given up; `hankweave rollback` restores the files."
        else:
            return

        await self._runner.idle_after_failure(
            f"The plan does not go on by itself; the next start goes on. {why}"
        )

    async def _note_edits(self) -> None:
        """Journal what changed since the last scan of the dead server: agent's work or edits.

        A path that was changed after the agent's processes had ended is an edit, whatever the agent
        was doing. One that was changed in their last moments, when the server was gone already, may
        be the work of a call that has not been read.
        """
        ctx, newest = self._ctx, thread(self._ctx.state)[-1]
        reach = await self._left_running(newest.codon)
        last = leftovers.last_moments(ctx.layout.agent_processes)
        descent, source = Descent(ctx.layout.work_tree), self._taken_over(newest.run_id)

        async def by_people(paths: Iterable[bytes]) -> frozenset[bytes]:
            if source is not None:
                # What is as in the result that was being taken over was restored from it.
                given = tuple(paths)
                paths = await ctx.checkpointer.call(
                    lambda engine: engine.paths_not_in(given, source)
                )

            return await anyio.to_thread.run_sync(
                lambda: frozenset(path for path in paths if not is_of_codon(path))
            )

        def is_of_codon(path: bytes) -> bool:
            status = descent.status(path)
            if last is None or status is None:
                return reach.covers(path)

            if status.st_ctime_ns > last.ended_ns:
                return False

            is_late = status.st_ctime_ns > last.left_alone_ns - LAST_MOMENT_NS
            return is_late or reach.covers(path)

        try:
            await FileChangeReporter(ctx).scan_and_report(
                FileSource(kind="codon-end"),
                newest.run_id,
                newest.codon.codon_id,
                by_people=by_people,
            )
        finally:
            descent.close()

    def _taken_over(self, run_id: RunId) -> Sha | None:
        """Return the checkpoint of the result that a codon was taking over as its server died."""
        known = self._ctx.checkpointer.known
        newest = next(reversed(known.values()), None)
        if newest is None or newest.coordinate.run_id != run_id:
            return None

        label = newest.label or ""
        source = Sha(label.removeprefix(TAKING_OVER))
        return source if label.startswith(TAKING_OVER) and source in known else None

    async def _left_running(self, codon: CodonExecution) -> Reach:
        """Return what the codon may have changed after the last scan of its server."""
        assert isinstance(codon, FailedCodon), "only such a codon is broken work"
        ctx = self._ctx
        entry = plan_entry(ctx.state.execution_plan, codon.codon_id)
        if entry is None:
            return ANYTHING

        asks = permissions_of(entry.codon, ctx.hank.hank.overrides) is not None
        return left_running(
            await events_since_start(ctx.ledger, codon.codon_id),
            codon.failed_during,
            partial(reach_in, ctx.layout.work_tree),
            waits=asks or ctx.agent_for(entry.codon).waits_before_tools,
            has_rig=bool(entry.codon.rig_setup),
            has_checks=bool(entry.codon.checks),
        )

    async def _report_degraded(self, reason: str) -> None:
        """Journal, in Hankweave's words, that files could not go back to where they should."""
        warning = ErrorEvent(
            message=(
                f"Recovery degraded: {reason} `hankweave fsck --repair` reports what is lost."
            ),
            fatal=False,
            severity="warning",
            code=ErrorCode.CHECKPOINT_DAMAGED,
        )
        await self._ctx.ledger.record(warning)

    def _ends_in_broken_work(self) -> bool:
        entries = thread(self._ctx.state)
        if not entries or not isinstance(newest := entries[-1].codon, FailedCodon):
            return False

        if newest.error_checkpoint is None:
            return True  # It died with its server: every other failure takes a checkpoint.

        end = self._ctx.checkpointer.known.get(newest.error_checkpoint)
        return end is not None and end.kind == "exit"


def _no_checkpoint_left() -> ErrorEvent:
    """Return Hankweave's warning for an execution without any checkpoint to restore."""
    return ErrorEvent(
        message="Recovery degraded: the store has no checkpoint left. The files stay as "
        "the interrupted codon left them.",
        fatal=False,
        severity="warning",
    )


def _has_crashed(run: Run) -> bool:
    """Return whether a run was left open; the first run of a branch waits for its first server."""
    return run.status == "running" and (run.server_pid != NO_SERVER or bool(run.codons))
