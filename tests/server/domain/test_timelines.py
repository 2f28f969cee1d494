"""Timelines: which run continued from which, and what was abandoned."""

from __future__ import annotations

from msgspec.structs import replace

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.domain.timelines import Line, RunLine, timelines, tree_of
from support.histories import completed, failed, running, sha
from support.timelines import INITIAL, a_state, checkpoints_of, continued, ended

ONE = ended("run-1", completed("one", 1), completed("two", 2))
ASTRAY = continued("run-2", completed("two", 3), of="run-1", after="one", at=sha(1))
FURTHER = continued("run-3", failed("two", sha(4)), of="run-2", after=None, at=INITIAL)
BACK = continued("run-4", completed("two", 5), of="run-1", after="one", at=sha(1))
STATE = a_state(ONE, ASTRAY, FURTHER, BACK)


def lines() -> tuple[RunLine, ...]:
    return timelines(STATE, checkpoints_of(STATE).values())


def names(line: Line) -> list[object]:
    """Return a line as nested lists: each run's id, followed by the lines that branch off."""
    return [[step.run.run_id, *map(names, step.aside)] for step in line]


def test_every_run_is_listed_with_where_it_came_from() -> None:
    """Runs are listed oldest first, abandoned or not, with reason and source."""
    found = lines()
    assert [run.run_id for run in found] == ["run-1", "run-2", "run-3", "run-4"]
    assert [run.on_thread for run in found] == [True, False, False, True]
    assert [run.reason for run in found] == [None, "rollback", "rollback", "rollback"]
    assert found[0].source is None
    assert found[3].source is not None
    assert (found[3].source.run_id, found[3].source.after_codon) == ("run-1", "one")


def test_a_codon_is_on_the_thread_unless_a_rollback_went_behind_it() -> None:
    """Of one run, some codons may be on the thread and later ones not."""
    found = {run.run_id: run.codons for run in lines()}
    assert [(codon.codon_id, codon.on_thread) for codon in found[RunId("run-1")]] == [
        ("one", True),
        ("two", False),
    ]
    assert [codon.on_thread for codon in found[RunId("run-4")]] == [True]
    assert [codon.on_thread for codon in found[RunId("run-2")]] == [False]
    assert found[RunId("run-3")][0].status == "failed"


def test_checkpoints_stand_with_the_run_that_took_them() -> None:
    """All checkpoints are listed, oldest first; those of an abandoned run can be rolled back to."""
    found = {run.run_id: [record.sha for record in run.checkpoints] for run in lines()}
    assert found == {
        "run-1": [INITIAL, sha(1), sha(2)],
        "run-2": [sha(3)],
        "run-3": [sha(4)],
        "run-4": [sha(5)],
    }


def test_the_tree_goes_on_with_the_thread_and_hangs_the_rest_aside() -> None:
    """The line to the present continues where a rollback left a run; other lines branch off."""
    (line,) = tree_of(lines())
    assert names(line) == [["run-1", [["run-2"], ["run-3"]]], ["run-4"]]


def test_the_attempts_hang_aside_from_the_run_that_they_tried() -> None:
    """The line of a run does not go on with an attempt, however new, until that is adopted."""
    first = ended("first", completed("one", 1), completed("two", 2))
    runs = [
        continued(name, completed("two", number), of="first", after="one", at=sha(1))
        for name, number in (("a", 7), ("b", 8))
    ]
    records = tuple(
        AttemptRecord(attempt_id=f"e-{run.run_id}", status="completed", run_id=run.run_id)
        for run in runs
    )
    exploration = Exploration(
        exploration_id="e",
        created_at="2026-01-01T00:00:00.000Z",
        checkpoint_sha=sha(1),
        codon_id=CodonId("two"),
        attempts=records,
    )
    state = replace(a_state(*runs, first), explorations=(exploration,))
    (line,) = tree_of(timelines(state, ()))
    (step,) = line
    assert [aside[0].run.attempt for aside in step.aside] == ["e-a", "e-b"]


def test_a_thousand_rollbacks_make_a_long_line_and_no_deep_tree() -> None:
    """Each run continues the previous one, so the tree is one long line and not deep."""
    chain = [ended("run-0", completed("one", 1))]
    for number in range(1, 1_000):
        before = str(chain[-1].run_id)
        chain.append(
            continued(f"run-{number}", completed("one", number), of=before, after=None, at=INITIAL)
        )

    (line,) = tree_of(timelines(a_state(*chain), ()))
    assert len(line) == 1_000
    assert not any(step.aside for step in line)


def test_a_run_whose_source_is_unknown_begins_a_line() -> None:
    """A run without a known source, or with itself as source, is still in the tree."""
    strange = continued("run-9", completed("one", 9), of="nobody", after=None, at=None)
    selfish = continued("run-8", completed("one", 8), of="run-8", after=None, at=None)
    found = tree_of(timelines(a_state(ONE, selfish, strange), ()))
    assert [names(line) for line in found] == [[["run-1"]], [["run-8"]], [["run-9"]]]


def test_the_current_run_is_marked_and_a_new_execution_has_none() -> None:
    """Only the run at work is current."""
    working = replace(ended("run-1", running("one")), status="running", end_time=None)
    state = replace(a_state(working), current_run_id=working.run_id)
    (run,) = timelines(state, ())
    assert (run.is_current, run.codons[0].status) == (True, "running")
    assert timelines(EMPTY_STATE, ()) == ()
    assert tree_of(()) == ()
