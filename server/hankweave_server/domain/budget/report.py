"""Budgets for people: tables of what the plan may use and has used, and warnings before it runs.

A share in the table is the part of the whole that the hank defines. What a codon may really use is
known only when it starts, because it depends on what the codons before it left
(`budget.allowance`).

Warnings are about budgets that are valid but will surprise their author (as in Hankweave). None of
them stops a hank: each names the place and the effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from hankweave_protocol.events import (
    BudgetFigures,
    BudgetRow,
    BudgetSummary,
    BudgetTotals,
    SpentFigures,
)
from hankweave_protocol.hank import (
    Codon,
    CodonBudget,
    CommandAgentSpec,
    ContainerBudget,
    Hank,
    Loop,
    ScriptedAgentSpec,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    SkippedCodon,
    State,
)
from hankweave_server.domain.budget.allowance import (
    NO_BUDGET,
    NO_CEILINGS,
    Allowance,
    Ceilings,
    OnExceeded,
    allowance,
    capped,
    is_limited,
    lowest,
    shares_of,
)
from hankweave_server.domain.budget.spending import NOTHING, Spending, counted, spent_by
from hankweave_server.domain.costs import Prices
from hankweave_server.domain.execution_thread import active_codon

_WHOLE = "$.overrides.budget"

RowStatus: TypeAlias = Literal["completed", "failed", "skipped", "exceeded", "running"]

_SECONDS = 3
"""Decimals: rows are in milliseconds, and so is their sum."""


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """The limits of one codon of the hank in each currency; None means no limit."""

    codon_id: str
    loop_id: str | None
    model: str
    max_dollars: float | None
    """For one execution; its part of a divided budget if that is lower."""
    max_time_seconds: float | None
    max_output_tokens: int | None
    max_context_tokens: int | None
    on_exceeded: OnExceeded

    @property
    def is_limited(self) -> bool:
        limits = (self.max_dollars, self.max_time_seconds, self.max_output_tokens)
        return any(limit is not None for limit in (*limits, self.max_context_tokens))

    @property
    def figures(self) -> BudgetFigures:
        return BudgetFigures(
            max_dollars=self.max_dollars,
            max_time_seconds=self.max_time_seconds,
            max_output_tokens=self.max_output_tokens,
        )


def planned_budgets(hank: Hank, ceilings: Ceilings = NO_CEILINGS) -> tuple[PlannedBudget, ...]:
    """Return the limits of each codon, in the hank's order."""
    whole = capped(hank, ceilings)
    parts = dollars_of_members(whole, tuple(step.id for step in hank.hank))
    rows: list[PlannedBudget] = []
    for step in hank.hank:
        part = parts[step.id], whole.max_time_seconds
        match step:
            case Codon():
                rows.append(_planned(step, None, [part]))
            case Loop():
                rows.extend(_of_loop(step, part))
            case _:
                assert_never(step)

    return tuple(rows)


def dollars_of_members(
    budget: ContainerBudget, members: tuple[str, ...]
) -> dict[str, float | None]:
    """Return each member's part in USD: its share, or all of it if the money is one pool."""
    dollars = budget.max_dollars
    if dollars is None or budget.allocation == "shared":
        return dict.fromkeys(members, dollars)

    return {name: dollars * share for name, share in shares_of(budget, members).items()}


def is_budgeted(hank: Hank, ceilings: Ceilings = NO_CEILINGS) -> bool:
    """Return whether anything in a hank is limited, so that there is something to report."""
    budgets = (each.budget for each in (*hank.hank, *hank.codons))
    return any(map(is_limited, (capped(hank, ceilings), *budgets)))


def summary(hank: Hank, state: State, ceilings: Ceilings = NO_CEILINGS) -> BudgetSummary:
    """Return what every codon that has begun has used of its budget (`budget.summary`).

    A row covers all executions of a plan entry that budgets count; its status is the newest's.
    A running codon has no time yet.
    """
    whole = capped(hank, ceilings)
    planned = {row.codon_id: row.figures for row in planned_budgets(hank, ceilings)}
    newest, spent = _by_codon(state)
    rows = tuple(
        BudgetRow(
            codon_id=codon_id,
            loop_context=codon.loop_context,
            status=_status_of(codon),
            budget=planned.get(codon_id.partition("#")[0], BudgetFigures()),
            actual=_figures(spent[codon_id]),
        )
        for codon_id, codon in newest.items()
    )
    everything = _figures(sum(spent.values(), NOTHING))
    return BudgetSummary(
        ceiling=BudgetFigures(
            max_dollars=whole.max_dollars, max_time_seconds=whole.max_time_seconds
        ),
        allocation=whole.allocation,
        rows=rows,
        totals=BudgetTotals(
            budget_dollars=whole.max_dollars,
            actual_dollars=everything.dollars,
            actual_time_seconds=everything.time_seconds,
        ),
    )


