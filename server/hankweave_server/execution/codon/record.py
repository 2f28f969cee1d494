"""The record of one codon execution in the ledger: its states, checkpoints and ends.

A codon ends in one of three ways (completed, failed, skipped), always in this order: its sentinels
finish, its checkpoint is taken, its terminal state is recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, TypeVar

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CodonCompletedEvent, CodonWarning, ExitStatus
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.records import CheckpointKind
from hankweave_protocol.state import (
    ActiveCodon,
    BudgetExceeded,
    Captured,
    CodonExecution,
    CompletedCodon,
    CompletingSentinelsCodon,
    FailedCodon,
    FailureReason,
    PlanEntry,
    PreparingCodon,
    RunningCodon,
    SkippedCodon,
    TerminalCodon,
)
from hankweave_protocol.transitions import CodonStarted, CodonTransitioned
from hankweave_server.domain import lifecycle
from hankweave_server.domain.execution_thread import attempts_made, failed_attempts, run_named
from hankweave_server.domain.reuse.decision import is_offered
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.batch import Entry

_Kind = TypeVar("_Kind", bound=CodonExecution)


class CodonRecord:
    """The record of one codon; each state transition is durable when the call returns."""

    def __init__(self, ctx: ExecutionContext, run_id: RunId, entry: PlanEntry) -> None:
        self._ctx = ctx
        self.run_id = run_id
        self.entry = entry
        self._begun = ctx.clock.monotonic()
        self._held_at: float | None = None
        self.first_seq = ctx.ledger.last_seq
        """An event after this one may belong to the codon, whatever the wall clock says."""

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the codon began, by the monotonic clock, without waits for limits."""
        until = self._ctx.clock.monotonic() if self._held_at is None else self._held_at
        return round((until - self._begun) * 1000)

    def take_over(self) -> None:
        """Count on from the time that the codon had worked under an earlier server."""
        codon = self.current
        wait = lifecycle.wait_of(codon)
        if wait is not None:
            whole = milliseconds_between(from_text(codon.start_time), from_text(wait.since))
            worked = max(0, whole - codon.waited_ms)
            self._begun = self._ctx.clock.monotonic() - worked / 1000

    def hold_time(self) -> None:
        """Stop counting time: the codon waits for the end of a limit."""
        if self._held_at is None:
            self._held_at = self._ctx.clock.monotonic()

    def count_time(self) -> None:
        if self._held_at is not None:
            self._begun += self._ctx.clock.monotonic() - self._held_at
            self._held_at = None

    @property
    def current(self) -> CodonExecution:
        run = run_named(self._ctx.state, self.run_id)
        assert run is not None, "a codon runs inside a run"
        return run.codons[-1]

    @property
    def active(self) -> ActiveCodon:
        return lifecycle.active(self.current)

    @property
    def is_running(self) -> bool:
        return isinstance(self.current, RunningCodon)

    def working(self) -> RunningCodon | CompletingSentinelsCodon:
        current = self.current
        assert isinstance(current, RunningCodon | CompletingSentinelsCodon)
        return current

    def expect(self, kind: type[_Kind]) -> _Kind:
        current = self.current
        assert isinstance(current, kind), f"codon {current.codon_id} is {type(current).__name__}"
        return current

    async def begin(self) -> None:
        """Append the codon to its run, in `preparing`."""
        made = attempts_made(self._ctx.state, self.entry.codon_id)
        record = PreparingCodon(
            codon_id=self.entry.codon_id,
            start_time=self._ctx.now_text(),
            loop_context=self.entry.loop_context,
            attempt=made + 1,
        )
        await self.append(CodonStarted(run_id=self.run_id, codon=record))

    async def move(self, to: CodonExecution) -> None:
        await self.append(self._transition(to))

    async def append(self, *entries: Entry) -> None:
        """Record entries that belong to this codon, in one batch."""
        await self._ctx.ledger.record(*entries, run_id=self.run_id, codon_id=self.entry.codon_id)

    async def take(
        self,
        kind: CheckpointKind,
        label: str | None = None,
        *,
        message_id: str | None = None,
        tools: Sequence[str] = (),
    ) -> Sha:
        """Take a checkpoint of the codon; the caller ensures that the files stand still."""
        record = await self._ctx.checkpointer.take(
            kind,
            run_id=self.run_id,
            codon=self.current,
            codon_name=self.entry.codon.name,
            patterns=self._ctx.patterns(),
            duration_ms=self.elapsed_ms,
            message_id=message_id,
            label=label,
            tools=tools,
        )
        return record.sha

    async def end(self, terminal: TerminalCodon, status: ExitStatus) -> TerminalCodon:
        """Record the terminal state and its event in one batch."""
        failed = isinstance(terminal, FailedCodon)
        event = CodonCompletedEvent(
            codon_id=terminal.codon_id,
            success=isinstance(terminal, CompletedCodon),
            cost=lifecycle.cost_of(terminal) + self._cost_of_failed_attempts(),
            duration=self.elapsed_ms,
            exit_status=status,
            failure_reason=terminal.failure_reason if isinstance(terminal, FailedCodon) else None,
            failure_ignored=True if failed and self.entry.codon.on_failure == "ignore" else None,
            budget_exceeded=terminal.budget_exceeded,
            skipped=True if isinstance(terminal, SkippedCodon) else None,
            condition=terminal.condition if isinstance(terminal, SkippedCodon) else None,
            captured=terminal.captured if isinstance(terminal, CompletedCodon) else None,
            warnings=terminal.warnings if isinstance(terminal, CompletedCodon) else (),
            reused=terminal.reused if isinstance(terminal, CompletedCodon) else None,
        )
        await self.append(self._transition(terminal), event)
        return terminal

    def _cost_of_failed_attempts(self) -> float:
        """Return the cost of earlier attempts of this codon in USD: no other event includes it."""
        tries = failed_attempts(self._ctx.state, self.entry.codon_id)
        return sum(lifecycle.cost_of(each) for each in tries if isinstance(each, FailedCodon))

    def refuse_to_freeze(self, why: str, instead: str) -> NoReturn:
        """Raise Refused: the codon has no working agent that could be frozen."""
        raise Refused(
            ErrorCode.CODON_RUNNING,
            f"Codon {self.entry.codon_id} {why} and cannot be paused.",
            path="$.data.onRunning",
            hint=f"{instead}, or stop it instead of pausing it.",
        )

    def _transition(self, to: CodonExecution) -> CodonTransitioned:
        return CodonTransitioned(
            run_id=self.run_id, from_status=lifecycle.status_of(self.current), codon=to
        )


