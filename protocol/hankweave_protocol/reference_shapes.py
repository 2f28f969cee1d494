"""The event shapes of Hankweave 0.12, as a client written for it parses them.

One class per payload, with the fields and the values that its schemas allow and no others; `SHAPES`
maps event types to them. Source: `server/schemas/event-schemas.ts` of hankweave-runtime 0.11 and
0.12 (event schema version 2). `reference` projects events to them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hankweave_protocol.shapes import Value

Count: TypeAlias = int | float
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Instant: TypeAlias = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$")]

ListedKind: TypeAlias = Literal["rig-setup", "completed", "error", "skipped"]
"""The checkpoints that Hankweave lists: those that a codon's record names."""

IdleReason: TypeAlias = Literal[
    "startup", "codon-completed", "all-codons-completed", "rollback-completed"
]
FailureType: TypeAlias = Literal[
    "timeout", "rate-limit", "api-error", "sentinel-load-failure", "unknown"
]
LoopEnd: TypeAlias = Literal["iteration_limit", "context_exceeded", "sentinel_skip", "failure"]
SentinelErrorType: TypeAlias = Literal[
    "llm-call-failed", "template-render-failed", "file-write-failed"
]
TransitionType: TypeAlias = Literal[
    "RunStarted",
    "RunCompleted",
    "RunFailed",
    "RunCrashed",
    "CodonStarted",
    "CodonTransitioned",
    "CostsUpdated",
    "CostsIncremented",
    "AssistantMessageCountUpdated",
    "ExtensionCountUpdated",
    "CheckpointCreated",
    "InitialCheckpointSet",
    "CodonFinalCostSet",
    "SentinelStatesUpdated",
]
Status: TypeAlias = Literal[
    "preparing",
    "starting",
    "initializing",
    "running",
    "completing-sentinels",
    "completed",
    "failed",
    "skipped",
]
Strategy: TypeAlias = Literal["immediate", "debounce", "count", "timeWindow"]
Restored: TypeAlias = Literal["completed", "partial", "failed"]


class Success(Value, tag_field="type", tag="success"):
    pass


class Error(Value, tag_field="type", tag="error"):
    code: int


class Killed(Value, tag_field="type", tag="killed"):
    signal: str


ExitStatus: TypeAlias = Success | Error | Killed


class FailureReason(Value):
    type: FailureType
    retriable: bool
    message: str | None = None
    sentinel_refs: list[str] | None = None
    retry_after_ms: Count | None = None


class BudgetExceeded(Value):
    currency: Literal["cost", "outputTokens", "contextTokens", "duration"]
    limit: Count
    used: Count


class Tokens(Value):
    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int


class Node(Value):
    name: str
    path: str
    is_directory: bool
    children: list[Node]
    last_modified: str | None = None


class CodonExecution(Value):
    codon_id: str
    status: Status
    start_time: str
    codon_name: str | None = None
    end_time: str | None = None
    session_id: str | None = None
    previous_session_id: str | None = None
    claude_session_id: str | None = None
    token_usage: Tokens | None = None
    cost: Count | None = None
    duration: Count | None = None
    exit_status: ExitStatus | None = None
    failure_reason: FailureReason | None = None
    description: str | None = None
    final_cost: Count | None = None
    partial_cost: Count | None = None
    current_cost: Count | None = None
    completion_checkpoint: str | None = None
    rig_setup_checkpoint: str | None = None
    error_checkpoint: str | None = None
    skip_checkpoint: str | None = None


class ServerReady(Value):
    server_version: str
    execution_path: str
    agent_root_path: str
    data_path: str
    port: int
    output_directory: str | None = None


class ServerIdle(Value):
    reason: IdleReason
    message: str


class StateSnapshot(Value):
    completed_codons: list[CodonExecution]
    file_tree: list[Node]
    total_cost: Count
    total_time: Count
    is_rolling_back: bool
    current_codon: CodonExecution | None = None


class TransitionBody(Value):
    type: str
    data: dict[str, Any]


class ResultingState(Value):
    current_run_id: str | None
    run_count: int
    total_cost: Count
    current_run_cost: Count


class StateTransition(Value):
    transition_type: TransitionType
    transition: TransitionBody
    resulting_state: ResultingState
    run_id: str | None = None
    codon_id: str | None = None


class PromptMetadata(Value):
    name: str | None = None
    description: str | None = None
    tags: list[str] | None = None
    version: str | None = None
    author: str | None = None


