"""What happens, as clients and the journal see it.

Type names and payload names are Hankweave's where it has the event. An event that is `JOURNALED`
has a seq and goes to every client in journal order; the others answer one client and are forgotten.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

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
    """0, and not written, for an event that is not journaled."""
    timestamp: str
    type: str
    data: EventData
    run_id: RunId | None = None
    codon_id: CodonId | None = None
    causes: tuple[int | str, ...] = ()
    """Seqs of the events, or the id of the command, that led to this one."""


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
    """Where output files are copied, if anywhere."""


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
    """A server took over the directory; it says what it found of the one before (DESIGN 6)."""

    TYPE: ClassVar[str] = "server.started"
    server_version: str
    pid: int
    previous_pid: int | None = None
    previous_heartbeat_age_ms: int | None = None
    previous_pid_reused: bool = False
    leftover_agents_killed: tuple[int, ...] = ()
    leftovers_removed: tuple[str, ...] = ()
    """Lock and temporary files of the shadow repository that a crash left behind."""
    containment: Literal["cgroup", "subreaper"] | None = None
    """What holds an agent's processes together: a control group of its own, or its keeper alone."""


class ServerStopping(EventData):
    TYPE: ClassVar[str] = "server.stopping"
    reason: str


class ServerDegraded(EventData):
    """The server stays up with a problem; told at once, without a seq where the disk is at fault.

    On record it comes with the next line that the disk takes.
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
    """When the problem began."""


class ServerResumed(EventData):
    """Nothing of the server ran for a while: the machine slept, or the process was stopped."""

    TYPE: ClassVar[str] = "server.resumed"
    suspended_seconds: float
    cause: Literal["suspended", "stopped"]


class ClockJumped(EventData):
    """Somebody set the wall clock: the stamps before this event and after it do not compare."""

    TYPE: ClassVar[str] = "clock.jumped"
    seconds: float
    direction: Literal["forward", "back"]


class JournalRepaired(EventData):
    """A torn last line was cut off; its bytes were kept in a file beside the journal."""

    TYPE: ClassVar[str] = "journal.repaired"
    quarantine: str
    bytes: int


class StateRecovered(EventData):
    """state.json was not simply read: where the state came from and what was wrong with it."""

    TYPE: ClassVar[str] = "state.recovered"
    source: Literal["primary", "backup", "journal", "repository", "fresh"]
    errors: tuple[ValidationError, ...]
    warnings: tuple[ValidationWarning, ...]
    kept: tuple[str, ...] = ()
    """Names under which the unreadable originals were kept."""


class HankChanged(EventData):
    """hank.json is not the one this execution began with (seed 001, hankHash)."""

    TYPE: ClassVar[str] = "hank.changed"
    previous_hash: str
    current_hash: str


class DataChanged(EventData):
    """The execution was given other data than it was made for, because a person forced it."""

    TYPE: ClassVar[str] = "data.changed"
    previous_hash: str | None
    current_hash: str
    previous_path: str | None
    current_path: str


class Info(EventData):
    TYPE: ClassVar[str] = "info"
    message: str


class ErrorEvent(EventData):
    """Something went wrong for everybody; a client's own mistake is answered to it alone."""

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
    """Of files alone."""


class FileAccess(Value):
    path: str
    timestamp: str


class StateSnapshot(EventData):
    TYPE: ClassVar[str] = "state.snapshot"
    completed_codons: tuple[CodonExecution, ...]
    """Terminal codons of the execution thread, newest first, failed and skipped ones included; the
    newest hundred."""
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
    """One change of the state; state.json is the fold of all of these (DESIGN 5)."""

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
    """The agent reported its session: the codon runs."""

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
    """A codon came to its end, whatever the end was."""

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
    """Ours: true where a person skipped it, which Hankweave's event does not say."""
    condition: str | None = None
    """Ours: the condition that did not hold, where it was skipped for that."""
    captured: Captured | None = None
    """Ours: what the codons after it may refer to."""
    warnings: tuple[str, ...] = ()
    """Ours: the messages of its `codon.warning` events."""


