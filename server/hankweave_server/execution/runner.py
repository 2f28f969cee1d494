"""Drive the plan: run one codon at a time and decide what follows from how it ended.

The runner is one task. Commands store a request and wake the task, so at any time either nothing
runs or one `CodonRun`. A run is opened when its first codon is about to start, and closed when the
plan ends or no retry is left.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

import anyio

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import (
    CodonRetrying,
    ErrorEvent,
    Info,
    ServerIdle,
    StateSnapshot,
)
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import (
    CompletedCodon,
    FailedCodon,
    PlanEntry,
    SkippedCodon,
    State,
    TerminalCodon,
)
from hankweave_server.domain.execution_thread import (
    attempts_made,
    is_done,
    newest_run,
    next_codon,
    plan_entry,
    suspended_codon,
    thread,
    upcoming_codon,
)
from hankweave_server.domain.failures import RetryDecision, retry_of
from hankweave_server.execution.codon.reuse import wants_reuse
from hankweave_server.execution.codon.run import CodonRun, Halt, Skip
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.post_codon import AftermathFailed, PostCodon
from hankweave_server.execution.resume import Loops
from hankweave_server.execution.rollback.restoration import NotAsBefore, Restoration
from hankweave_server.execution.runs import Runs, snapshot_of
from hankweave_server.ledger.disk_space import RETRY_SECONDS

IdleReason = Literal[
    "startup",
    "codon-completed",
    "codon-failed",
    "all-codons-completed",
    "rollback-completed",
    "stopped",
]


ROLLED_BACK = "Rolled back; waiting for a command."


class Outcome(Enum):
    """The state of the plan when the runner has nothing to do."""

    WAITING = auto()
    COMPLETED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class CodonRequest:
    codon_id: CodonId
    skip_rig: bool = False
    is_retry: bool = False
    """The codon failed and its policy is to try again, from the files that it began with."""


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The delay before a failed codon is tried again."""

    codon_id: CodonId
    seconds: float