class CodonStarted(Value):
    codon_id: str
    codon_name: str
    session_id: str
    start_time: Instant
    codon_description: str | None = None
    previous_session_id: str | None = None
    prompt_metadata: PromptMetadata | None = None


class CodonCompleted(Value):
    codon_id: str
    success: bool
    cost: Count
    duration: Count
    exit_status: ExitStatus
    failure_reason: FailureReason | None = None
    failure_ignored: bool | None = None
    budget_exceeded: BudgetExceeded | None = None


class CodonExtended(Value):
    codon_id: str
    codon_name: str
    extension_number: Annotated[int, Meta(ge=1)]
    exhaust_with_prompt: str
    cumulative_tokens: Tokens
    cumulative_cost: Count


class AssistantAction(Value):
    codon_id: str
    action: Literal["thinking", "message", "tool_use"]
    content: str
    tool_name: str | None = None
    tool_input: dict[str, msgspec.Raw] | None = None
    tool_use_id: str | None = None

    def __post_init__(self) -> None:
        """Require an id for a tool call, because other events refer to it."""
        if self.action == "tool_use" and (not self.tool_use_id or self.tool_name is None):
            raise ValueError("a call of a tool needs toolName and toolUseId")


class ToolResult(Value):
    codon_id: str
    tool_use_id: str
    tool_name: str
    result: str
    truncated: bool
    original_length: int
    execution_time_ms: Count
    is_error: bool


class ModelUsage(Value):
    input_tokens: int
    output_tokens: int
    cost_usd: Count = msgspec.field(name="costUSD")
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class TokenUsage(Value):
    codon_id: str
    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int
    total_cost: Count
    model_id: str | None = None
    model_usage: dict[str, ModelUsage] | None = None


class ByTool(Value, tag_field="kind", tag="tool_use"):
    tool_use_id: str


class AtStart(Value, tag_field="kind", tag="codon-start"):
    pass


class FileUpdated(Value):
    path: str
    filename: str
    action: Literal["created", "modified", "deleted"]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Natural
    source: ByTool | AtStart


class FiletreeUpdated(Value):
    tree: list[Node]


class RigSetupCompleted(Value):
    codon_id: str
    rig_type: Literal["command", "commands"]
    command_count: Natural
    duration_ms: Count
    created_checkpoint: bool


class RigSetupFailed(Value):
    codon_id: str
    failure_type: Literal["command_failed", "timeout", "other"]
    ignored: bool
    exit_code: int | None = None
    command_index: Natural | None = None


class RigOutput(Value):
    codon_id: str
    stream: Literal["stdout", "stderr"]
    line: str
    command_index: Natural


class LoopIterationCompleted(Value):
    loop_id: str
    iteration: Natural
    duration_ms: Count
    cost_usd: Count
    tokens_used: Count
    is_final: bool
    termination_reason: LoopEnd | None = None


class FailedPath(Value):
    path: str
    error: str


class ArchiveCompleted(Value):
    codon_id: str
    archived_paths: list[str]


class ArchivePartial(Value):
    codon_id: str
    archived_paths: list[str]
    failed_paths: list[FailedPath]


class LoopPlace(Value):
    loop_id: str
    iteration: int
    codon_index_in_loop: int


class Ceiling(Value):
    max_dollars: Count | None = None
    max_time_seconds: Count | None = None


class Budget(Ceiling):
    max_output_tokens: Count | None = None


class Spent(Value):
    dollars: Count
    time_seconds: Count
    output_tokens: int


class BudgetRow(Value):
    codon_id: str
    status: Literal["completed", "failed", "skipped", "exceeded", "running"]
    budget: Budget
    actual: Spent
    loop_context: LoopPlace | None = None


class BudgetTotals(Value):
    actual_dollars: Count
    actual_time_seconds: Count
    budget_dollars: Count | None = None


class BudgetSummary(Value):
    ceiling: Ceiling
    allocation: Literal["shared", "proportional", "proportional-strict"]
    rows: list[BudgetRow]
    totals: BudgetTotals


class ErrorEvent(Value):
    message: str
    fatal: bool
    codon: str | None = None
    severity: Literal["fatal", "codon", "operation", "warning"] | None = None
    context: str | None = None
    code: str | None = None


class Info(Value):
    message: str


class ListedCheckpoint(Value):
    codon_id: str
    codon_name: str
    checkpoint_type: ListedKind
    sha: str
    status: Status
    timestamp: str


