"""The plan of an execution whose hank.json has changed."""

from __future__ import annotations

import msgspec
import pytest

from hankweave_protocol.hank import Codon, Hank, IterationLimit, Loop
from hankweave_protocol.state import EMPTY_STATE, CodonExecution, PlanEntry, State
from hankweave_server.domain import plan as plans
from hankweave_server.domain.execution_thread import thread
from hankweave_server.execution.resume import PlanConflict, grown, replanned
from support.histories import a_codon, a_run, completed, failed, skipped


def a_hank(*steps: Codon | Loop | str) -> Hank:
    return Hank(hank=tuple(a_codon(each) if isinstance(each, str) else each for each in steps))


def a_loop(limit: int) -> Loop:
    end = IterationLimit(limit=limit)
    return Loop(id="loop", name="Loop", codons=(a_codon("review"),), terminate_on=end)


def stands(hank: Hank, *codons: CodonExecution) -> State:
    """Return an execution of a hank in which these codons have run."""
    run = a_run(codons=codons)
    bare = msgspec.structs.replace(EMPTY_STATE, runs=(run,), current_run_id=run.run_id)
    plan = grown(plans.initial_plan(hank), hank, thread(bare))
    return msgspec.structs.replace(bare, execution_plan=plan)


def ids(plan: tuple[PlanEntry, ...]) -> list[str]:
    return [entry.codon_id for entry in plan]


REVIEWS = (completed("review#0"), completed("review#1"))


@pytest.mark.parametrize(
    ("hank", "codons"),
    [
        (a_hank("one", "two"), ()),
        (a_hank("one", "two"), (completed("one"),)),
        (a_hank("one", "two"), (completed("one"), skipped("two"))),
        (a_hank("one", "two"), (failed("one"),)),
        (a_hank(a_loop(3), "last"), REVIEWS[:1]),
        (a_hank(a_loop(2), "last"), REVIEWS),
        (a_hank(a_loop(2), "last"), (*REVIEWS, completed("last"))),
    ],
)
def test_the_same_hank_gives_the_same_plan(hank: Hank, codons: tuple[CodonExecution, ...]) -> None:
    """In any state of an execution, its unchanged hank does not change the plan."""
    state = stands(hank, *codons)
    assert replanned(state, hank) == state.execution_plan


def test_what_has_not_run_is_the_new_hanks() -> None:
    """Codons can be added and removed after those that have run, which stay unchanged."""
    state = stands(a_hank("one", "two"), completed("one"))
    other = msgspec.structs.replace(a_codon("one"), prompt_text="Another prompt.")
    plan = replanned(state, a_hank(other, "three", "four"))
    assert ids(plan) == ["one", "three", "four"]
    assert plan[0] == state.execution_plan[0]


def test_a_failed_codon_is_tried_again_as_the_new_hank_says() -> None:
    """The new prompt and budget of a failed codon apply, because it has yet to succeed."""
    other = msgspec.structs.replace(a_codon("one"), prompt_text="Another prompt.")
    plan = replanned(stands(a_hank("one"), failed("one")), a_hank(other))
    assert plan[0].codon == other


def test_a_loop_may_be_given_more_iterations_while_it_runs() -> None:
    """The new hank's limit applies; the next iteration follows those that have run."""
    state = stands(a_hank(a_loop(2), "last"), *REVIEWS)
    assert ids(replanned(state, a_hank(a_loop(5), "last"))) == [
        *("review#0", "review#1", "review#2", "last")
    ]


@pytest.mark.parametrize(
    ("now", "ran", "instead"),
    [
        (a_hank("zero", "one"), "one", "zero"),
        (a_hank("other"), "one", "other"),
    ],
)
def test_what_has_run_cannot_change(now: Hank, ran: str, instead: str) -> None:
    """The error names the first codon at which the new hank differs from what has run."""
    with pytest.raises(PlanConflict) as refused:
        replanned(stands(a_hank("one", "two"), completed("one")), now)

    assert (refused.value.ran, refused.value.now) == (ran, instead)


def test_a_loop_that_is_over_cannot_go_on() -> None:
    """More iterations would precede what has run; of fewer, some have already run."""
    state = stands(a_hank(a_loop(2), "last"), *REVIEWS, completed("last"))
    with pytest.raises(PlanConflict, match=r"last has run, but the hank now has review#2"):
        replanned(state, a_hank(a_loop(3), "last"))

    with pytest.raises(PlanConflict, match=r"review#1 has run, but the hank now has last"):
        replanned(state, a_hank(a_loop(1), "last"))


def test_a_hank_that_lost_its_last_codon_is_a_conflict_once_that_has_run() -> None:
    """A removed codon that has run is a conflict."""
    state = stands(a_hank("one", "two"), completed("one"), completed("two"))
    with pytest.raises(PlanConflict, match=r"two has run, but the hank now has nothing"):
        replanned(state, a_hank("one"))
