"""The report of an execution, or of one of its runs: its state and its events, summed up.

A step of the whole execution is an entry of the plan; its cost and time are those of every attempt
that budgets count. What rollbacks discarded is in no step, but in the totals and in
`abandoned_cost`, as are attempts that were not adopted in `attempts_cost`. A step of one run is a
codon that has begun in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal, TypeAlias

from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.instants import from_text, milliseconds_between, to_text
from hankweave_protocol.state import (
    NO_TOKENS,
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    Run,
    RunStatus,
    State,
    TerminalCodon,
    Tokens,
)
from hankweave_server.domain.budget.spending import Costs, costs, counted, ended
from hankweave_server.domain.costs import dollars_of
from hankweave_server.domain.execution_thread import (
    active_codon,
    newest_run,
    next_codon,
    run_named,
    suspended_codon,
    thread,
)
from hankweave_server.domain.lifecycle import (
    is_terminal,
    sentinel_cost_of,
    tokens_of,
    wait_of,
    waited_ms_at,
    was_stopped,
)
from hankweave_server.domain.step_results import result_of, step_of
from hankweave_server.domain.timelines import timelines
from hankweave_server.features.reports.rows import (
    ReportedCheckpoint,
    ReportedEdit,
    ReportedFailure,
    ReportedFile,
    ReportedRetry,
    ReportedRollback,
    ReportedRun,
    ReportedStep,
    ReportedWait,
    ReportRow,
)
from hankweave_server.features.reports.summary import MOST, EventSummary
from hankweave_server.local.eta import Eta

ReportStatus: TypeAlias = Literal[
    "not started",
    "running",
    "waiting",
    "idle",
    "completed",
    "partial",
    "failed",
    "stopped",
    "interrupted",
]
"""`partial`: the plan has ended, and a failed or partial step was passed over. `idle`: a server is
running, and no codon is. `stopped`: the server ended before the plan did. `interrupted`: it died.
"""


class ReportTotalCounts(ReportRow, kw_only=True, omit_defaults=False):
    """The numbers of all entries, whether or not they are listed."""

    files: int
    other_file_changes: int
    """Changes of files that no list names: part of a burst, or of too many files."""
    retries: int
    waits: int
    failures: int
    edits: int
    checkpoints: dict[str, int]
    """By kind."""
    rollbacks: int
    incidents: int


class ExecutionReport(ReportRow, kw_only=True, omit_defaults=False):
    """A report about an execution, or about one of its runs."""

    execution: str
    hank: str | None
    run_id: RunId | None
    """The run that it is limited to."""
    generated_at: str
    page: str | None
    """The address of the web page, without a token; null if no server is running."""
    has_server: bool
    status: ReportStatus | RunStatus
    start_time: str | None
    end_time: str | None
    """Null while it is running."""
    duration_ms: int
    """From the start to the end or to now."""
    worked_ms: int
    waited_ms: int
    cost: float
    """USD, of everything, including sentinels."""
    sentinel_cost: float
    abandoned_cost: float
    """USD, of work that rollbacks discarded."""
    attempts_cost: float
    """USD, of attempts of explorations that were not adopted."""
    tokens: Tokens
    eta: Eta | None
    steps: tuple[ReportedStep, ...]
    runs: tuple[ReportedRun, ...]
    files: tuple[ReportedFile, ...]
    """In the order of their paths."""
    retries: tuple[ReportedRetry, ...]
    waits: tuple[ReportedWait, ...]
    failures: tuple[ReportedFailure, ...]
    edits: tuple[ReportedEdit, ...]
    checkpoints: tuple[ReportedCheckpoint, ...]
    """Without those after tool calls and turns."""
    rollbacks: tuple[ReportedRollback, ...]
    incidents: tuple[Event, ...]
    """Events that a person should know about, such as a crash of the server."""
    totals: ReportTotalCounts


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The facts that a report needs besides state and events."""

    execution: str
    hank: str | None
    page: str | None
    now: datetime
    has_server: bool
    """True if a server is running there."""
    eta: Eta | None


