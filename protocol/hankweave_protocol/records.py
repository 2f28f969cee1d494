"""Records in files of their own or in events: lock, metadata, checkpoints, reports, intents."""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.attempts import Attempt
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
"""Hankweave's kinds, and those of this server; `initial` is the state before any codon."""

CodonCheckpointType = Literal[
    "start", "end", "rig-setup", "completed", "error", "skipped", "beginning"
]
"""The targets of `rollback.toCodon`: four kinds and two aliases (seed 000, "Rolling Back").

`beginning` is not in Hankweave: the files from which the codon began, before its rig.
"""


class PendingPermission(Value):
    """A tool call that waits for permission."""

    codon_id: CodonId
    request_id: str
    tool_name: str
    tool_input: dict[str, object]
    expires_at: str
    """When `onTimeout` decides."""
    reason: str
    """Why a client is asked."""
    suggestion: str | None = None
    """The narrowest useful rule for `always` of `permission.answer`; null if there is none."""
    on_expiry: Literal["deny", "allow"] = "deny"
    """What is decided at `expiresAt`: `deny` or `allow`."""


class RuntimeLock(Value):
    """runtime.lock: the server of this directory. For information; it does not grant ownership."""

    pid: int
    run_id: RunId | None
    """The current run; null before the first."""
    start_time: str
    last_heartbeat: str
    """Updated every 30 s."""
    port: int | None = None
    host: str | None = None
    """Where programs of this machine connect; None, from an older server: 127.0.0.1."""
    page_url: str | None = None
    """The address of the page, as people open it, without a slash at its end."""


ProblemCode = Literal[
    "INSUFFICIENT_SPACE", "OUT_OF_DESCRIPTORS", "MIRROR_UNREACHABLE", "MIRROR_LEASE_EXPIRED"
]
"""Problems that do not stop a server."""


StoreOperation = Literal["capture", "restore", "gc", "fsck", "branch"]
"""Operations on checkpoints that may take long."""

ProgressUnit = Literal["files", "bytes", "objects", "checkpoints"]
"""The unit of the progress counters."""


class Problem(Value):
    """Why a server is degraded."""

    code: ProblemCode
    """`INSUFFICIENT_SPACE` or `OUT_OF_DESCRIPTORS`. With a mirror, `MIRROR_UNREACHABLE`: pushes
    fail; or `MIRROR_LEASE_EXPIRED`: the agent and the journal wait until one succeeds."""
    message: str
    since: str


class ExecutionMeta(Value):
    """execution-meta.json (seed 001)."""

    version: str
    read_only_source_data_path: str | None
    """The data, as it was named."""
    read_only_source_resolved_data_path: str | None
    """The data, as an absolute path."""
    data_hash: str | None
    """The hash of the data."""
    hank_hash: str | None
    """The hash of the hank."""
    hank_path: str | None
    """The path of the hank."""
    link_type: Literal["symlink", "copy", "none"]
    """`symlink`, `copy` or `none`."""
    created_at: str
    last_used: str
    """When a server last started."""
    in_place: bool = False
    """True if the work tree is the directory itself: a project that is served in place."""
    origin: Origin | None = None
    """The origin of a branch."""
    attempt: Attempt | None = None
    """How it takes part in an exploration, if it is an attempt."""
    hank_name: str | None = None
    """The name that the hank has given itself."""
    max_dollars: float | None = None
    """The budget of the last start: the lower one of the hank's and `--max-cost`, in US dollars."""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Values for variables of the hank that starts were given with `--variables`."""


class TrafficMetadata(Value):
    """The metadata of a frame."""

    size: int
    """Bytes of the frame on the wire, before redaction."""
    error: str | None = None
    """Why the frame was not JSON."""


class TrafficRecord(Value):
    """One line of websocket.log (seed 001)."""

    logged_at: str
    """When it was logged."""
    direction: Literal["in", "out"]
    """`in` or `out`."""
    message: msgspec.Raw
    """The frame, without secrets."""
    metadata: TrafficMetadata
    """What else is known of it."""


class Coordinate(Value):
    """A moment that a rollback can go back to (seed 004, "What a checkpoint actually is")."""

    checkpoint_sha: Sha
    event_seq: int
    """The last event before the checkpoint."""
    run_id: RunId
    codon_id: CodonId | None = None
    codon_state: str | None = None
    """The codon's status at that moment."""
    memory_epoch: int = 0
    """The state of the memory of agents and sentinels; 0 before there was any."""


class Origin(Value):
    """The execution that a branch was made from, and the moment in it."""

    execution_path: str
    coordinate: Coordinate
    """In the journal of that execution."""


class SkippedFile(Value):
    """A path that was not captured or restored, with the reason."""

    path: str
    reason: str
    """Why."""


