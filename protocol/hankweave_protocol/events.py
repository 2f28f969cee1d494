"""The events of the journal and the wire.

The names of types and fields are Hankweave's if it has the event. A `JOURNALED` event has a seq and
is sent to every client in journal order; any other is sent to one client and not kept.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from hankweave_protocol.attempts import AttemptRecord, Exploration
from hankweave_protocol.ids import ClientId, CodonId, CommandId, EventSeq, RunId, Sha
from hankweave_protocol.records import (
    CheckpointKind,
    Coordinate,
    Movement,
    ProblemCode,
    ProgressUnit,
    RollbackReport,
    SkippedFile,
    StoreOperation,
    StoreRepair,
    ValidationError,
    ValidationWarning,
)
from hankweave_protocol.shapes import Registry, Typed, Value
from hankweave_protocol.state import (
    BudgetExceeded,
    Captured,
    CodonExecution,
    FailureReason,
    LoopContext,
    RunStatus,
    Tokens,
)


class EventData(Typed):
    """The `data` of an event."""

    JOURNALED: ClassVar[bool] = True


class Event(Value, kw_only=True):
    """One line of the journal, and one frame on the wire."""

    id: str
    seq: EventSeq = EventSeq(0)
    """0, and omitted, for an event that is not journaled."""
    timestamp: str
    type: str
    data: EventData
    run_id: RunId | None = None
    codon_id: CodonId | None = None
    causes: tuple[int | str, ...] = ()
    """Seqs of the events, or the id of the command, that caused this one."""


# --- the server ---------------------------------------------------------------------------------


class ServerReady(EventData):
    """The first event of a connection, and the first line of `hankweave run --json`."""

    TYPE: ClassVar[str] = "server.ready"
    JOURNALED: ClassVar[bool] = False
    server_version: str
    execution_path: str
    agent_root_path: str
    data_path: str | None
    port: int
    url: str
    current_run_id: RunId | None = None
    last_event_seq: int = 0
    output_directory: str | None = None
    """The directory that output files are copied to, if any."""


class ServerIdle(EventData):
    TYPE: ClassVar[str] = "server.idle"
    reason: Literal[
        "startup",
        "codon-completed",
        "codon-failed",
        "all-codons-completed",
        "rollback-completed",
        "stopped",
    ]
    message: str


class ServerStarted(EventData):
    """A server has started on the directory; the fields describe what the last one left."""

    TYPE: ClassVar[str] = "server.started"
    server_version: str
    pid: int
    previous_pid: int | None = None
    previous_heartbeat_age_ms: int | None = None
    previous_pid_reused: bool = False
    leftover_agents_killed: tuple[int, ...] = ()
    leftovers_removed: tuple[str, ...] = ()
    """Lock and temporary files in the shadow repository, left by a crash."""
    containment: Literal["cgroup", "subreaper"] | None = None
    """How an agent's processes are contained: by a control group, or by its keeper alone."""


class ServerStopping(EventData):
    TYPE: ClassVar[str] = "server.stopping"
    reason: str


class ServerDegraded(EventData):
    """The server continues with a problem; sent at once, without a seq if the disk is the cause.

    It is journaled as soon as the disk can be written to.
    """

    TYPE: ClassVar[str] = "server.degraded"
    code: ProblemCode
    message: str
    since: str


class ServerRecovered(EventData):
    """A problem is over."""

    TYPE: ClassVar[str] = "server.recovered"
    code: ProblemCode
    message: str
    since: str
    """The time at which the problem began."""


class ServerResumed(EventData):
    """The server did not run for a while: the machine was suspended, or the process stopped."""

    TYPE: ClassVar[str] = "server.resumed"
    suspended_seconds: float
    cause: Literal["suspended", "stopped"]


class ClockJumped(EventData):
    """The wall clock was set: timestamps before and after this event are not comparable."""

    TYPE: ClassVar[str] = "clock.jumped"
    seconds: float
    direction: Literal["forward", "back"]


