"""How long the rest of a plan takes, from what its codons have taken before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import ContextExceededEnd, Hank, IterationLimit, Loop
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.state import (
    EMPTY_STATE,
    CodonExecution,
    CodonWait,
    FailureReason,
    Run,
    State,
)
from hankweave_server.domain.lifecycle import reason_of_stop, with_wait
from hankweave_server.domain.reports.eta import Eta, Observed, eta, observed
from support.histories import (
    MOMENT,
    a_codon,
    a_plan,
    a_run,
    completed,
    failed,
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


def state_of(plan: Sequence[str], *codons: CodonExecution, run: Run | None = None) -> State:
    """Return the state of one run with these executions, each with a checkpoint of its own."""
    run = run or a_run(codons=codons)
    return replace(
        EMPTY_STATE, runs=(run,), current_run_id=run.run_id, execution_plan=a_plan(*plan)
    )


def hank_with(end: IterationLimit | ContextExceededEnd, *names: str) -> Hank:
    loop = Loop(
        id="loop",
        name="Loop",
        terminate_on=end,
        codons=tuple(map(a_codon, names or ("review",))),
    )
    return Hank(hank=(loop,))


def spans(found: Eta | None) -> tuple[float, float | None, float | None]:
    """Return the three numbers of an estimate in seconds."""
    assert found is not None
    likely = None if found.likely_ms is None else found.likely_ms / 1000
    return found.shortest_ms / 1000, likely, found.longest_ms and found.longest_ms / 1000


def test_the_iterations_of_a_loop_tell_how_long_the_others_take() -> None:
    """The active iteration has worked for 30 s; one more is not in the plan yet."""
    plan = ("review#0", "review#1", "review#2", "review#3")
    ended = (done("review#0", 60), done("review#1", 120), done("review#2", 90))
    state = state_of(plan, *ended, running("review#3"))
    found = eta(state, at(30), hank=hank_with(IterationLimit(limit=5)))
    assert spans(found) == (30 + 60, 60 + 90, 90 + 120)
    assert found is not None
    assert (found.earliest, found.latest) == (to_text(at(30 + 90)), to_text(at(30 + 210)))
    assert (found.durations, found.earlier_durations, found.codons_left) == (3, 0, 2)
    assert found.unknown == ()


def test_earlier_executions_tell_what_this_one_does_not_know() -> None:
    """The experience of this execution comes first."""
    plan = ("observe#0", "observe#1", "publish")
    state = state_of(plan, *(done("observe#0", seconds) for seconds in (10, 12, 14)))
    earlier = Observed({"observe": (1_000_000,) * 3, "publish": (40_000, 50_000, 60_000)})
    hank = hank_with(IterationLimit(limit=2), "observe")
    found = eta(state, at(0), hank=hank, earlier=earlier)
    assert spans(found) == (10 + 40, 12 + 50, 14 + 60)
    assert found is not None
    assert (found.durations, found.earlier_durations) == (3, 3)
    # No codon is active: when the plan ends is not known.
    assert (found.earliest, found.latest) == (None, None)


def test_a_codon_that_never_ran_leaves_the_end_open() -> None:
    state = state_of(("one", "two", "three"), done("one", 10))
    known = Observed({"two": (60_000, 70_000, 80_000)})
    found = eta(state, at(0), earlier=known)
    assert spans(found) == (60, None, None)
    assert found is not None
    assert found.unknown == ("three",)
    assert eta(state, at(0)) is None, "of neither codon anything is known"


def test_a_plan_that_has_ended_takes_no_time() -> None:
    assert eta(state_of(("one",), done("one", 10)), at(0)) is None
    assert eta(EMPTY_STATE, at(0)) is None


@pytest.mark.parametrize(
    ("counts", "expected", "unknown"),
    [
        ((), (0, None, None), ("loop",)),
        # The loop took 3 to 5 iterations before; two have begun here.
        ((3, 5), (1 * 10, 2 * 20, 3 * 30), ()),
        # It took no more than two.
        ((1, 2), (0, 0, 0), ()),
        # It never took as many: when it ends is open.
        ((1, 1), (0, None, None), ("loop",)),
    ],
)
def test_an_open_loop_is_as_long_as_it_was_before(
    counts: tuple[int, ...], expected: tuple[float, ...], unknown: tuple[str, ...]
) -> None:
    """It ends when a context is full, which only earlier executions can tell about."""
    plan = ("review#0", "review#1")
    state = state_of(plan, *(done("review#0", each) for each in (10, 20, 30)), running("review#1"))
    earlier = Observed(iterations={"loop": counts} if counts else {})
    found = eta(state, at(0), hank=hank_with(ContextExceededEnd()), earlier=earlier)
    assert found is not None
    rest = (found.shortest_ms - 10_000, found.likely_ms, found.longest_ms)
    likely = None if expected[1] is None else (20 + expected[1]) * 1000
    longest = None if expected[2] is None else (30 + expected[2]) * 1000
    assert rest == (expected[0] * 1000, likely, longest)
    assert found.unknown == unknown


def test_without_the_hank_the_end_of_a_loop_is_unknown() -> None:
    """The plan contains only the iteration that runs."""
    state = state_of(("review#0", "review#1"), done("review#0", 10), running("review#1"))
    found = eta(state, at(0))
    assert found is not None
    assert found.longest_ms is None
    assert found.unknown == ("loop",)


def test_one_that_takes_longer_than_ever_may_take_as_long_again() -> None:
    state = state_of(("one",), running("one"))
    known = Observed({"one": (10_000, 20_000, 30_000)})
    assert spans(eta(state, at(25), earlier=known)) == (0, 2.5, 5)
    assert spans(eta(state, at(300), earlier=known)) == (0, 150, 300)


def test_a_wait_is_added_as_long_as_it_lasts() -> None:
    """Its time counts neither as work of the active codon nor of finished ones."""
    wait = CodonWait(
        kind="usage", until=to_text(at(600)), since=to_text(at(5)), source="event", number=1
    )
    waiting = with_wait(running("two"), wait, 0, None)
    before = replace(done("one#0", 1000), waited_ms=990_000)
    state = state_of(("one#0", "two"), before, waiting)
    known = Observed({"two": (10_000, 20_000, 30_000)})
    assert observed([state]).durations == {"one": (10_000,)}
    assert spans(eta(state, at(100), earlier=known)) == (500 + 5, 500 + 15, 500 + 25)
    # The wait goes on without a server, and the codon begins anew.
    found = eta(state, at(100), earlier=known, is_running=False)
    assert spans(found) == (500 + 10, 500 + 20, 500 + 30)
    assert found is not None
    assert found.latest is None


def test_few_durations_are_widened_and_the_outermost_of_many_left_out() -> None:
    state = state_of(("one",))
    one = eta(state, at(0), earlier=Observed({"one": (30_000,)}))
    assert spans(one) == (20, 30, 45)
    many = tuple(range(100_000, 120_000, 1000))
    twenty = eta(state, at(0), earlier=Observed({"one": (1, *many[1:-1], 9_999_000)}))
    assert spans(twenty) == (102, 109.5, 117)


def test_what_was_cut_short_tells_nothing() -> None:
    """Nor do failures, unless no execution has succeeded; most fail early."""
    stopped = FailureReason(
        type="unknown", retriable=False, message=reason_of_stop("the server received SIGTERM")
    )
    tried = (
        lasting(failed("one", sha(3)), 6),
        lasting(replace(failed("one", sha(4)), failure_reason=stopped), 1),
        lasting(skipped("one"), 2),
    )
    state = state_of(("one",), *tried[:1])
    assert observed([state_of(("one",), *tried)]) == Observed(failed={"one": (6000,)})
    assert spans(eta(state, at(0))) == (4, 6, 9)
    assert spans(eta(state, at(0), earlier=Observed({"one": (9000,) * 3}))) == (9, 9, 9)
    assert observed([state_of(("one",), *tried, done("one", 50))]).durations == {"one": (50_000,)}
    by_condition = replace(skipped("one"), condition="false", end_time=MOMENT)
    assert observed([state_of(("one",), by_condition)]).durations == {"one": (0,)}


def test_a_crashed_execution_tells_nothing() -> None:
    """Its end is only when the next server started."""
    codon = lasting(failed("one"), 99_999)
    run = replace(a_run(codons=(codon,)), status="crashed", end_time=MOMENT)
    assert observed([state_of(("one",), run=run)]) == Observed()


def test_loops_count_once_work_has_gone_past_them() -> None:
    plan = ("review#0", "review#1", "publish")
    within = state_of(plan, done("review#0", 1))
    past = state_of(plan, done("review#0", 1), done("review#1", 1))
    assert observed([within]).iterations == {}
    assert observed([within, past]).iterations == {"loop": (2,)}


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
    earlier = Observed({"review": (5,), "publish": tuple(other)})
    hank = hank_with(IterationLimit(limit=limit))
    found = eta(state, at(worked), hank=hank, earlier=earlier)
    assert found is not None
    assert found.likely_ms is not None
    assert found.longest_ms is not None
    assert 0 <= found.shortest_ms <= found.likely_ms <= found.longest_ms
