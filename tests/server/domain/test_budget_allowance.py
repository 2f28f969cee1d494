"""Budget allowances: how much a codon may spend, and when the allowance is spent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hankweave_protocol.hank import Codon, CodonBudget, ContainerBudget, Hank, Loop
from hankweave_protocol.state import BudgetExceeded, State
from hankweave_server.domain.budget.allowance import (
    NO_CEILINGS,
    Allowance,
    BudgetLimit,
    Ceilings,
    allowance,
    capped,
    shares_of,
)
from hankweave_server.domain.budget.spending import NOTHING, Spending, counted, total
from support.budgets import (
    NO_CODONS,
    a_codon,
    a_hank,
    a_loop,
    a_state,
    entry_of,
    spent,
    with_spent,
)
from support.histories import running

NAMES = ("a", "b", "c")


def of(
    hank: Hank, name: str, state: State = NO_CODONS, ceilings: Ceilings = NO_CEILINGS
) -> Allowance:
    return allowance(hank, entry_of(hank, name), state, ceilings)


def dollars(
    hank: Hank, name: str, state: State = NO_CODONS, ceilings: Ceilings = NO_CEILINGS
) -> float | None:
    found = of(hank, name, state, ceilings)
    return next((each.most for each in found.limits if each.currency == "cost"), None)


def three(budget: ContainerBudget, **own: CodonBudget) -> Hank:
    return a_hank(*(a_codon(name, budget=own.get(name)) for name in NAMES), budget=budget)


# --- Checks -------------------------------------------------------------------------------------


def test_without_a_budget_nothing_is_limited() -> None:
    """Without a budget nothing is ever exceeded."""
    hank = a_hank(a_codon("a"))
    unlimited = of(hank, "a")
    assert unlimited.exceeded_by(Spending(1e9, 1e9, 10**9, 10**9)) is None
    assert unlimited.seconds is None


@pytest.mark.parametrize(
    ("spent_now", "currency", "limit", "used"),
    [
        (Spending(dollars=2.0), "cost", 2.0, 2.0),
        (Spending(seconds=30.5), "duration", 30.0, 30.5),
        (Spending(output_tokens=500), "outputTokens", 500, 500),
        (Spending(context_tokens=9_001), "contextTokens", 9_000, 9_001),
        (Spending(2.0, 30.0, 500, 9_000), "cost", 2.0, 2.0),
        (Spending(1.9, 30.0, 500, 9_000), "duration", 30.0, 30.0),
    ],
)
def test_a_limit_is_exceeded_when_it_is_reached(spent_now, currency, limit, used) -> None:
    """The check is `used >= limit`, and of several exceeded limits the first is reported."""
    budget = CodonBudget(
        max_dollars=2, max_time_seconds=30, max_output_tokens=500, max_context_tokens=9_000
    )
    found = of(a_hank(a_codon("a", budget=budget)), "a")
    assert found.exceeded_by(Spending(1.99, 29.9, 499, 8_999)) is None
    overrun = found.exceeded_by(spent_now)
    assert overrun is not None
    assert overrun.exceeded == BudgetExceeded(currency=currency, limit=limit, used=used)
    assert not overrun.fails
    assert overrun.sentence.startswith("Budget exceeded: ")
    assert found.seconds == 30


def test_the_owner_of_the_limit_says_what_happens() -> None:
    """A budget failure is permanent, since another attempt would start with less."""
    own = CodonBudget(max_dollars=5)
    hank = three(ContainerBudget(max_dollars=1, on_exceeded="fail"), a=own)
    overrun = of(hank, "a").exceeded_by(Spending(dollars=1))
    assert overrun is not None
    assert (overrun.fails, overrun.owner) == (True, "hank")
    assert not overrun.reason.retriable
    assert overrun.reason.message == "Budget exceeded: $1.0000 of the $1.0000 that the hank allows."
    hank = three(ContainerBudget(max_dollars=9, on_exceeded="fail"), a=own)
    overrun = of(hank, "a").exceeded_by(Spending(dollars=5))
    assert overrun is not None
    assert (overrun.fails, overrun.owner) == (False, "codon")


@pytest.mark.parametrize(
    ("budget", "before"),
    [(ContainerBudget(max_dollars=0), 0.0), (ContainerBudget(max_dollars=3), 3.5)],
)
def test_nothing_left_is_seen_before_the_codon_begins(
    budget: ContainerBudget, before: float
) -> None:
    """An exhausted budget is detected before the codon starts, so that no money is spent."""
    hank = three(budget)
    state = a_state(spent(hank, "a", before))
    assert of(hank, "b", state).exceeded_by(NOTHING) is not None


# --- Caps of a codon ----------------------------------------------------------------------------


def test_caps_hold_for_each_iteration() -> None:
    """Iteration 1 is not charged for the spending of iteration 0."""
    hank = a_hank(
        a_loop("loop", a_codon("r", budget=CodonBudget(max_dollars=1, max_output_tokens=9)))
    )
    state = a_state(spent(hank, "r#0", 1.0, output=9))
    assert of(hank, "r#1", state) == of(hank, "r#0")


def test_automatic_retries_share_the_money_but_not_the_time() -> None:
    """A failed attempt's money counts against the next attempt; its time does not."""
    own = CodonBudget(
        max_dollars=5, max_time_seconds=60, max_output_tokens=100, max_context_tokens=50
    )
    hank = a_hank(a_codon("a"), a_codon("b", budget=own))
    tries = [
        spent(hank, "b", 2, seconds=59, output=30, status="failed", number=number)
        for number in (3, 4)
    ]
    found = of(hank, "b", a_state(spent(hank, "a", 9), *tries))
    assert [(each.currency, each.most) for each in found.limits] == [
        ("cost", 1.0),
        ("duration", 60),
        ("outputTokens", 40),
        ("contextTokens", 50),
    ]


