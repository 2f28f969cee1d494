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


class PendingPermission(Value):
    """A call that an agent waits for leave to make."""

    codon_id: CodonId
    request_id: str
    tool_name: str
    tool_input: dict[str, object]
    expires_at: str
    reason: str


class RuntimeLock(Value):
    """runtime.lock (seed 001): who serves here. It informs; it never grants (DESIGN 6)."""

    pid: int
    run_id: RunId | None
    start_time: str
    last_heartbeat: str
    port: int | None = None


ProblemCode = Literal["INSUFFICIENT_SPACE", "OUT_OF_DESCRIPTORS"]
"""What a server can live with, and goes on in spite of."""


StoreOperation = Literal["capture", "restore", "gc", "fsck", "branch"]
"""Work on checkpoints that may take long."""

ProgressUnit = Literal["files", "bytes", "objects", "checkpoints"]
"""What is counted while it goes on."""


class Problem(Value):
    """Why a server is degraded."""

    code: ProblemCode
    message: str
    since: str


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
    in_place: bool = False
    """True where the work tree is the directory itself: a person's own project."""
    origin: Origin | None = None
    """Where a branch comes from."""


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


class Origin(Value):
    """The execution, and the moment of it, that a branch was made from."""

    execution_path: str
    coordinate: Coordinate
    """In the journal of that execution."""


class SkippedFile(Value):
    path: str
    reason: str


class Conversation(Value):
    """How far an agent's conversation had come."""

    session_id: str
    message_id: str | None = None
    """The newest message after which no tool call was open, by the agent's own name for it; null
    where it gives its messages none."""


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
    pinned: bool = False
    """True where it is never pruned, because a person said so."""
    name: str | None = None
    """What the person who pinned it calls it."""
    conversation: Conversation | None = None
    """Of the agent that was at work; null where none was."""


class TouchedFile(Value):
    path: str
    bytes: int


class KeptFile(Value):
    path: str
    reason: str


class ForeseenDiff(Value):
    """What a rollback would do to one file, line by line."""

    path: str
    status: Literal["created", "modified", "deleted"]
    added: int
    removed: int
    patch: str
    """Unified diff from the file as it is to the file as it would be."""


class RollbackReport(Value):
    """What a rollback did, or, as a preview, would do."""

    target: Coordinate
    source: Coordinate | None
    safety: Coordinate | None
    """Holds all that the rollback overwrote or removed; null in a preview, or if nothing was."""
    added: tuple[TouchedFile, ...]
    updated: tuple[TouchedFile, ...]
    removed: tuple[TouchedFile, ...]
    kept: tuple[KeptFile, ...]
    """Left as they are because `keepEdits` asked for it."""
    conflicts: tuple[KeptFile, ...]
    """Files that a person changed after an agent or rig last wrote them."""
    skipped: tuple[KeptFile, ...]
    recovered: bool
    """True where a crash interrupted it and the next start finished it."""
    external_effects: tuple[str, ...] = ()
    """Tool calls between target and now whose effects lie outside the work tree, and stay."""
    diffs: tuple[ForeseenDiff, ...] = ()
    """Only in a preview that asked for them."""
    note: str | None = None
    """What the caller should know about the target, such as the run it was found in."""


Direction = Literal["back", "undo", "redo"]
"""A rollback, the undo of one, or the redo of what was undone."""

Movement = Direction | Literal["retry"]
"""A `retry` takes files, and in the midst of a codon what agents remember, back to where an attempt
began; no run ends, and nothing undoes it: the failed attempt's checkpoint holds what it takes."""


class Travel(Value):
    """One rollback, as far as its undo (or for an undo: its redo) needs to know it."""

    operation_id: str
    safety: Sha
    """The checkpoint of everything it touched, as it was before."""
    source: Coordinate | None
    """Where the execution stood before it; null where no codon had a checkpoint yet."""
    in_place: bool = False
    """Only files moved: no run ended, and the plan stands where it stood."""
    paths: tuple[str, ...] | None = None
    """The files and folders it was confined to; null for the whole work tree."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    """People's edits that it took away, with the SHA-256 of each where it is known."""
    rewound_memory: bool = False
    """Agents and sentinels forgot what they knew; the epoch of the safety checkpoint has it."""


class Notice(Value):
    """What an agent is to be told at its next step: that it was rolled back, to where and why."""

    operation_id: str
    direction: Direction
    target: Coordinate
    timestamp: str
    paths: tuple[str, ...] | None = None
    reason: str | None = None


