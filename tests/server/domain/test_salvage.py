"""Recovery of the state from commits alone, when journal and state are lost."""

from __future__ import annotations

import msgspec

from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.state import (
    EMPTY_STATE,
    CompletedCodon,
    Continuation,
    FailedCodon,
    FreshStart,
    SkippedCodon,
    State,
)
from hankweave_server.domain.checkpoints.records import salvage
from hankweave_server.domain.execution_thread import next_codon, thread
from hankweave_server.domain.reducer import founding
from hankweave_server.domain.targets import target_of
from hankweave_server.domain.validation import errors_in
from support.histories import a_plan, sha
from support.timelines import after, record

Commit = tuple[CheckpointKind, str, str | None, int]

COMMITS: tuple[Commit, ...] = (
    ("initial", "first", None, 0xA0),
    ("rig-setup", "first", "one", 0x21),
    ("completed", "first", "one", 0x11),
    ("tool", "first", "two", 0x41),
    ("error", "first", "two", 0x12),
    ("safety", "first", None, 0x51),
    ("skipped", "second", "two", 0x32),
    ("exit", "second", "three", 0x33),
)


def records(*commits: Commit) -> list[CheckpointRecord]:
    """Return checkpoints one second apart, oldest first."""
    return [
        msgspec.structs.replace(
            record(kind, RunId(run), None if codon is None else CodonId(codon), sha(number)),
            timestamp=f"2025-01-04T12:00:{second:02}.000Z",
        )
        for second, (kind, run, codon, number) in enumerate(commits)
    ]


def salvaged(*commits: Commit) -> State:
    return salvage(records(*commits), runs_folder="/x/.hankweave/runs", server_pid=77)


def test_no_commit_yields_nothing() -> None:
    """Without checkpoints no history is recovered."""
    assert salvaged() == EMPTY_STATE


def test_runs_and_ends_of_codons_come_back_from_commits() -> None:
    """Each run with a commit is recovered, newest first, with its codons' results and ends."""
    state = salvaged(*COMMITS)
    second, first = state.runs
    assert [run.run_id for run in state.runs] == ["second", "first"]
    assert [type(codon) for codon in first.codons] == [CompletedCodon, FailedCodon]
    assert [type(codon) for codon in second.codons] == [SkippedCodon, FailedCodon]
    assert [first.status, second.status] == ["failed", "failed"]
    assert (first.start_time, first.end_time) == (
        "2025-01-04T12:00:00.000Z",
        "2025-01-04T12:00:05.000Z",
    )
    assert state.initial_checkpoint == sha(0xA0)
    assert state.current_run_id is None


def test_the_thread_goes_through_all_salvaged_runs() -> None:
    """A later run continues after the earlier one's end, so that work is not repeated."""
    state = salvaged(*COMMITS[:3], ("completed", "second", "two", 0x32))
    conditions = state.runs[0].starting_conditions
    assert isinstance(state.runs[1].starting_conditions, FreshStart)
    assert isinstance(conditions, Continuation)
    assert (conditions.source.after_codon, conditions.source.checkpoint_sha) == ("one", sha(0x11))
    planned = msgspec.structs.replace(state, execution_plan=a_plan("one", "two", "three"))
    assert [entry.codon.codon_id for entry in thread(planned)] == ["one", "two"]
    assert next_codon(planned) == "three"


def test_a_run_cut_short_by_the_servers_end_is_gone_on_with() -> None:
    """An `exit` commit ends a codon that was not completed."""
    state = msgspec.structs.replace(
        salvaged(*COMMITS[:3], ("exit", "first", "two", 0x12)),
        execution_plan=a_plan("one", "two"),
    )
    assert next_codon(state) == "two"


def test_what_was_salvaged_is_a_legal_past() -> None:
    """The recovered state can be written as a journal's first transitions, and folds to itself."""
    state = salvaged(*COMMITS)
    assert errors_in(state) == ()
    assert msgspec.structs.replace(after(*founding(state)), last_event_seq=0) == state


def test_every_salvaged_checkpoint_can_be_gone_back_to() -> None:
    """Ends, rigs and checkpoints in between are valid targets with the right point of re-entry."""
    known = {found.sha: found for found in records(*COMMITS)}
    state = msgspec.structs.replace(
        salvaged(*COMMITS), execution_plan=a_plan("one", "two", "three")
    )
    assert {at: target_of(state, known, at).after_codon for at in known} == {
        sha(0xA0): None,
        sha(0x21): None,
        sha(0x11): "one",
        sha(0x41): "one",
        sha(0x12): "one",
        sha(0x51): "one",
        sha(0x32): "two",
        sha(0x33): "two",
    }
