"""Claims about explorations: what runs next, which attempt is the best, what the parent records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hankweave_protocol.attempts import SCORE_CODON, AttemptRecord, Exploration
from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import EMPTY_STATE, CompletedCodon, Continuation, FailedCodon
from hankweave_protocol.transitions import ExplorationSet, RunImported
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.lifecycle import Impossible
from hankweave_server.domain.reducer import apply
from hankweave_server.features.exploration.explorations import (
    adopted,
    as_timeline,
    attempt_named,
    beginning_of,
    dollars_of_attempts,
    exploration_named,
    has_ended,
    next_attempts,
    own_runs,
    planned_attempts,
    result_of,
    score_in,
    share_of_next,
    with_attempt,
)
from support.histories import completed, failed, sha
from support.timelines import INITIAL, a_state, continued, ended


def attempt(number: int, status: Any = "waiting", **fields: Any) -> AttemptRecord:
    return AttemptRecord(attempt_id=f"e-{number}", status=status, **fields)


def exploration(*attempts: AttemptRecord, **fields: Any) -> Exploration:
    return Exploration(
        exploration_id="e",
        created_at="2026-01-01T00:00:00.000Z",
        checkpoint_sha=sha(1),
        codon_id=CodonId("two"),
        attempts=attempts,
        **fields,
    )


def ids(attempts: Any) -> list[str]:
    return [each.attempt_id for each in attempts]


@pytest.mark.parametrize(
    ("n", "variants", "expected"),
    [(None, 0, 2), (None, 3, 3), (5, 2, 5), (1, 3, 1), (4, 0, 4)],
)
def test_there_is_an_attempt_for_each_variant_unless_a_number_is_given(
    n: int | None, variants: int, expected: int
) -> None:
    """With more attempts than variants, the variants are taken in turn."""
    chosen = tuple(Variant(name=str(index)) for index in range(variants))
    planned = planned_attempts("e", n, chosen)
    assert ids(planned) == [f"e-{index + 1}" for index in range(expected)]
    if chosen:
        assert [each.variant for each in planned] == [
            chosen[index % variants] for index in range(expected)
        ]


def test_as_many_attempts_run_as_may_run_at_a_time() -> None:
    """A finished one makes room for the next."""
    waiting = [attempt(number) for number in (1, 2, 3)]
    assert ids(next_attempts(exploration(*waiting, parallel=2))) == ["e-1", "e-2"]
    one = exploration(attempt(1, "running"), *waiting[1:], parallel=2)
    assert ids(next_attempts(one)) == ["e-2"]
    full = exploration(attempt(1, "running"), attempt(2, "running"), waiting[2], parallel=2)
    assert next_attempts(full) == ()
    assert ids(next_attempts(with_attempt(full, attempt(2, "failed")))) == ["e-3"]


@pytest.mark.parametrize(
    ("score", "good_enough", "expected"),
    [(9.0, 10.0, ["e-2"]), (10.0, 10.0, []), (0.0, 10.0, ["e-2"]), (0.0, -1.0, [])],
)
def test_nothing_follows_a_score_that_is_good_enough(
    score: float, good_enough: float, expected: list[str]
) -> None:
    """Zero is a score, too. Attempts that already run are waited for."""
    tried = exploration(
        attempt(1, "completed", score=score), attempt(2), parallel=1, good_enough=good_enough
    )
    assert ids(next_attempts(tried)) == expected
    assert has_ended(tried) == (not expected)
    assert not has_ended(with_attempt(tried, attempt(2, "running")))


def test_what_an_attempt_does_not_spend_is_there_for_the_next_ones() -> None:
    """Running attempts keep their shares reserved; all that start at once have equal ones."""
    waiting = [attempt(number) for number in (1, 2, 3, 4)]
    tried = exploration(*waiting, max_dollars=8.0)
    assert share_of_next(exploration(*waiting)) is None
    assert share_of_next(tried) == 2.0
    tried = with_attempt(tried, attempt(1, "running", max_dollars=2.0))
    assert share_of_next(tried) == 2.0
    tried = with_attempt(tried, attempt(2, "completed", max_dollars=2.0, cost=0.5, duration_ms=1))
    assert share_of_next(tried) == 2.75
    tried = with_attempt(tried, attempt(1, "failed", max_dollars=2.0, cost=9.0, duration_ms=1))
    assert share_of_next(tried) == 0.0


def test_attempts_that_were_not_adopted_have_cost_something_too() -> None:
    """A discarded one that was running counts with its whole share."""
    base = ended("first", completed("one", 1))
    adopted_run = continued("try", completed("two", 7), of="first", after="one", at=sha(1))
    now = continued("now", of="try", after="two", at=sha(7))
    state = msgspec.structs.replace(
        a_state(base, adopted_run, now),
        explorations=(
            exploration(
                attempt(1, "completed", run_id="try", cost=1.0, duration_ms=1),
                attempt(2, "completed", run_id="other", cost=2.0, duration_ms=1),
                attempt(3, "discarded", max_dollars=4.0),
            ),
        ),
    )
    assert dollars_of_attempts(state) == 6.0


def test_the_best_has_the_highest_score_then_the_lowest_cost_and_time() -> None:
    """A failed or discarded one never counts, nor one for which the score command failed."""
    found = exploration(
        attempt(1, "completed", score=1.0, cost=3.0, duration_ms=1),
        attempt(2, "completed", score=2.0, cost=2.0, duration_ms=2),
        attempt(3, "completed", score=2.0, cost=1.0, duration_ms=9),
        attempt(4, "completed", score=2.0, cost=1.0, duration_ms=8),
        attempt(5, "completed"),
        attempt(6, "failed", score=9.0),
        attempt(7, "discarded", score=9.0),
        score="pytest",
    )
    assert found.best is found.attempts[3]
    assert exploration(attempt(5, "completed")).best == attempt(5, "completed")
    unscored, scored = attempt(1, "completed"), attempt(2, "completed", score=-5.0)
    assert exploration(unscored, scored, score="pytest").best == scored
    assert exploration(unscored, score="pytest").best is None
    assert exploration(attempt(6, "failed")).best is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("12", 12.0),
        ("chatter\n0.5\n\n", 0.5),
        ("score: 7", 7.0),
        ("-3e2\n", -300.0),
        ("", None),
        ("7 of", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_a_score_is_the_number_that_ends_the_last_line(output: str, expected: float | None) -> None:
    """Anything else is no score."""
    assert score_in(output) == expected


def test_which_attempt_is_adopted_follows_from_the_thread() -> None:
    """Its run is on the thread after a rollback to it, and is not after the undo."""
    base = ended("first", completed("one", 1))
    tried = continued("try", completed("two", 5), of="first", after="one", at=sha(1))
    found = exploration(attempt(1, "completed", run_id=tried.run_id))
    beside = apply(a_state(base), RunImported(run=tried), 1)
    assert adopted(beside, found) is None
    after = continued("next", of="try", after="two", at=sha(5))
    onward = a_state(base, tried, after)
    assert adopted(onward, found) == found.attempts[0]


def test_an_imported_run_leaves_the_thread_alone() -> None:
    """It is listed behind the newest run, even if it continues that one; never twice."""
    base = ended("first", completed("one", 1))
    tried = continued("try", completed("two", 5), of="first", after="one", at=sha(1))
    before = a_state(base)
    beside = apply(before, RunImported(run=tried), 1)
    assert [run.run_id for run in beside.runs] == ["first", "try"]
    assert thread(beside) == thread(before)
    with pytest.raises(Impossible):
        apply(beside, RunImported(run=tried), 2)

    with pytest.raises(Impossible):
        apply(EMPTY_STATE, RunImported(run=tried), 1)


def test_an_exploration_is_replaced_as_a_whole() -> None:
    """The newest is the last; a change keeps its place."""
    state = apply(EMPTY_STATE, ExplorationSet(exploration=exploration(attempt(1))), 1)
    changed = exploration(attempt(1, "running"))
    state = apply(state, ExplorationSet(exploration=changed), 2)
    assert state.explorations == (changed,)
    assert exploration_named(state, None) == changed
    assert attempt_named(state, "e-1", "") == (changed, changed.attempts[0])
    with pytest.raises(Refused):
        exploration_named(state, "other")

    with pytest.raises(Refused):
        attempt_named(state, "e-9", "")


@pytest.mark.parametrize("status", ["waiting", "running", "failed", "discarded"])
def test_what_has_no_result_cannot_be_adopted(status: Any) -> None:
    """The refusal says why; a discarded attempt that was completed keeps its result."""
    with pytest.raises(Refused, match="Attempt e-1"):
        result_of(attempt(1, status), "$.data.attemptId")

    assert result_of(attempt(1, status, checkpoint_sha=sha(4)), "") == sha(4)


def test_the_run_of_an_attempt_is_recorded_with_the_parents_commits() -> None:
    """The score is left out; a checkpoint that is not imported is not named."""
    score = completed(SCORE_CODON, 8)
    run = continued(
        "try", failed("two", sha(6)), completed("two", 7), score, of="first", after="one", at=sha(1)
    )
    line = as_timeline(run, {sha(7): sha(17), sha(1): sha(1)})
    first, codon = line.codons
    assert isinstance(first, FailedCodon)
    assert (first.codon_id, first.error_checkpoint) == ("two", None)
    assert isinstance(codon, CompletedCodon)
    assert (codon.codon_id, codon.completion_checkpoint) == ("two", sha(17))
    assert isinstance(line.starting_conditions, Continuation)
    assert line.starting_conditions.source.checkpoint_sha == sha(1)
    assert line.status == "completed"


def test_the_own_runs_of_an_attempt_are_those_its_parent_lacks() -> None:
    """Oldest first."""
    base = ended("first", completed("one", 1))
    tried = continued("try", of="first", after="one", at=sha(1))
    again = continued("again", completed("two", 7), of="try", after=None, at=sha(1))
    child = a_state(base, tried, again)
    assert own_runs(child, a_state(base)) == [tried, again]


def test_a_codon_began_where_the_one_before_it_ended() -> None:
    """The first one began with the initial checkpoint; an unknown one nowhere."""
    state = a_state(ended("first", completed("one", 1), completed("two", 2)))
    assert beginning_of(state, CodonId("two")) == sha(1)
    assert beginning_of(state, CodonId("one")) == INITIAL
    assert beginning_of(state, CodonId("three")) is None