class JournalRepaired(EventData):
    """An incomplete last line was cut off; its bytes are kept in a file beside the journal."""

    TYPE: ClassVar[str] = "journal.repaired"
    quarantine: str
    bytes: int


class StateRecovered(EventData):
    """state.json could not be used as it was: the source of the state, and the faults found."""

    TYPE: ClassVar[str] = "state.recovered"
    source: Literal["primary", "backup", "journal", "repository", "fresh"]
    errors: tuple[ValidationError, ...]
    warnings: tuple[ValidationWarning, ...]
    kept: tuple[str, ...] = ()
    """File names of the unreadable originals, which are kept."""


class HankChanged(EventData):
    """hank.json has changed since this execution began (seed 001, hankHash)."""

    TYPE: ClassVar[str] = "hank.changed"
    previous_hash: str
    current_hash: str


HistoryFinding = Literal["moved", "copied", "other-project", "gone", "adopted", "relocated"]
"""What a start can find about the history of a project, besides that it continues."""


class HistoryIdentified(EventData):
    """A start found that the history of a project (`--workspace`) is not just where it was."""

    TYPE: ClassVar[str] = "history.identified"
    finding: HistoryFinding
    message: str
    kept_at: str | None = None
    """The folder with another history that was left as it is."""


class DataChanged(EventData):
    """The execution's data was replaced by other data, at a person's explicit request."""

    TYPE: ClassVar[str] = "data.changed"
    previous_hash: str | None
    current_hash: str
    previous_path: str | None
    current_path: str


class Info(EventData):
    TYPE: ClassVar[str] = "info"
    message: str


class ErrorEvent(EventData):
    """A failure that concerns all clients; a client's own mistake is reported to it alone."""

    TYPE: ClassVar[str] = "error"
    message: str
    fatal: bool
    codon: CodonId | None = None
    severity: Literal["fatal", "codon", "operation", "warning"] | None = None
    context: str | None = None
    code: str | None = None


class FileNode(Value):
    name: str
    path: str
    is_directory: bool
    children: tuple[FileNode, ...]
    last_modified: str | None = None
    """For files only."""


class FileAccess(Value):
    path: str
    timestamp: str


class StateSnapshot(EventData):
    TYPE: ClassVar[str] = "state.snapshot"
    completed_codons: tuple[CodonExecution, ...]
    """The newest hundred terminal codons of the execution thread, newest first, including failed
    and skipped ones."""
    file_tree: tuple[FileNode, ...]
    total_cost: float
    total_time: int
    """Milliseconds since the server started."""
    is_rolling_back: bool
    current_codon: CodonExecution | None = None
    recent_file_access: FileAccess | None = None
    current_run_id: RunId | None = None
    next_codon_id: CodonId | None = None
    last_event_seq: int = 0


class TransitionBody(Value):
    type: str
    data: msgspec.Raw
    """A member of `hankweave_protocol.transitions`, still encoded."""


class ResultingState(Value):
    current_run_id: RunId | None
    run_count: int
    total_cost: float
    current_run_cost: float


class StateTransition(EventData):
    """One change of the state; state.json is the fold of all of these."""

    TYPE: ClassVar[str] = "state.transition"
    transition_type: str
    transition: TransitionBody
    resulting_state: ResultingState
    run_id: RunId | None = None
    codon_id: CodonId | None = None


# --- codons -------------------------------------------------------------------------------------


class PromptMetadata(Value):
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    version: str | None = None
    author: str | None = None


class CodonStartedEvent(EventData):
    """The agent has reported its session; the codon is running."""

    TYPE: ClassVar[str] = "codon.started"
    codon_id: CodonId
    codon_name: str
    session_id: str
    start_time: str
    codon_description: str | None = None
    previous_session_id: str | None = None
    prompt_metadata: PromptMetadata | None = None


class ExitStatus(Value):
    type: Literal["success", "error", "killed"]
    code: int | None = None
    signal: str | None = None


