"""Budget warnings: budgets that are valid but will surprise their author (as in Hankweave).

None of them stops a hank: each names the place and the effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hankweave_protocol.hank import (
    Codon,
    CodonBudget,
    CommandAgentSpec,
    ContainerBudget,
    Hank,
    Loop,
    ScriptedAgentSpec,
)
from hankweave_server.domain.budget.allowance import (
    NO_BUDGET,
    NO_CEILINGS,
    Ceilings,
    capped,
    shares_of,
)
from hankweave_server.domain.budget.report import dollars_of_members
from hankweave_server.domain.costs import Prices

_WHOLE = "$.overrides.budget"


@dataclass(frozen=True, slots=True)
class BudgetWarning:
    """A surprising effect, and the JSON path of its cause."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A codon, and every budget above it, the innermost first."""

    codon: Codon
    path: str
    containers: tuple[ContainerBudget, ...]

    @property
    def own(self) -> CodonBudget:
        return self.codon.budget or NO_BUDGET


def warnings(
    hank: Hank, prices: Prices, ceilings: Ceilings = NO_CEILINGS
) -> tuple[BudgetWarning, ...]:
    """Return all warnings in the hank's order, after the ones about the hank's own budget."""
    whole = capped(hank, ceilings)
    members = tuple(step.id for step in hank.hank)
    found = [*_of_container(_WHOLE, whole, members), *_of_caps_in(hank, whole)]
    for index, step in enumerate(hank.hank):
        if isinstance(step, Loop) and step.budget is not None:
            path = f"$.hank[{index}].budget"
            bodies = tuple(codon.id for codon in step.codons)
            found += _of_container(path, step.budget, bodies)

    for place in _places(hank, whole):
        found += _of_codon(place, prices)

    return tuple(dict.fromkeys(found))


def _places(hank: Hank, whole: ContainerBudget) -> Iterator[_Place]:
    for index, step in enumerate(hank.hank):
        path = f"$.hank[{index}]"
        if isinstance(step, Codon):
            yield _Place(step, path, (whole,))
            continue

        above = (whole,) if step.budget is None else (step.budget, whole)
        for number, codon in enumerate(step.codons):
            yield _Place(codon, f"{path}.codons[{number}]", above)


# --- hank and loops -----------------------------------------------------------------------------


def _of_container(
    path: str, budget: ContainerBudget, members: tuple[str, ...]
) -> Iterator[BudgetWarning]:
    if budget.max_dollars == 0:
        yield BudgetWarning(
            f"{path}.maxDollars", "Nothing may be spent, so every codon ends immediately."
        )

    if budget.max_dollars is not None and budget.allocation != "shared":
        yield from _of_shares(path, shares_of(budget, members))

    is_limited = budget.max_dollars is not None or budget.max_time_seconds is not None
    is_pool = budget.allocation == "shared" or budget.max_dollars is None
    if is_limited and is_pool and budget.on_exceeded == "fail" and len(members) > 1:
        yield BudgetWarning(
            f"{path}.onExceeded",
            "All codons share one pool: the one that is running when it is used up fails, even if "
            "others used it.",
        )


def _of_shares(path: str, shares: dict[str, float]) -> Iterator[BudgetWarning]:
    unused = 1.0 - sum(shares.values())
    if unused > 1e-9:
        yield BudgetWarning(f"{path}.shares", f"No codon can use {unused:.0%} of maxDollars.")

    for name, share in shares.items():
        if share <= 1e-9:
            yield BudgetWarning(
                f"{path}.shares", f"The shares leave nothing for {name!r}: it ends immediately."
            )


def _of_caps_in(hank: Hank, whole: ContainerBudget) -> Iterator[BudgetWarning]:
    """Yield a warning for each cap that a tighter one above makes unreachable."""
    parts = dollars_of_members(whole, tuple(step.id for step in hank.hank))
    for index, step in enumerate(hank.hank):
        path = f"$.hank[{index}]"
        above = (parts[step.id], whole.max_time_seconds)
        if step.budget is not None:
            yield from _unreachable(f"{path}.budget", step.budget, *above)

        if isinstance(step, Loop):
            yield from _of_caps_in_loop(path, step)


def _of_caps_in_loop(path: str, loop: Loop) -> Iterator[BudgetWarning]:
    budget = loop.budget or ContainerBudget()
    parts = dollars_of_members(budget, tuple(codon.id for codon in loop.codons))
    for number, codon in enumerate(loop.codons):
        if codon.budget is not None:
            where = f"{path}.codons[{number}].budget"
            yield from _unreachable(where, codon.budget, parts[codon.id], budget.max_time_seconds)


def _unreachable(
    path: str,
    budget: CodonBudget | ContainerBudget,
    dollars: float | None,
    seconds: float | None,
) -> Iterator[BudgetWarning]:
    if budget.max_dollars is not None and dollars is not None and budget.max_dollars > dollars:
        yield BudgetWarning(
            f"{path}.maxDollars",
            f"${budget.max_dollars:g} cannot be reached: the enclosing budget allows ${dollars:g}.",
        )

    most = budget.max_time_seconds
    if most is not None and seconds is not None and most > seconds:
        yield BudgetWarning(
            f"{path}.maxTimeSeconds",
            f"{most:g} s cannot be reached: the enclosing budget allows {seconds:g} s.",
        )


# --- codons -------------------------------------------------------------------------------------


def _of_codon(place: _Place, prices: Prices) -> Iterator[BudgetWarning]:
    own = place.own
    if own.max_dollars == 0:
        yield BudgetWarning(f"{place.path}.budget.maxDollars", "The codon ends immediately.")

    if _is_limited_in_money(place) and not _is_priced(place.codon, prices):
        yield BudgetWarning(
            f"{place.path}.model",
            f"No price of {place.codon.model!r} is known: a budget in dollars stops this codon "
            "only when its agent reports what it cost. --prices adds one.",
        )

    if place.codon.on_failure == "retry" and "fail" in set(_policies(place)):
        yield BudgetWarning(
            f"{place.path}.onFailure",
            "A codon that exceeds its budget is not retried: onExceeded is 'fail'.",
        )

    if place.codon.exhaust_with_prompt is not None and _is_limited_in_time(place):
        yield BudgetWarning(
            f"{place.path}.exhaustWithPrompt",
            "The codon continues until its context is full, so the time limit may be what ends "
            "it each time.",
        )


def _is_limited_in_money(place: _Place) -> bool:
    above = (budget.max_dollars for budget in place.containers)
    return any(limit is not None for limit in (place.own.max_dollars, *above))


def _is_limited_in_time(place: _Place) -> bool:
    above = (budget.max_time_seconds for budget in place.containers)
    return any(limit is not None for limit in (place.own.max_time_seconds, *above))


def _is_priced(codon: Codon, prices: Prices) -> bool:
    """Return whether costs are known: scripted agents invent theirs, programs have none."""
    if isinstance(codon.agent, ScriptedAgentSpec | CommandAgentSpec):
        return True

    return prices.model(codon.model) is not None


def _policies(place: _Place) -> Iterable[str]:
    """Yield the `onExceeded` policy of each limit that applies to a codon."""
    own = place.own
    limits = (own.max_dollars, own.max_time_seconds, own.max_output_tokens, own.max_context_tokens)
    if any(limit is not None for limit in limits):
        yield own.on_exceeded

    for budget in place.containers:
        if budget.max_dollars is not None or budget.max_time_seconds is not None:
            yield budget.on_exceeded