class Conversation(Value):
    """The position in an agent's conversation."""

    session_id: str
    message_id: str | None = None
    """The agent's id of the newest message after which no tool call was open; null if it does not
    assign ids to its messages."""


class CheckpointRecord(Value):
    """One checkpoint."""

    sha: Sha
    kind: CheckpointKind
    """When it was taken; see the kinds of checkpoints."""
    coordinate: Coordinate
    codon_name: str
    timestamp: str
    operation_id: str
    label: str | None = None
    summary: str | None = None
    """What has changed since the checkpoint before, in a few words, with the tools that changed it.

    Null in checkpoints of older versions.
    """
    partial: bool = False
    """True if some files could not be captured; `skipped` lists them."""
    skipped: tuple[SkippedFile, ...] = ()
    """The first of them: at most 200, and fewer if paths are long."""
    skipped_total: int | None = None
    """Number of skipped files, if not all are listed."""
    pinned: bool = False
    """True if it was pinned and is never pruned."""
    name: str | None = None
    """The name given to it when it was pinned."""
    conversation: Conversation | None = None
    """Of the agent that was working; null if there was none."""


class ReplacedFile(Value):
    """A file that a redaction exchanges for another."""

    path: str
    """Relative to the execution."""
    replaces: bool = True
    """False if there was no file before."""
    is_replaced: bool = True
    """False if there is no file afterwards."""


class RedactIntent(Value):
    """The content of `redact.intent`: a redaction that is not confirmed or undone."""

    operation_id: str
    phase: Literal["exchanging", "pending", "confirming", "undoing"]
    """How far it is."""
    files: tuple[ReplacedFile, ...]
    """The number of each is its name in `redaction/old` and `redaction/new`."""
    journal_bytes: int
    """Size of the journal afterwards; another size means that the execution has continued."""


class RedactionRecord(Value):
    """The record of a redaction, kept in `redactions/`."""

    operation_id: str
    timestamp: str
    removed: tuple[str, ...]
    """Names of rules, variables or paths; never a value."""
    events: int
    """Lines of the journal."""
    files: tuple[str, ...]
    """Other files of the state directory, relative to the execution."""
    contents: int
    """Different contents in checkpoints."""
    checkpoints: int
    """Checkpoints that held it."""
    renamed: dict[str, str]
    """The new sha of each checkpoint that has one."""


class TouchedFile(Value):
    """A file that a rollback changes."""

    path: str
    bytes: int
    """Its size in the target; of a removed file, its size before."""


class KeptFile(Value):
    """A file that a rollback leaves as it is, with the reason."""

    path: str
    reason: str
    """Why it is kept."""


class RestoreWarning(Value):
    """A consequence of a rollback that it cannot prevent, or something to be decided about it."""

    kind: Literal["attributes", "open-writer", "database", "conversation"]
    """`attributes`: attributes of a file are lost; `open-writer`: a program holds a file open that
    is replaced; `database`: a database may be damaged; `conversation`: it is not rewound."""
    path: str | None
    """The file, if it is about one."""
    sentence: str
    """For people: what it is, and what to do."""


class ForeseenDiff(Value):
    """The changes of a rollback to one file, line by line."""

    path: str
    status: Literal["created", "modified", "deleted"]
    """`created`, `modified` or `deleted`."""
    added: int
    """Added lines."""
    removed: int
    """Removed lines."""
    patch: str
    """Unified diff from the current file to the restored one."""


class ReportTotals(Value):
    """The numbers of files in the lists of a rollback report."""

    added: int
    """The number of added files."""
    updated: int
    """The number of updated files."""
    removed: int
    """The number of removed files."""
    kept: int
    """The number of kept files."""
    conflicts: int
    """The number of conflicts."""
    skipped: int
    """The number of skipped paths."""
    bytes: int
    """Of the added, updated and removed files."""
    cannot_restore: int = 0
    """The number of paths that cannot be restored."""


class UnrestoredPath(Value):
    """A path that a rollback could not restore, or will not be able to."""

    path: str
    errno: str
    """The name of the error, such as `EPERM`; empty if the file changed meanwhile."""
    sentence: str
    """What is in the way, and what to do about it."""
    content_differs: bool = True
    """False if only permissions are not as in the checkpoint."""


class RunsAgain(Value):
    """The steps that run again after a rollback, and what they used the last time."""

    codon_ids: tuple[CodonId, ...]
    """In the order of the plan, from the target to the position before; at most the first 200."""
    total: int
    """The number of these steps."""
    estimated_cost: float | None
    """USD, the last time; null if one of them has never begun."""
    estimated_ms: int | None
    """Milliseconds, the last time, without waits; null if one of them has never begun."""


