"""Hanks with budgets, and states in which codons have used some of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

from msgspec.structs import replace

from hankweave_protocol.hank import (
    Codon,
    CodonBudget,
    ContainerBudget,
    ContextExceededEnd,
    Hank,
    IterationLimit,
    Loop,
    Overrides,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.state import (
    EMPTY_STATE,
    CompletedCodon,
    ExecutedSentinels,
    FailedCodon,
    LoopContext,
    PlanEntry,
    Run,
    State,
    TerminalCodon,
    Tokens,
)
from support.histories import MOMENT, TIMED_OUT, a_run, sha


def a_codon(name: str, *, budget: CodonBudget | None = None, **fields: object) -> Codon:
    codon = Codon(id=name, name=name, model="sonnet", continuation_mode="fresh", prompt_text="Go.")
    return replace(codon, budget=budget, **fields)


def a_loop(
    name: str, *codons: Codon, budget: ContainerBudget | None = None, limit: int | None = 3
) -> Loop:
    end = ContextExceededEnd() if limit is None else IterationLimit(limit=limit)
    return Loop(id=name, name=name, terminate_on=end, codons=codons, budget=budget)


def a_hank(*steps: Codon | Loop, budget: ContainerBudget | None = None) -> Hank:
    return Hank(hank=steps, overrides=None if budget is None else Overrides(budget=budget))


def entry_of(hank: Hank, name: str) -> PlanEntry:
    """Return a plan entry by its id: `build`, or `review#1` for iteration 1."""
    bare, _, iteration = name.partition("#")
    for step in hank.hank:
        match step:
            case Codon() if step.id == name:
                return PlanEntry(codon=step, codon_id=CodonId(name))
            case Loop():
                for index, codon in enumerate(step.codons):
                    if codon.id == bare:
                        context = LoopContext(
                            loop_id=step.id, iteration=int(iteration), codon_index_in_loop=index
                        )
                        return PlanEntry(codon=codon, codon_id=CodonId(name), loop_context=context)
            case _:
                pass

    raise LookupError(name)


def spent(
    hank: Hank,
    name: str,
    dollars: float = 0.0,
    *,
    seconds: float = 0.0,
    output: int = 0,
    sentinels: float = 0.0,
    status: Literal["completed", "failed"] = "completed",
    number: int = 2,
) -> TerminalCodon:
    """Return a completed execution of a codon with this usage."""
    entry = entry_of(hank, name)
    tokens = Tokens(
        input_tokens=1, output_tokens=output, cache_creation_tokens=0, cache_read_tokens=0
    )
    end = to_text(from_text(MOMENT) + timedelta(seconds=seconds))
    executed = ExecutedSentinels(executed=(), total_cost=sentinels)
    if status == "failed":
        return FailedCodon(
            codon_id=entry.codon_id,
            start_time=MOMENT,
            loop_context=entry.loop_context,
            end_time=end,
            failed_during="running",
            exit_code=1,
            failure_reason=TIMED_OUT,
            partial_cost=dollars,
            partial_tokens=tokens,
            sentinels=executed,
            error_checkpoint=sha(number),
        )

    return CompletedCodon(
        codon_id=entry.codon_id,
        start_time=MOMENT,
        loop_context=entry.loop_context,
        end_time=end,
        claude_session_id="session",
        claude_log_path="log",
        exit_code=0,
        final_cost=dollars,
        final_tokens=tokens,
        result_message_received=True,
        completion_checkpoint=sha(number),
        sentinels=executed,
    )


def a_state(*codons: TerminalCodon, name: str = "run-1") -> State:
    return state_of(a_run(name, codons=codons))


def state_of(*runs: Run) -> State:
    """Return a state with these runs; the last one is the newest and current."""
    return replace(EMPTY_STATE, runs=tuple(reversed(runs)), current_run_id=runs[-1].run_id)


def with_spent(state: State, codons: Iterable[TerminalCodon]) -> State:
    """Return the state after these have ended as well, in its newest run."""
    newest = state.runs[0]
    grown = replace(newest, codons=(*newest.codons, *codons))
    return replace(state, runs=(grown, *state.runs[1:]))


NO_CODONS = state_of(a_run(RunId("run-1")))