def _by_codon(state: State) -> tuple[dict[CodonId, CodonExecution], dict[CodonId, Spending]]:
    newest: dict[CodonId, CodonExecution] = {}
    spent: dict[CodonId, Spending] = {}
    for each in counted(state):
        codon_id = each.codon.codon_id
        newest[codon_id] = each.codon
        spent[codon_id] = spent.get(codon_id, NOTHING) + each.spent

    running = active_codon(state)
    if running is not None:
        so_far = spent_by(running, seconds=0.0)
        newest[running.codon_id] = running
        spent[running.codon_id] = spent.get(running.codon_id, NOTHING) + so_far

    return newest, spent


def _status_of(codon: CodonExecution) -> RowStatus:
    match codon:
        case CompletedCodon(budget_exceeded=None):
            return "completed"
        case FailedCodon(budget_exceeded=None):
            return "failed"
        case CompletedCodon() | FailedCodon():
            return "exceeded"
        case SkippedCodon():
            return "skipped"
        case _:
            return "running"


def _of_loop(loop: Loop, part: tuple[float | None, float | None]) -> Iterator[PlannedBudget]:
    budget = loop.budget or ContainerBudget()
    parts = dollars_of_members(budget, tuple(codon.id for codon in loop.codons))
    for codon in loop.codons:
        yield _planned(codon, loop.id, [(parts[codon.id], budget.max_time_seconds), part])


def _planned(
    codon: Codon, loop_id: str | None, containers: list[tuple[float | None, float | None]]
) -> PlannedBudget:
    own = codon.budget or NO_BUDGET
    return PlannedBudget(
        codon_id=codon.id,
        loop_id=loop_id,
        model=codon.model,
        max_dollars=lowest(own.max_dollars, *(dollars for dollars, _ in containers)),
        max_time_seconds=lowest(own.max_time_seconds, *(seconds for _, seconds in containers)),
        max_output_tokens=own.max_output_tokens,
        max_context_tokens=own.max_context_tokens,
        on_exceeded=own.on_exceeded,
    )


def figures_of(allowed: Allowance) -> BudgetFigures:
    """Return the limits of one execution as numbers."""
    most = {limit.currency: limit.most for limit in allowed.limits}
    tokens = most.get("outputTokens")
    return BudgetFigures(
        max_dollars=most.get("cost"),
        max_time_seconds=most.get("duration"),
        max_output_tokens=None if tokens is None else int(tokens),
    )


def in_force(hank: Hank, state: State, ceilings: Ceilings) -> BudgetFigures | None:
    """Return the limits of the active codon; None if there is none."""
    active = active_codon(state)
    plan = state.execution_plan
    entry = next((each for each in plan if active and each.codon_id == active.codon_id), None)
    return None if entry is None else figures_of(allowance(hank, entry, state, ceilings))


def _figures(spent: Spending) -> SpentFigures:
    return SpentFigures(
        dollars=spent.dollars,
        time_seconds=round(spent.seconds, _SECONDS),
        output_tokens=spent.output_tokens,
    )


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

    @property
    def budgets(self) -> tuple[CodonBudget | ContainerBudget, ...]:
        """All budgets that apply to it, its own first."""
        return (self.own, *self.containers)


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

    is_pool = budget.allocation == "shared" or budget.max_dollars is None
    if is_limited(budget) and is_pool and budget.on_exceeded == "fail" and len(members) > 1:
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
            "only when its agent reports what it cost. `hankweave run --prices FILE` adds one.",
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
    return any(each.max_dollars is not None for each in place.budgets)


def _is_limited_in_time(place: _Place) -> bool:
    return any(each.max_time_seconds is not None for each in place.budgets)


def _is_priced(codon: Codon, prices: Prices) -> bool:
    """Return whether costs are known: scripted agents invent theirs, programs have none."""
    if isinstance(codon.agent, ScriptedAgentSpec | CommandAgentSpec):
        return True

    return prices.model(codon.model) is not None


def _policies(place: _Place) -> Iterable[str]:
    """Yield the `onExceeded` policy of each limit that applies to a codon."""
    for budget in place.budgets:
        if is_limited(budget):
            yield budget.on_exceeded
