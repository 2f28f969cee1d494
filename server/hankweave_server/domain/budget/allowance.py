"""Allowances: how much the next codon may use, and whether it has used it up.

Three kinds of limit apply: the codon's own caps, the budget of its loop, and the hank's, together
with the limits of the command line. For each currency the tightest one counts, and its owner
decides what happens when it is reached. The check is `used >= limit` (Hankweave, budgets): a limit
of 0 is reached before anything is done. No budget can stop what an agent spends within one message;
the excess is subtracted from the codons that follow.

The money of a hank or a loop is divided among its members by one of three rules. *shared*: each
member may use everything that is left. *proportional-strict*: each has its share, and an unused
rest is lost. *proportional*: what finished members have left over, or overspent, is divided among
the members still to come, in the ratio of their shares. A member without a share gets an even part
of what the shares leave. Under every rule no member gets more than there is (Hankweave, budgets).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from hankweave_protocol.hank import Codon, CodonBudget, ContainerBudget, Hank, IterationLimit, Loop
from hankweave_protocol.state import (
    BudgetExceeded,
    FailedCodon,
    FailureReason,
    LoopContext,
    PlanEntry,
    State,
)
from hankweave_server.domain.budget.spending import NOTHING, Execution, Spending, counted, total
from hankweave_server.domain.execution_thread import newest_run
from hankweave_server.domain.plan import loop_of


def dollar_limit(hank: Hank, of_start: float | None) -> float | None:
    """Return what an execution may cost in USD: the lower limit of the hank and the start."""
    budget = None if hank.overrides is None else hank.overrides.budget
    return lowest(of_start, None if budget is None else budget.max_dollars)


def lowest(*limits: float | None) -> float | None:
    """Return the lowest limit; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def shares_of(budget: ContainerBudget, members: Sequence[str]) -> dict[str, float]:
    """Return each member's part of the whole, from 0 to 1."""
    named = budget.shares or {}
    others = [name for name in members if name not in named]
    left = max(0.0, 1.0 - sum(named[name] for name in members if name in named))
    even = left / len(others) if others else 0.0
    return {name: named.get(name, even) for name in members}


def still_to_come(
    members: Sequence[str], me: str, entry: PlanEntry, loop: Loop | None
) -> tuple[str, ...]:
    """Return the members that may still use anything, including the one about to start.

    In a loop these are all until its last iteration; without a limit, no iteration counts as last.
    """
    if me not in members:
        return (me,)

    if loop is not None and not _is_last_iteration(loop, entry):
        return tuple(members)

    return tuple(members[members.index(me) :])


def allotted_dollars(
    budget: ContainerBudget,
    members: Sequence[str],
    me: str,
    coming: Sequence[str],
    used: Mapping[str, float],
) -> float:
    """Return what a member may use from now on, in USD; `used` has what each has used so far."""
    assert budget.max_dollars is not None, "money that is not limited is not divided"
    left = max(0.0, budget.max_dollars - sum(used.values()))
    if me not in members:
        return left

    shares = shares_of(budget, members)
    mine = used.get(me, 0.0)
    match budget.allocation:
        case "shared":
            return left
        case "proportional-strict":
            part = budget.max_dollars * shares[me]
        case "proportional":
            part = _part_of_what_is_left(budget.max_dollars, shares, me, coming, used)
        case other:
            assert_never(other)

    return min(left, max(0.0, part - mine))


def _part_of_what_is_left(
    dollars: float,
    shares: Mapping[str, float],
    me: str,
    coming: Sequence[str],
    used: Mapping[str, float],
) -> float:
    """Return a member's part, including returned money; money without a share stays unused."""
    of_all_to_come = sum(shares[name] for name in coming)
    if not of_all_to_come:
        return 0.0

    gone = sum(amount for name, amount in used.items() if name not in coming)
    return (dollars * sum(shares.values()) - gone) * shares[me] / of_all_to_come


def _is_last_iteration(loop: Loop, entry: PlanEntry) -> bool:
    if not isinstance(loop.terminate_on, IterationLimit) or entry.loop_context is None:
        return False

    return entry.loop_context.iteration + 1 >= loop.terminate_on.limit


