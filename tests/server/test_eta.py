"""How long the rest of a plan takes, from what its codons have taken before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import Hank
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    CodonWait,
    ReusedResult,
    State,
)
from hankweave_server.domain.lifecycle import with_wait
from hankweave_server.local.eta import Durations, Eta, durations_in, eta
from support.histories import (
    MOMENT,
    a_plan,
    a_run,
    completed,
    failed,
    looped,
    running,
    sha,
    skipped,
)

BEGIN = from_text(MOMENT)
replace = msgspec.structs.replace


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def lasting(codon: CodonExecution, seconds: float) -> CodonExecution:
    """Return an ended execution that took so long."""
    return replace(codon, end_time=to_text(at(seconds)))


def done(name: str, seconds: float) -> CodonExecution:
    return lasting(completed(name), seconds)


def state_of(plan: Sequence[str], *codons: CodonExecution) -> State:
    """Return the state of one run with these executions, each with a checkpoint of its own."""
    run = a_run(codons=codons)
    return replace(
        EMPTY_STATE, runs=(run,), current_run_id=run.run_id, execution_plan=a_plan(*plan)
    )


def spans(found: Eta | None) -> tuple[float, float | None, float | None]:
    """Return the three numbers of an estimate in seconds."""
    assert found is not None
    likely = None if found.likely_ms is None else found.likely_ms / 1000
    return found.shortest_ms / 1000, likely, found.longest_ms and found.longest_ms / 1000


THREE = (done("review#0", 60), done("review#1", 120), done("review#2", 90))
LOOPED = ("review#0", "review#1", "review#2", "review#3")
PAIRS = ("draft#0", "review#0", "draft#1", "review#1")
EARLIER: Durations = {"one": (10_000, 20_000, 60_000)}


@pytest.mark.parametrize(
    ("state", "seconds", "hank", "earlier", "expected", "unknown"),
    [
        pytest.param(
            state_of(LOOPED, *THREE, running("review#3")),
            30,
            looped(5),
            {},
            (30 + 60, 60 + 90, 90 + 120),
            (),
            id="the-active-iteration-and-one-that-the-plan-lacks",
        ),
        pytest.param(
            state_of(PAIRS, done("draft#0", 10), done("review#0", 20), done("draft#1", 10)),
            0,
            looped(3, "draft", "review"),
            {},
            (20 + 30, 20 + 30, 20 + 30),
            (),
            id="a-round-that-the-plan-lacks-is-whole",
        ),
        pytest.param(
            state_of(LOOPED, *THREE),
            0,
            looped(None),
            {},
            (60, None, None),
            ("loop",),
            id="a-loop-that-ends-with-a-full-context",
        ),
        pytest.param(
            state_of(LOOPED, *THREE),
            0,
            None,
            {},
            (60, None, None),
            ("loop",),
            id="a-loop-of-an-unknown-hank",
        ),
        pytest.param(
            state_of(("zero", "one", "three"), done("zero", 10)),
            0,
            None,
            EARLIER,
            (10, None, None),
            ("three",),
            id="a-codon-that-never-ran",
        ),
        pytest.param(
            state_of(("one",), running("one")), 15, None, EARLIER, (0, 5, 45), (), id="it-works"
        ),
        pytest.param(
            state_of(("one",), running("one")), 99, None, EARLIER, (0, 0, 0), (), id="it-is-late"
        ),
    ],
)
def test_a_rest_takes_as_long_as_its_codons_took(
    state: State,
    seconds: float,
    hank: Hank | None,
    earlier: Durations,
    expected: tuple[float, float | None, float | None],
    unknown: tuple[str, ...],
) -> None:
    """At least the shortest times, probably the medians, at most the longest ones."""
    found = eta(state, at(seconds), hank=hank, earlier=earlier)
    assert spans(found) == expected
    assert found is not None
    assert found.unknown == unknown


def test_earlier_executions_count_where_this_one_knows_nothing() -> None:
    """The estimate says how many durations it comes from, and when the plan ends."""
    plan = ("review#0", "review#1", "one")
    state = state_of(plan, done("review#0", 10), running("review#1"))
    earlier = {"review": (1_000_000,), **EARLIER}
    found = eta(state, at(4), hank=looped(2), earlier=earlier)
    assert spans(found) == (6 + 10, 6 + 20, 6 + 60)
    assert found is not None
    assert (found.durations, found.earlier_durations, found.codons_left) == (1, 3, 2)
    assert (found.earliest, found.latest) == (to_text(at(4 + 16)), to_text(at(4 + 66)))
    alone = eta(state, at(4), hank=looped(2), earlier=earlier, is_running=False)
    assert spans(alone) == (10 + 10, 10 + 20, 10 + 60), "the codon begins anew"
    assert alone is not None
    assert (alone.earliest, alone.latest) == (None, None)


def test_without_a_rest_or_any_experience_there_is_no_estimate() -> None:
    assert eta(state_of(("one",), done("one", 10)), at(0), earlier=EARLIER) is None
    assert eta(EMPTY_STATE, at(0), earlier=EARLIER) is None
    assert eta(state_of(("one",), running("one")), at(0)) is None


def test_a_wait_is_added_as_long_as_it_lasts() -> None:
    """Its time counts neither as work of the active codon nor of finished ones."""
    wait = CodonWait(
        kind="usage", until=to_text(at(600)), since=to_text(at(5)), source="event", number=1
    )
    waiting = with_wait(running("one"), wait, 0, None)
    before = replace(done("zero", 1000), waited_ms=990_000)
    state = state_of(("zero", "one"), before, waiting)
    assert dict(durations_in([state])) == {"zero": [10_000]}
    assert spans(eta(state, at(100), earlier=EARLIER)) == (500 + 5, 500 + 15, 500 + 55)
    # The wait goes on without a server, and the codon begins anew.
    alone = eta(state, at(100), earlier=EARLIER, is_running=False)
    assert spans(alone) == (500 + 10, 500 + 20, 500 + 60)


def test_only_executions_that_came_to_their_own_end_count() -> None:
    """Not a failure, a skip by a person, or a result that was taken over."""
    whole = replace(skipped("one"), condition="false", end_time=MOMENT)
    reused = ReusedResult(run_id=a_run().run_id, codon_id=whole.codon_id, checkpoint_sha=sha(1))
    cut = (
        lasting(failed("one", sha(3)), 6),
        lasting(skipped("one"), 2),
        replace(done("one", 1), reused=reused),
    )
    assert dict(durations_in([state_of(("one",), *cut)])) == {}
    states = (state_of(("one",), *cut, done("one", 50)), state_of(("one",), whole))
    assert dict(durations_in(states)) == {"one": [50_000, 0]}


@given(
    own=st.lists(st.integers(0, 10**7), max_size=30),
    other=st.lists(st.integers(0, 10**7), min_size=1, max_size=30),
    limit=st.integers(1, 20),
    worked=st.integers(0, 10**5),
)
def test_the_numbers_are_in_order(
    own: list[int], other: list[int], limit: int, worked: int
) -> None:
    """Whatever was observed, a range is one, and never negative."""
    ended = [done("review#0", each / 1000) for each in own]
    state = state_of(("review#0", "review#1", "publish"), *ended, running("review#1"))
    earlier = {"review": (5,), "publish": other}
    found = eta(state, at(worked), hank=looped(limit), earlier=earlier)
    assert found is not None
    assert found.likely_ms is not None
    assert found.longest_ms is not None
    assert 0 <= found.shortest_ms <= found.likely_ms <= found.longest_ms
