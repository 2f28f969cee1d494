"""The three ends of a codon: its sentinels first, then its checkpoint, then its terminal record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hankweave_protocol.events import CodonWarning, ExitStatus
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointKind
from hankweave_protocol.state import (
    BudgetExceeded,
    Captured,
    FailureReason,
    PreparingCodon,
    TerminalCodon,
)
from hankweave_server.domain import lifecycle
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import Surroundings


class CodonEnds:
    """Brings one codon's record to a terminal state."""

    def __init__(
        self,
        around: Surroundings,
        record: CodonRecord,
        *,
        checkpoint: Callable[[CheckpointKind, str | None], Awaitable[Sha]],
        drain_sentinels: Callable[[bool], Awaitable[None]],
        has_result: Callable[[], bool],
        answer: Callable[[str], Captured],
        warning: Callable[[], CodonWarning | None],
    ) -> None:
        self._around = around
        self._record = record
        self._checkpoint = checkpoint
        self._drain_sentinels = drain_sentinels
        self._has_result = has_result
        self._answer = answer
        self._warning = warning

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
            await self._record.tell(warning)

        done = lifecycle.complete(
            self._record.working(),
            end_time=self._around.now_text(),
            exit_code=exit_code,
            result_received=self._has_result(),
            checkpoint=sha,
            context_exceeded=context_exceeded,
            budget_exceeded=budget_exceeded,
            captured=None if codon.output_var is None else self._answer(codon.output_var),
            warnings=() if warning is None else (warning.message,),
        )
        return await self._record.end(done, ExitStatus(type="success"))

    async def complete_unstarted(self, budget_exceeded: BudgetExceeded) -> TerminalCodon:
        """Complete a codon before its rig and its agent: its budget is spent."""
        sha = await self._checkpoint("completed", None)
        done = lifecycle.complete_unstarted(
            self._record.expect(PreparingCodon),
            end_time=self._around.now_text(),
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
    ) -> TerminalCodon:
        await self._drain_sentinels(False)
        sha = await self._checkpoint(kind, None)
        failed = lifecycle.fail(
            self._record.active,
            end_time=self._around.now_text(),
            exit_code=exit_code,
            reason=reason,
            checkpoint=sha,
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
            end_time=self._around.now_text(),
            checkpoint=sha,
            budget_exceeded=budget_exceeded,
            condition=condition,
        )
        return await self._record.end(skipped, ExitStatus(type="error", code=exit_code))