# --- Ceilings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "ceiling", "lower"),
    [(None, None, None), (3, None, 3), (None, 2, 2), (3, 2, 2), (2, 3, 2), (3, 0, 0)],
)
def test_of_hank_and_command_line_the_lower_counts(own, ceiling, lower) -> None:
    """The lower ceiling applies, in money and in time."""
    hank = a_hank(
        a_codon("a"), budget=ContainerBudget(max_dollars=own, max_time_seconds=own or None)
    )
    whole = capped(hank, Ceilings(ceiling, ceiling))
    assert (whole.max_dollars, whole.max_time_seconds) == (lower, lower)
    assert dollars(hank, "a", ceilings=Ceilings(ceiling)) == lower


def test_a_ceiling_holds_without_any_budget_in_the_hank() -> None:
    """A ceiling counts the spending of earlier codons, even if the hank has no budget."""
    hank = a_hank(a_codon("a"), a_codon("b"))
    state = a_state(spent(hank, "a", 1.25, seconds=40))
    found = of(hank, "b", state, Ceilings(2.0, 100.0))
    assert found.limits == (
        BudgetLimit("cost", 0.75, "hank", "complete"),
        BudgetLimit("duration", 60.0, "hank", "complete"),
    )


# --- Allocation ---------------------------------------------------------------------------------


def test_shared_money_is_for_any_codon() -> None:
    """Each codon may use all that is left."""
    hank = three(ContainerBudget(max_dollars=10))
    assert dollars(hank, "a") == 10
    assert dollars(hank, "b", a_state(spent(hank, "a", 7, sentinels=1))) == 2


def test_strict_shares_evaporate() -> None:
    """The unused part of a codon's share is lost to the others."""
    hank = three(
        ContainerBudget(max_dollars=10, allocation="proportional-strict", shares={"a": 0.5})
    )
    assert [dollars(hank, name) for name in NAMES] == [5, 2.5, 2.5]
    assert dollars(hank, "b", a_state(spent(hank, "a", 1))) == 2.5


def test_proportional_shares_flow_back() -> None:
    """The unused part of a codon's share is divided among the following ones, by their shares."""
    shares = {"a": 0.5, "b": 0.375, "c": 0.125}
    hank = three(ContainerBudget(max_dollars=8, allocation="proportional", shares=shares))
    assert [dollars(hank, name) for name in NAMES] == [4, 6, 8]
    after_a = a_state(spent(hank, "a", 0))
    assert dollars(hank, "b", after_a) == 6
    assert dollars(hank, "c", with_spent(after_a, [spent(hank, "b", 2)])) == 6
    assert dollars(hank, "b", a_state(spent(hank, "a", 6))) == pytest.approx(1.5)


