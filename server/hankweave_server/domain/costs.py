"""What an execution has cost: per codon, per sentinel, per run, and in all.

A codon's own cost and that of its sentinels are two numbers everywhere in the state (seed 002), so
they are two here; a run's cost and the total hold both. Nothing is left out of the total: work
that a rollback took back was paid for, too. (What budgets count is for `spending` to say.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    PreparingCodon,
    Run,
    SentinelState,
    SkippedCodon,
    State,
)
from hankweave_server.domain.lifecycle import cost_of, sentinel_cost_of

_Key = TypeVar("_Key", bound=str)
_Item = TypeVar("_Item")


class _Sum(Generic[_Item]):
    """Adds up a tuple whose beginning mostly stays: what was added up last is remembered.

    Every event that counts a cost asks for the total, and all codons but one are as they were.
    """

    def __init__(self, cost: Callable[[_Item], float]) -> None:
        self._cost = cost
        self._known: tuple[tuple[_Item, ...], float] = ((), 0.0)

    def of(self, items: tuple[_Item, ...]) -> float:
        known, total = self._known  # Taken and replaced as one: worker threads ask as well.
        if items[: len(known)] != known:
            known, total = (), 0.0

        if len(items) > len(known):
            total = sum(map(self._cost, items[len(known) :]), total)
            self._known = (items, total)

        return total


@dataclass(frozen=True, slots=True)
class SentinelCost:
    sentinel_id: str
    dollars: float


@dataclass(frozen=True, slots=True)
class CodonCost:
    """One execution of a codon, in USD."""

    run_id: RunId
    codon_id: CodonId
    attempt: int
    dollars: float
    """Of its agent alone."""
    sentinels: tuple[SentinelCost, ...]
    sentinel_dollars: float
    """Of all its sentinels, as the state has it."""

    @property
    def total(self) -> float:
        return self.dollars + self.sentinel_dollars


@dataclass(frozen=True, slots=True)
class Costs:
    """Every execution of a state, the oldest run first."""

    codons: tuple[CodonCost, ...]

    @property
    def total(self) -> float:
        return sum(each.total for each in self.codons)

    @property
    def by_run(self) -> dict[RunId, float]:
        return _summed((each.run_id, each.total) for each in self.codons)

    @property
    def by_codon(self) -> dict[CodonId, float]:
        """All executions of a plan entry together, without their sentinels."""
        return _summed((each.codon_id, each.dollars) for each in self.codons)

    @property
    def by_sentinel(self) -> dict[str, float]:
        """All that a sentinel did, under whichever codon."""
        return _summed(
            (sentinel.sentinel_id, sentinel.dollars)
            for each in self.codons
            for sentinel in each.sentinels
        )


def costs(state: State) -> Costs:
    return Costs(
        tuple(_codon_cost(run, codon) for run in reversed(state.runs) for codon in run.codons)
    )


def sentinels_of(codon: CodonExecution) -> tuple[SentinelState, ...]:
    """The sentinels of a codon in any state."""
    match codon:
        case PreparingCodon():
            return ()
        case CompletedCodon() | FailedCodon() | SkippedCodon():
            return codon.sentinels.executed
        case _:
            return codon.sentinels.loaded


def run_cost(run: Run) -> float:
    """What a run has cost in USD: its codons and their sentinels."""
    return _earlier_codons.of(run.codons[:-1]) + sum(map(_dollars, run.codons[-1:]))


def total_cost(state: State) -> float:
    """What the execution has cost in USD: every codon of every run, sentinels included."""
    return _earlier_runs.of(state.runs[:0:-1]) + sum(map(run_cost, state.runs[:1]))


def _dollars(codon: CodonExecution) -> float:
    return cost_of(codon) + sentinel_cost_of(codon)


def _full_cost(run: Run) -> float:
    return sum(map(_dollars, run.codons))


_earlier_codons = _Sum(_dollars)
_earlier_runs = _Sum(_full_cost)


def _codon_cost(run: Run, codon: CodonExecution) -> CodonCost:
    return CodonCost(
        run_id=run.run_id,
        codon_id=codon.codon_id,
        attempt=codon.attempt,
        dollars=cost_of(codon),
        sentinels=tuple(SentinelCost(each.id, each.total_cost) for each in sentinels_of(codon)),
        sentinel_dollars=sentinel_cost_of(codon),
    )


def _summed(amounts: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    sums: dict[_Key, float] = {}
    for key, amount in amounts:
        sums[key] = sums.get(key, 0.0) + amount

    return sums