class CodonExtended(EventData):
    TYPE: ClassVar[str] = "codon.extended"
    codon_id: CodonId
    codon_name: str
    extension_number: int
    exhaust_with_prompt: str
    cumulative_tokens: int
    """Input and output tokens together. Hankweave's event has the four counts here; clients without
    `protocolVersion` get these (`reference`)."""
    cumulative_cost: float
    tokens: Tokens | None = None
    """The four counts; absent in journals of earlier versions."""


class CodonRetrying(EventData):
    """A codon failed and will be tried again, from the files that the attempt began with."""

    TYPE: ClassVar[str] = "codon.retrying"
    codon_id: CodonId
    attempt: int
    """The number of the attempt that comes next."""
    max_attempts: int
    delay_ms: int
    failure_reason: FailureReason


class CodonWarning(EventData):
    """Ours: a codon is completed, and something about its work should be looked at."""

    TYPE: ClassVar[str] = "codon.warning"
    codon_id: CodonId
    kind: Literal["tools-refused"]
    """`tools-refused`: every tool with which the agent could have done its work was refused."""
    message: str
    """For people, with what to do."""
    tools: tuple[str, ...] = ()
    """The names of the tools that it is about."""


class AssistantAction(EventData):
    TYPE: ClassVar[str] = "assistant.action"
    codon_id: CodonId
    action: Literal["thinking", "message", "tool_use"]
    content: str
    tool_name: str | None = None
    tool_input: dict[str, object] | None = None
    tool_use_id: str | None = None
    external: bool = False
    """The call reaches outside the work tree: no rollback takes its effects back."""


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
    """An agent waits for leave to call a tool; `permission.answer` gives or refuses it."""

    TYPE: ClassVar[str] = "permission.requested"
    codon_id: CodonId
    request_id: str
    tool_name: str
    tool_input: dict[str, object]
    expires_at: str
    """When it is answered for want of an answer."""
    reason: str
    """Why somebody has to say."""


class PermissionResolved(EventData, kw_only=True):
    """A call was allowed or denied; on the disk before the agent is told."""

    TYPE: ClassVar[str] = "permission.resolved"
    codon_id: CodonId
    request_id: str
    tool_name: str
    decision: Literal["allow", "deny"]
    by: Literal["policy", "client", "timeout", "ended"]
    """`ended`: the agent, its codon or the server came to an end, or the agent asks no more."""
    client_id: ClientId | None = None
    rule: str | None = None
    """The pattern that decided, or the name of the field that did."""
    message: str | None = None
    """What the agent is told, or why there was no answer."""


class TokenUsage(EventData):
    """Costs in USD: the message's own cost, or with `final` the codon's total."""

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
    """A tracked file changed (Hankweave's version 2 of the event: no content)."""

    TYPE: ClassVar[str] = "file.updated"
    path: str
    filename: str
    action: Literal["created", "modified", "deleted"]
    sha256: str
    """Of the content; empty for a deleted file."""
    bytes: int
    source: FileSource
    codon_id: CodonId | None = None


class FiletreeUpdated(EventData):
    TYPE: ClassVar[str] = "filetree.updated"
    tree: tuple[FileNode, ...]
    omitted: int = 0
    """Files and folders of lower levels that were too many to be shown."""


class AgentOutput(EventData):
    """A line of an agent that speaks plain text, or of its stderr."""

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
    """One of a codon's checks has ended."""

    TYPE: ClassVar[str] = "check.completed"
    codon_id: CodonId
    check_index: int
    command: str
    passed: bool
    duration_ms: int
    output: str
    """The last of what it wrote on stdout and stderr."""
    exit_code: int | None = None
    """None where its time was up or it could not be started."""
    message: str | None = None
    """Why it did not pass."""
    ignored: bool = False
    """True where the hank allows it to fail."""


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
    """Triggers that will never be called for; Hankweave only logs them."""


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
    """Hankweave's five fields, and ours after them."""

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
    """Hankweave's answer to `checkpoint.list`, sent to all."""

    TYPE: ClassVar[str] = "checkpoint.list"
    run_id: RunId | None
    checkpoints: tuple[ListedCheckpoint, ...]
    current_branch: str | None


