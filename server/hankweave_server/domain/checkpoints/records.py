"""Checkpoints in the journal and the state: on record, abbreviated, or all that is left.

`on_record` reads from raw journal lines which checkpoints were made and which were pruned. A long
journal is quick to read, because only lines that contain one of two words are decoded. The word
alone proves nothing, because agents may print it; the event's type does.

`with_full_shas` completes abbreviated IDs: Hankweave recorded what `git commit` prints, which is
seven digits.

`salvage` rebuilds a state from the shadow repository alone. It is the last resort, when journal and
state files are gone. Each commit names its run, codon, kind and time, so the runs, the ends of
their codons and all checkpoints come back; costs, tokens and sessions do not, and are zero or
unknown, and the plan is built again from the hank.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hankweave_protocol.events import CheckpointPruned, StateTransition
from hankweave_protocol.ids import RunId, Sha, branch_of
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import (
    EMPTY_STATE,
    NO_TOKENS,
    SCHEMA_VERSION,
    CompletedCodon,
    Continuation,
    ContinuationSource,
    ExecutedSentinels,
    FailedCodon,
    FailureReason,
    FreshStart,
    Run,
    SkippedCodon,
    StartingConditions,
    State,
    TerminalCodon,
)
from hankweave_protocol.transitions import CheckpointCreated

_MADE = CheckpointCreated.TYPE.encode()
_PRUNED = CheckpointPruned.TYPE.encode()


@dataclass(frozen=True, slots=True)
class OnRecord:
    """The checkpoints in the journal; the last event about each of them counts."""

    standing: frozenset[Sha]
    """Made, and not pruned since: all of these must be in the shadow repository."""
    pruned: frozenset[Sha]
    lost: frozenset[Sha] = frozenset()
    """Abandoned by a repair; the state may still name them."""


class JournalLine(msgspec.Struct):
    """The type of an event, or of the transition in one, and its fields, still encoded."""

    type: str
    data: msgspec.Raw


class _Transition(msgspec.Struct):
    transition: JournalLine


def transition_in(line: JournalLine) -> JournalLine | None:
    """Return the transition in an event; None if it is another event."""
    if line.type != StateTransition.TYPE:
        return None

    return msgspec.json.decode(line.data, type=_Transition).transition


class _Checkpoint(msgspec.Struct):
    sha: Sha


class _Created(msgspec.Struct):
    checkpoint: _Checkpoint


class _Pruned(msgspec.Struct):
    checkpoints: tuple[Sha, ...]
    lost: bool = False


@dataclass(slots=True)
class RecordedCheckpoints:
    """The checkpoints in the lines so far."""

    standing: set[Sha] = field(default_factory=set)
    pruned: set[Sha] = field(default_factory=set)
    lost: set[Sha] = field(default_factory=set)

    def add(self, line: bytes) -> None:
        """Add the next journal line; raise msgspec's error if it is not an event."""
        if _MADE in line or _PRUNED in line:
            made, gone, given_up = _checkpoints_in(msgspec.json.decode(line, type=JournalLine))
            self.standing |= made
            self.standing -= gone | given_up
            self.pruned |= gone
            self.pruned -= made
            self.lost |= given_up
            self.lost -= made

    def result(self) -> OnRecord:
        return OnRecord(frozenset(self.standing), frozenset(self.pruned), frozenset(self.lost))


def on_record(lines: Iterable[bytes]) -> OnRecord:
    """Read whole journal lines, oldest first.

    Raises msgspec's error for a line that is not an event.
    """
    found = RecordedCheckpoints()
    for line in lines:
        found.add(line)

    return found.result()


def _checkpoints_in(line: JournalLine) -> tuple[frozenset[Sha], frozenset[Sha], frozenset[Sha]]:
    """Return the checkpoints that an event reports as made, as pruned, and as lost."""
    nothing: frozenset[Sha] = frozenset()
    if line.type == CheckpointPruned.TYPE:
        pruned = msgspec.json.decode(line.data, type=_Pruned)
        gone = frozenset(pruned.checkpoints)
        return (nothing, nothing, gone) if pruned.lost else (nothing, gone, nothing)

    body = transition_in(line)
    if body is not None and body.type == CheckpointCreated.TYPE:
        made = msgspec.json.decode(body.data, type=_Created).checkpoint.sha
        return frozenset({made}), nothing, nothing

    return nothing, nothing, nothing


_FULL = 40
_FIELDS = ("rig_setup_checkpoint", "completion_checkpoint", "error_checkpoint", "skip_checkpoint")

S = TypeVar("S", bound=msgspec.Struct)
replace = msgspec.structs.replace


def with_full_shas(state: State, known: Iterable[Sha]) -> State:
    """Return the state with each unique prefix of a known checkpoint's ID completed.

    An ambiguous or unknown prefix stays unchanged: it is a missing checkpoint.
    """
    ids = sorted(known)
    return replace(
        state,
        runs=tuple(_run(run, ids) for run in state.runs),
        initial_checkpoint=_full(state.initial_checkpoint, ids),
    )


