"""Timelines: all lines of work of an execution, including the abandoned ones, as a list and a tree.

Every rollback leaves a line and begins another. The newest run's line is the execution thread; all
other work is abandoned, but listed all the same: a rollback can return to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import (
    CodonExecution,
    CodonStatus,
    CompletedCodon,
    Continuation,
    ContinuationSource,
    ReusedResult,
    Run,
    RunStatus,
    State,
)
from hankweave_server.domain.execution_thread import end_checkpoint, line_of, thread
from hankweave_server.domain.lifecycle import status_of

Reason = Literal["rollback", "retry", "continue"]

BEFORE_ROLLBACK = "Before a rollback"
"""The name of safety checkpoints: the work tree is at the rollback's target after them."""


class CodonLine(Value):
    """One execution of a codon."""

    codon_id: CodonId
    status: CodonStatus
    on_thread: bool
    """False if a rollback went back past it."""
    checkpoint: Sha | None = None
    """The checkpoint of its end."""
    warnings: tuple[str, ...] = ()
    """Reasons to check its work, although it was completed."""
    reused: ReusedResult | None = None
    """Where its result comes from, if it was not run."""


class RunLine(Value, kw_only=True):
    """One run, its origin, and its results."""

    run_id: RunId
    status: RunStatus
    start_time: str
    end_time: str | None = None
    is_current: bool = False
    on_thread: bool
    """True if the run is on the execution thread, at least in part."""
    reason: Reason | None = None
    """Why it continued another run; None for a fresh start."""
    source: ContinuationSource | None = None
    attempt: str | None = None
    """The id of the attempt whose run it is."""
    codons: tuple[CodonLine, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    """Oldest first."""


def timelines(state: State, checkpoints: Iterable[CheckpointRecord]) -> tuple[RunLine, ...]:
    """List every run with its checkpoints, oldest first; the checkpoints come oldest first too."""
    of_run: dict[RunId, list[CheckpointRecord]] = {}
    for record in checkpoints:
        of_run.setdefault(record.coordinate.run_id, []).append(record)

    # A codon's record is one object: the thread contains the very same.
    on_thread = frozenset(id(entry.codon) for entry in thread(state))
    line = frozenset(run.run_id for run in line_of(state))
    attempts = attempt_runs(state)
    return tuple(
        RunLine(
            run_id=run.run_id,
            status=run.status,
            start_time=run.start_time,
            end_time=run.end_time,
            is_current=run.run_id == state.current_run_id and run.status == "running",
            on_thread=run.run_id in line,
            reason=_reason_of(run),
            source=_source_of(run),
            attempt=attempts.get(run.run_id),
            codons=tuple(_codon_line(codon, id(codon) in on_thread) for codon in run.codons),
            checkpoints=tuple(of_run.get(run.run_id, ())),
        )
        for run in reversed(state.runs)
    )


def attempt_runs(state: State) -> dict[RunId, str]:
    """Return the attempts of all explorations by the runs in which they ran."""
    attempts = (each for exploration in state.explorations for each in exploration.attempts)
    return {
        run_id: each.attempt_id
        for each in attempts
        for run_id in (*each.earlier_runs, each.run_id)
        if run_id is not None
    }


def _codon_line(codon: CodonExecution, on_thread: bool) -> CodonLine:
    return CodonLine(
        codon_id=codon.codon_id,
        status=status_of(codon),
        on_thread=on_thread,
        checkpoint=end_checkpoint(codon),
        warnings=codon.warnings if isinstance(codon, CompletedCodon) else (),
        reused=codon.reused if isinstance(codon, CompletedCodon) else None,
    )


def _reason_of(run: Run) -> Reason | None:
    conditions = run.starting_conditions
    return conditions.reason if isinstance(conditions, Continuation) else None


def _source_of(run: Run) -> ContinuationSource | None:
    conditions = run.starting_conditions
    return conditions.source if isinstance(conditions, Continuation) else None


# --- as a tree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One run in a line, and the lines that branched off from it."""

    run: RunLine
    aside: tuple[Line, ...]


Line: TypeAlias = tuple[TimelineStep, ...]
"""Runs that continue one another, oldest first."""


def tree_of(runs: tuple[RunLine, ...]) -> tuple[Line, ...]:
    """Arrange runs as lines: of several continuations of a run, one stays in its line.

    It is the one on the thread, else the newest that is no attempt. So a line is as long as the
    work was, and the tree is only as deep as rollbacks from already abandoned lines make it.
    """
    runs = tuple(_after_their_sources(runs))
    after: dict[RunId | None, list[RunLine]] = {}
    older: set[RunId] = set()
    for run in runs:
        source = None if run.source is None else run.source.run_id
        after.setdefault(source if source in older else None, []).append(run)
        older.add(run.run_id)

    # Backwards: the continuations of a run come later, so they are arranged before it.
    lines: dict[RunId, Line] = {}
    for run in reversed(runs):
        following = after.get(run.run_id, [])
        main = next((each for each in following if each.on_thread), None)
        own = [each for each in following if each.attempt is None]
        main = main or (own[-1] if own else None)
        aside = tuple(lines[each.run_id] for each in following if each is not main)
        lines[run.run_id] = (TimelineStep(run, aside), *(lines[main.run_id] if main else ()))

    return tuple(lines[run.run_id] for run in after.get(None, []))


def _after_their_sources(runs: tuple[RunLine, ...]) -> Iterator[RunLine]:
    """Yield each run after the one that it continues.

    The run of an attempt is listed before the newest one, which it may continue.
    """
    waiting: dict[RunId, list[RunLine]] = {}
    listed, known = set[RunId](), {run.run_id for run in runs}
    for run in runs:
        source = None if run.source is None else run.source.run_id
        if source in known - listed - {run.run_id}:
            waiting.setdefault(source, []).append(run)
            continue

        ready = [run]
        while ready:
            following = ready.pop(0)
            listed.add(following.run_id)
            yield following
            ready += waiting.pop(following.run_id, ())

    for left in waiting.values():
        yield from left