def report_of(state: State, summary: EventSummary, facts: ReportFacts) -> ExecutionReport:
    """Return the report; `summary.run_id`, if it is not None, is a run of the state."""
    run = run_named(state, summary.run_id)
    steps = _steps_of(state, summary, facts)
    runs = state.runs if run is None else (run,)
    codons = [codon for each in runs for codon in each.codons]
    rows = steps.of_plan() if run is None else steps.of_run(run)
    status = _status(state, has_server=facts.has_server) if run is None else run.status
    start = min((each.start_time for each in runs), default=None)
    end = None if _is_going_on(status) else _end(runs, codons)
    spent = 0 if start is None else _between(start, end or to_text(facts.now))
    paid = costs(state) if run is None else Costs(0.0, 0.0, None)
    return ExecutionReport(
        execution=facts.execution,
        hank=facts.hank,
        run_id=summary.run_id,
        generated_at=to_text(facts.now),
        page=facts.page,
        has_server=facts.has_server,
        status=status,
        start_time=start,
        end_time=end,
        duration_ms=spent,
        worked_ms=sum(map(steps.worked_ms, codons)),
        waited_ms=sum(map(steps.waited_ms, codons)),
        cost=sum(map(dollars_of, codons)),
        sentinel_cost=sum(map(sentinel_cost_of, codons)),
        abandoned_cost=paid.rolled_back,
        attempts_cost=paid.attempts,
        tokens=sum(map(tokens_of, codons), NO_TOKENS),
        eta=facts.eta,
        steps=rows,
        runs=_runs(state, runs),
        files=_files(summary),
        retries=summary.retries.listed,
        waits=tuple(summary.all_waits()),
        failures=summary.failures.listed,
        edits=summary.edits.listed,
        checkpoints=summary.checkpoints.listed,
        rollbacks=summary.rollbacks.listed,
        incidents=summary.incidents.listed,
        totals=_totals(summary),
    )


def _between(start: str, end: str) -> int:
    """Return the milliseconds between two timestamps; 0 if the clock was set back in between."""
    return max(0, milliseconds_between(from_text(start), from_text(end)))


def _is_going_on(status: ReportStatus | RunStatus) -> bool:
    return status in ("running", "waiting")


def _end(runs: Iterable[Run], codons: Iterable[CodonExecution]) -> str | None:
    """Return the end of the last run or codon that has ended."""
    ends = [run.end_time for run in runs if run.end_time is not None]
    ends += [codon.end_time for codon in codons if isinstance(codon, TerminalCodon)]
    return max(ends, default=None)


