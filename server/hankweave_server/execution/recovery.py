"""What a start does about the past, before anything runs.

We hold the lock, so every run that is marked `running` belongs to a server that died (DESIGN 6).
Leftover agents are killed before this; then, in order: commits nobody told of are put on record,
the crashed run and its codon are marked, a rollback that was cut short is finished, and where the
thread ends in broken work the files go back to the last success.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import ErrorEvent
from hankweave_protocol.ids import CodonId, RunId, Sha
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
from hankweave_server.domain import lifecycle
from hankweave_server.domain import plan as plans
from hankweave_server.domain.history import end_state, next_codon, plan_entry, thread
from hankweave_server.domain.inheritance import NO_SERVER
from hankweave_server.domain.targets import last_success
from hankweave_server.execution.archive import Archives
from hankweave_server.execution.codon.agent_turn import NO_PROCESS
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.resume import PlanConflict, begun_again, grown, replanned
from hankweave_server.execution.rollback.planner import Journey
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Outcome, Runner
from hankweave_server.execution.runs import Runs, new_run


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found and done; the daemon's log and the `server.started` event print it."""

    crashed_run: Run | None
    crashed_codon: CodonExecution | None
    adopted: int
    finished_rollback: bool
    rolled_back: bool


class Recovery:
    def __init__(
        self, around: Surroundings, runner: Runner, rollback: Rollback, recorded: frozenset[Sha]
    ) -> None:
        self._around = around
        self._runner = runner
        self._rollback = rollback
        self._recorded = recorded
        """The shas that the journal names."""

    async def recover(self) -> Recovered:
        """Brings state, journal, repository and files into agreement."""
        adopted = await self._around.checkpointer.adopt(self._recorded)
        crashed_run, crashed_codon = await self._mark_crashed()
        await Runs(self._around).clear_current()
        finished = await self._rollback.finish_interrupted()
        await Archives(self._around).finish_interrupted()
        rolled_back = await self._undo_broken_work()  # A finished one may have moved files alone.
        return Recovered(
            crashed_run=crashed_run,
            crashed_codon=crashed_codon,
            adopted=len(adopted),
            finished_rollback=finished is not None,
            rolled_back=rolled_back,
        )

    async def begin_if_new(
        self,
        *,
        other_hank: bool = False,
        keep_plan: bool = False,
        begin_at: CodonId | None = None,
    ) -> None:
        """Lays out the plan of a new execution, takes its `initial` checkpoint, opens its run.

        Each part is done only if it is missing, so a crash between them is made good here; so is
        one that kept the plan from growing, and one after the last codon's success. With
        `other_hank` the plan follows the hank as it is now; where it cannot, PlanConflict is
        raised, or the plan stays because of `keep_plan`. With `begin_at` it begins again with that
        codon, in a run of its own, and nothing that ran from there on counts; raises Refused where
        that cannot be, and then nothing has changed.
        """
        around = self._around
        plan = self._plan(other_hank=other_hank, keep_plan=keep_plan, begin_at=begin_at)
        begins_again = begin_at is not None and bool(around.state.runs)
        if begin_at is not None:
            self._runner.refuse_where_nothing_may_run(begin_at, plan)

        if plan != around.state.execution_plan and not begins_again:
            await around.ledger.record(PlanSet(execution_plan=plan))

        run = new_run(around, FreshStart())
        if around.state.initial_checkpoint is None:
            sha = await self._initial_checkpoint(run.run_id, plan)
            await around.ledger.record(InitialCheckpointSet(checkpoint_sha=sha))

        if not around.state.runs:
            fresh = FreshStart(initial_checkpoint_sha=around.state.initial_checkpoint)
            opened = msgspec.structs.replace(run, starting_conditions=fresh)
            await around.ledger.record(RunStarted(run=opened), run_id=run.run_id)

        if begin_at is not None and begins_again:
            await self._begin_again(begin_at, plan)
        elif next_codon(around.state) is None:
            await self._runner.settle_past()

    async def _begin_again(self, codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> None:
        """Opens a run that begins with any codon, once nothing is left to do for the newest one."""
        await self._runner.settle_past(codon_id)
        if self._runner.outcome is not Outcome.FAILED:
            await Runs(self._around).open_at(codon_id, plan)

    def _plan(
        self, *, other_hank: bool, keep_plan: bool, begin_at: CodonId | None
    ) -> tuple[PlanEntry, ...]:
        state, hank = self._around.state, self._around.hank.hank
        if other_hank and begin_at is not None:
            return begun_again(state, hank, begin_at)

        if other_hank:
            try:
                return replanned(state, hank)
            except PlanConflict:
                if not keep_plan:
                    raise

        return grown(state.execution_plan or plans.initial_plan(hank), hank, thread(state))

    async def _initial_checkpoint(self, run_id: RunId, plan: tuple[PlanEntry, ...]) -> Sha:
        known = self._around.checkpointer.known.values()
        made = next((record.sha for record in known if record.kind == "initial"), None)
        if made is not None:
            return made

        record = await self._around.checkpointer.take(
            "initial",
            run_id=run_id,
            codon=None,
            codon_name="Before any codon",
            patterns=self._all_patterns(plan),
        )
        return record.sha

    def _all_patterns(self, entries: tuple[PlanEntry, ...]) -> tuple[str, ...]:
        """The initial checkpoint holds all that any codon will ever track."""
        tracked = plans.tracked_patterns(entries, entries[-1].codon_id) if entries else ()
        return tracked or self._around.default_patterns

    async def _mark_crashed(self) -> tuple[Run | None, CodonExecution | None]:
        around = self._around
        crashed = next((run for run in around.state.runs if _has_crashed(run)), None)
        if crashed is None:
            return None, None

        active = [codon for codon in crashed.codons if not end_state(codon)]
        entries = [self._failure_of(crashed, codon) for codon in active]
        await around.ledger.record(
            *entries,
            RunCrashed(
                run_id=crashed.run_id,
                end_time=around.now_text(),
                server_pid=crashed.server_pid,
            ),
            run_id=crashed.run_id,
        )
        return crashed, active[-1] if active else None

    def _failure_of(self, run: Run, codon: CodonExecution) -> CodonTransitioned:
        failed = lifecycle.fail(
            lifecycle.active(codon),
            end_time=self._around.now_text(),
            exit_code=NO_PROCESS,
            reason=FailureReason(type="unknown", retriable=True, message="Server crashed"),
            checkpoint=None,
        )
        return CodonTransitioned(
            run_id=run.run_id, from_status=lifecycle.status_of(codon), codon=failed
        )

    async def _undo_broken_work(self) -> bool:
        """Rolls the files back to the last success where a codon was cut short by a server's end.

        Judged by what is on record, not by what this start found: a start may itself be killed.
        """
        if not self._ends_in_broken_work():
            return False

        if not self._around.checkpointer.known:
            await self._around.ledger.record(_nothing_to_go_back_to())
            return False

        known = dict(self._around.checkpointer.known)
        why = "The server ended while the codon ran."
        while True:
            try:
                target = last_success(self._around.state, known)
            except Refused as refusal:
                await self._tell_degraded(refusal.message)
                return False

            try:
                await self._rollback.perform(Journey(target, reason=why, after_crash=True))
            except Refused as refusal:
                if refusal.code is not ErrorCode.CHECKPOINT_DAMAGED:
                    raise

                await self._tell_degraded(refusal.message)
                del known[target.checkpoint.sha]  # An older success may be whole.
            else:
                return True

    async def _tell_degraded(self, reason: str) -> None:
        """Journal that files could not go back to where they should (Hankweave's words)."""
        warning = ErrorEvent(
            message=f"Recovery degraded: {reason} `hankweave fsck --repair` says what is lost.",
            fatal=False,
            severity="warning",
            code=ErrorCode.CHECKPOINT_DAMAGED,
        )
        await self._around.ledger.record(warning)

    def _ends_in_broken_work(self) -> bool:
        entries = thread(self._around.state)
        if not entries or not isinstance(newest := entries[-1].codon, FailedCodon):
            return False

        if newest.error_checkpoint is None:
            return True  # It died with its server: every other failure takes a checkpoint.

        end = self._around.checkpointer.known.get(newest.error_checkpoint)
        return end is not None and end.kind == "exit"

    def pending(self) -> PlanEntry | None:
        """What is left to run, if anything."""
        codon_id = next_codon(self._around.state)
        if codon_id is None:
            return None

        return plan_entry(self._around.state.execution_plan, codon_id)


def _nothing_to_go_back_to() -> ErrorEvent:
    """What Hankweave says where nothing can be restored."""
    return ErrorEvent(
        message="Recovery degraded: the store has no checkpoint left. The files stay as the codon "
        "that was cut short left them.",
        fatal=False,
        severity="warning",
    )


def _has_crashed(run: Run) -> bool:
    """Tells of a run that nobody ended; the first run of a branch waits for its first server."""
    return run.status == "running" and (run.server_pid != NO_SERVER or bool(run.codons))