class CodonEnds:
    """The ends of one codon: each brings its record to a terminal state."""

    def __init__(
        self,
        ctx: ExecutionContext,
        record: CodonRecord,
        *,
        checkpoint: Callable[[CheckpointKind, str | None], Awaitable[Sha]],
        drain_sentinels: Callable[[bool], Awaitable[None]],
        has_result: Callable[[], bool],
        answer: Callable[[str], Captured],
        warning: Callable[[], CodonWarning | None],
        reuse_key: Callable[[], str | None],
    ) -> None:
        """`reuse_key` returns that of a codon whose result depends on its inputs alone."""
        self._ctx = ctx
        self._record = record
        self._checkpoint = checkpoint
        self._drain_sentinels = drain_sentinels
        self._has_result = has_result
        self._answer = answer
        self._warning = warning
        self._reuse_key = reuse_key

    async def complete(
        self,
        exit_code: int,
        *,
        context_exceeded: bool = False,
        budget_exceeded: BudgetExceeded | None = None,
    ) -> TerminalCodon:
        await self._drain_sentinels(True)
        codon = self._record.entry.codon
        sha = await self._checkpoint("completed", codon.checkpoint_label)
        warning = self._warning()
        if warning is not None:
            await self._record.append(warning)

        done = lifecycle.complete(
            self._record.working(),
            end_time=self._ctx.now_text(),
            exit_code=exit_code,
            result_received=self._has_result(),
            checkpoint=sha,
            context_exceeded=context_exceeded,
            budget_exceeded=budget_exceeded,
            captured=None if codon.output_var is None else self._answer(codon.output_var),
            warnings=() if warning is None else (warning.message,),
            reuse_key=self._reuse_key(),
        )
        if not is_offered(done):
            done = msgspec.structs.replace(done, reuse_key=None)

        return await self._record.end(done, ExitStatus(type="success"))

    async def complete_unstarted(self, budget_exceeded: BudgetExceeded) -> TerminalCodon:
        """Complete a codon before its rig and its agent: its budget is spent."""
        sha = await self._checkpoint("completed", None)
        done = lifecycle.complete_unstarted(
            self._record.expect(PreparingCodon),
            end_time=self._ctx.now_text(),
            checkpoint=sha,
            budget_exceeded=budget_exceeded,
        )
        return await self._record.end(done, ExitStatus(type="success"))

    async def fail(
        self,
        reason: FailureReason,
        exit_code: int,
        kind: CheckpointKind = "error",
        *,
        budget_exceeded: BudgetExceeded | None = None,
        checkpoint: Sha | None = None,
    ) -> TerminalCodon:
        """End as failed; `checkpoint` is the last one, if it was taken when sentinels were done."""
        if checkpoint is None:
            await self._drain_sentinels(False)
            checkpoint = await self._checkpoint(kind, None)

        failed = lifecycle.fail(
            self._record.active,
            end_time=self._ctx.now_text(),
            exit_code=exit_code,
            reason=reason,
            checkpoint=checkpoint,
            budget_exceeded=budget_exceeded,
        )
        return await self._record.end(failed, ExitStatus(type="error", code=exit_code))

    async def skip(
        self,
        exit_code: int,
        *,
        budget_exceeded: BudgetExceeded | None = None,
        condition: str | None = None,
    ) -> TerminalCodon:
        await self._drain_sentinels(False)
        sha = await self._checkpoint("skipped", None)
        skipped = lifecycle.skip(
            self._record.active,
            end_time=self._ctx.now_text(),
            checkpoint=sha,
            budget_exceeded=budget_exceeded,
            condition=condition,
        )
        return await self._record.end(skipped, ExitStatus(type="error", code=exit_code))