def _status(state: State, *, has_server: bool) -> ReportStatus:
    entries = thread(state)
    active = active_codon(state)
    if suspended_codon(state) is not None:
        return "waiting"

    if active is not None:
        return "running" if has_server else "interrupted"

    if not entries:
        return "idle" if has_server else "not started"

    newest = entries[-1].codon
    if isinstance(newest, FailedCodon) and was_stopped(newest.failure_reason):
        return "stopped"

    if next_codon(state) is None:
        return "completed" if result_of(state).status == "success" else "partial"

    if isinstance(newest, FailedCodon):
        return "failed"

    run = newest_run(state)
    return "idle" if has_server else "interrupted" if run and run.status == "crashed" else "stopped"


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Steps:
    """The rows of steps."""

    state: State
    summary: EventSummary
    facts: ReportFacts
    worked: Mapping[int, int]
    """Milliseconds of each execution that has ended, by the identity of its record."""

    def of_plan(self) -> tuple[ReportedStep, ...]:
        """Return a row for each entry of the plan, and for what was done outside of it."""
        on_thread = _by_name(entry.codon for entry in thread(self.state))
        known = {id(codon) for codons in on_thread.values() for codon in codons}
        replaced = _by_name(
            each.codon for each in counted(self.state) if id(each.codon) not in known
        )
        planned = (entry.codon_id for entry in self.state.execution_plan)
        names = dict.fromkeys((*planned, *on_thread, *replaced))
        return tuple(
            self._row(name, on_thread.get(name, []), replaced.get(name, [])) for name in names
        )

    def of_run(self, run: Run) -> tuple[ReportedStep, ...]:
        """Return a row for each codon of a run, with all of its attempts."""
        return tuple(self._row(name, found, []) for name, found in _by_name(run.codons).items())

    def _row(
        self, name: CodonId, counting: list[CodonExecution], replaced: list[CodonExecution]
    ) -> ReportedStep:
        """Return the row of a step; `replaced` are failed attempts, each followed by another."""
        result, everything = step_of(name, counting), [*replaced, *counting]
        newest = counting[-1] if counting else None
        checks = self.summary.checks.get(name, []) if counting else []
        has_ended = newest is not None and is_terminal(newest)
        return ReportedStep(
            codon_id=name,
            status=result.status if newest is None else self._status(newest) or result.status,
            attempts=len(everything),
            start_time=min((each.start_time for each in everything), default=None),
            end_time=_end((), counting) if has_ended else None,
            duration_ms=sum(map(self.worked_ms, everything)),
            waited_ms=sum(map(self.waited_ms, everything)),
            cost=sum(map(dollars_of, everything)),
            tokens=sum(map(tokens_of, everything), NO_TOKENS),
            file_changes=self.summary.file_changes[name] if everything else 0,
            checks_passed=sum(checks),
            checks=len(checks),
            error=result.error,
            condition=result.condition,
            warnings=newest.warnings if isinstance(newest, CompletedCodon) else (),
            reused=newest.reused if isinstance(newest, CompletedCodon) else None,
            checkpoint=result.checkpoint,
        )

    def _status(self, codon: CodonExecution) -> Literal["running", "waiting"] | None:
        """Return what a codon that has not ended does; None if no server is running it."""
        if is_terminal(codon):
            return None

        if wait_of(codon) is not None:
            return "waiting"

        return "running" if self.facts.has_server and codon is active_codon(self.state) else None

    def waited_ms(self, codon: CodonExecution) -> int:
        return waited_ms_at(codon, to_text(self.facts.now))

    def worked_ms(self, codon: CodonExecution) -> int:
        """Return how long a codon has worked; 0 if its server died, because its end is unknown."""
        if is_terminal(codon):
            return self.worked[id(codon)]

        if not self.facts.has_server:
            return 0

        lasted = _between(codon.start_time, to_text(self.facts.now))
        return max(0, lasted - self.waited_ms(codon))


def _by_name(codons: Iterable[CodonExecution]) -> dict[CodonId, list[CodonExecution]]:
    found: dict[CodonId, list[CodonExecution]] = {}
    for codon in codons:
        found.setdefault(codon.codon_id, []).append(codon)

    return found


def _steps_of(state: State, summary: EventSummary, facts: ReportFacts) -> _Steps:
    worked = {id(each.codon): round(each.spent.seconds * 1000) for each in ended(state)}
    return _Steps(state, summary, facts, worked)


# --- runs and files -------------------------------------------------------------------------------


def _runs(state: State, wanted: Sequence[Run]) -> tuple[ReportedRun, ...]:
    paid = {run.run_id: sum(map(dollars_of, run.codons)) for run in wanted}
    return tuple(
        ReportedRun(
            run_id=line.run_id,
            status=line.status,
            reason=line.reason,
            start_time=line.start_time,
            end_time=line.end_time,
            codons=len(line.codons),
            on_thread=line.on_thread,
            cost=paid[line.run_id],
        )
        for line in timelines(state, ())
        if line.run_id in paid
    )


def _files(summary: EventSummary) -> tuple[ReportedFile, ...]:
    """Return the first files in the order of their paths; without those that came and went."""
    found = ((path, file, file.outcome) for path, file in sorted(summary.files.items()))
    rows = (
        ReportedFile(
            path=path,
            action=outcome,
            changes=file.changes,
            by=tuple(file.by),
            seq=file.seq,
        )
        for path, file, outcome in found
        if outcome is not None
    )
    return tuple(islice(rows, MOST))


def _totals(summary: EventSummary) -> ReportTotalCounts:
    return ReportTotalCounts(
        files=sum(file.outcome is not None for file in summary.files.values()),
        other_file_changes=summary.other_file_changes,
        retries=summary.retries.count,
        waits=summary.waits.count + len(summary.open_waits),
        failures=summary.failures.count,
        edits=summary.edits.count,
        checkpoints=dict(summary.checkpoint_kinds),
        rollbacks=summary.rollbacks.count,
        incidents=summary.incidents.count,
    )