class CheckpointPartial(EventData):
    """A checkpoint does not hold everything: what it lacks, a rollback to it leaves alone."""

    TYPE: ClassVar[str] = "checkpoint.partial"
    checkpoint: Coordinate
    skipped: tuple[SkippedFile, ...]


class CheckpointPinned(EventData):
    """A person keeps a checkpoint for good, or lets it go."""

    TYPE: ClassVar[str] = "checkpoint.pinned"
    checkpoint_sha: Sha
    pinned: bool
    name: str | None = None


class CheckpointPruned(EventData):
    """Checkpoints are gone; what happened around them stays in the journal."""

    TYPE: ClassVar[str] = "checkpoint.pruned"
    checkpoints: tuple[Sha, ...]
    recovered: bool = False
    """True where a crash kept the server that pruned them from saying so."""
    lost: bool = False
    """True where nobody pruned them: objects of theirs were lost, and a repair gave them up."""


class StoreRepaired(EventData):
    """Objects were written again, or what was lost was taken out of the history."""

    TYPE: ClassVar[str] = "store.repaired"
    repair: StoreRepair


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
    """How far long work on checkpoints is; for clients that asked for `progress`, and no journal.

    At most ten a second for each operation, none of one that is quickly done.
    """

    TYPE: ClassVar[str] = "store.progress"
    JOURNALED: ClassVar[bool] = False
    operation: StoreOperation
    operation_id: str
    """The same for all that is told of one operation."""
    phase: str
    """What is done now, in a word; an operation has several, one after the other."""
    done: int
    """Of this phase."""
    total: int | None
    """None while nobody knows it."""
    unit: ProgressUnit
    command_id: CommandId | None = None
    """The command that asked for it; None where the server does it of itself."""
    ended: bool = False
    """True in the last one; how it ended, the reply and the journal say."""


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


class CheckpointRollback(EventData):
    """Files went back to a checkpoint (seed 004, steps 3.7 and 5).

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
    """Null where `rollback.completed` follows with the same operation id: it has the report."""
    direction: Movement = "back"
    reason: str | None = None


class RollbackTold(EventData):
    """An agent learned that it was rolled back, to where and why (seed 004, step 3.2)."""

    TYPE: ClassVar[str] = "rollback.told"
    operation_id: str
    codon_id: CodonId
    target: Coordinate
    text: str
    """What it was told."""
    how: Literal["prompt", "live"]
    """With the prompt of a codon that begins, or in the middle of one."""


class RollbackFailed(EventData):
    """A rollback that had begun could not finish; the next start redoes it."""

    TYPE: ClassVar[str] = "rollback.failed"
    target: Coordinate
    message: str


class WorkspaceInvalidated(EventData):
    """Files changed under whoever keeps an index of them (seed 004, step 5)."""

    TYPE: ClassVar[str] = "workspace.invalidated"
    paths: tuple[str, ...]
    reason: Literal["rollback", "branch"]


class ExecutionOrigin(EventData):
    """The first event of a branch: whose past the transitions up to its first run are."""

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
    """True where a crash kept this from being told when it happened."""


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
    """The newest codon never came to an end: a server died under it."""

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
    DataChanged,
    Info,
    ErrorEvent,
    StateSnapshot,
    StateTransition,
    CodonStartedEvent,
    CodonCompletedEvent,
    CodonExtended,
    CodonRetrying,
    CodonWarning,
    AssistantAction,
    ToolResult,
    PermissionRequested,
    PermissionResolved,
    TokenUsage,
    FileUpdated,
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
    CheckpointPinned,
    CheckpointPruned,
    StoreRepaired,
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
    Pong,
    HistoryBatch,
    IncompleteCodon,
)
