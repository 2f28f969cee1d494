"""Claims about the steps that run again after a rollback, and their last cost and duration."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import Travel
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    RunningCodon,
    SkippedCodon,
    State,
)
from hankweave_server.domain.budget.estimates import runs_again
from hankweave_server.domain.targets import of_travel, target_of
from support.histories import MOMENT, a_plan, completed, failed, running, sha, skipped
from support.timelines import a_state, checkpoints_of, continued, ended, ignoring, rigged

replace = msgspec.structs.replace
NOW = from_text(MOMENT) + timedelta(seconds=60)


def costing(codon: CodonExecution, dollars: float) -> CodonExecution:
    match codon:
        case CompletedCodon():
            return replace(codon, final_cost=dollars)
        case FailedCodon() | SkippedCodon():
            return replace(codon, partial_cost=dollars)
        case RunningCodon():
            return replace(codon, current_cost=dollars)
        case _:
            raise AssertionError(f"{codon} has no cost")


def done(name: str, number: int, dollars: float) -> CodonExecution:
    return costing(completed(name, number), dollars)


def broken(name: str, number: int, dollars: float) -> CodonExecution:
    return costing(failed(name, sha(number)), dollars)


def again(
    state: State, after: str | None, at: Sha | None = None
) -> tuple[list[str], float | None, float | None]:
    """Return the steps that run again, their dollars, and their seconds."""
    found = runs_again(state, None if after is None else CodonId(after), NOW, at)
    assert found is not None
    assert found.total == len(found.codon_ids)
    cost = None if found.estimated_cost is None else round(found.estimated_cost, 6)
    seconds = None if found.estimated_ms is None else found.estimated_ms / 1000
    return list(found.codon_ids), cost, seconds


LINEAR = a_state(
    ended("first", done("one", 1, 0.1), done("two", 2, 0.2), done("three", 3, 0.4)),
    plan=a_plan("one", "two", "three", "four"),
)
FAILED = a_state(
    ended("first", done("one", 1, 0.1), broken("two", 2, 0.2)), plan=a_plan("one", "two", "three")
)
RUNNING = a_state(
    ended("first", done("one", 1, 0.1), costing(running("two"), 0.05)), plan=a_plan("one", "two")
)
RETRIED = a_state(
    ended("first", done("one", 1, 0.1), broken("two", 2, 0.01), done("two", 3, 0.3)),
    plan=a_plan("one", "two", "three"),
)
IGNORED = a_state(
    ended("first", broken("one", 1, 0.1), done("two", 2, 0.2)),
    plan=ignoring(a_plan("one", "two"), "one", "two"),
)
LOOP = a_state(
    ended(
        "first",
        done("observe", 1, 0.1),
        done("review#0", 2, 0.2),
        done("review#1", 3, 0.3),
        done("review#2", 4, 0.4),
    ),
    plan=a_plan("observe", "review#0", "review#1", "review#2", "report"),
)
ROLLED_BACK = a_state(
    ended("first", done("one", 1, 0.1), done("two", 2, 0.2), done("three", 3, 0.4)),
    continued("second", of="first", after="one", at=sha(1)),
    plan=a_plan("one", "two", "three"),
)
ON_ANOTHER_WAY = a_state(
    ended("first", done("one", 1, 0.1), done("two", 2, 0.2), done("three", 3, 0.4)),
    continued("second", broken("two", 5, 0.03), of="first", after="one", at=sha(1)),
    plan=a_plan("one", "two", "three"),
)
SHORT_LOOP = a_state(
    ended("first", done("review#0", 1, 0.1), done("review#1", 2, 0.2), done("review#2", 3, 0.3)),
    continued("second", done("review#1", 4, 0.4), of="first", after="review#0", at=sha(1)),
    plan=a_plan("review#0", "review#1", "report"),
)
SKIPPED = a_state(
    ended(
        "first",
        done("one", 1, 0.1),
        replace(costing(skipped("two", sha(2)), 0.0), condition="x == 1"),
        costing(skipped("three", sha(3)), 0.02),
    ),
    plan=a_plan("one", "two", "three"),
)


@pytest.mark.parametrize(
    ("state", "after", "expected"),
    [
        pytest.param(LINEAR, "one", (["two", "three"], 0.6, 300), id="what-came-after-the-target"),
        pytest.param(LINEAR, None, (["one", "two", "three"], 0.7, 450), id="from-the-beginning"),
        pytest.param(LINEAR, "three", ([], 0, 0), id="nothing-at-the-present-position"),
        pytest.param(FAILED, "one", (["two"], 0.2, 150), id="a-failed-step-as-far-as-it-got"),
        pytest.param(RUNNING, "one", (["two"], 0.05, 60), id="a-running-step-as-far-as-it-got"),
        pytest.param(RETRIED, "one", (["two"], 0.3, 150), id="the-attempt-that-succeeded-counts"),
        pytest.param(IGNORED, None, (["one", "two"], 0.3, 300), id="an-ignored-failure-runs-again"),
        pytest.param(
            LOOP, "review#0", (["review#1", "review#2"], 0.7, 300), id="each-iteration-of-a-loop"
        ),
        pytest.param(ROLLED_BACK, "one", ([], 0, 0), id="once-rolled-back-nothing-more"),
        pytest.param(ROLLED_BACK, None, (["one"], 0.1, 150), id="a-second-rollback-further-back"),
        pytest.param(ROLLED_BACK, "three", ([], 0, 0), id="forward-nothing-runs-again"),
        pytest.param(ON_ANOTHER_WAY, "one", (["two"], 0.2, 150), id="the-success-of-another-run"),
        pytest.param(ON_ANOTHER_WAY, "two", ([], 0, 0), id="to-a-branch-that-was-left"),
        pytest.param(SHORT_LOOP, "review#2", ([], 0, 0), id="to-an-iteration-that-was-left"),
        pytest.param(SHORT_LOOP, "review#0", (["review#1"], 0.4, 150), id="the-newest-time-counts"),
        pytest.param(SKIPPED, "one", (["two", "three"], 0.02, 300), id="skipped-steps-come-again"),
    ],
)
def test_what_runs_again_is_what_had_begun_after_the_target(
    state: State, after: str | None, expected: tuple[list[str], float, float]
) -> None:
    """The steps come in the order of the plan, with what each used the last time."""
    assert again(state, after) == expected


def test_of_a_step_that_never_began_no_cost_is_made_up() -> None:
    """The plan began again behind it, on the files as they were."""
    state = a_state(ended("first", done("three", 3, 0.4)), plan=a_plan("one", "two", "three"))
    assert again(state, "one") == (["two", "three"], None, None)


def test_a_codon_that_the_plan_lost_is_not_mentioned() -> None:
    """The hank was changed: what would run is not known from the plan."""
    assert runs_again(LINEAR, CodonId("former"), NOW) is None


def test_a_target_inside_a_step_lets_the_whole_step_run_again() -> None:
    """The checkpoint of its rig comes before all of its work."""
    first = ended("first", done("one", 1, 0.1), rigged(completed("two", 2), 9))
    state = a_state(first, plan=a_plan("one", "two"))
    target = target_of(state, checkpoints_of(state), sha(9))
    assert again(state, target.after_codon)[0] == ["two"]


def test_an_undo_runs_nothing_again_and_its_redo_what_the_rollback_did() -> None:
    """The undo goes forward; a redo goes back over the same steps."""
    known = checkpoints_of(ROLLED_BACK)
    left = known[sha(3)].coordinate
    undo = of_travel(ROLLED_BACK, known, Travel(operation_id="1", safety=sha(3), source=left))
    assert again(ROLLED_BACK, undo.after_codon) == ([], 0, 0)

    back = known[sha(1)].coordinate
    redo = of_travel(LINEAR, known, Travel(operation_id="2", safety=sha(1), source=back))
    assert again(LINEAR, redo.after_codon) == (["two", "three"], 0.6, 300)


def test_an_undo_to_the_end_of_a_failed_step_lets_that_step_run_again() -> None:
    """The rollback of a retry is undone: the attempt that succeeded is behind it."""
    known = checkpoints_of(RETRIED)
    left = known[sha(2)].coordinate
    undo = of_travel(RETRIED, known, Travel(operation_id="1", safety=sha(3), source=left))
    assert again(RETRIED, undo.after_codon, sha(2)) == (["two"], 0.3, 150)
    assert again(RETRIED, undo.after_codon) == ([], 0, 0)
