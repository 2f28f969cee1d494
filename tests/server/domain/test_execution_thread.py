"""The execution thread: the codons that led to the present, and what follows from them."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
import pytest

from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import (
    Continuation,
    FreshStart,
    State,
    TerminalCodon,
)
from hankweave_server.domain.execution_thread import (
    active_codon,
    beginnings,
    next_codon,
    previous_session,
    starting_conditions,
    thread,
    upcoming_codon,
)
from support.histories import (
    EVERY_STATE,
    a_plan,
    a_run,
    completed,
    failed,
    preparing,
    running,
    sha,
    skipped,
)
from support.timelines import (
    INITIAL,
    a_state,
    continued,
    ended,
    going_on,
    ignoring,
    in_session,
    rigged,
)

ONE, TWO, THREE = completed("one", 11), completed("two", 12), completed("three", 13)
FIRST = ended("first", ONE, TWO, THREE)


def names(state: State) -> list[str]:
    return [f"{entry.run_id}/{entry.codon.codon_id}" for entry in thread(state)]


# --- The thread -----------------------------------------------------------------------------------


def test_a_fresh_run_is_its_own_thread() -> None:
    """Without a continuation the thread is the newest run alone, whatever ran before."""
    assert names(a_state(FIRST, ended("second", completed("one", 21)))) == ["second/one"]


def test_a_thread_crosses_continuations_up_to_the_codon_gone_on_after() -> None:
    """Of each parent run, the thread has the codons up to the point of continuation."""
    second = continued("second", completed("two", 22), of="first", after="one", at=sha(11))
    third = continued("third", completed("three", 33), of="second", after="two", at=sha(22))
    assert names(a_state(FIRST, second, third)) == ["first/one", "second/two", "third/three"]


def test_a_continuation_may_go_on_from_its_grandparents_codon() -> None:
    """A run may name a parent that has the checkpoint only through its own parent."""
    second = continued("second", of="first", after="one", at=sha(11))
    third = continued("third", completed("two", 32), of="second", after="one", at=sha(11))
    assert names(a_state(FIRST, second, third)) == ["first/one", "third/two"]


def test_a_rollback_to_a_rig_keeps_the_codons_before_it() -> None:
    """A rollback to the third codon's rig keeps two codons in the thread, and the third is next."""
    first = ended("first", ONE, TWO, rigged(failed("three", sha(13)), 23))
    state = a_state(first, continued("second", of="first", after="two", at=sha(23)))
    assert names(state) == ["first/one", "first/two"]
    assert next_codon(state) == "three"


def test_a_rollback_to_the_first_codons_rig_empties_the_thread() -> None:
    """No codon precedes the first codon's rig."""
    first = ended("first", rigged(ONE, 21), TWO)
    state = a_state(first, continued("second", of="first", after=None, at=sha(21)))
    assert names(state) == []
    assert next_codon(state) == "one"


def test_a_rollback_to_an_error_runs_the_failed_codon_again() -> None:
    """The files contain the broken work, so the failed codon is next, not the one after it."""
    first = ended("first", ONE, failed("two", sha(12)))
    state = a_state(first, continued("second", of="first", after="one", at=sha(12)))
    assert names(state) == ["first/one"]
    assert next_codon(state) == "two"


@pytest.mark.parametrize("seed", range(20))
def test_a_thread_is_the_same_however_the_state_came_about(seed: int) -> None:
    """A thread is extended from an earlier one where that is possible, with the same result."""
    draw = random.Random(seed)
    codons = [completed(name, number) for number, name in enumerate(["one", "two", "three"] * 2)]
    states = [a_state(ended("0", *codons[:2]))]
    for number in range(1, 40):
        state = draw.choice(states[-3:])
        newest, *earlier = state.runs
        if draw.random() < 0.5:
            more = tuple(draw.sample(codons, draw.randint(0, 2)))
            kept = newest.codons[: draw.randint(0, len(newest.codons))]
            run = msgspec.structs.replace(newest, codons=kept + more)
        else:
            source, codon = draw.choice(state.runs), draw.choice(codons)
            run = continued(
                f"{number}",
                *draw.sample(codons, 2),
                of=source.run_id,
                after=codon.codon_id,
                at=draw.choice([codon.completion_checkpoint, None]),
            )
            earlier = [newest, *earlier]

        states.append(msgspec.structs.replace(state, runs=(run, *earlier)))
        anew = msgspec.convert(msgspec.to_builtins(states[-1]), State)
        extended = thread(states[-1])
        assert extended == thread(anew)
        assert thread(states[-1]) == extended


