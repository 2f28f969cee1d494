"""The time and money to the end of a plan, from what an execution has used before."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from hankweave_protocol.hank import Hank
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.replies import Forecast
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    PlanEntry,
    ReusedResult,
    RunningCodon,
    State,
)
from hankweave_server.domain.budget.estimates import forecast
from support.histories import (
    MOMENT,
    a_plan,
    a_run,
    completed,
    failed,
    looped,
    running,
    sha,
)
from support.timelines import continued

replace = msgspec.structs.replace
BEGIN = from_text(MOMENT)
NOW = BEGIN + timedelta(seconds=30)


def done(name: str, seconds: float, dollars: float, number: int = 2) -> CompletedCodon:
    end = to_text(BEGIN + timedelta(seconds=seconds))
    return replace(completed(name, number), end_time=end, final_cost=dollars)


def works(name: str, dollars: float) -> RunningCodon:
    """Return an execution that has worked for 30 seconds."""
    return replace(running(name), current_cost=dollars)


def state_of(plan: tuple[PlanEntry, ...], *codons: CodonExecution) -> State:
    run = a_run(codons=codons)
    return State(runs=(run,), current_run_id=run.run_id, execution_plan=plan)


def summed(found: Forecast | None) -> tuple[float | None, float | None, str] | None:
    """Return the seconds, the cost at the end, and the basis."""
    if found is None:
        return None

    seconds = None if found.remaining_ms is None else found.remaining_ms / 1000
    cost = None if found.cost_at_end is None else round(found.cost_at_end, 6)
    return seconds, cost, found.basis


LOOPED = a_plan("review#0", "review#1", "review#2", "review#3")
THREE = (done("review#0", 40, 0.1), done("review#1", 80, 0.2), done("review#2", 60, 0.6))
ANEW = replace(
    state_of(a_plan("one", "two")),
    runs=(
        continued("b", of="a", after=None, at=sha(1)),
        a_run("a", codons=(done("one", 10, 0.1), done("two", 20, 0.2))),
    ),
)
TAKEN_OVER = replace(
    done("one", 0, 0.0),
    reused=ReusedResult(run_id=a_run().run_id, codon_id=CodonId("one"), checkpoint_sha=sha(1)),
)
OTHER_MODEL = tuple(
    replace(each, codon=replace(each.codon, model=model))
    for each, model in zip(a_plan("one", "two"), ("sonnet", "opus"), strict=True)
)


@pytest.mark.parametrize(
    ("state", "hank", "expected"),
    [
        pytest.param(
            state_of(LOOPED, *THREE, works("review#3", 0.05)),
            looped(4),
            (30, 1.1, "from 3 earlier rounds"),
            id="the-rest-of-the-round-that-works",
        ),
        pytest.param(
            state_of(LOOPED, *THREE),
            looped(6),
            (180, 1.5, "from 3 earlier rounds"),
            id="rounds-that-the-plan-has-not-yet",
        ),
        pytest.param(
            state_of(
                a_plan("draft#0", "review#0", "draft#1", "review#1"),
                *(done("draft#0", 10, 0.1), done("review#0", 40, 0.2), done("draft#1", 10, 0.1)),
            ),
            looped(3, "draft", "review"),
            (90, 0.9, "from 2 earlier rounds"),
            id="the-steps-of-the-last-round-that-are-done-come-again",
        ),
        pytest.param(
            state_of(LOOPED, *THREE),
            looped(None),
            (None, None, "from 3 earlier rounds"),
            id="a-loop-without-a-limit",
        ),
        pytest.param(
            state_of(LOOPED, *THREE, works("review#3", 9.0)),
            looped(4),
            (30, 9.9, "from 3 earlier rounds"),
            id="more-than-expected-is-paid-already",
        ),
        pytest.param(ANEW, None, (30, 0.6, "from 1 earlier run of a step"), id="after-a-rollback"),
        pytest.param(
            state_of(a_plan("one", "two"), done("one", 40, 0.1)),
            None,
            (40, 0.2, "from 1 other step of the same model"),
            id="a-codon-of-the-same-model",
        ),
        pytest.param(
            state_of(a_plan("one", "review#0", "review#1"), *(done("one", 40, 0.1), THREE[0])),
            looped(2),
            (40, 0.3, "from 1 earlier round"),
            id="its-own-rounds-come-first",
        ),
        pytest.param(state_of(OTHER_MODEL, done("one", 9, 0.1)), None, None, id="another-model"),
        pytest.param(state_of(a_plan("one"), works("one", 0.1)), None, None, id="nothing-known"),
        pytest.param(state_of(a_plan("one"), failed("one")), None, None, id="failures-say-nothing"),
        pytest.param(
            state_of(a_plan("one", "two"), TAKEN_OVER), None, None, id="a-result-was-taken-over"
        ),
        pytest.param(state_of(a_plan("one"), done("one", 9, 0.1)), None, None, id="it-has-ended"),
    ],
)
def test_a_forecast_is_the_sum_of_what_steps_used_before(
    state: State, hank: Hank | None, expected: tuple[float | None, float | None, str] | None
) -> None:
    """With its basis in words; without one, there is no forecast."""
    assert summed(forecast(state, NOW, hank)) == expected


def test_the_steps_of_a_forecast_add_up_to_it() -> None:
    """Unless the plan lacks rounds, or a step is unknown."""
    state = state_of(a_plan("one", "two", "three"), done("one", 40, 0.1), works("two", 0.04))
    found = forecast(state, NOW)
    assert found is not None
    assert [(each.codon_id, each.ms, round(each.cost or 0, 6)) for each in found.steps] == [
        ("two", 10_000, 0.06),
        ("three", 40_000, 0.1),
    ]
    assert found.remaining_ms == sum(each.ms or 0 for each in found.steps)