class RollbackIntent(Value):
    """`rollback.intent`: durable before the first file moves, gone when all is told (DESIGN 8)."""

    operation_id: str
    target: CheckpointRecord
    """The files: a checkpoint, or for an undo the safety checkpoint of what is undone."""
    safety: CheckpointRecord
    source: Coordinate | None
    from_run: RunId
    to_run: RunId | None
    """The run that begins; null where only files move."""
    after_codon: CodonId | None
    checkpoint_type: str
    codons_to_process: tuple[CodonId, ...]
    auto_restart: bool
    started_at: str
    direction: Movement = "back"
    place: Coordinate | None = None
    """From where work goes on, where that is not the target's own coordinate."""
    paths: tuple[str, ...] | None = None
    keep: tuple[bytes, ...] = ()
    """Paths to leave alone; base64 in the file, because names need not be text."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    restored_edits: dict[str, str] = msgspec.field(default_factory=dict)
    reason: str | None = None
    rewind_memory: bool = False
    undone: str | None = None
    """The operation that this one takes back."""
    note: str | None = None
    """Passed on to the report."""


class MovedRef(Value):
    """A ref of the shadow repository that named a lost commit."""

    ref: str
    was: Sha
    now: Sha | None
    """The checkpoint that it names now; null where it was moved aside altogether."""


class StoreRepair(Value):
    """What a repair of the shadow repository did."""

    rewritten: tuple[Sha, ...] = ()
    """Objects that could not be read and can be now; at most a thousand are listed."""
    lost: tuple[Sha, ...] = ()
    """Checkpoints that were given up: not all of their objects could be found."""
    moved_refs: tuple[MovedRef, ...] = ()
    unknown_permissions: tuple[Sha, ...] = ()
    """Checkpoints of which permissions and empty folders may be lost; their files are whole."""
    quarantine: str | None = None
    """The folder of the shadow repository with everything that was moved aside."""


class BranchIntent(Value):
    """`branch.intent`: durable before anything of a branch is made, gone when all is told."""

    temporary: str
    """Where it is built; a start that finds it removes it."""
    execution_path: str
    run_id: RunId
    coordinate: Coordinate
    started_at: str


class PruneIntent(Value):
    """`prune.intent`: durable before the first checkpoint is let go, gone when all is told."""

    checkpoints: tuple[Sha, ...]
    started_at: str


class ArchivePlace(Value):
    """Where in a loop something was archived."""

    loop_id: str
    iteration: int


class ArchiveEntry(Value):
    """One file, or one empty folder, that lies in rigArchive (Hankweave, archives)."""

    source_path: str
    """Below agentRoot."""
    archive_path: str
    """Below the execution directory."""
    codon_id: str
    """The codon, or the loop, that it was archived for."""
    checkpoint_sha: str
    """The checkpoint of the end after which it was archived; `orphan` where there was none."""
    timestamp: str
    loop_context: ArchivePlace | None = None


class ArchiveTravel(Value):
    """What one rollback moved between rigArchive and agentRoot, so that its undo can reverse it."""

    restored: tuple[ArchiveEntry, ...] = ()
    archived: tuple[ArchiveEntry, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders of agentRoot that were made for what was restored."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    """What could not be moved, and why."""


class ArchiveManifest(Value):
    """archive-manifest.json: what lies in rigArchive, and where it came from."""

    version: str
    entries: tuple[ArchiveEntry, ...]
    travels: dict[str, ArchiveTravel] = msgspec.field(default_factory=dict)
    """By the operation id of the rollback; Hankweave has no such field."""


class ArchiveMove(Value):
    """One rename; names are base64 in the file, because they need not be text."""

    source: bytes
    target: bytes


class ArchiveIntent(Value):
    """`archive.intent`: durable before the first file moves, gone when all is told."""

    operation_id: str
    run_id: RunId
    codon_id: CodonId
    """The codon that has ended."""
    archived_for: str
    """The codon, or the loop, in whose name this is archived."""
    checkpoint_sha: str
    started_at: str
    loop_context: ArchivePlace | None = None
    displaced: tuple[ArchiveMove, ...] = ()
    """What is in the way in rigArchive gets another name there."""
    moves: tuple[ArchiveMove, ...] = ()
    """From agentRoot to rigArchive."""
    folders: tuple[ArchiveMove, ...] = ()
    """Folders that go along, the inner ones first."""
    empty: tuple[bytes, ...] = ()
    """Those of them that held nothing."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class AftermathIntent(Value):
    """`aftermath.intent`: durable before a codon begins whose success has consequences, gone when
    its files are handed out and archived."""

    run_id: RunId
    codon_id: CodonId


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