class CodonCompletedEvent(EventData):
    """A codon has ended, successfully or not."""

    TYPE: ClassVar[str] = "codon.completed"
    codon_id: CodonId
    success: bool
    cost: float
    duration: int
    """Milliseconds."""
    exit_status: ExitStatus
    failure_reason: FailureReason | None = None
    failure_ignored: bool | None = None
    budget_exceeded: BudgetExceeded | None = None
    skipped: bool | None = None
    """Not in Hankweave: true if a person skipped it."""
    condition: str | None = None
    """Not in Hankweave: the condition, if the codon was skipped because it was false."""
    captured: Captured | None = None
    """Not in Hankweave: the variable that later codons may refer to."""
    warnings: tuple[str, ...] = ()
    """Not in Hankweave: the messages of its `codon.warning` events."""


class CodonExtended(EventData):
    TYPE: ClassVar[str] = "codon.extended"
    codon_id: CodonId
    codon_name: str
    extension_number: int
    exhaust_with_prompt: str
    cumulative_tokens: int
    """Sum of input and output tokens. Clients without `protocolVersion` get the four counts, as in
    Hankweave."""
    cumulative_cost: float
    tokens: Tokens | None = None
    """The four counts; absent in journals of earlier versions."""


class CodonRetrying(EventData):
    """A codon failed and will be retried, with the files restored to the start of the attempt."""

    TYPE: ClassVar[str] = "codon.retrying"
    codon_id: CodonId
    attempt: int
    """The number of the next attempt."""
    max_attempts: int
    delay_ms: int
    failure_reason: FailureReason


class CodonWaiting(EventData):
    """Not in Hankweave: a codon waits for the end of a limit; its agent has ended."""

    TYPE: ClassVar[str] = "codon.waiting"
    codon_id: CodonId
    until: str
    """When its conversation continues."""
    reason: Literal["usage", "rate", "overload"]
    source: Literal["event", "header", "text", "none", "shared"]
    """As in the state's `wait`."""
    number: int
    """The number of waits in a row without an answer of the model."""
    model: str = ""
    message: str = ""
    """The agent's own words."""


class CodonResumed(EventData):
    """Not in Hankweave: a codon's wait has ended, and its agent starts again."""

    TYPE: ClassVar[str] = "codon.resumed"
    codon_id: CodonId
    by: Literal["time", "command", "other"]
    """Its time has come, a client sent `codon.start`, or another execution of the account found
    that the limit has ended."""
    waited_ms: int
    session_id: str | None = None
    """The conversation that continues; null if there is none yet."""


class CodonWarning(EventData):
    """Not in Hankweave: a codon is completed, but its work should be checked."""

    TYPE: ClassVar[str] = "codon.warning"
    codon_id: CodonId
    kind: Literal["tools-refused"]
    """`tools-refused`: every call of a tool that could have done the work was refused."""
    message: str
    """Text for people, with advice."""
    tools: tuple[str, ...] = ()
    """The names of the tools concerned."""


class AgentConfined(EventData):
    """Not in Hankweave: the fence around an agent or a command has refused a path."""

    TYPE: ClassVar[str] = "agent.confined"
    codon_id: CodonId
    path: str
    operation: Literal["read", "write"]
    setting: str | None
    """The line of the hank that would allow it; null if none can."""
    message: str
    """Text for people, with advice."""


class AssistantAction(EventData):
    TYPE: ClassVar[str] = "assistant.action"
    codon_id: CodonId
    action: Literal["thinking", "message", "tool_use"]
    content: str
    tool_name: str | None = None
    tool_input: dict[str, object] | None = None
    tool_use_id: str | None = None
    external: bool = False
    """True if the call may have effects outside the work tree, which no rollback undoes."""


class ToolResult(EventData):
    TYPE: ClassVar[str] = "tool.result"
    codon_id: CodonId
    tool_use_id: str
    tool_name: str
    result: str
    truncated: bool
    original_length: int
    execution_time_ms: int
    is_error: bool


