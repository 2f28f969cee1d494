"""Compute the plan and the session with which work continues.

The plan grows as it runs: `Loops` adds a loop's next iteration when the one before ends, and
removes the rest when the loop ends. Iterations that a rollback pruned, or that a crash kept from
being written, are computed again from the thread alone.

A codon may continue inside its work: after a rollback that took files and conversation back to
there, its agent resumes that conversation.

hank.json may have changed (hankHash). What has run stays as it ran, and the rest comes from the new
hank: codons added at the end enter the plan, removed ones leave it, prompts and budgets are the new
ones. That is possible only if the new hank would have led through the same codons to this point.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import zip_longest

import msgspec

from hankweave_protocol.events import LoopIterationCompleted
from hankweave_protocol.hank import Hank, Loop
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import Conversation
from hankweave_protocol.state import LoopContext, PlanEntry, Run, State, TerminalCodon
from hankweave_protocol.transitions import PlanSet
from hankweave_server.domain import plan as plans
from hankweave_server.domain.execution_thread import (
    ThreadEntry,
    conversation_of,
    is_done,
    plan_entry,
    thread,
    thread_before,
)
from hankweave_server.execution.context import ExecutionContext

Plan = tuple[PlanEntry, ...]


def grown(plan: Plan, hank: Hank, entries: Iterable[ThreadEntry]) -> Plan:
    """Return the plan with every iteration that the thread's codons lead to."""
    for entry in entries:
        planned = plan_entry(plan, entry.codon.codon_id)
        loop = None if planned is None else plans.loop_of(hank, planned)
        if planned is None or loop is None or not is_done(entry.codon, plan):
            continue

        if plans.is_loop_finished(loop, planned, entry.codon):
            plan = plans.without_rest(plan, planned)
        elif plans.ends_iteration(loop, planned):
            plan = plans.next_iteration(plan, loop, planned)

    return plan


def reentered_by(run: Run, state: State, hank: Hank) -> Plan:
    """Return the plan for a run that continues from an earlier point, maybe of an old timeline.

    Iterations after that point leave the plan; those before it are in it.
    """
    seen = msgspec.structs.replace(state, runs=(run, *state.runs))
    entries = thread(seen)
    after = entries[-1].codon.codon_id if entries else None
    return plans.reentered(grown(state.execution_plan, hank, entries), hank, after)


def taken_up(ctx: ExecutionContext, entry: PlanEntry) -> Conversation | None:
    """Return the conversation in which the codon's agent continues; None if it begins anew.

    An agent that keeps no sessions, or whose session is gone, begins anew on the present files.
    """
    conversation = conversation_of(ctx.state, entry.codon_id)
    if conversation is None:
        return None

    codon, agent = entry.codon, ctx.agent_for(entry.codon)
    files = agent.memory_of(conversation.session_id, ctx.layout.work_tree, codon.env)
    return conversation if any(os.path.lexists(path) for path in files) else None


class PlanConflict(Exception):
    """The new hank differs in what has already run; nothing was changed."""

    def __init__(self, ran: CodonId, now: CodonId | None) -> None:
        instead = "nothing" if now is None else now
        super().__init__(f"{ran} has run, but the hank now has {instead} in its place")
        self.ran = ran
        self.now = now


def restarted_plan(state: State, hank: Hank, codon_id: CodonId) -> Plan:
    """Return another hank's plan for an execution that begins again at one of its codons."""
    whole = plans.initial_plan(hank)
    return grown(whole, hank, thread_before(state, whole, codon_id))


def replanned(state: State, hank: Hank) -> Plan:
    """Return the plan with which an execution continues under another hank; raise PlanConflict.

    A codon that has yet to succeed runs as the new hank says.
    """
    entries = thread(state)
    whole = grown(plans.initial_plan(hank), hank, entries)
    if not entries:
        return whole

    newest = entries[-1].codon
    former = state.execution_plan
    reached = [index for index, entry in enumerate(former) if entry.codon_id == newest.codon_id]
    if not reached:
        raise PlanConflict(newest.codon_id, None)

    ran = former[: reached[0] + 1]
    for old, new in zip_longest(ran, whole[: len(ran)]):
        if new is None or old.codon_id != new.codon_id:
            raise PlanConflict(old.codon_id, None if new is None else new.codon_id)

    kept = len(ran) if is_done(newest, former) else len(ran) - 1
    return (*former[:kept], *whole[kept:])


class Loops:
    """The loops of one execution's plan."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._newest: tuple[LoopContext, float] | None = None
        """The iteration that began last, and when by the monotonic clock."""

    async def advance(self, entry: PlanEntry, terminal: TerminalCodon) -> Loop | None:
        """Add a loop's next iteration if one ends and the loop does not.

        Returns the loop if it has ended.
        """
        loop = plans.loop_of(self._ctx.recorded.hank, entry)
        if loop is None or entry.loop_context is None:
            return None

        final = plans.is_loop_finished(loop, entry, terminal)
        if not final and not plans.ends_iteration(loop, entry):
            return None

        state = self._ctx.state
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
        if final:
            onward = plans.without_rest(plan, entry)
        else:
            onward = plans.next_iteration(plan, loop, entry)

        changed = () if onward == plan else (PlanSet(execution_plan=onward),)
        await self._ctx.ledger.record(event, *changed)
        return loop if final else None

    def begin(self, entry: PlanEntry) -> None:
        """Note when an iteration begins."""
        context = entry.loop_context
        if context is not None and context.codon_index_in_loop == 0:
            self._newest = context, self._ctx.clock.monotonic()

    def _milliseconds(self, entry: PlanEntry) -> int:
        """Return an iteration's duration.

        By the monotonic clock; by the record if the iteration began under an earlier server.
        """
        context, noted = entry.loop_context, self._newest
        if context is None or noted is None:
            return plans.iteration_duration_ms(self._ctx.state, entry)

        first, begun = noted
        if (first.loop_id, first.iteration) != (context.loop_id, context.iteration):
            return plans.iteration_duration_ms(self._ctx.state, entry)

        return round((self._ctx.clock.monotonic() - begun) * 1000)
