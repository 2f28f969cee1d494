"""Re-entry: the plan follows from the thread, whatever was pruned or lost."""

from __future__ import annotations

import pytest

from hankweave_protocol.state import State
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.plan import initial_plan
from hankweave_server.execution.resume import Plan, grown, reentered_by
from support.budgets import a_codon, a_hank, a_loop
from support.histories import completed, failed, skipped
from support.timelines import a_state, continued, ended

HANK = a_hank(
    a_codon("one"), a_loop("loop", a_codon("check"), a_codon("mend"), limit=3), a_codon("last")
)
PLAN = initial_plan(HANK)

ONE = completed("one", 0x11)
WALK = (
    ONE,
    *(
        completed(f"{name}#{n}", 0x20 + 2 * n + i)
        for n in range(3)
        for i, name in enumerate(("check", "mend"))
    ),
    completed("last", 0x40),
)


def names(plan: Plan) -> list[str]:
    return [entry.codon_id for entry in plan]


def planned(*iterations: int) -> list[str]:
    return ["one", *(f"{name}#{n}" for n in iterations for name in ("check", "mend")), "last"]


def walked(count: int) -> State:
    """Return the state after the first codons of a complete run."""
    return a_state(ended("first", *WALK[:count]), plan=PLAN)


@pytest.mark.parametrize(
    ("count", "iterations"),
    [(0, [0]), (1, [0]), (2, [0]), (3, [0, 1]), (4, [0, 1]), (5, [0, 1, 2]), (8, [0, 1, 2])],
)
def test_the_plan_grows_by_the_iterations_that_were_done(count: int, iterations: list[int]) -> None:
    """Each finished iteration adds the next one, up to the loop's limit, and none twice."""
    state = walked(count)
    from_nothing = grown(PLAN, HANK, thread(state))
    assert names(from_nothing) == planned(*iterations)
    assert grown(from_nothing, HANK, thread(state)) == from_nothing


def test_what_is_not_done_grows_nothing() -> None:
    """A failed codon does not end an iteration; a skipped one does."""
    before = WALK[:2]
    broken = a_state(ended("first", *before, failed("mend#0")), plan=PLAN)
    passed_over = a_state(ended("first", *before, skipped("mend#0")), plan=PLAN)
    assert names(grown(PLAN, HANK, thread(broken))) == planned(0)
    assert names(grown(PLAN, HANK, thread(passed_over))) == planned(0, 1)


@pytest.mark.parametrize(
    ("after", "iterations"),
    [
        (None, [0]),
        ("one", [0]),
        ("check#0", [0]),
        ("mend#0", [0, 1]),
        ("check#1", [0, 1]),
        ("mend#1", [0, 1, 2]),
        ("mend#2", [0, 1, 2]),
        ("last", [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("pruned", [False, True])
def test_any_point_of_the_past_can_be_re_entered(
    after: str | None, iterations: list[int], pruned: bool
) -> None:
    """The plan is the same whether it had all iterations or an earlier rollback removed them."""
    full = grown(PLAN, HANK, thread(walked(len(WALK))))
    state = a_state(ended("first", *WALK), plan=PLAN if pruned else full)
    shas = {codon.codon_id: codon.completion_checkpoint for codon in WALK}
    at = None if after is None else next(sha for name, sha in shas.items() if name == after)
    run = continued("second", of="first", after=after, at=at)
    assert names(reentered_by(run, state, HANK)) == planned(*iterations)