def test_a_codons_cap_caps_its_share() -> None:
    """The lower of cap and share applies."""
    budget = ContainerBudget(max_dollars=9, allocation="proportional-strict")
    hank = three(budget, a=CodonBudget(max_dollars=1), b=CodonBudget(max_dollars=100))
    assert [dollars(hank, name) for name in NAMES] == [1, 3, 3]


def test_time_is_one_pool_whatever_the_shares() -> None:
    """Shares apply only to money (Hankweave, container budgets)."""
    budget = ContainerBudget(
        max_dollars=8, max_time_seconds=100, allocation="proportional-strict", shares={"a": 0.1}
    )
    hank = three(budget)
    assert of(hank, "b", a_state(spent(hank, "a", seconds=30))).seconds == 70


def test_a_loop_is_one_member_of_the_hank_and_has_members_itself() -> None:
    """Both budgets apply, and all iterations share the loop's."""
    loop = a_loop(
        "loop",
        a_codon("r"),
        a_codon("m"),
        budget=ContainerBudget(max_dollars=4, allocation="proportional-strict", shares={"r": 0.75}),
    )
    whole = ContainerBudget(max_dollars=10, allocation="proportional-strict", shares={"loop": 0.2})
    hank = a_hank(a_codon("a"), loop, budget=whole)
    assert dollars(hank, "r#0") == 2  # The loop's share of the hank's budget.
    assert dollars(hank, "m#0", a_state(spent(hank, "r#0", 0.5))) == 1  # Its share of the loop.
    used = [spent(hank, "r#0", 0.5), spent(hank, "m#0", 0.75), spent(hank, "r#1", 0.5)]
    assert dollars(hank, "m#1", a_state(*used)) == 0.25


def test_in_a_loop_nothing_flows_back_before_its_last_iteration() -> None:
    """A codon with iterations left keeps its share."""
    budget = ContainerBudget(max_dollars=6, allocation="proportional")
    hank = a_hank(a_loop("loop", a_codon("r"), a_codon("m"), budget=budget, limit=2))
    first = a_state(spent(hank, "r#0", 1))
    assert dollars(hank, "m#0", first) == 3
    last = with_spent(first, [spent(hank, "m#0", 1), spent(hank, "r#1", 1)])
    assert dollars(hank, "m#1", last) == 3  # 6, less 2 of r, less the 1 it has used itself.


def test_what_one_used_beyond_its_part_no_other_may_use_again() -> None:
    """A last message can exceed the allowance; the others get less, so that the total holds."""
    for allocation in ("proportional", "proportional-strict"):
        budget = ContainerBudget(max_dollars=6, allocation=allocation)
        hank = a_hank(a_loop("loop", a_codon("r"), a_codon("m"), budget=budget))
        assert dollars(hank, "m#0", a_state(spent(hank, "r#0", 5.5))) == 0.5


def test_a_loop_without_a_limit_has_no_last_iteration() -> None:
    """Without a last iteration each codon keeps its share to the end."""
    budget = ContainerBudget(max_dollars=6, allocation="proportional")
    hank = a_hank(a_loop("loop", a_codon("r"), a_codon("m"), budget=budget, limit=None))
    assert dollars(hank, "m#7", a_state(spent(hank, "r#7", 1), spent(hank, "m#6", 2))) == 1


def test_a_codon_that_the_hank_has_no_more_is_under_its_budget() -> None:
    """A change of the hank during an execution does not lift the budget."""
    old = three(ContainerBudget(max_dollars=3, allocation="proportional-strict"))
    new = a_hank(a_codon("z"), budget=ContainerBudget(max_dollars=3, allocation="proportional"))
    state = a_state(spent(old, "a", 1))
    assert allowance(new, entry_of(old, "b"), state).exceeded_by(Spending(dollars=2)) is not None


def test_what_runs_now_does_not_lower_its_own_allowance() -> None:
    """The allowance of a running codon stays the same when it is computed again."""
    hank = three(ContainerBudget(max_dollars=3))
    state = a_state(spent(hank, "a", 1))
    before = of(hank, "b", state)
    codon = replace(running(), codon_id=entry_of(hank, "b").codon_id, current_cost=1.5)
    newest = replace(state.runs[0], codons=(*state.runs[0].codons, codon))
    assert of(hank, "b", replace(state, runs=(newest,))) == before


# --- Properties ---------------------------------------------------------------------------------

amounts = st.floats(0, 100, allow_nan=False).map(lambda number: round(number, 4))
allocations = st.sampled_from(["shared", "proportional", "proportional-strict"])