class PermissionRequested(EventData):
    """A tool call waits for permission; `permission.answer` allows or denies it."""

    TYPE: ClassVar[str] = "permission.requested"
    codon_id: CodonId
    request_id: str
    tool_name: str
    tool_input: dict[str, object]
    expires_at: str
    """The time at which it is decided without an answer."""
    reason: str
    """Why permission is required."""


class PermissionResolved(EventData, kw_only=True):
    """A call was allowed or denied; durable before the agent gets the answer."""

    TYPE: ClassVar[str] = "permission.resolved"
    codon_id: CodonId
    request_id: str
    tool_name: str
    decision: Literal["allow", "deny"]
    by: Literal["policy", "client", "timeout", "ended"]
    """`ended`: the agent, its codon or the server ended, or the agent withdrew the request."""
    client_id: ClientId | None = None
    rule: str | None = None
    """The pattern or the name of the field that decided."""
    message: str | None = None
    """The message to the agent, or the reason for the missing answer."""


class TokenUsage(EventData):
    """Tokens and cost in USD of one message or, with `final`, of the whole codon."""

    TYPE: ClassVar[str] = "token.usage"
    codon_id: CodonId
    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int
    total_cost: float
    model_id: str | None = None
    model_usage: dict[str, object] | None = None
    final: bool | None = None


class FileSource(Value):
    kind: Literal["tool_use", "codon-start", "codon-end", "rig", "rollback", "person", "archive"]
    tool_use_id: str | None = None


class FileUpdated(EventData):
    """A tracked file has changed (version 2 of Hankweave's event, without the content)."""

    TYPE: ClassVar[str] = "file.updated"
    path: str
    filename: str
    action: Literal["created", "modified", "deleted"]
    sha256: str
    """Of the content; empty for a deleted file."""
    bytes: int
    source: FileSource
    codon_id: CodonId | None = None


class ChangedPath(Value):
    path: str
    action: Literal["created", "modified", "deleted"]


class ChangedFolder(Value):
    folder: str
    """The folder that directly holds the files; empty for the top of the work tree."""
    files: int


class FilesChanged(EventData):
    """More than 200 tracked files changed at once; sent instead of a `file.updated` for each.

    Not in Hankweave. The encoded event stays below 32 KiB. `checkpoint.diff` lists all files.
    """

    TYPE: ClassVar[str] = "files.changed"
    total: int
    created: int
    modified: int
    deleted: int
    folders: tuple[ChangedFolder, ...]
    """The folders with the most changed files, at most 20."""
    other_folders: int
    """Number of folders that are not listed."""
    in_other_folders: int
    """Number of changed files in them."""
    paths: tuple[ChangedPath, ...]
    """The first files in the order of their paths: at most 200, and fewer if paths are long."""
    source: FileSource
    codon_id: CodonId | None = None

    @property
    def summary(self) -> str:
        """The numbers of files, for people."""
        named = (("created", self.created), ("modified", self.modified), ("deleted", self.deleted))
        parts = ", ".join(f"{count} {action}" for action, count in named if count)
        return f"{self.total} files changed at once: {parts}"


class FiletreeUpdated(EventData):
    TYPE: ClassVar[str] = "filetree.updated"
    tree: tuple[FileNode, ...]
    omitted: int = 0
    """Number of files and folders of lower levels that were left out."""


class AgentOutput(EventData):
    """A line of an agent's plain-text output, or of its stderr."""

    TYPE: ClassVar[str] = "agent.output"
    codon_id: CodonId
    stream: Literal["stdout", "stderr"]
    line: str


class RigSetupCompleted(EventData):
    TYPE: ClassVar[str] = "rig.setup.completed"
    codon_id: CodonId
    rig_type: Literal["command", "commands"]
    command_count: int
    duration_ms: int
    created_checkpoint: bool


class RigSetupFailed(EventData):
    TYPE: ClassVar[str] = "rig.setup.failed"
    codon_id: CodonId
    failure_type: Literal["command_failed", "timeout", "other"]
    ignored: bool
    exit_code: int | None = None
    command_index: int | None = None
    message: str | None = None


