"""Drives the plan: one codon at a time, and what follows from how each one ended.

The runner is one task. Commands leave it a wish and wake it; what is running now is always either
nothing or one `CodonRun`. A run is opened when the first codon of it is about to start and closed
when the plan or the patience ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

import anyio

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import LoopIterationCompleted, ServerIdle, StateSnapshot
from hankweave_protocol.ids import CodonId, RunId, Sha, branch_of
from hankweave_protocol.state import (
    Continuation,
    FailedCodon,
    PlanEntry,
    Run,
    StartingConditions,
    TerminalCodon,
)
from hankweave_protocol.transitions import PlanSet, RunCompleted, RunFailed, RunStarted
from hankweave_server.domain import lifecycle
from hankweave_server.domain import plan as plans
from hankweave_server.domain.history import (
    end_state,
    is_done,
    next_codon,
    plan_entry,
    rig_checkpoint,
    run_named,
    starting_conditions,
    thread,
)
from hankweave_server.execution.codon_run import CodonRun, Halt, Skip
from hankweave_server.execution.snapshot import snapshot_of
from hankweave_server.execution.surroundings import Surroundings

IdleReason = Literal[
    "startup",
    "codon-completed",
    "codon-failed",
    "all-codons-completed",
    "rollback-completed",
    "stopped",
]


class Outcome(Enum):
    """How the plan stands when the runner has nothing to do."""

    WAITING = auto()
    COMPLETED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Wish:
    codon_id: CodonId
    skip_rig: bool = False


class Runner:
    """Runs codons on request, and with `autostart` one after the other."""

    def __init__(self, around: Surroundings, *, autostart: bool) -> None:
        self._around = around
        self._autostart = autostart
        self._wish: Wish | None = None
        self._wake = anyio.Event()
        self._at_rest = anyio.Event()
        self._at_rest.set()
        self._closing = False
        self._rolling_back = False
        self._rolled_back = anyio.Event()
        self.blocked = False
        """True after a rollback that could not finish, until one does."""
        self.active: CodonRun | None = None
        self.outcome = Outcome.WAITING
        self.on_rest: Callable[[Outcome], None] = lambda outcome: None
        """Called when the plan has ended or failed and nothing is wished for."""

    @property
    def is_busy(self) -> bool:
        return self.active is not None or self._wish is not None

    @property
    def is_rolling_back(self) -> bool:
        return self._rolling_back

    @contextlib.contextmanager
    def rolling_back(self) -> Iterator[None]:
        """Marks a rollback in progress; a second one is refused (Hankweave, 3.3)."""
        if self._closing:
            raise Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.")

        if self._rolling_back:
            raise Refused(
                ErrorCode.ROLLBACK_IN_PROGRESS,
                "A rollback is in progress.",
                hint="Wait for rollback.completed.",
            )

        self._rolling_back = True
        self._rolled_back = anyio.Event()
        try:
            yield
        finally:
            self._rolling_back = False
            self._rolled_back.set()

    # --- wishes --------------------------------------------------------------------------------

    def start(self, codon_id: CodonId, *, skip_rig: bool = False) -> None:
        """Wishes for one entry of the plan; refused while a codon is running."""
        self.refuse_while_running()
        if self._closing:
            raise Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.")

        if self.blocked:
            raise Refused(
                ErrorCode.ROLLBACK_IN_PROGRESS,
                "A rollback could not finish; no codon may run on files that are half restored.",
                hint="Roll back again, or start the server anew: it finishes what was begun.",
            )

        if plan_entry(self._around.state.execution_plan, codon_id) is None:
            known = ", ".join(entry.codon_id for entry in self._around.state.execution_plan)
            raise Refused(
                ErrorCode.UNKNOWN_CODON,
                f"Codon {codon_id} is not in the execution plan.",
                path="$.data.codonId",
                hint=f"The plan has: {known}.",
            )

        self._wish = Wish(codon_id, skip_rig)
        self._at_rest = anyio.Event()
        self._wake.set()

    def start_next(self) -> CodonId:
        """Wishes for the thread's next codon."""
        self.refuse_while_running()
        codon_id = next_codon(self._around.state)
        if codon_id is None:
            raise Refused(
                ErrorCode.NOTHING_TO_RUN,
                "All codons of the plan have run.",
                hint="codon.redo runs the last one again; a rollback goes back further.",
            )

        self.start(codon_id)
        return codon_id

    async def start_next_if_any(self) -> None:
        """Goes on with the plan, or says that it is at its end."""
        if self._closing:
            return

        if next_codon(self._around.state) is not None:
            self.start_next()
        else:
            await self.idle("all-codons-completed", "All codons completed.")

    def redo(self) -> CodonId:
        """Wishes for the thread's newest codon once more."""
        self.refuse_while_running()
        entries = thread(self._around.state)
        if not entries:
            raise Refused(ErrorCode.NOTHING_TO_RUN, "No codon has run yet that could be redone.")

        codon_id = entries[-1].codon.codon_id
        self.start(codon_id)
        return codon_id

    async def skip(self) -> None:
        await self._running().interrupt(Skip())

    async def force_stop(self, reason: str | None) -> None:
        await self._running().interrupt(Halt(reason or "Stopped by a client."))

    async def quiesce(self, halt: Halt) -> None:
        """Ends what is running and returns when its record is terminal and nothing moves."""
        self._wish = None
        if self.active is not None:
            await self.active.interrupt(halt)

        await self._at_rest.wait()

    async def close(self, halt: Halt) -> None:
        """Quiesces for good, lets a rollback end, and closes the run."""
        self._closing = True
        await self.quiesce(halt)
        if self._rolling_back:
            await self._rolled_back.wait()

        await self.close_run()

    def refuse_while_running(self) -> None:
        if self.is_busy:
            name = self.active.entry.codon_id if self.active is not None else "a codon"
            raise Refused(
                ErrorCode.CODON_RUNNING,
                f"Codon {name} is running.",
                hint="Wait for codon.completed, or send codon.skip or codon.forceStop first.",
            )

    def _running(self) -> CodonRun:
        if self.active is None:
            raise Refused(ErrorCode.NO_CODON_RUNNING, "No codon is running.")

        return self.active

    # --- the task ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves wishes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while (wish := self._wish) is not None:
                await self._serve(wish)

            self._at_rest.set()
            if not self._closing:
                self.on_rest(self.outcome)

    async def _serve(self, wish: Wish) -> None:
        entry = plan_entry(self._around.state.execution_plan, wish.codon_id)
        assert entry is not None, "a wish names an entry of the plan"
        run_id = await self._open_run(wish.codon_id)
        if self._wish is not wish:
            return  # Taken back by a rollback or the server's end while the run was opened.

        self.active = CodonRun(
            self._around,
            run_id,
            entry,
            restored_rig=self._restored_rig(run_id, wish.codon_id),
            skip_rig=wish.skip_rig,
        )
        self._wish = None
        self.outcome = Outcome.WAITING
        try:
            terminal = await self.active.run()
            await self._settle(entry, terminal)
            halted = self.active.was_halted
        finally:
            self.active = None

        await self._after(entry, terminal, halted=halted)

    async def _settle(self, entry: PlanEntry, terminal: TerminalCodon) -> None:
        """Tells of a codon's end, and grows the plan before anybody may ask what comes next."""
        await self._around.ledger.post(self.snapshot())
        if is_done(terminal, self._around.state.execution_plan):
            await self._expand_loop(entry, terminal)

    async def _after(self, entry: PlanEntry, terminal: TerminalCodon, *, halted: bool) -> None:
        """Decides what follows a codon's end."""
        if halted:
            await self.idle("stopped", f"Codon {entry.codon_id} was stopped.")
        elif is_done(terminal, self._around.state.execution_plan):
            await self._go_on(entry)
        else:
            await self.close_run()
            self.outcome = Outcome.FAILED
            await self.idle("codon-failed", _failure_sentence(terminal))

    async def _go_on(self, entry: PlanEntry) -> None:
        following = next_codon(self._around.state)
        if following is None:
            await self.close_run()
            self.outcome = Outcome.COMPLETED
            await self.idle("all-codons-completed", "All codons completed.")
        elif self._wish is not None:
            return  # A client was quicker than the plan.
        elif self._autostart and not self._closing and not self._rolling_back:
            self._wish = Wish(following)
        else:
            await self.idle("codon-completed", f"Codon {entry.codon_id} completed.")

    async def _expand_loop(self, entry: PlanEntry, terminal: TerminalCodon) -> None:
        """Adds a loop's next iteration when one ends and the loop does not (seed 002)."""
        loop = plans.loop_of(self._around.hank.hank, entry)
        if loop is None or not plans.ends_iteration(loop, entry):
            return

        final = plans.is_loop_finished(loop, entry)
        assert entry.loop_context is not None
        tokens = lifecycle.tokens_of(terminal)
        event = LoopIterationCompleted(
            loop_id=loop.id,
            iteration=entry.loop_context.iteration,
            duration_ms=plans.iteration_duration_ms(self._around.state, entry),
            cost_usd=lifecycle.cost_of(terminal),
            tokens_used=tokens.input_tokens + tokens.output_tokens,
            is_final=final,
            termination_reason="iteration_limit" if final else None,
        )
        if final:
            await self._around.ledger.record(event)
            return

        grown = plans.next_iteration(self._around.state.execution_plan, loop, entry)
        await self._around.ledger.record(event, PlanSet(execution_plan=grown))

    # --- runs ----------------------------------------------------------------------------------

    async def _open_run(self, codon_id: CodonId) -> RunId:
        """The current run, or a new one; a codon done again gets a run of its own."""
        state = self._around.state
        current = run_named(state, state.current_run_id)
        entries = thread(state)
        again = bool(entries) and entries[-1].codon.codon_id == codon_id
        if current is not None and not (again and current.codons):
            return current.run_id

        conditions = starting_conditions(state, codon_id, "retry" if again else "continue")
        if current is not None:
            await self.close_run()

        return await self.open_run(conditions)

    async def open_run(self, conditions: StartingConditions) -> RunId:
        run = new_run(self._around, conditions)
        await self._around.ledger.record(RunStarted(run=run), run_id=run.run_id)
        self.outcome = Outcome.WAITING
        return run.run_id

    async def close_run(self) -> None:
        """Closes the current run: failed if its newest codon failed for good, else completed."""
        state = self._around.state
        run = run_named(state, state.current_run_id)
        if run is not None:
            await self._around.ledger.record(
                closing(run, self._around.now_text(), self._around.state.execution_plan),
                run_id=run.run_id,
            )

    def _restored_rig(self, run_id: RunId, codon_id: CodonId) -> Sha | None:
        """The rig checkpoint that the work tree was restored to for this very codon, if any."""
        state = self._around.state
        run = run_named(state, run_id)
        if run is None or run.codons or not isinstance(run.starting_conditions, Continuation):
            return None

        restored = run.starting_conditions.source.checkpoint_sha
        if restored is None or run.starting_conditions.reason != "rollback":
            return None

        owners = (codon for other in state.runs for codon in other.codons)
        matches = (c for c in owners if c.codon_id == codon_id and rig_checkpoint(c) == restored)
        return restored if next(matches, None) is not None else None

    def snapshot(self) -> StateSnapshot:
        elapsed = self._around.clock.monotonic() - self._around.started_monotonic
        return snapshot_of(
            self._around.ledger.durable_state,
            uptime_ms=round(elapsed * 1000),
            is_rolling_back=self._rolling_back,
        )

    async def idle(self, reason: IdleReason, message: str) -> None:
        await self._around.ledger.record(ServerIdle(reason=reason, message=message))


def new_run(around: Surroundings, conditions: StartingConditions) -> Run:
    run_id = around.new_run_id()
    return Run(
        run_id=run_id,
        run_folder=str(around.layout.run_folder(run_id)),
        git_branch=branch_of(run_id),
        starting_conditions=conditions,
        codons=(),
        status="running",
        start_time=around.now_text(),
        server_pid=os.getpid(),
    )


def closing(run: Run, end_time: str, plan: tuple[PlanEntry, ...]) -> RunCompleted | RunFailed:
    newest = run.codons[-1] if run.codons else None
    if newest is not None and end_state(newest) and not is_done(newest, plan):
        return RunFailed(run_id=run.run_id, end_time=end_time)

    return RunCompleted(run_id=run.run_id, end_time=end_time)


def _failure_sentence(terminal: TerminalCodon) -> str:
    if isinstance(terminal, FailedCodon) and terminal.failure_reason.message is not None:
        return f"Codon {terminal.codon_id} failed: {terminal.failure_reason.message}"

    return f"Codon {terminal.codon_id} failed."