def test_the_checkpoint_decides_between_two_executions_of_one_codon() -> None:
    """If a codon ran twice in a run, the thread continues from the restored execution."""
    first = ended("first", ONE, TWO, completed("one", 21))
    early = a_state(first, continued("second", of="first", after="one", at=sha(11)))
    late = a_state(first, continued("second", of="first", after="one", at=sha(21)))
    assert names(early) == ["first/one"]
    assert names(late) == ["first/one", "first/two", "first/one"]


@pytest.mark.parametrize("parent", ["nobody", "second"])
def test_a_thread_ends_at_a_missing_parent_and_at_a_cycle(parent: str) -> None:
    """A state that names a missing run, or itself, still has a thread."""
    second = continued("second", completed("two", 22), of=parent, after="two", at=sha(22))
    assert names(a_state(FIRST, second))[-1] == "second/two"


# --- What comes next ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (TWO, "three"),
        (skipped("two"), "three"),
        (failed("two", sha(12)), "two"),
        (failed("two"), "two"),
        (running("two"), "two"),
        (preparing("two"), "two"),
        (THREE, None),
        (completed("gone", 9), None),
    ],
)
def test_the_plan_goes_on_after_what_is_done_and_again_with_what_is_not(
    newest: TerminalCodon, expected: str | None
) -> None:
    """After a completed or skipped codon the next entry follows; a failed or interrupted one
    repeats; none follows the end."""
    assert next_codon(a_state(ended("first", ONE, newest))) == expected


def test_an_ignored_failure_is_gone_on_from() -> None:
    """With `onFailure: ignore` the plan continues after the failed codon."""
    plan = ignoring(a_plan("one", "two", "three"), "two")
    state = a_state(ended("first", ONE, failed("two", sha(12))), plan=plan)
    assert next_codon(state) == "three"


@pytest.mark.parametrize(
    ("newest", "until", "expected"),
    [
        (ONE, "two", "two"),
        (TWO, "two", None),
        (THREE, "two", None),
        (failed("two", sha(12)), "two", "two"),
        (TWO, "one", None),
        (TWO, "gone", "three"),
        (TWO, None, "three"),
    ],
)
def test_the_plan_ends_after_a_chosen_codon(
    newest: TerminalCodon, until: str | None, expected: str | None
) -> None:
    """The codon that ends the plan runs until it is done; nothing after it follows by itself."""
    passed = (ONE,) if newest is not ONE else ()
    state = a_state(ended("first", *passed, newest))
    assert upcoming_codon(state, None if until is None else CodonId(until)) == expected


def test_an_execution_without_a_past_begins_with_the_plan() -> None:
    """Without a run the first entry is next; without a plan, nothing is."""
    assert next_codon(a_state()) == "one"
    assert next_codon(State(runs=(), current_run_id=None, execution_plan=())) is None


@pytest.mark.parametrize("codon", EVERY_STATE)
def test_only_the_current_runs_unfinished_codon_is_active(codon: TerminalCodon) -> None:
    """Only a codon of the current run that is not terminal is active."""
    run = a_run("first", codons=(codon,))
    closed = a_state(run)
    current = msgspec.structs.replace(closed, current_run_id=run.run_id)
    is_terminal = hasattr(codon, "end_time")
    assert active_codon(current) == (None if is_terminal else codon)
    assert active_codon(closed) is None


# --- How a new run starts -------------------------------------------------------------------------


def test_going_on_continues_after_the_newest_codon() -> None:
    """The new run starts from the newest codon's run, codon and checkpoint."""
    state = a_state(ended("first", ONE, TWO))
    conditions = starting_conditions(state, CodonId("three"), "continue")
    assert isinstance(conditions, Continuation)
    source = conditions.source
    assert (source.run_id, source.after_codon, source.checkpoint_sha) == ("first", "two", sha(12))
    assert names(going_on(state, conditions, THREE))[-2:] == ["first/two", "next/three"]


@pytest.mark.parametrize("newest", [TWO, failed("two", sha(12)), failed("two")])
def test_a_redo_continues_from_before_the_codons_newest_execution(newest: TerminalCodon) -> None:
    """The thread never has two executions of one entry, however the first one ended."""
    state = a_state(ended("first", ONE, newest))
    conditions = starting_conditions(state, CodonId("two"), "retry")
    assert isinstance(conditions, Continuation)
    assert conditions.source.after_codon == "one"
    again = going_on(state, conditions, completed("two", 22))
    assert names(again) == ["first/one", "next/two"]


def test_a_redo_of_a_redo_still_holds_the_codon_once() -> None:
    """However often a codon is redone, the thread has only its newest execution."""
    state = a_state(ended("first", ONE, failed("two")))
    for number in (22, 32):
        conditions = starting_conditions(state, CodonId("two"), "retry")
        state = going_on(state, conditions, completed("two", number))
        state = msgspec.structs.replace(
            state,
            runs=(msgspec.structs.replace(state.runs[0], run_id=f"run-{number}"), *state.runs[1:]),
        )

    assert names(state) == ["first/one", "run-32/two"]