class RollbackReport(Value):
    """The changes that a rollback made or, in a preview, would make.

    A list has at most 200 files, and fewer if paths are long. `checkpoint.diff` lists all: from
    `safety` to `target` after a rollback, and from `target` to the work tree before it.
    """

    target: Coordinate
    source: Coordinate | None
    """The position before."""
    safety: Coordinate | None
    """Holds everything the rollback overwrote or removed; null in a preview, or if nothing was."""
    added: tuple[TouchedFile, ...]
    """Files that the target has and the work tree had not."""
    updated: tuple[TouchedFile, ...]
    """Files whose content changes."""
    removed: tuple[TouchedFile, ...]
    """Files that the target does not have."""
    kept: tuple[KeptFile, ...]
    """Files left unchanged because of `keepEdits`."""
    conflicts: tuple[KeptFile, ...]
    """Files that a person changed after an agent or rig last wrote them."""
    skipped: tuple[KeptFile, ...]
    """Paths that could not be captured or restored."""
    recovered: bool
    """True if a crash interrupted it and the next start finished it."""
    external_effects: tuple[str, ...] = ()
    """Sentences about what was done outside the work tree since the target, and is not undone."""
    diffs: tuple[ForeseenDiff, ...] = ()
    """Only in a preview with `patch`."""
    note: str | None = None
    """Information about the target, such as the run it was found in."""
    totals: ReportTotals | None = None
    """Present if a list is incomplete; see `counts`."""
    in_words: str | None = None
    """People's edits that were kept or taken back, and where those are; null if there were none."""
    warnings: tuple[RestoreWarning, ...] = ()
    """What the rollback does not take care of."""
    cannot_restore: tuple[UnrestoredPath, ...] = ()
    """Exceptions: paths left as they were, while all others are done. In a preview, those known."""
    runs_again: RunsAgain | None = None
    """The steps that run again; null if only files are restored."""
    target_title: str | None = None
    """What the target is called; null in reports of older versions."""

    @property
    def leaves_files_different(self) -> bool:
        """Whether a file has not the content of the target, so that nothing may rely on it."""
        return any(each.content_differs for each in self.cannot_restore)

    @property
    def counts(self) -> ReportTotals:
        """The numbers of files, whether or not all are listed."""
        if self.totals is not None:
            return self.totals

        touched = (*self.added, *self.updated, *self.removed)
        return ReportTotals(
            added=len(self.added),
            updated=len(self.updated),
            removed=len(self.removed),
            kept=len(self.kept),
            conflicts=len(self.conflicts),
            skipped=len(self.skipped),
            bytes=sum(file.bytes for file in touched),
            cannot_restore=len(self.cannot_restore),
        )


Direction = Literal["back", "undo", "redo"]
"""A rollback, the undo of one, or the redo of an undone one."""

Movement = Direction | Literal["retry"]
"""A `retry` restores the files and, in the middle of a codon, the agents' sessions to the start of
an attempt; no run ends. Its undo goes back to the end of the failed attempt.
"""


class Travel(Value):
    """The facts of a rollback that its undo needs (or of an undo, that its redo needs)."""

    operation_id: str
    safety: Sha
    """The checkpoint of everything it changed, as it was before."""
    source: Coordinate | None
    """The position of the execution before it; null if no codon had a checkpoint yet."""
    in_place: bool = False
    """True if only files were restored: no run ended, and the position in the plan is the same."""
    paths: tuple[str, ...] | None = None
    """The files and folders it was limited to; null for the whole work tree."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    """People's edits that it removed, with the SHA-256 of each if known."""
    rewound_memory: bool = False
    """True if sessions were restored too; the safety checkpoint holds the previous ones."""


class Notice(Value):
    """The message about a rollback that an agent gets at its next step: target and reason."""

    operation_id: str
    direction: Direction
    target: Coordinate
    timestamp: str
    paths: tuple[str, ...] | None = None
    reason: str | None = None
    """The reason that the person gave."""