class RigOutput(EventData):
    TYPE: ClassVar[str] = "rig.output"
    codon_id: CodonId
    stream: Literal["stdout", "stderr"]
    line: str
    command_index: int


class CheckCompleted(EventData):
    """A check of a codon has ended."""

    TYPE: ClassVar[str] = "check.completed"
    codon_id: CodonId
    check_index: int
    command: str
    passed: bool
    duration_ms: int
    output: str
    """The end of its output on stdout and stderr."""
    exit_code: int | None = None
    """Null if it timed out or could not be started."""
    message: str | None = None
    """Why it failed."""
    ignored: bool = False
    """True if the hank allows it to fail."""


class LoopIterationCompleted(EventData):
    TYPE: ClassVar[str] = "loop.iteration.completed"
    loop_id: str
    iteration: int
    duration_ms: int
    cost_usd: float
    tokens_used: int
    is_final: bool
    termination_reason: Literal["iteration_limit", "context_exceeded", "budget_exceeded"] | None = (
        None
    )


class FailedPath(Value):
    path: str
    error: str


class ArchiveCompleted(EventData):
    TYPE: ClassVar[str] = "archive.completed"
    codon_id: CodonId
    archived_paths: tuple[str, ...]


class ArchivePartial(EventData):
    TYPE: ClassVar[str] = "archive.partial"
    codon_id: CodonId
    archived_paths: tuple[str, ...]
    failed_paths: tuple[FailedPath, ...]


class BudgetFigures(Value):
    max_dollars: float | None = None
    max_time_seconds: float | None = None
    max_output_tokens: int | None = None


class SpentFigures(Value):
    dollars: float
    time_seconds: float
    output_tokens: int


class BudgetRow(Value):
    codon_id: CodonId
    status: Literal["completed", "failed", "skipped", "exceeded", "running"]
    budget: BudgetFigures
    actual: SpentFigures
    loop_context: LoopContext | None = None


class BudgetTotals(Value):
    actual_dollars: float
    actual_time_seconds: float
    budget_dollars: float | None = None


class BudgetSummary(EventData):
    TYPE: ClassVar[str] = "budget.summary"
    ceiling: BudgetFigures
    allocation: str
    rows: tuple[BudgetRow, ...]
    totals: BudgetTotals


# --- sentinels ----------------------------------------------------------------------------------


class SentinelLoaded(EventData):
    TYPE: ClassVar[str] = "sentinel.loaded"
    sentinel_id: str
    codon_id: CodonId
    model: str
    trigger_type: Literal["event", "sequence"]
    execution_strategy: str
    conversational: bool
    source: Literal["file", "inline"]
    source_path: str | None = None


class SentinelUnloaded(EventData):
    TYPE: ClassVar[str] = "sentinel.unloaded"
    sentinel_id: str
    codon_id: CodonId
    reason: Literal["codon-complete", "fatal-error", "consecutive-failures", "shutdown"]
    final_cost: float
    llm_call_count: int
    error_type: Literal["template", "configuration", "corruption", "resource"] | None = None


class SentinelError(EventData):
    TYPE: ClassVar[str] = "sentinel.error"
    sentinel_id: str
    codon_id: CodonId
    error_type: Literal[
        "llm-call-failed",
        "template-render-failed",
        "file-write-failed",
        "triggers-dropped",
        "history-damaged",
        "trigger-failed",
    ]
    """The first three are Hankweave's."""
    message: str
    retriable: bool
    consecutive_failure_count: int
    dropped: int = 0
    """Number of dropped triggers; Hankweave only logs them."""


class SentinelOutput(EventData):
    TYPE: ClassVar[str] = "sentinel.output"
    sentinel_id: str
    codon_id: CodonId
    trigger_number: int
    output_type: Literal["text", "structured"]
    content: str | dict[str, object] | list[object]
    cost: float
    tokens: dict[str, int]
    event_count: int


class SentinelTriggered(EventData):
    TYPE: ClassVar[str] = "sentinel.triggered"
    sentinel_id: str
    codon_id: CodonId
    trigger_number: int
    strategy: str
    event_count: int
    queue_size: int