def _run(run: Run, ids: Sequence[Sha]) -> Run:
    return replace(
        run,
        starting_conditions=_start(run.starting_conditions, ids),
        codons=tuple(_changed(codon, _FIELDS, ids) for codon in run.codons),
    )


def _start(start: StartingConditions, ids: Sequence[Sha]) -> StartingConditions:
    match start:
        case Continuation(source=source):
            return replace(start, source=_changed(source, ("checkpoint_sha",), ids))
        case FreshStart():
            return _changed(start, ("initial_checkpoint_sha",), ids)


def _changed(record: S, names: Iterable[str], ids: Sequence[Sha]) -> S:
    values = {name: getattr(record, name, None) for name in names}
    return replace(
        record, **{name: _full(value, ids) for name, value in values.items() if value is not None}
    )


def _full(sha: Sha | None, ids: Sequence[Sha]) -> Sha | None:
    if not sha or len(sha) >= _FULL:
        return sha

    first = bisect_left(ids, sha)
    fitting = [each for each in ids[first : first + 2] if each.startswith(sha)]
    return fitting[0] if len(fitting) == 1 else sha


_NOTHING = ExecutedSentinels(executed=(), total_cost=0.0)


def salvage(records: Iterable[CheckpointRecord], *, runs_folder: str, server_pid: int) -> State:
    """Rebuild a state from checkpoints, oldest first; all runs have ended."""
    by_run: dict[RunId, list[CheckpointRecord]] = {}
    initial = None
    for record in records:
        by_run.setdefault(record.coordinate.run_id, []).append(record)
        if record.kind == "initial":
            initial = initial or record.sha

    if not by_run:
        return EMPTY_STATE

    runs: list[Run] = []
    for run_id, made in by_run.items():
        conditions = _conditions(runs)
        runs.append(_salvaged_run(run_id, made, conditions, runs_folder, server_pid))

    return State(
        runs=tuple(reversed(runs)),
        current_run_id=None,
        execution_plan=(),
        initial_checkpoint=initial,
        schema_version=SCHEMA_VERSION,
    )


def _conditions(before: list[Run]) -> StartingConditions:
    if not before:
        return FreshStart()

    last = before[-1]
    newest = last.codons[-1] if last.codons else None
    sha = newest.completion_checkpoint if isinstance(newest, CompletedCodon) else None
    return Continuation(
        source=ContinuationSource(
            run_id=last.run_id,
            after_codon=None if newest is None else newest.codon_id,
            checkpoint_sha=sha,
        ),
        reason="continue",
    )


def _salvaged_run(
    run_id: RunId,
    made: list[CheckpointRecord],
    conditions: StartingConditions,
    runs_folder: str,
    server_pid: int,
) -> Run:
    codons = tuple(codon for record in made if (codon := _codon(record)) is not None)
    failed = bool(codons) and isinstance(codons[-1], FailedCodon)
    return Run(
        run_id=run_id,
        run_folder=f"{runs_folder}/{run_id}",
        git_branch=branch_of(run_id),
        starting_conditions=conditions,
        codons=codons,
        status="failed" if failed else "completed",
        start_time=made[0].timestamp,
        end_time=made[-1].timestamp,
        server_pid=server_pid,
    )


def _codon(record: CheckpointRecord) -> TerminalCodon | None:
    """Return the end of a codon that a checkpoint records; None for checkpoints in between."""
    codon_id = record.coordinate.codon_id
    if codon_id is None:
        return None

    match record.kind:
        case "completed":
            return CompletedCodon(
                codon_id=codon_id,
                start_time=record.timestamp,
                end_time=record.timestamp,
                claude_session_id="",
                claude_log_path="",
                exit_code=0,
                final_cost=0.0,
                final_tokens=NO_TOKENS,
                result_message_received=False,
                completion_checkpoint=record.sha,
                sentinels=_NOTHING,
            )
        case "error" | "exit":
            return FailedCodon(
                codon_id=codon_id,
                start_time=record.timestamp,
                end_time=record.timestamp,
                failed_during="running",
                exit_code=-1,
                failure_reason=FailureReason(
                    type="unknown", retriable=True, message="Known only from its checkpoint."
                ),
                partial_cost=0.0,
                partial_tokens=NO_TOKENS,
                sentinels=_NOTHING,
                error_checkpoint=record.sha,
            )
        case "skipped":
            return SkippedCodon(
                codon_id=codon_id,
                start_time=record.timestamp,
                end_time=record.timestamp,
                skipped_during="running",
                partial_cost=0.0,
                partial_tokens=NO_TOKENS,
                assistant_message_count=0,
                sentinels=_NOTHING,
                skip_checkpoint=record.sha,
            )
        case _:
            return None