Currency: TypeAlias = Literal["cost", "duration", "outputTokens", "contextTokens"]
OnExceeded: TypeAlias = Literal["complete", "fail"]
Owner: TypeAlias = Literal["codon", "loop", "hank"]

CURRENCIES: tuple[Currency, ...] = ("cost", "duration", "outputTokens", "contextTokens")
"""In the order of the checks: the first one that is used up is reported."""

NO_BUDGET = CodonBudget()

_LIMITS = ("max_dollars", "max_time_seconds", "max_output_tokens", "max_context_tokens")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Limits from the command line, which apply whatever the hank allows."""

    max_dollars: float | None = None
    max_time_seconds: float | None = None


NO_CEILINGS = Ceilings()


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """The most that a codon may use of one currency."""

    currency: Currency
    most: float
    owner: Owner
    on_exceeded: OnExceeded

    def overrun(self, used: float) -> Overrun:
        exceeded = BudgetExceeded(currency=self.currency, limit=self.most, used=used)
        return Overrun(exceeded, self.on_exceeded == "fail", self.owner)


@dataclass(frozen=True, slots=True)
class Overrun:
    """A limit that was reached."""

    exceeded: BudgetExceeded
    fails: bool
    """False: the codon completes with what it has done (Hankweave's default)."""
    owner: Owner

    @property
    def reason(self) -> FailureReason:
        """The failure reason, if the codon fails: a retry would not help."""
        return FailureReason(type="unknown", retriable=False, message=self.sentence)

    @property
    def sentence(self) -> str:
        used = _amount(self.exceeded.currency, self.exceeded.used)
        limit = _amount(self.exceeded.currency, self.exceeded.limit)
        return f"Budget exceeded: {used} of the {limit} that the {self.owner} allows."


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one execution: at most one for each currency."""

    limits: tuple[BudgetLimit, ...] = ()

    def exceeded_by(self, spent: Spending) -> Overrun | None:
        """Return the first limit that is reached; pass `NOTHING` before the codon begins."""
        for limit in self.limits:
            used = _used(spent, limit.currency)
            if used >= limit.most:
                return limit.overrun(used)

        return None

    @property
    def dollars(self) -> BudgetLimit | None:
        """The limit of money, if there is one."""
        return next((each for each in self.limits if each.currency == "cost"), None)

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds; None if there is none."""
        return next((each.most for each in self.limits if each.currency == "duration"), None)


def allowance(
    hank: Hank, entry: PlanEntry, state: State, ceilings: Ceilings = NO_CEILINGS
) -> Allowance:
    """Compute what the codon that is about to start may use.

    Only ended executions are counted, so the answer does not change while the codon runs. The entry
    need not be in the state's plan; a codon that the hank no longer has is subject to the hank's
    budget alone, as if it came last.
    """
    limits = [*_own_limits(entry.codon, _earlier_tries(state, entry))]
    loop = loop_of(hank, entry)
    of_loop = None if loop is None else loop.budget
    whole = capped(hank, ceilings)
    if not (is_limited(of_loop) or is_limited(whole)):
        return Allowance(tuple(_tightest(limits)))  # Nothing that was done before counts.

    done = counted(state)
    if loop is not None and of_loop is not None:
        in_loop = [each for each in done if _is_of_loop(each, loop)]
        members = tuple(codon.id for codon in loop.codons)
        limits += _container_limits("loop", of_loop, members, entry, in_loop, loop)

    steps = tuple(step.id for step in hank.hank)
    limits += _container_limits("hank", whole, steps, entry, done, loop)
    return Allowance(tuple(_tightest(limits)))


def is_limited(budget: ContainerBudget | CodonBudget | None) -> bool:
    """Return whether a budget limits anything."""
    return any(getattr(budget, name, None) is not None for name in _LIMITS)


def capped(hank: Hank, ceilings: Ceilings) -> ContainerBudget:
    """Return the hank's budget combined with the ceilings: the lower of each counts."""
    overrides = hank.overrides
    own = (overrides.budget if overrides is not None else None) or ContainerBudget()
    return ContainerBudget(
        max_dollars=lowest(own.max_dollars, ceilings.max_dollars),
        max_time_seconds=lowest(own.max_time_seconds, ceilings.max_time_seconds),
        allocation=own.allocation,
        shares=own.shares,
        on_exceeded=own.on_exceeded,
    )


def _own_limits(codon: Codon, tries: Spending) -> Iterator[BudgetLimit]:
    """Yield the codon's caps, which hold for each execution, so in a loop for each iteration.

    Money and output that automatic retries have used are subtracted; time and context are each
    attempt's own.
    """
    budget = codon.budget or NO_BUDGET
    if budget.max_dollars is not None:
        rest = max(0.0, budget.max_dollars - tries.dollars)
        yield BudgetLimit("cost", rest, "codon", budget.on_exceeded)

    if budget.max_time_seconds is not None:
        yield BudgetLimit("duration", budget.max_time_seconds, "codon", budget.on_exceeded)

    if budget.max_output_tokens is not None:
        left = max(0, budget.max_output_tokens - tries.output_tokens)
        yield BudgetLimit("outputTokens", left, "codon", budget.on_exceeded)

    if budget.max_context_tokens is not None:
        yield BudgetLimit("contextTokens", budget.max_context_tokens, "codon", budget.on_exceeded)


def _container_limits(
    owner: Owner,
    budget: ContainerBudget,
    members: tuple[str, ...],
    entry: PlanEntry,
    done: Iterable[Execution],
    loop: Loop | None,
) -> Iterator[BudgetLimit]:
    """Yield what a loop or the hank leaves: its money by shares, its time as one pool."""
    used: dict[str, Spending] = {}
    for each in done:
        name = _member(each.codon.codon_id, each.codon.loop_context, owner)
        used[name] = used.get(name, NOTHING) + each.spent

    me = _member(entry.codon_id, entry.loop_context, owner)
    if budget.max_dollars is not None:
        coming = still_to_come(members, me, entry, loop if owner == "loop" else None)
        dollars = {name: spent.dollars for name, spent in used.items()}
        most = allotted_dollars(budget, members, me, coming, dollars)
        yield BudgetLimit("cost", most, owner, budget.on_exceeded)

    if budget.max_time_seconds is not None:
        gone = sum(spent.seconds for spent in used.values())
        rest = max(0.0, budget.max_time_seconds - gone)
        yield BudgetLimit("duration", rest, owner, budget.on_exceeded)


def _tightest(limits: list[BudgetLimit]) -> Iterator[BudgetLimit]:
    """Yield the lowest limit of each currency; of equal ones the innermost, which comes first."""
    for currency in CURRENCIES:
        own = [limit for limit in limits if limit.currency == currency]
        if own:
            yield min(own, key=lambda limit: limit.most)


def _earlier_tries(state: State, entry: PlanEntry) -> Spending:
    """Return what the failed attempts right before this one used; a redo has its own run."""
    run = newest_run(state)
    tries: list[Execution] = []
    for codon in reversed(run.codons if run is not None else ()):
        if run is None or codon.codon_id != entry.codon_id:
            break

        if isinstance(codon, FailedCodon):
            tries.append(Execution(run, codon))

    return total(tries)


def _is_of_loop(each: Execution, loop: Loop) -> bool:
    return each.codon.loop_context is not None and each.codon.loop_context.loop_id == loop.id


def _member(codon_id: str, context: LoopContext | None, owner: Owner) -> str:
    """Return the member of a budget: a codon or a whole loop of the hank, or a codon of a loop."""
    if owner == "hank" and context is not None:
        return context.loop_id

    return codon_id.partition("#")[0]


def _used(spent: Spending, currency: Currency) -> float:
    match currency:
        case "cost":
            return spent.dollars
        case "duration":
            return spent.seconds
        case "outputTokens":
            return spent.output_tokens
        case "contextTokens":
            return spent.context_tokens
        case _:
            assert_never(currency)


def _amount(currency: Currency, amount: float) -> str:
    match currency:
        case "cost":
            return f"${amount:.4f}"
        case "duration":
            return f"{amount:.1f} s"
        case "outputTokens":
            return f"{amount:,.0f} output tokens"
        case "contextTokens":
            return f"{amount:,.0f} context tokens"
        case _:
            assert_never(currency)