class RollbackIntent(Value):
    """`rollback.intent`: durable before the first file changes, removed after the last event."""

    operation_id: str
    target: CheckpointRecord
    """The checkpoint to restore; for an undo, the safety checkpoint of the undone rollback."""
    safety: CheckpointRecord
    """The safety checkpoint."""
    source: Coordinate | None
    """The position before."""
    from_run: RunId
    to_run: RunId | None
    """The run that begins; null if only files are restored."""
    after_codon: CodonId | None
    """The codon after which work continues; null at the beginning of the plan."""
    checkpoint_type: str
    codons_to_process: tuple[CodonId, ...]
    auto_restart: bool
    started_at: str
    direction: Movement = "back"
    place: Coordinate | None = None
    """Where work continues, if that is not the target's own coordinate."""
    paths: tuple[str, ...] | None = None
    keep: tuple[bytes, ...] = ()
    """Paths to leave unchanged; base64 in the file, because names may not be text."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    restored_edits: dict[str, str] = msgspec.field(default_factory=dict)
    reason: str | None = None
    rewind_memory: bool = False
    undone: str | None = None
    """The operation that this one undoes."""
    note: str | None = None
    """Copied to the report."""
    contested: tuple[str, ...] = ()
    """Files that a person and an agent both changed, which an automatic restore takes back."""
    reuse_after: CodonId | None = None
    """The codon that is run again, in a run whose later codons take over earlier results."""


class MovedRef(Value):
    """A ref of the shadow repository that named a lost commit."""

    ref: str
    """The ref."""
    was: Sha
    """What it named."""
    now: Sha | None
    """The checkpoint that it names now; null if the ref was removed."""


class StoreRepair(Value):
    """The result of a repair of the shadow repository."""

    rewritten: tuple[Sha, ...] = ()
    """Objects that were unreadable and are restored; at most a thousand are listed."""
    lost: tuple[Sha, ...] = ()
    """Checkpoints that were given up, because some of their objects could not be found."""
    moved_refs: tuple[MovedRef, ...] = ()
    """Refs that were moved, because what they named is lost."""
    unknown_permissions: tuple[Sha, ...] = ()
    """Checkpoints that may have lost permissions and empty folders; their files are complete."""
    quarantine: str | None = None
    """The folder of the shadow repository that holds the files it replaced."""


class BranchIntent(Value):
    """`branch.intent`: durable before a branch is created, removed after the last event."""

    temporary: str
    """The directory in which it is built; a start that finds it removes it."""
    execution_path: str
    run_id: RunId
    coordinate: Coordinate
    started_at: str


class PruneIntent(Value):
    """`prune.intent`: durable before a checkpoint is pruned, removed after the last event."""

    checkpoints: tuple[Sha, ...]
    started_at: str


class ArchivePlace(Value):
    """The position in a loop at which something was archived."""

    loop_id: str
    iteration: int


class ArchiveEntry(Value):
    """One file, or one empty folder, in rigArchive."""

    source_path: str
    """Relative to agentRoot."""
    archive_path: str
    """Relative to the execution directory."""
    codon_id: str
    """The codon, or the loop, that it was archived for."""
    checkpoint_sha: str
    """The codon's last checkpoint before it was archived; `orphan` if there was none."""
    timestamp: str
    loop_context: ArchivePlace | None = None


class ArchiveTravel(Value):
    """The files one rollback moved between rigArchive and agentRoot; its undo moves them back."""

    restored: tuple[ArchiveEntry, ...] = ()
    """What a rollback has restored."""
    archived: tuple[ArchiveEntry, ...] = ()
    """What its undo archives again."""
    folders: tuple[str, ...] = ()
    """Folders of agentRoot that were created for restored files."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    """Files that could not be moved, and why."""


class ArchiveManifest(Value):
    """archive-manifest.json: the content of rigArchive, and where it came from."""

    version: str
    entries: tuple[ArchiveEntry, ...]
    """The archived files."""
    travels: dict[str, ArchiveTravel] = msgspec.field(default_factory=dict)
    """By the operation id of the rollback; Hankweave has no such field."""


class ArchiveMove(Value):
    """One rename; names are base64 in the file, because they may not be text."""

    source: bytes
    """The path in the work tree, in base64."""
    target: bytes
    """The path in the archive, in base64."""


class ArchiveIntent(Value):
    """`archive.intent`: durable before the first file moves, removed after the last event."""

    operation_id: str
    run_id: RunId
    codon_id: CodonId
    """The codon that has ended."""
    archived_for: str
    """The codon or loop that this is archived for."""
    checkpoint_sha: str
    started_at: str
    loop_context: ArchivePlace | None = None
    displaced: tuple[ArchiveMove, ...] = ()
    """Renames in rigArchive of files that are in the way."""
    moves: tuple[ArchiveMove, ...] = ()
    """From agentRoot to rigArchive."""
    folders: tuple[ArchiveMove, ...] = ()
    """Folders that are moved as well, the inner ones first."""
    empty: tuple[bytes, ...] = ()
    """Those of them that were empty."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    """What could not be moved."""


class AftermathIntent(Value):
    """`aftermath.intent`: durable before a codon begins whose files are exported or archived after
    its success, removed when that is done."""

    run_id: RunId
    codon_id: CodonId


class ValidationError(Value):
    """A fault in state.json that prevents a resume (seed 002, "State Validation")."""

    type: Literal["missing_run", "invalid_codon", "corrupted_data"]
    """The kind of error."""
    message: str


class ValidationWarning(Value):
    """A disagreement between the files of an execution."""

    type: Literal["orphaned_folder", "missing_checkpoint", "cost_mismatch"]
    """The kind of warning."""
    message: str


class StateValidation(Value):
    valid: bool
    errors: tuple[ValidationError, ...]
    warnings: tuple[ValidationWarning, ...]