@st.composite
def hanks(draw: st.DrawFn) -> Hank:
    """Return two codons around a loop of two, with any allocation in each container."""

    def container(members: tuple[str, ...]) -> ContainerBudget:
        allocation = draw(allocations)
        shares = None
        if allocation != "shared":
            named = draw(st.sets(st.sampled_from(members)))
            shares = {name: draw(st.sampled_from([0.1, 0.25, 0.33])) for name in sorted(named)}

        return ContainerBudget(max_dollars=draw(amounts), allocation=allocation, shares=shares)

    def codon(name: str) -> Codon:
        cap = draw(st.none() | amounts)
        return a_codon(name, budget=None if cap is None else CodonBudget(max_dollars=cap))

    limit = draw(st.sampled_from([None, 1, 2]))
    budget = draw(st.none() | st.just(container(("r", "m"))))
    loop = a_loop("loop", codon("r"), codon("m"), budget=budget, limit=limit)
    return a_hank(codon("a"), loop, codon("z"), budget=container(("a", "loop", "z")))


ORDER = ("a", "r#0", "m#0", "r#1", "m#1", "z")


def obedient(hank: Hank, appetites: list[float]) -> State:
    """Run the plan; each codon spends any amount up to its allowance."""
    state = NO_CODONS
    for number, (name, appetite) in enumerate(zip(ORDER, appetites, strict=True)):
        most = dollars(hank, name, state)
        assert most is not None
        took = spent(hank, name, min(appetite, most), number=number + 2)
        state = with_spent(state, [took])

    return state


appetites = st.lists(amounts, min_size=len(ORDER), max_size=len(ORDER))


@given(hank=hanks(), appetites=appetites)
def test_all_together_use_at_most_the_ceiling(hank: Hank, appetites: list[float]) -> None:
    """Whatever the allocation, if each codon keeps to its allowance, the totals keep to the hank's
    and the loop's budgets."""
    state = obedient(hank, appetites)
    whole = capped(hank, NO_CEILINGS)
    assert whole.max_dollars is not None
    assert total(counted(state)).dollars <= whole.max_dollars + 1e-6
    loop = next(step for step in hank.hank if isinstance(step, Loop))
    if loop.budget is not None and loop.budget.max_dollars is not None:
        of_loop = [each for each in counted(state) if each.codon.loop_context is not None]
        assert total(of_loop).dollars <= loop.budget.max_dollars + 1e-6


@given(hank=hanks(), appetites=appetites, before=st.integers(0, len(ORDER) - 1), more=amounts)
def test_who_spends_more_never_raises_an_allowance_of_others(
    hank: Hank, appetites: list[float], before: int, more: float
) -> None:
    """More spending, or overspending, never raises the allowance of another codon."""
    less = [spent(hank, name, appetites[i], number=i + 2) for i, name in enumerate(ORDER[:before])]
    most = [
        spent(hank, name, appetites[i] + more, number=i + 2)
        for i, name in enumerate(ORDER[:before])
    ]
    lower = dollars(hank, ORDER[before], with_spent(NO_CODONS, most))
    higher = dollars(hank, ORDER[before], with_spent(NO_CODONS, less))
    assert lower is not None
    assert higher is not None
    assert 0 <= lower <= higher + 1e-9


@given(
    whole=amounts,
    shares=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.1, 0.2, 0.3]), min_size=1),
    spends=st.lists(st.floats(0, 1), min_size=2, max_size=2),
)
def test_in_proportion_the_last_gets_all_that_is_left(
    whole: float, shares: dict[str, float], spends: list[float]
) -> None:
    """With `proportional` the last codon gets all that is left; with `-strict` never more."""
    flowing = ContainerBudget(max_dollars=whole, allocation="proportional", shares=shares)
    strict = replace(flowing, allocation="proportional-strict")
    named = sum(shares_of(flowing, NAMES).values())
    state = NO_CODONS
    for number, (name, part) in enumerate(zip(NAMES, spends, strict=False)):
        most = dollars(three(flowing), name, state)
        assert most is not None
        state = with_spent(state, [spent(three(flowing), name, most * part, number=number + 2)])

    last, least = dollars(three(flowing), "c", state), dollars(three(strict), "c", state)
    assert last is not None
    assert least is not None
    assert last == pytest.approx(whole * named - total(counted(state)).dollars, abs=1e-6)
    assert least <= last + 1e-6