class Runner:
    """A task that runs codons on request, and with `autostart` one after the other."""

    def __init__(
        self,
        ctx: ExecutionContext,
        *,
        autostart: bool,
        until: CodonId | None = None,
        ends_server: Callable[[], bool] = lambda: False,
        on_idle: Callable[[Outcome], None] = lambda outcome: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`until` is the codon after which the plan does not continue by itself.

        `ends_server` returns whether the server ends with its plan, which is reported to clients.

        `on_idle` is called when the plan has ended or failed and no codon is requested, and
        `on_change` whenever that may have become true or false.
        """
        self._ctx = ctx
        self._guard = ctx.guard
        self._autostart = autostart
        self._continues = autostart
        """True if the plan continues after the codon that was requested last."""
        self._until = until
        self._ends_server = ends_server
        self._request: CodonRequest | None = None
        self._pause: RetryDelay | None = None
        self._aftermath = PostCodon(ctx)
        self._runs = Runs(ctx)
        self._loops = Loops(ctx)
        self._restoration = Restoration(ctx)
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._stops_after_codon = False
        self.active: CodonRun | None = None
        self._outcome = Outcome.WAITING
        self._is_left_to_clients = False
        self._on_idle = on_idle
        self._on_change = on_change
        self._explore: Callable[[PlanEntry], Awaitable[None]] | None = None

    def when_explored(self, explore: Callable[[PlanEntry], Awaitable[None]]) -> None:
        """Call `explore` in place of running a codon with `attempts`; it must not wait for them."""
        self._explore = explore

    @property
    def continues(self) -> bool:
        """Whether the plan continues after the codon that was requested last."""
        return self._continues

    @property
    def outcome(self) -> Outcome:
        """The state of the plan when there is nothing to do."""
        return self._outcome

    def _set_outcome(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._on_change()

    @property
    def begins_by_itself(self) -> bool:
        """Whether the start of the server, and not a client, decides what runs next."""
        return not (self._is_left_to_clients or self.is_busy)

    def leave_to_clients(self) -> None:
        """Note that a client has started a codon or rolled back: it decides what runs next."""
        self._is_left_to_clients = True

    @property
    def is_busy(self) -> bool:
        return self.active is not None or self._request is not None

    @property
    def upcoming(self) -> CodonId | None:
        """The codon with which the plan continues by itself; None if it has ended."""
        return upcoming_codon(self._ctx.state, self._until)

    def reset_outcome(self) -> None:
        """Note that the plan is not at its end: a rollback begins."""
        self._set_outcome(Outcome.WAITING)

    def note_end(self) -> None:
        """Note that an earlier server has run the plan to its end."""
        self._set_outcome(Outcome.COMPLETED)

    # --- requests --------------------------------------------------------------------------------

    def start(self, codon_id: CodonId, *, skip_rig: bool = False) -> None:
        """Request one entry of the plan; refused while a codon is running.

        The plan continues after it only with `autostart`. A codon that waits for the end of a limit
        continues now.
        """
        if self._end_wait(codon_id):
            return

        self.refuse_while_running()
        self._guard.refuse_when_closing()
        self.refuse_where_nothing_may_run(codon_id, self._ctx.state.execution_plan)
        self.leave_to_clients()
        self._continues = self._autostart
        self._want(CodonRequest(codon_id, skip_rig))

    def _end_wait(self, codon_id: CodonId | None) -> bool:
        """Let a codon that waits for the end of a limit continue; None: whichever it is."""
        active = self.active
        if active is None or not active.is_waiting:
            return False

        if codon_id not in (None, active.entry.codon_id):
            return False

        active.end_wait()
        return True

    def resume_wait(self) -> None:
        """Request the codon that waits for the end of a limit since an earlier server, if any."""
        suspended = suspended_codon(self._ctx.state)
        if suspended is not None:
            self._want(CodonRequest(suspended.codon_id))

    def refuse_where_nothing_may_run(self, codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> None:
        """Refuse a codon that is not in the plan, and any codon while files are half restored."""
        self._guard.refuse_codon()
        if plan_entry(plan, codon_id) is None:
            raise _unknown_codon(codon_id, plan)

    def refuse_unknown_end(self, plan: tuple[PlanEntry, ...]) -> None:
        """Refuse a plan without the codon that is to end it; raise Refused."""
        if self._until is not None and plan_entry(plan, self._until) is None:
            raise _unknown_codon(self._until, plan)

    def _want(self, request: CodonRequest) -> None:
        self._request, self._pause = request, None
        self._idle = anyio.Event()
        self._wake.set()

    def start_next(self) -> CodonId:
        """Request the thread's next codon; one that waits for the end of a limit continues."""
        if self.active is not None and self._end_wait(None):
            return self.active.entry.codon_id

        self.refuse_while_running()
        codon_id = next_codon(self._ctx.state)
        if codon_id is None:
            raise Refused(
                ErrorCode.NOTHING_TO_RUN,
                "All codons of the plan have run.",
                hint=Hint.PLAN_HAS_RUN,
            )

        self.start(codon_id)
        if self._is_to_be_retried(codon_id):
            self._want(CodonRequest(codon_id, is_retry=True))

        return codon_id

    async def start_next_if_any(self) -> None:
        """Run the rest of the plan, whatever `autostart` says, or report that it has ended."""
        if self._guard.is_closing:
            return

        if self.upcoming is not None:
            self.start_next()
            self._continues = True
        else:
            await self.idle("all-codons-completed", "All codons completed.")

    def redo(self) -> CodonId:
        """Request the thread's newest codon once more."""
        self.refuse_while_running()
        entries = thread(self._ctx.state)
        if not entries:
            raise Refused(
                ErrorCode.NOTHING_TO_RUN, ("No codon has run yet, so there is none to run again.")
            )

        codon_id = entries[-1].codon.codon_id
        self.start(codon_id)
        return codon_id

    def stop_after_codon(self) -> None:
        """Let the running codon be the last: none follows it, and it is not tried again."""
        self._stops_after_codon = True
        self._continues = False

    async def skip(self) -> None:
        await self._running().interrupt(Skip())

    async def force_stop(self, reason: str | None) -> None:
        """End the running codon, or the wait for its next attempt."""
        if self.active is None and self._pause is not None:
            codon_id, self._pause = self._pause.codon_id, None
            await self.close_run()
            await self.idle("stopped", f"Codon {codon_id} will not be retried.")
            return

        await self._running().interrupt(Halt(reason or "Stopped by a client."))

    async def quiesce(self, halt: Halt) -> None:
        """End what is running; return when its record is terminal and nothing moves."""
        self._request = self._pause = None
        if self.active is not None:
            await self.active.interrupt(halt)

        self._aftermath.interrupt()
        await self._idle.wait()

    async def close(self, halt: Halt) -> None:
        """Wait for a rollback to end, quiesce for good, and close the run.

        The rollback comes first: an agent that it holds frozen would be woken to be stopped, and
        would write into what is being restored.
        """
        await self._guard.close()
        await self.quiesce(halt)
        await self.close_run()
        await self._runs.clear_current()

    def refuse_while_running(self) -> None:
        if self.is_busy:
            name = self.active.entry.codon_id if self.active is not None else "a codon"
            is_waiting = self.active is not None and self.active.is_waiting
            what = "waits for the end of a limit" if is_waiting else "is running"
            raise Refused(
                ErrorCode.CODON_RUNNING,
                f"Codon {name} {what}.",
                hint=Hint.CODON_IS_RUNNING,
            )

    def _running(self) -> CodonRun:
        if self.active is None:
            raise Refused(ErrorCode.NO_CODON_RUNNING, "No codon is running.")

        return self.active

    # --- the task ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve requests until cancelled."""
        while True:
            await self._next_request()
            while (request := self._request) is not None:
                if await self._has_room():
                    await self._serve(request)

            self._idle.set()
            self._on_change()
            if not self._guard.is_closing:
                self._on_idle(self.outcome)

    async def _has_room(self) -> bool:
        """Keep codons from starting on a full disk.

        Wait only briefly, as the request may be cancelled.
        """
        space = self._ctx.ledger.space
        if space.is_short:
            with anyio.move_on_after(RETRY_SECONDS):
                await space.wait_for_recovery()

        return not space.is_short

    async def _next_request(self) -> None:
        """Wait until a codon is requested or the time for another attempt has come."""
        pause = self._pause
        with anyio.move_on_after(math.inf if pause is None else pause.seconds):
            await self._wake.wait()

        self._wake = anyio.Event()
        if pause is not None and self._pause is pause and not self._guard.is_rolling_back:
            self._want(CodonRequest(pause.codon_id, is_retry=True))

    async def _serve(self, request: CodonRequest) -> None:
        entry = plan_entry(self._ctx.state.execution_plan, request.codon_id)
        assert entry is not None, "a request names an entry of the plan"
        if suspended_codon(self._ctx.state) is not None:
            open_since = self._ctx.state.runs[0].run_id
            resumed = CodonRun(self._ctx, open_since, entry, restored_rig=None, is_resumed=True)
            await self._run_codon(open_since, entry, resumed)
            return

        if entry.codon.attempts is not None and self._explore is not None:
            self._request = None
            await self._explore(entry)
            return

        standing_rig = None
        if request.is_retry:
            try:
                standing_rig = await self._restoration.before_retry(request.codon_id)
            except (Refused, NotAsBefore) as fault:
                await self._cannot_be_retried(request, fault)
                return

        # A codon of the present thread that is started once more is meant to run.
        is_again = any(each.codon.codon_id == request.codon_id for each in thread(self._ctx.state))
        run_id = await self._open_run(request, entry)
        if run_id is None:
            return

        run = CodonRun(
            self._ctx,
            run_id,
            self._ctx.recorded.original_entry(entry),
            restored_rig=standing_rig or self._runs.restored_rig(run_id, request.codon_id),
            skip_rig=request.skip_rig,
            may_reuse=not is_again and wants_reuse(self._ctx, run_id, entry),
        )
        self._loops.begin(entry)
        await self._run_codon(run_id, entry, run)

    async def _run_codon(self, run_id: RunId, entry: PlanEntry, run: CodonRun) -> None:
        self.active = run
        self._request = None
        self._set_outcome(Outcome.WAITING)
        try:
            terminal = await run.run()
            if terminal is None:
                return  # It goes on under the next server.

            failed = await self._settle(run_id, entry, terminal)
            halted = run.was_halted
        finally:
            self.active = None

        if failed is not None:
            await self._break_off(failed)
            return

        await self._after(entry, terminal, halted=halted)

    async def _open_run(self, request: CodonRequest, entry: PlanEntry) -> RunId | None:
        """Return the run in which a codon starts, with the work of the codon before it done.

        None if that work failed, or a rollback or the server's end has cancelled the request.
        """
        due = await self._aftermath.due(request.codon_id)
        run_id = await self._runs.open_for(request.codon_id, is_retry=request.is_retry)
        try:
            if due is not None:
                await self._aftermath.catch_up(run_id, due)

            await self._aftermath.expect(run_id, entry)
        except AftermathFailed as fault:
            self._request = None
            await self._break_off(fault)
            return None

        return run_id if self._request is request else None

    async def _settle(
        self, run_id: RunId, entry: PlanEntry, terminal: TerminalCodon
    ) -> AftermathFailed | None:
        """Report a codon's end, and grow the plan before a client can ask what comes next.

        Returns the error that kept its files from being exported or archived.
        """
        fault, aftermath = None, self._aftermath
        await self._ctx.ledger.post(self.snapshot())
        try:
            if isinstance(terminal, CompletedCodon):
                await aftermath.after_codon(run_id, entry, terminal)
        except AftermathFailed as failed:
            fault = failed

        ended = None
        if is_done(terminal, self._ctx.state.execution_plan):
            ended = await self._loops.advance(entry, terminal)

        try:
            if ended is not None and fault is None:
                await aftermath.after_loop(run_id, ended, entry, terminal)
        except AftermathFailed as failed:
            fault = failed

        if fault is None:
            await aftermath.done()

        return fault

    async def settle_past(self, upcoming: CodonId | None = None) -> None:
        """Do the work that the last codon's success still requires, if no codon follows it."""
        due = await self._aftermath.due(upcoming)
        run = newest_run(self._ctx.state)
        if due is None or run is None:
            return

        try:
            await self._aftermath.catch_up(run.run_id, due)
        except AftermathFailed as fault:
            await self._break_off(fault)

    async def _break_off(self, fault: AftermathFailed) -> None:
        """Fail the run although its codon has succeeded; the next start tries again."""
        error = ErrorEvent(message=str(fault), fatal=True, severity="fatal")
        await self._ctx.ledger.record(error)
        await self.close_run(failed=True)
        self._set_outcome(Outcome.FAILED)
        await self.idle("codon-failed", str(fault))

    async def _after(self, entry: PlanEntry, terminal: TerminalCodon, *, halted: bool) -> None:
        """Decide what follows a codon's end."""
        if halted:
            # Without clients, nothing could start the codon again.
            self._set_outcome(Outcome.WAITING if self._guard.is_rolling_back else Outcome.FAILED)
            if not self._guard.is_rolling_back and not self._guard.is_closing:
                await self._inform(f"Codon {entry.codon_id} force stopped")

            await self.idle("stopped", f"Codon {entry.codon_id} was stopped.")
        elif is_done(terminal, self._ctx.state.execution_plan):
            if isinstance(terminal, FailedCodon):
                await self._inform(_ignored_sentence(terminal))

            await self._continue(entry, terminal)
        elif isinstance(terminal, FailedCodon):
            await self._fail_or_retry(entry, terminal)

    async def _fail_or_retry(self, entry: PlanEntry, failed: FailedCodon) -> None:
        """Apply the failure policy; clients can already see what comes next."""
        made = attempts_made(self._ctx.state, entry.codon_id)
        retry = retry_of(entry.codon, failed.failure_reason, attempts=made)
        if retry is None or self._guard.is_closing or self._stops_after_codon:
            await self._give_up(_failure_sentence(failed))
        else:
            await self._pause_before(retry, entry, failed)

    async def _pause_before(
        self, retry: RetryDecision, entry: PlanEntry, failed: FailedCodon
    ) -> None:
        if self._request is not None:
            return  # A client was faster.

        self._pause = RetryDelay(entry.codon_id, retry.after_ms / 1000)
        await self._ctx.ledger.record(
            CodonRetrying(
                codon_id=entry.codon_id,
                attempt=retry.attempt,
                max_attempts=retry.max_attempts,
                delay_ms=retry.after_ms,
                failure_reason=failed.failure_reason,
            ),
            Info(
                message=f"Retrying codon {entry.codon_id} "
                f"(attempt {retry.attempt}/{retry.max_attempts})"
            ),
            codon_id=entry.codon_id,
        )

    async def fail(self, sentence: str) -> None:
        """End the run without another codon: what the plan waited for has failed."""
        await self._give_up(sentence)
        if not self.is_busy and not self._guard.is_closing:
            self._on_idle(self.outcome)

    async def _give_up(self, sentence: str) -> None:
        await self.close_run()
        self._set_outcome(Outcome.FAILED)
        await self.idle("codon-failed", sentence)

    async def _cannot_be_retried(self, request: CodonRequest, fault: Exception) -> None:
        if self._request is not request:
            return  # A rollback was faster: the error comes from it.

        self._request = None
        await self._give_up(f"Codon {request.codon_id} cannot be retried: {fault}")

    def _is_to_be_retried(self, codon_id: CodonId) -> bool:
        """Return whether a codon failed and its policy restores the files before a retry."""
        entries = thread(self._ctx.state)
        entry = plan_entry(self._ctx.state.execution_plan, codon_id)
        return (
            entry is not None
            and entry.codon.on_failure == "retry"
            and bool(entries)
            and entries[-1].codon.codon_id == codon_id
            and isinstance(entries[-1].codon, FailedCodon)
        )

    async def _continue(self, entry: PlanEntry, terminal: TerminalCodon) -> None:
        following = self.upcoming
        if following is None:
            await self.close_run()
            self._set_outcome(Outcome.COMPLETED)
            await self._report_end(terminal)
        elif self._request is not None:
            return  # A client was faster than the plan.
        elif self._continues and not self._guard.is_closing and not self._guard.is_rolling_back:
            self._request = CodonRequest(following)
        else:
            await self.idle("codon-completed", f"Codon {entry.codon_id} completed.")

    async def _report_end(self, terminal: TerminalCodon) -> None:
        """Report the end of the plan in the words that Hankweave's clients look for."""
        if next_codon(self._ctx.state) is not None:
            await self.idle("codon-completed", f"Codon {terminal.codon_id} ends this run.")
            return

        if isinstance(terminal, FailedCodon):
            message = f"Run completed. Last codon {terminal.codon_id} failed (ignored)."
            await self.idle("all-codons-completed", message)
            return

        if self._autostart:
            then = "Server shutting down." if self._ends_server() else "Server remains active."
            await self._inform(f"All codons completed successfully. {then}")

        if isinstance(terminal, SkippedCodon) and _is_by_a_person(terminal):
            await self.idle("codon-completed", f"Codon {terminal.codon_id} skipped.")
        else:
            await self.idle("all-codons-completed", "All codons completed.")

    async def _inform(self, message: str) -> None:
        await self._ctx.ledger.record(Info(message=message))

    async def close_run(self, *, failed: bool = False) -> None:
        await self._runs.close(failed=failed)

    def snapshot(self) -> StateSnapshot:
        return self._snapshot_of(
            self._ctx.ledger.durable_state, is_rolling_back=self._guard.is_rolling_back
        )

    def _snapshot_of(self, state: State, *, is_rolling_back: bool) -> StateSnapshot:
        elapsed = self._ctx.clock.monotonic() - self._ctx.started_monotonic
        return snapshot_of(state, uptime_ms=round(elapsed * 1000), is_rolling_back=is_rolling_back)

    def idle_after_rollback(self, causes: tuple[int | str, ...]) -> None:
        """Queue the snapshot and `server.idle` that follow the events of a rollback."""
        ledger = self._ctx.ledger
        ledger.leave(self._snapshot_of(ledger.state, is_rolling_back=False), causes=causes)
        ledger.leave(ServerIdle(reason="rollback-completed", message=ROLLED_BACK))

    async def idle_after_failure(self, sentence: str) -> None:
        """Start nothing at the start of the server; one that ends with its plan ends as failed."""
        self.leave_to_clients()
        self._set_outcome(Outcome.FAILED)
        await self.idle("codon-failed", sentence)

    async def idle(self, reason: IdleReason, message: str) -> None:
        await self._ctx.ledger.record(ServerIdle(reason=reason, message=message))


def _unknown_codon(codon_id: CodonId, plan: tuple[PlanEntry, ...]) -> Refused:
    known = ", ".join(entry.codon_id for entry in plan)
    return Refused(
        ErrorCode.UNKNOWN_CODON,
        f"Codon {codon_id} is not in the execution plan.",
        path="$.data.codonId",
        hint=f"Codons in the plan: {known}.",
    )


def _is_by_a_person(skipped: SkippedCodon) -> bool:
    """Return whether a codon was skipped by a command, and not by the plan itself."""
    return skipped.condition is None and skipped.budget_exceeded is None


def _ignored_sentence(failed: FailedCodon) -> str:
    where = " rig setup" if failed.failed_during == "preparing" else ""
    return f"Codon {failed.codon_id}{where} failed, continuing (onFailure=ignore)"


def _failure_sentence(failed: FailedCodon) -> str:
    if failed.failure_reason.message is not None:
        return f"Codon {failed.codon_id} failed: {failed.failure_reason.message}"

    return f"Codon {failed.codon_id} failed."