# --- checkpoints and rollback -------------------------------------------------------------------


class ListedCheckpoint(Value):
    """A checkpoint in `checkpoint.list`: Hankweave's fields, then the fields of this server."""

    codon_id: CodonId | None
    codon_name: str
    checkpoint_type: CheckpointKind
    sha: Sha
    status: str | None
    timestamp: str
    label: str | None = None
    partial: bool = False
    coordinate: Coordinate | None = None


class CheckpointList(EventData):
    """Hankweave's reply to `checkpoint.list`, sent to all clients."""

    TYPE: ClassVar[str] = "checkpoint.list"
    run_id: RunId | None
    checkpoints: tuple[ListedCheckpoint, ...]
    current_branch: str | None


class CheckpointPartial(EventData):
    """A checkpoint is incomplete; a rollback to it leaves the missing files unchanged."""

    TYPE: ClassVar[str] = "checkpoint.partial"
    checkpoint: Coordinate
    skipped: tuple[SkippedFile, ...]
    """The first of them: at most 200, and fewer if paths are long."""
    skipped_total: int | None = None
    """Number of skipped files, if not all are listed."""


class SecretInFile(Value):
    """A secret in a file of a checkpoint; its value is not told."""

    path: str
    rule: str
    """The format of the key, such as `github-token`, or the name of the variable with the value."""
    line: int


class CheckpointSecret(EventData):
    """A checkpoint holds secrets in files that are new in it, or new in their content.

    The checkpoint is exact all the same. `hankweave redact` removes a secret from all checkpoints.
    """

    TYPE: ClassVar[str] = "checkpoint.secret"
    checkpoint: Coordinate
    secrets: tuple[SecretInFile, ...]
    """The first of them: at most 200, and fewer if paths are long."""
    total: int
    """Number of secrets; of a long file, only the first MiB is examined."""


class CheckpointPinned(EventData):
    """A checkpoint was pinned or unpinned."""

    TYPE: ClassVar[str] = "checkpoint.pinned"
    checkpoint_sha: Sha
    pinned: bool
    name: str | None = None


class CheckpointPruned(EventData):
    """Checkpoints were pruned; the events about them stay in the journal."""

    TYPE: ClassVar[str] = "checkpoint.pruned"
    checkpoints: tuple[Sha, ...]
    recovered: bool = False
    """True if a crash kept the server that pruned them from recording it."""
    lost: bool = False
    """True if they were not pruned: some of their objects were lost, and a repair gave them up."""


class StoreRepaired(EventData):
    """Lost objects were restored, or checkpoints with lost objects were given up."""

    TYPE: ClassVar[str] = "store.repaired"
    repair: StoreRepair


class HistoryRedacted(EventData):
    """A secret was removed from the journal, the logs and the checkpoints (`hankweave redact`)."""

    TYPE: ClassVar[str] = "history.redacted"
    operation_id: str
    removed: tuple[str, ...]
    """Names of rules, variables or paths; never a value."""
    events: int
    """Lines of the journal that contained it."""
    files: int
    """Other files of the state directory that contained it or a changed sha."""
    contents: int
    """Different contents in checkpoints."""
    checkpoints: int
    """Checkpoints that held it."""
    renamed: int
    """Checkpoints with a new sha; an old one still finds its checkpoint."""


class StoreConsolidated(EventData):
    """The store's objects were packed together."""

    TYPE: ClassVar[str] = "store.consolidated"
    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    bytes_before: int
    bytes_after: int


class StoreProgress(EventData):
    """Progress of a long operation on checkpoints; only for clients that requested `progress`.

    At most ten a second for each operation, and none for a short operation. Not journaled.
    """

    TYPE: ClassVar[str] = "store.progress"
    JOURNALED: ClassVar[bool] = False
    operation: StoreOperation
    operation_id: str
    """The same in all events of one operation."""
    phase: str
    """The name of the current phase; an operation has several, one after the other."""
    done: int
    """Of this phase."""
    total: int | None
    """Null while it is unknown."""
    unit: ProgressUnit
    command_id: CommandId | None = None
    """The command that requested it; null if the server started it by itself."""
    ended: bool = False
    """True in the last event; the result is in the reply and the journal."""