def test_a_redo_of_the_first_codon_continues_from_the_initial_checkpoint() -> None:
    """Only the initial checkpoint precedes the first codon."""
    conditions = starting_conditions(a_state(ended("first", ONE)), CodonId("one"), "retry")
    assert isinstance(conditions, Continuation)
    assert conditions.source.after_codon is None
    assert conditions.source.checkpoint_sha == INITIAL


def test_the_first_run_of_all_is_fresh() -> None:
    """Without any codon there is nothing to continue."""
    conditions = starting_conditions(a_state(), CodonId("one"), "continue")
    assert conditions == FreshStart(initial_checkpoint_sha=INITIAL)


# --- Sessions -------------------------------------------------------------------------------------


def test_the_session_before_is_the_newest_other_codons() -> None:
    """`continue-previous` resumes the session of the preceding codon."""
    state = a_state(ended("first", in_session(ONE, "a"), in_session(TWO, "b")))
    assert previous_session(state, CodonId("three")) == "b"


def test_a_redone_codon_resumes_the_session_before_itself() -> None:
    """A codon never resumes its own earlier attempts, in this run or the previous one."""
    state = a_state(ended("first", in_session(ONE, "a"), in_session(failed("two"), "b")))
    assert previous_session(state, CodonId("two")) == "a"
    conditions = starting_conditions(state, CodonId("two"), "retry")
    again = going_on(state, conditions, preparing("two"))
    assert previous_session(again, CodonId("two")) == "a"


def test_a_rollback_finds_the_session_of_the_run_it_left() -> None:
    """After a rollback to a rig, the preceding session is found in the parent run."""
    first = ended("first", in_session(ONE, "a"), rigged(in_session(TWO, "b"), 22))
    state = a_state(first, continued("second", preparing("two"), of="first", after="one", at=None))
    assert previous_session(state, CodonId("two")) == "a"


@pytest.mark.parametrize(("messages", "expected"), [(0, None), (1, "b")])
def test_a_skipped_codon_has_a_session_if_its_agent_spoke(
    messages: int, expected: str | None
) -> None:
    """A codon skipped before its agent wrote anything has no session to resume."""
    codon = in_session(skipped("two"), "b", messages)
    state = a_state(ended("first", in_session(ONE, "a"), codon))
    assert previous_session(state, CodonId("three")) == expected


@pytest.mark.parametrize(("mode", "expected"), [("continue-previous", "a"), ("fresh", None)])
def test_a_codon_without_a_budget_leaves_the_conversation_where_it_was(
    mode: Literal["continue-previous", "fresh"], expected: str | None
) -> None:
    """A codon without a budget never started: its successor continues the conversation that it
    would have continued, if any."""
    plan = tuple(
        msgspec.structs.replace(
            entry, codon=msgspec.structs.replace(entry.codon, continuation_mode=mode)
        )
        for entry in a_plan("one", "two", "three")
    )
    state = a_state(ended("first", in_session(ONE, "a"), in_session(TWO, "")), plan=plan)
    assert previous_session(state, CodonId("three")) == expected


def test_a_failed_codon_before_leaves_no_session() -> None:
    """An ignored failure gives no session to continue, and earlier codons are not searched."""
    state = a_state(ended("first", in_session(ONE, "a"), in_session(failed("two"), "b")))
    assert previous_session(state, CodonId("three")) is None
    assert previous_session(a_state(), CodonId("one")) is None


# --- Restarted plans ------------------------------------------------------------------------------


def test_where_a_plan_began_again_is_known_while_the_thread_goes_through_it() -> None:
    """The restart survives retries and later rollbacks, but not a rollback to before it."""
    anew = continued(
        "anew", completed("two", 22), of="first", after="one", at=sha(90), reason="continue"
    )
    retried = continued(
        "retried", completed("two", 32), of="anew", after="one", at=sha(90), reason="retry"
    )
    later = continued("later", completed("three", 43), of="anew", after="two", at=sha(22))
    before = continued("before", completed("two", 52), of="anew", after="one", at=sha(11))
    assert beginnings(a_state(FIRST)) == {}
    assert beginnings(a_state(FIRST, anew)) == {1: sha(90)}
    assert beginnings(a_state(FIRST, anew, retried)) == {1: sha(90)}
    assert beginnings(a_state(FIRST, anew, later)) == {1: sha(90)}
    assert beginnings(a_state(FIRST, anew, before)) == {}


def test_what_goes_on_after_a_codon_has_not_begun_again() -> None:
    """A continuation with the previous codon's own files is not a restart."""
    on = continued(
        "on", completed("two", 22), of="first", after="one", at=sha(11), reason="continue"
    )
    assert beginnings(a_state(FIRST, on)) == {}
