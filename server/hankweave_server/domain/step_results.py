"""The results of a pipeline's steps, read from the state (Architect, step results)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.instants import from_text, milliseconds_between
from hankweave_protocol.state import (
    CodonExecution,
    CompletedCodon,
    FailedCodon,
    FailureReason,
    SkippedCodon,
    State,
)
from hankweave_server.domain.execution_thread import end_checkpoint, is_done, plan_entry, thread
from hankweave_server.domain.lifecycle import cost_of

StepStatus: TypeAlias = Literal["success", "partial", "failed", "skipped", "interrupted", "not run"]
"""`partial`: its budget ended it. `interrupted`: its end was not recorded."""

Status: TypeAlias = Literal["success", "partial", "failed"]
"""`partial`: all steps have run, and a failed or partial one was passed over."""

_AUTHENTICATION = re.compile(
    r"unauthori[sz]ed|authenticat|api[\s_]key|not logged in|run /login|oauth token|\b401\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of the plan in its current state."""

    name: CodonId
    status: StepStatus
    cost: float = 0.0
    """USD, over all its attempts."""
    duration_ms: int = 0
    """Milliseconds of the attempt that counts."""
    attempts: int = 0
    error: str | None = None
    condition: str | None = None
    """The condition that did not hold, for a step that was skipped because of it."""
    checkpoint: Sha | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """All steps in the order of the plan."""

    status: Status
    steps: tuple[StepResult, ...]

    @property
    def cost(self) -> float:
        """The cost of all steps in USD."""
        return sum(step.cost for step in self.steps)

    @property
    def failure(self) -> StepResult | None:
        """The step that ended the pipeline."""
        return next((step for step in reversed(self.steps) if step.status == "failed"), None)


def result_of(state: State) -> PipelineResult:
    """Return the steps of the execution thread; codons outside it do not count."""
    executions: dict[CodonId, list[CodonExecution]] = {}
    for entry in thread(state):
        executions.setdefault(entry.codon.codon_id, []).append(entry.codon)

    plan = state.execution_plan
    steps = tuple(step_of(entry.codon_id, executions.get(entry.codon_id, [])) for entry in plan)
    begun = [entry for entry in plan if entry.codon_id in executions]
    newest = executions[begun[-1].codon_id][-1] if begun else None
    has_ended = newest is not None and begun[-1] is plan[-1] and is_done(newest, plan)
    return PipelineResult(_status(steps, has_ended=has_ended), steps)


def is_of_authentication(reason: FailureReason) -> bool:
    """Return whether a provider rejected the agent's credentials."""
    return reason.type == "api-error" and bool(_AUTHENTICATION.search(reason.message or ""))


def resumes_at(state: State, next_codon: CodonId | None) -> bool:
    """Return whether the plan of an execution can be resumed: begun, matching, and not ended."""
    entries = thread(state)
    return (
        next_codon is not None
        and bool(entries)
        and plan_entry(state.execution_plan, entries[-1].codon.codon_id) is not None
    )


def _status(steps: Iterable[StepResult], *, has_ended: bool) -> Status:
    if not has_ended:
        return "failed"

    return "partial" if any(step.status in ("failed", "partial") for step in steps) else "success"


def step_of(name: CodonId, executions: list[CodonExecution]) -> StepResult:
    """Return the result of a step from its executions, oldest first; the last one counts."""
    if not executions:
        return StepResult(name, "not run")

    newest = executions[-1]
    result = StepResult(
        name,
        "interrupted",
        cost=sum(cost_of(each) for each in executions),
        attempts=len(executions),
        checkpoint=end_checkpoint(newest),
    )
    match newest:
        case CompletedCodon(budget_exceeded=over):
            status: StepStatus = "success" if over is None else "partial"
            return replace(result, status=status, duration_ms=_duration(newest))
        case FailedCodon(failure_reason=reason):
            error = reason.message or reason.type
            ended = replace(result, status="failed", duration_ms=_duration(newest))
            return replace(ended, error=error, reason=reason)
        case SkippedCodon(condition=condition):
            return replace(result, status="skipped", condition=condition)
        case _:
            return result


def _duration(ended: CompletedCodon | FailedCodon) -> int:
    return max(0, milliseconds_between(from_text(ended.start_time), from_text(ended.end_time)))