class RollbackStarted(EventData):
    TYPE: ClassVar[str] = "rollback.started"
    from_run: RunId
    from_codon: CodonId | None
    to_codon: CodonId | None
    to_checkpoint: Sha
    checkpoint_type: str
    codons_to_process: tuple[CodonId, ...]
    source: Coordinate | None = None
    target: Coordinate | None = None
    recovered: bool = False


class RollbackProgress(EventData):
    TYPE: ClassVar[str] = "rollback.progress"
    current_step: int
    total_steps: int
    message: str


class RollbackCodonCheckpoint(EventData):
    TYPE: ClassVar[str] = "rollback.codonCheckpoint"
    codon_id: CodonId | None
    codon_name: str
    checkpoint: Sha
    checkpoint_type: str
    message: str


class FailedDirectory(Value):
    directory: str
    error: str


class RollbackRigCleanup(EventData):
    TYPE: ClassVar[str] = "rollback.rigCleanup"
    codon_id: CodonId
    codon_name: str
    directories: tuple[str, ...]
    status: Literal["started", "completed", "partial", "failed"]
    successful_cleanups: tuple[str, ...] | None = None
    failed_cleanups: tuple[FailedDirectory, ...] | None = None
    error: str | None = None


class RollbackArchiveRestore(EventData):
    TYPE: ClassVar[str] = "rollback.archiveRestore"
    codon_id: str
    """The target's sha, as in Hankweave."""
    restored_paths: tuple[str, ...]
    status: Literal["completed", "partial", "failed"]
    failed_paths: tuple[FailedPath, ...] | None = None


class RollbackCompleted(EventData):
    TYPE: ClassVar[str] = "rollback.completed"
    from_run: RunId
    to_run: RunId
    checkpoint: Sha
    codon_id: CodonId | None
    codon_name: str
    checkpoint_type: str
    auto_restart: bool
    report: RollbackReport | None = None
    operation_id: str | None = None
    direction: Movement = "back"
    reason: str | None = None
    exceptions: int = 0
    """The number of paths that could not be restored; see `report.cannotRestore`."""


class CheckpointRollback(EventData):
    """Files were restored from a checkpoint (seed 004, steps 3.7 and 5).

    A rollback of the whole execution sends it before `rollback.completed`, which has the report.
    """

    TYPE: ClassVar[str] = "checkpoint.rollback"
    operation_id: str
    checkpoint: Sha
    source: Coordinate | None
    target: Coordinate
    paths: tuple[str, ...] | None
    """The paths it was limited to; null for the whole work tree."""
    report: RollbackReport | None
    """Null if `rollback.completed` with the same operation id follows: it has the report."""
    direction: Movement = "back"
    reason: str | None = None
    exceptions: int = 0
    """The number of paths that could not be restored."""


class RollbackTold(EventData):
    """An agent got the message about a rollback (seed 004, step 3.2)."""

    TYPE: ClassVar[str] = "rollback.told"
    operation_id: str
    codon_id: CodonId
    target: Coordinate
    text: str
    """The message."""
    how: Literal["prompt", "live"]
    """With the prompt of a starting codon, or while a codon is running."""


class RollbackFailed(EventData):
    """A rollback has begun but could not finish: the disk is full, or it was given up."""

    TYPE: ClassVar[str] = "rollback.failed"
    target: Coordinate
    message: str


class WorkspaceInvalidated(EventData):
    """Files changed; a client that keeps an index of them must refresh it (seed 004, step 5)."""

    TYPE: ClassVar[str] = "workspace.invalidated"
    paths: tuple[str, ...]
    """The first of them: at most 200, and fewer if paths are long."""
    reason: Literal["rollback", "branch"]
    total: int | None = None
    """Number of changed files, if not all are listed; then a client must refresh everything."""


