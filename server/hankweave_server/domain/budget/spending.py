"""Spending: the money, time and tokens that executions of codons have used.

Everything that the server repeats by itself counts each time, or a budget would protect from
nothing: a failed attempt stays counted, also one of a crashed server. Work that a person discards
by a rollback no longer counts, because it will be done again (Hankweave counts prior runs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.state import (
    CodonExecution,
    FailedCodon,
    Run,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_server.domain.costs import dollars_of, total_cost
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.lifecycle import tokens_of
from hankweave_server.domain.timelines import attempt_runs


@dataclass(frozen=True, slots=True)
class Spending:
    """Amounts that only grow; they add up, except for the context, of which the maximum counts."""

    dollars: float = 0.0
    """Including the cost of sentinels."""
    seconds: float = 0.0
    output_tokens: int = 0
    context_tokens: int = 0
    """The most tokens of one turn, prompt and answer together."""

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            dollars=self.dollars + other.dollars,
            seconds=self.seconds + other.seconds,
            output_tokens=self.output_tokens + other.output_tokens,
            context_tokens=max(self.context_tokens, other.context_tokens),
        )


NOTHING = Spending()


@dataclass(frozen=True, slots=True)
class Execution:
    """An ended execution of a codon, and its run."""

    run: Run
    codon: TerminalCodon

    @property
    def spent(self) -> Spending:
        return spent_by(self.codon, seconds=_seconds_of(self))


def context_of(tokens: Tokens) -> int:
    """Return the tokens that one turn takes of a model's context, including cached ones."""
    prompt = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    return prompt + tokens.output_tokens


def spent_by(codon: CodonExecution, *, seconds: float, context_tokens: int = 0) -> Spending:
    """Return what an execution has used; the caller knows its time and its fullest turn."""
    return Spending(
        dollars=dollars_of(codon),
        seconds=seconds,
        output_tokens=tokens_of(codon).output_tokens,
        context_tokens=context_tokens,
    )


def counted(state: State) -> tuple[Execution, ...]:
    """Return every ended execution that budgets count, oldest run first.

    These are the ones of the thread, and in addition every failed one. Attempts of explorations
    have a budget of their own: they count if they were adopted.
    """
    entries = thread(state)
    on_thread = {id(entry.codon) for entry in entries}
    aside = attempt_runs(state).keys() - {entry.run_id for entry in entries}
    return tuple(
        each
        for each in ended(state)
        if id(each.codon) in on_thread
        or (isinstance(each.codon, FailedCodon) and each.run.run_id not in aside)
    )


def ended(state: State) -> Iterator[Execution]:
    """Yield every ended execution, work that a rollback discarded included, oldest run first."""
    for run in reversed(state.runs):
        for codon in run.codons:
            if isinstance(codon, TerminalCodon):
                yield Execution(run, codon)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of an execution, in USD: the numbers that every view of it shows."""

    total: float
    """All that was paid: every codon of every run, with sentinels."""
    rolled_back: float
    """The part of it for work that rollbacks discarded, and that budgets no longer count."""
    budget: float | None
    """The most that the hank may use; None if it has no limit."""
    attempts: float = 0.0
    """The part of the total for attempts of explorations that were not adopted."""


def costs(state: State, budget: float | None = None) -> Costs:
    """Return what an execution has cost; `budget` is the limit of its hank."""
    kept = {id(each.codon) for each in counted(state)}
    kept.update(id(entry.codon) for entry in thread(state))
    of_attempts, left = attempt_runs(state), {True: 0.0, False: 0.0}
    for run in state.runs:
        unused = sum(dollars_of(codon) for codon in run.codons if id(codon) not in kept)
        left[run.run_id in of_attempts] += unused

    return Costs(total_cost(state), round(left[False], 9), budget, round(left[True], 9))


def total(executions: Iterable[Execution]) -> Spending:
    return sum((each.spent for each in executions), NOTHING)


def _seconds_of(execution: Execution) -> float:
    """Return the seconds from start to end, without waits for the end of limits.

    0 for a codon that crashed with its server: its end time is only when the next server started.
    """
    codon = execution.codon
    died = isinstance(codon, FailedCodon) and codon.error_checkpoint is None
    if died and execution.run.status == "crashed":
        return 0.0

    start, end = from_text(codon.start_time), from_text(codon.end_time)
    return max(0, milliseconds_between(start, end) - codon.waited_ms) / 1000
