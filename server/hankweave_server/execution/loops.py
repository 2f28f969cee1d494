"""Loops as they run: their next iteration enters the plan, and the rest leaves when they end."""

from __future__ import annotations

from hankweave_protocol.events import LoopIterationCompleted
from hankweave_protocol.hank import Loop
from hankweave_protocol.state import LoopContext, PlanEntry, TerminalCodon
from hankweave_protocol.transitions import PlanSet
from hankweave_server.domain import plan as plans
from hankweave_server.execution.context import Surroundings


class Loops:
    """The loops of one execution's plan."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._newest: tuple[LoopContext, float] | None = None
        """The iteration that began last, and when by the monotonic clock."""

    async def advance(self, entry: PlanEntry, terminal: TerminalCodon) -> Loop | None:
        """Adds a loop's next iteration when one ends and the loop does not (seed 002).

        Gives the loop if it has ended.
        """
        loop = plans.loop_of(self._around.hank.hank, entry)
        if loop is None or entry.loop_context is None:
            return None

        final = plans.is_loop_finished(loop, entry, terminal)
        if not final and not plans.ends_iteration(loop, entry):
            return None

        state = self._around.state
        tokens = plans.iteration_tokens(state, entry)
        event = LoopIterationCompleted(
            loop_id=loop.id,
            iteration=entry.loop_context.iteration,
            duration_ms=self._milliseconds(entry),
            cost_usd=plans.iteration_cost(state, entry),
            tokens_used=tokens.input_tokens + tokens.output_tokens,
            is_final=final,
            termination_reason=plans.why_loop_ends(loop, terminal) if final else None,
        )
        plan = state.execution_plan
        onward = plans.without_rest(plan, entry)
        if not final:
            onward = plans.next_iteration(plan, loop, entry)

        changed = () if onward == plan else (PlanSet(execution_plan=onward),)
        await self._around.ledger.record(event, *changed)
        return loop if final else None

    def begin(self, entry: PlanEntry) -> None:
        """Notes when an iteration begins."""
        context = entry.loop_context
        if context is not None and context.codon_index_in_loop == 0:
            self._newest = context, self._around.clock.monotonic()

    def _milliseconds(self, entry: PlanEntry) -> int:
        """By the monotonic clock; by the record where it began in an earlier server."""
        context, noted = entry.loop_context, self._newest
        if context is None or noted is None:
            return plans.iteration_duration_ms(self._around.state, entry)

        first, begun = noted
        if (first.loop_id, first.iteration) != (context.loop_id, context.iteration):
            return plans.iteration_duration_ms(self._around.state, entry)

        return round((self._around.clock.monotonic() - begun) * 1000)
