"""The facts that a report keeps of the events, and how much at most."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

import msgspec
import pytest

from hankweave_protocol import events
from hankweave_protocol.events import ChangedPath, Event, EventData, FileSource
from hankweave_protocol.ids import CodonId, EventSeq, RunId
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import ReportTotals, RollbackReport
from hankweave_protocol.state import EMPTY_STATE, NO_TOKENS, FailureReason, State
from hankweave_server.domain.costs import total_cost
from hankweave_server.domain.lifecycle import reason_of_stop
from hankweave_server.domain.reducer import apply
from hankweave_server.features.reports.report import ExecutionReport, ReportFacts, report_of
from hankweave_server.features.reports.summary import MOST, MOST_PATHS, EventSummary
from hankweave_server.local.eta import eta
from support.histories import (
    LATER,
    MOMENT,
    TIMED_OUT,
    a_checkpoint,
    a_plan,
    a_run,
    completed,
    failed,
    legal_moves,
    running,
    sha,
)

ONE = CodonId("one")
FACTS = ReportFacts(
    execution="/runs/tonight",
    hank=None,
    page=None,
    now=from_text(LATER),
    has_server=False,
    eta=None,
)
WITH_SERVER = dataclasses.replace(FACTS, has_server=True)
replace = msgspec.structs.replace


class Journal:
    """Numbers events, and gives them to a summary."""

    def __init__(self, run_id: RunId | None = None) -> None:
        self.summary = EventSummary(run_id)
        self._seqs: Iterator[int] = itertools.count(1)

    def add(self, data: EventData, *, run: str = "run", timestamp: str = MOMENT) -> None:
        self.summary.add(self.event(data, run=run, timestamp=timestamp))

    def event(self, data: EventData, *, run: str = "run", timestamp: str = MOMENT) -> Event:
        seq = EventSeq(next(self._seqs))
        return Event(
            id=f"e{seq}",
            seq=seq,
            timestamp=timestamp,
            type=data.TYPE,
            data=data,
            run_id=RunId(run),
        )

    def report(self, state: State = EMPTY_STATE) -> ExecutionReport:
        return report_of(state, self.summary, FACTS)


def changed(path: str, action: str = "modified", kind: str = "tool_use") -> EventData:
    return events.FileUpdated(
        path=path,
        filename=path,
        action=action,
        sha256="",
        bytes=0,
        source=FileSource(kind=kind),
        codon_id=ONE,
    )


def waiting(until: str = LATER) -> EventData:
    return events.CodonWaiting(codon_id=ONE, until=until, reason="usage", source="text", number=1)


def test_a_file_is_listed_by_what_came_of_it() -> None:
    """A file that came and went is not listed; one that was replaced is modified."""
    journal = Journal()
    for path, actions in {
        "gone": ("created", "modified", "deleted"),
        "new": ("created", "modified"),
        "removed": ("modified", "deleted"),
        "replaced": ("deleted", "created"),
    }.items():
        for action in actions:
            journal.add(changed(path, action))

    journal.add(changed("new", "modified", "person"))
    found = journal.report()
    outcomes = {each.path: (each.action, each.changes, each.by) for each in found.files}
    assert outcomes == {
        "new": ("created", 3, ("agent", "person")),
        "removed": ("deleted", 2, ("agent",)),
        "replaced": ("modified", 2, ("agent",)),
    }
    assert [(each.path, each.action) for each in found.edits] == [("new", "modified")]


def test_a_burst_counts_the_files_that_it_does_not_name() -> None:
    journal = Journal()
    burst = events.FilesChanged(
        total=300,
        created=300,
        modified=0,
        deleted=0,
        folders=(),
        other_folders=0,
        in_other_folders=0,
        paths=tuple(ChangedPath(path=f"{n}", action="created") for n in range(200)),
        source=FileSource(kind="person"),
    )
    journal.add(burst)
    totals = journal.report().totals
    assert (totals.files, totals.other_file_changes, totals.edits) == (200, 100, 300)


def test_what_is_kept_is_bounded_and_the_rest_counted() -> None:
    """The newest entries of each list are kept, and a number of paths."""
    journal = Journal()
    for number in range(MOST_PATHS + 50):
        journal.add(changed(f"{number:06}", "created", "person"))

    for number in range(MOST + 7):
        journal.add(waiting())
        journal.add(events.CodonResumed(codon_id=ONE, by="time", waited_ms=1))
        journal.add(events.ErrorEvent(message=f"error {number}", fatal=False))
        journal.add(events.ServerResumed(suspended_seconds=number, cause="suspended"))
        retry = events.CodonRetrying(
            codon_id=ONE, attempt=2, max_attempts=3, delay_ms=0, failure_reason=TIMED_OUT
        )
        journal.add(retry)

    found = journal.report()
    assert len(found.files) == len(found.edits) == MOST
    assert found.totals.files == MOST_PATHS
    assert found.totals.other_file_changes == 50
    assert found.totals.edits == MOST_PATHS + 50
    for listed, total in (
        (found.waits, found.totals.waits),
        (found.failures, found.totals.failures),
        (found.incidents, found.totals.incidents),
        (found.retries, found.totals.retries),
    ):
        assert (len(listed), total) == (MOST, MOST + 7)

    assert found.failures[-1].message == f"error {MOST + 6}"


def test_a_wait_is_one_until_it_ends() -> None:
    """Its end may be told again; it ends with its codon, or lasts."""
    journal = Journal()
    journal.add(waiting("2025-01-04T13:00:00.000Z"))
    journal.add(waiting("2025-01-04T14:00:00.000Z"))
    journal.add(events.CodonResumed(codon_id=ONE, by="command", waited_ms=1), timestamp=LATER)
    journal.add(waiting())
    (first, second) = journal.report().waits
    assert (first.until, first.ended, first.by) == ("2025-01-04T14:00:00.000Z", LATER, "command")
    assert (second.ended, second.by) == (None, None)
    assert journal.report().totals.waits == 2


def test_failures_are_what_a_person_should_read() -> None:
    """A codon that was stopped or skipped has not failed."""

    def ended(reason: FailureReason | None, **fields: bool) -> EventData:
        return events.CodonCompletedEvent(
            codon_id=ONE,
            success=False,
            cost=0,
            duration=0,
            exit_status=events.ExitStatus(type="error"),
            failure_reason=reason,
            **fields,
        )

    stopped = FailureReason(type="unknown", retriable=False, message=reason_of_stop("SIGTERM"))
    journal = Journal()
    for data in (
        ended(TIMED_OUT),
        ended(TIMED_OUT, failure_ignored=True),
        ended(stopped),
        ended(None, skipped=True),
        events.RigSetupFailed(codon_id=ONE, failure_type="timeout", ignored=False),
        events.CheckCompleted(
            codon_id=ONE, check_index=0, command="make", passed=False, duration_ms=1, output=""
        ),
        events.CheckCompleted(
            codon_id=ONE, check_index=1, command="ls", passed=True, duration_ms=1, output=""
        ),
    ):
        journal.add(data)

    failures = [(each.what, each.message, each.ignored) for each in journal.report().failures]
    assert failures == [
        ("codon", TIMED_OUT.message, False),
        ("codon", TIMED_OUT.message, True),
        ("rig", "timeout", False),
        ("check", "make", False),
    ]


def test_a_rollback_is_listed_once_and_a_retry_is_none() -> None:
    """A whole one is told by two events, of which one has the report."""
    where = a_checkpoint("completed", RunId("run"), ONE).coordinate
    result = RollbackReport(
        target=where,
        source=None,
        safety=None,
        added=(),
        updated=(),
        removed=(),
        kept=(),
        conflicts=(),
        skipped=(),
        recovered=False,
        totals=ReportTotals(
            added=1, updated=20_000, removed=3, kept=0, conflicts=0, skipped=0, bytes=9
        ),
    )
    whole = events.RollbackCompleted(
        from_run=RunId("run"),
        to_run=RunId("other"),
        checkpoint=sha(7),
        codon_id=ONE,
        codon_name="One",
        checkpoint_type="completed",
        auto_restart=False,
        report=result,
        reason="because",
    )
    restore = events.CheckpointRollback(
        operation_id="op",
        checkpoint=sha(7),
        source=None,
        target=where,
        paths=None,
        report=None,
    )
    journal = Journal()
    journal.add(restore)
    journal.add(whole)
    journal.add(replace(whole, direction="retry"))
    journal.add(replace(restore, paths=("a.txt",), report=result, direction="undo"))
    first, second = journal.report().rollbacks
    assert (first.direction, first.added, first.updated, first.removed) == ("back", 1, 20_000, 3)
    assert (first.reason, first.paths, first.checkpoint) == ("because", None, sha(7))
    assert (second.direction, second.paths) == ("undo", ("a.txt",))


def test_checkpoints_of_steps_are_counted_and_pruned_ones_not_listed() -> None:
    journal = Journal()
    data = events.Info(message="")
    for number, kind in enumerate(("initial", "tool", "turn", "tool", "completed", "manual"), 1):
        made = a_checkpoint(kind, RunId("run"), ONE, number)
        journal.summary.add_checkpoint(journal.event(data), made)

    journal.add(events.CheckpointPruned(checkpoints=(sha(6),)))
    found = journal.report()
    assert [each.kind for each in found.checkpoints] == ["initial", "completed"]
    kinds = {"initial": 1, "tool": 2, "turn": 1, "completed": 1, "manual": 1}
    assert found.totals.checkpoints == kinds


def test_events_of_other_runs_are_left_out() -> None:
    journal = Journal(RunId("mine"))
    journal.add(changed("theirs"), run="other")
    journal.add(changed("mine"), run="mine")
    other = a_checkpoint("completed", RunId("other"), ONE)
    journal.summary.add_checkpoint(journal.event(events.Info(message="")), other)
    assert list(journal.summary.files) == ["mine"]
    assert journal.summary.checkpoints.count == 0


# --- with a state ---------------------------------------------------------------------------------


def test_a_step_has_the_cost_of_every_attempt_and_discarded_work_is_apart() -> None:
    """`one` failed in the first run and then succeeded; a rollback discarded `two`."""
    tried = replace(failed("one"), partial_cost=0.25)
    first = replace(a_run("first", codons=(tried,)), status="failed", end_time=LATER)
    good = replace(completed("one", 5), final_cost=1.0)
    discarded = replace(completed("two", 6), final_cost=4.0)
    second = replace(a_run("second", codons=(good, discarded), after=RunId("first")))
    third = a_run("third", after=RunId("second"))
    source = replace(third.starting_conditions.source, after_codon=ONE, checkpoint_sha=sha(5))
    third = replace(third, starting_conditions=replace(third.starting_conditions, source=source))
    state = replace(
        EMPTY_STATE,
        runs=(third, replace(second, status="completed", end_time=LATER), first),
        current_run_id=third.run_id,
        execution_plan=a_plan("one", "two"),
    )
    found = Journal().report(state)
    assert [(each.codon_id, each.status, each.attempts, each.cost) for each in found.steps] == [
        ("one", "success", 2, 1.25),
        ("two", "not run", 0, 0.0),
    ]
    assert (found.cost, found.abandoned_cost) == (5.25, 4.0)
    assert [each.run_id for each in found.runs] == ["first", "second", "third"]
    assert found.status == "stopped"


def test_a_run_has_its_own_steps() -> None:
    good = replace(completed("one", 5), final_cost=1.0)
    run = replace(a_run("first", codons=(good,)), status="completed", end_time=LATER)
    other = a_run("second", codons=(completed("two"),), after=RunId("first"))
    state = replace(EMPTY_STATE, runs=(other, run), execution_plan=a_plan("one", "two"))
    found = Journal(RunId("first")).report(state)
    assert [each.codon_id for each in found.steps] == ["one"]
    assert (found.status, found.cost, found.end_time) == ("completed", 1.0, LATER)
    assert [each.run_id for each in found.runs] == ["first"]


def test_a_codon_that_works_is_counted_until_now() -> None:
    """If no server is running, it is only known that its end was not recorded."""
    run = a_run("first", codons=(running("one"),))
    state = replace(
        EMPTY_STATE, runs=(run,), current_run_id=run.run_id, execution_plan=a_plan("one")
    )
    journal = Journal()
    found = report_of(state, journal.summary, WITH_SERVER)
    assert (found.status, found.end_time, found.duration_ms) == ("running", None, 150_000)
    assert (found.steps[0].status, found.steps[0].duration_ms) == ("running", 150_000)
    alone = journal.report(state)
    assert (alone.status, alone.steps[0].status) == ("interrupted", "interrupted")
    assert alone.steps[0].duration_ms == 0


@pytest.mark.parametrize("seed", range(60))
def test_every_history_can_be_reported(seed: int) -> None:
    """Costs and tokens add up: what is in no step was discarded."""
    chance = random.Random(seed)
    state = EMPTY_STATE
    for step in range(1, 60):
        state = apply(state, chance.choice(legal_moves(state, step)), step)

    for facts in (FACTS, WITH_SERVER):
        found = report_of(state, EventSummary(), facts)
        in_steps = sum(step.cost for step in found.steps)
        unused = found.abandoned_cost + found.attempts_cost
        assert found.cost == pytest.approx(in_steps + unused)
        assert found.cost == pytest.approx(total_cost(state))
        assert [step.codon_id for step in found.steps][: len(state.execution_plan)] == [
            entry.codon_id for entry in state.execution_plan
        ]
        runs = [report_of(state, EventSummary(run.run_id), facts) for run in state.runs]
        assert found.cost == pytest.approx(sum(run.cost for run in runs))
        assert found.tokens == sum((run.tokens for run in runs), NO_TOKENS)
        assert all(run.abandoned_cost == 0 for run in runs)
        found_eta = eta(state, facts.now, is_running=facts.has_server)
        assert found_eta is None or found_eta.shortest_ms >= 0