class ExecutionOrigin(EventData):
    """The first event of a branch; the transitions up to its first run come from its origin."""

    TYPE: ClassVar[str] = "execution.origin"
    execution_path: str
    coordinate: Coordinate
    """In the journal of that execution."""
    run_id: RunId
    """The first run of the branch itself."""


class ExecutionBranched(EventData):
    """A new execution was made from a checkpoint of this one."""

    TYPE: ClassVar[str] = "execution.branched"
    execution_path: str
    run_id: RunId
    """The first run of the new execution itself."""
    coordinate: Coordinate
    recovered: bool = False
    """True if a crash kept this from being recorded when it happened."""


class ExplorationStarted(EventData):
    """An exploration was recorded; its attempts are made and started next."""

    TYPE: ClassVar[str] = "exploration.started"
    exploration: Exploration


class AttemptEnded(EventData):
    """An attempt has ended; its result, if it has one, is a timeline of this execution."""

    TYPE: ClassVar[str] = "exploration.attemptEnded"
    exploration_id: str
    attempt: AttemptRecord


class ExplorationEnded(EventData):
    """No attempt of an exploration runs or waits any more."""

    TYPE: ClassVar[str] = "exploration.ended"
    exploration_id: str
    best: str | None = None
    """The id of the attempt to adopt; null if none has succeeded."""


# --- one client ---------------------------------------------------------------------------------


class Pong(EventData):
    TYPE: ClassVar[str] = "pong"
    JOURNALED: ClassVar[bool] = False
    message: str
    timestamp: str
    client_id: ClientId | None = None


class HistoryBatch(EventData):
    TYPE: ClassVar[str] = "history.batch"
    JOURNALED: ClassVar[bool] = False
    events: tuple[msgspec.Raw, ...]
    has_more: bool


class IncompleteCodon(EventData):
    """The newest codon has no end, because the server died while it was running."""

    TYPE: ClassVar[str] = "incomplete.codon"
    JOURNALED: ClassVar[bool] = False
    codon_id: CodonId
    codon_name: str
    status: str
    run_id: RunId
    run_status: RunStatus


EVENTS: Registry[EventData] = Registry(
    ServerReady,
    ServerIdle,
    ServerStarted,
    ServerStopping,
    ServerDegraded,
    ServerRecovered,
    ServerResumed,
    ClockJumped,
    JournalRepaired,
    StateRecovered,
    HankChanged,
    HistoryIdentified,
    DataChanged,
    Info,
    ErrorEvent,
    StateSnapshot,
    StateTransition,
    CodonStartedEvent,
    CodonCompletedEvent,
    CodonExtended,
    CodonRetrying,
    CodonWaiting,
    CodonResumed,
    CodonWarning,
    AgentConfined,
    AssistantAction,
    ToolResult,
    PermissionRequested,
    PermissionResolved,
    TokenUsage,
    FileUpdated,
    FilesChanged,
    FiletreeUpdated,
    AgentOutput,
    RigSetupCompleted,
    RigSetupFailed,
    RigOutput,
    CheckCompleted,
    LoopIterationCompleted,
    ArchiveCompleted,
    ArchivePartial,
    BudgetSummary,
    SentinelLoaded,
    SentinelUnloaded,
    SentinelError,
    SentinelOutput,
    SentinelTriggered,
    CheckpointList,
    CheckpointPartial,
    CheckpointSecret,
    CheckpointPinned,
    CheckpointPruned,
    StoreRepaired,
    HistoryRedacted,
    StoreConsolidated,
    StoreProgress,
    RollbackStarted,
    RollbackProgress,
    RollbackCodonCheckpoint,
    RollbackRigCleanup,
    RollbackArchiveRestore,
    RollbackCompleted,
    CheckpointRollback,
    RollbackTold,
    RollbackFailed,
    WorkspaceInvalidated,
    ExecutionOrigin,
    ExecutionBranched,
    ExplorationStarted,
    AttemptEnded,
    ExplorationEnded,
    Pong,
    HistoryBatch,
    IncompleteCodon,
)
