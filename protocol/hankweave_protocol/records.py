"""Records that stand in files of their own or inside events: lock, meta, checkpoints, reports."""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.shapes import Value

CheckpointKind = Literal[
    "initial",
    "rig-setup",
    "completed",
    "error",
    "skipped",
    "exit",
    "tool",
    "turn",
    "manual",
    "safety",
]
"""The seeds' kinds and ours (DESIGN 2); `initial` is the state before any codon (seed 002)."""

CodonCheckpointType = Literal["start", "end", "rig-setup", "completed", "error", "skipped"]
"""What `rollback.toCodon` may name: four kinds and two aliases (seed 000, "Rolling Back")."""


class RuntimeLock(Value):
    """runtime.lock (seed 001): who serves here. It informs; it never grants (DESIGN 6)."""

    pid: int
    run_id: RunId | None
    start_time: str
    last_heartbeat: str
    port: int | None = None


class ExecutionMeta(Value):
    """execution-meta.json (seed 001)."""

    version: str
    read_only_source_data_path: str | None
    read_only_source_resolved_data_path: str | None
    data_hash: str | None
    hank_hash: str | None
    hank_path: str | None
    link_type: Literal["symlink", "copy", "none"]
    created_at: str
    last_used: str


class TrafficMetadata(Value):
    size: int
    """Bytes of the frame as it went over the wire, before redaction."""
    error: str | None = None


class TrafficRecord(Value):
    """One line of websocket.log (seed 001)."""

    logged_at: str
    direction: Literal["in", "out"]
    message: msgspec.Raw
    metadata: TrafficMetadata


class Coordinate(Value):
    """A moment that can be gone back to (seed 004, "What a checkpoint actually is")."""

    checkpoint_sha: Sha
    event_seq: int
    """The last event before the checkpoint."""
    run_id: RunId
    codon_id: CodonId | None = None
    codon_state: str | None = None
    """The codon's status at that moment."""
    memory_epoch: int = 0


class SkippedFile(Value):
    path: str
    reason: str


class CheckpointRecord(Value):
    """What is known of one checkpoint."""

    sha: Sha
    kind: CheckpointKind
    coordinate: Coordinate
    codon_name: str
    timestamp: str
    operation_id: str
    label: str | None = None
    partial: bool = False
    """True where something could not be captured; `skipped` names it."""
    skipped: tuple[SkippedFile, ...] = ()


class TouchedFile(Value):
    path: str
    bytes: int


class KeptFile(Value):
    path: str
    reason: str


class RollbackReport(Value):
    """What a rollback did, or, as a preview, would do."""

    target: Coordinate
    source: Coordinate | None
    safety: Coordinate | None
    """Holds all that the rollback overwrote or removed; null in a preview."""
    added: tuple[TouchedFile, ...]
    updated: tuple[TouchedFile, ...]
    removed: tuple[TouchedFile, ...]
    kept: tuple[KeptFile, ...]
    conflicts: tuple[KeptFile, ...]
    skipped: tuple[KeptFile, ...]
    recovered: bool
    """True where a crash interrupted it and the next start finished it."""
    external_effects: tuple[str, ...] = ()


class RollbackIntent(Value):
    """`rollback.intent`: durable before the first file moves, gone when all is told (DESIGN 8)."""

    operation_id: str
    target: CheckpointRecord
    safety: CheckpointRecord
    source: Coordinate | None
    from_run: RunId
    to_run: RunId
    after_codon: CodonId | None
    checkpoint_type: str
    codons_to_process: tuple[CodonId, ...]
    auto_restart: bool
    started_at: str


class ValidationError(Value):
    """A fault of state.json that prevents continuation (seed 002, "State Validation")."""

    type: Literal["missing_run", "invalid_codon", "corrupted_data"]
    message: str


class ValidationWarning(Value):
    type: Literal["orphaned_folder", "missing_checkpoint", "cost_mismatch"]
    message: str


class StateValidation(Value):
    valid: bool
    errors: tuple[ValidationError, ...]
    warnings: tuple[ValidationWarning, ...]
