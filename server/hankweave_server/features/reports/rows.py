"""The rows of a report: its steps and runs, and what happened to them."""

from __future__ import annotations

from typing import Literal

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointKind, Movement
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import ReusedResult, RunStatus, Tokens
from hankweave_server.domain.step_results import StepStatus
from hankweave_server.domain.timelines import Reason

FileAction = Literal["created", "modified", "deleted"]
Author = Literal["agent", "rig", "person", "rollback", "archive"]
FailedPart = Literal["codon", "rig", "check", "rollback", "sentinel", "server"]
WaitEnd = Literal["time", "command", "other", "ended"]
"""`ended`: the codon ended during the wait."""


class ReportRow(Value, kw_only=True, omit_defaults=False):
    """A row of the report; every field is in its JSON."""


class ReportedStep(ReportRow, kw_only=True, omit_defaults=False):
    """An entry of the plan, or an execution of a codon in a run."""

    codon_id: CodonId
    status: StepStatus | Literal["running", "waiting"]
    attempts: int
    start_time: str | None
    end_time: str | None
    duration_ms: int
    """Of all attempts, without waits for the end of limits."""
    waited_ms: int
    cost: float
    """USD, including sentinels."""
    tokens: Tokens
    file_changes: int
    """Changes of files while it was running; one file may have several."""
    checks_passed: int
    """Of the last attempt."""
    checks: int
    error: str | None
    condition: str | None
    """The condition that did not hold."""
    warnings: tuple[str, ...]
    checkpoint: Sha | None
    reused: ReusedResult | None = None
    """Where its result comes from, if it was not run."""


class ReportedRun(ReportRow, kw_only=True, omit_defaults=False):
    run_id: RunId
    status: RunStatus
    reason: Reason | None
    """Why it continued another run; null for a fresh start."""
    start_time: str
    end_time: str | None
    codons: int
    on_thread: bool
    """False if a rollback discarded all of it."""
    cost: float


class ReportedFile(ReportRow, kw_only=True, omit_defaults=False):
    """A file that has changed, and what came of it in the end."""

    path: str
    action: FileAction
    changes: int
    by: tuple[Author, ...]
    seq: int
    """Of the last change."""


class ReportedMoment(ReportRow, kw_only=True, omit_defaults=False):
    seq: int
    """Of the event in the journal."""
    timestamp: str
    codon_id: CodonId | None


class ReportedRetry(ReportedMoment, kw_only=True, omit_defaults=False):
    attempt: int
    max_attempts: int
    reason: str


class ReportedWait(ReportedMoment, kw_only=True, omit_defaults=False):
    """A wait for the end of a limit; the timestamp is its beginning."""

    reason: str
    until: str
    ended: str | None
    """Null while it lasts."""
    by: WaitEnd | None
    message: str


class ReportedFailure(ReportedMoment, kw_only=True, omit_defaults=False):
    what: FailedPart
    message: str
    ignored: bool


class ReportedEdit(ReportedMoment, kw_only=True, omit_defaults=False):
    """A change that a person made."""

    path: str
    action: FileAction


class ReportedCheckpoint(ReportedMoment, kw_only=True, omit_defaults=False):
    sha: Sha
    kind: CheckpointKind
    label: str | None
    title: str
    partial: bool


class ReportedRollback(ReportedMoment, kw_only=True, omit_defaults=False):
    direction: Movement
    checkpoint: Sha
    paths: tuple[str, ...] | None
    """The paths it was limited to."""
    added: int
    updated: int
    removed: int
    reason: str | None
