"""The state that the shadow repository alone can still tell.

Last resort (DESIGN 5): journal and state files are gone, the commits are there. Each names its run,
codon, kind and time, so the runs, their codons' ends and all checkpoints come back; costs, tokens,
sessions and the plan do not, and are zero, unknown and laid out anew from the hank.
"""

from __future__ import annotations

from collections.abc import Iterable

from hankweave_protocol.ids import RunId, branch_of
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

_NOTHING = ExecutedSentinels(executed=(), total_cost=0.0)


def salvage(records: Iterable[CheckpointRecord], *, runs_folder: str, server_pid: int) -> State:
    """Rebuilds what can be known from checkpoints, oldest first; all runs have ended."""
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
    """The end of a codon that a checkpoint tells of; None for checkpoints in between."""
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
                    type="unknown", retriable=True, message="Known from its checkpoint alone."
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