class CheckpointList(Value):
    run_id: str
    checkpoints: list[ListedCheckpoint]
    current_branch: str


class RollbackStarted(Value):
    from_run: str
    from_codon: str
    to_codon: str
    to_checkpoint: str
    checkpoint_type: str
    codons_to_process: list[str]


class RollbackProgress(Value):
    current_step: int
    total_steps: int
    message: str


class RollbackCodonCheckpoint(Value):
    codon_id: str
    codon_name: str
    checkpoint: str
    checkpoint_type: str
    message: str


class FailedDirectory(Value):
    directory: str
    error: str


class RollbackRigCleanup(Value):
    codon_id: str
    codon_name: str
    directories: list[str]
    status: Literal["started", "completed", "partial", "failed"]
    successful_cleanups: list[str] | None = None
    failed_cleanups: list[FailedDirectory] | None = None
    error: str | None = None


class RollbackArchiveRestore(Value):
    codon_id: str
    restored_paths: list[str]
    status: Restored
    failed_paths: list[FailedPath] | None = None


class RollbackCompleted(Value):
    from_run: str
    to_run: str
    checkpoint: str
    codon_id: str
    codon_name: str
    checkpoint_type: str
    auto_restart: bool


class SentinelLoaded(Value):
    sentinel_id: str
    codon_id: str
    model: str
    trigger_type: Literal["event", "sequence"]
    execution_strategy: Strategy
    conversational: bool
    source: Literal["file", "inline"]
    source_path: str | None = None


class SentinelUnloaded(Value):
    sentinel_id: str
    codon_id: str
    reason: Literal["codon-complete", "fatal-error", "consecutive-failures", "shutdown"]
    final_cost: Count
    llm_call_count: int
    error_type: Literal["template", "configuration", "corruption", "resource"] | None = None


class SentinelError(Value):
    sentinel_id: str
    codon_id: str
    error_type: SentinelErrorType
    message: str
    retriable: bool
    consecutive_failure_count: int


class SentinelTokens(Value):
    input: int
    output: int


class SentinelOutput(Value):
    sentinel_id: str
    codon_id: str
    trigger_number: int
    output_type: Literal["text", "structured"]
    content: str | dict[str, Any]
    cost: Count
    tokens: SentinelTokens
    event_count: int


class SentinelTriggered(Value):
    sentinel_id: str
    codon_id: str
    trigger_number: int
    strategy: Strategy
    event_count: int
    queue_size: int


class Pong(Value):
    message: str
    timestamp: str
    client_id: str | None = None


class HistoryBatch(Value):
    events: list[Any]
    has_more: bool


class IncompleteCodon(Value):
    codon_id: str
    codon_name: str
    message: str


SHAPES: dict[str, type[Value]] = {
    "archive.completed": ArchiveCompleted,
    "archive.partial": ArchivePartial,
    "assistant.action": AssistantAction,
    "budget.summary": BudgetSummary,
    "checkpoint.list": CheckpointList,
    "codon.completed": CodonCompleted,
    "codon.extended": CodonExtended,
    "codon.started": CodonStarted,
    "error": ErrorEvent,
    "file.updated": FileUpdated,
    "filetree.updated": FiletreeUpdated,
    "history.batch": HistoryBatch,
    "incomplete.codon": IncompleteCodon,
    "info": Info,
    "loop.iteration.completed": LoopIterationCompleted,
    "pong": Pong,
    "rig.output": RigOutput,
    "rig.setup.completed": RigSetupCompleted,
    "rig.setup.failed": RigSetupFailed,
    "rollback.archiveRestore": RollbackArchiveRestore,
    "rollback.codonCheckpoint": RollbackCodonCheckpoint,
    "rollback.completed": RollbackCompleted,
    "rollback.progress": RollbackProgress,
    "rollback.rigCleanup": RollbackRigCleanup,
    "rollback.started": RollbackStarted,
    "sentinel.error": SentinelError,
    "sentinel.loaded": SentinelLoaded,
    "sentinel.output": SentinelOutput,
    "sentinel.triggered": SentinelTriggered,
    "sentinel.unloaded": SentinelUnloaded,
    "server.idle": ServerIdle,
    "server.ready": ServerReady,
    "state.snapshot": StateSnapshot,
    "state.transition": StateTransition,
    "token.usage": TokenUsage,
    "tool.result": ToolResult,
}
