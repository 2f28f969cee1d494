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
    ReusedResult,
    RunStatus,
    Tokens,
)


class EventData(Typed):
    """The `data` of an event."""

    JOURNALED: ClassVar[bool] = True


class Event(Value, kw_only=True):
    """One line of the journal, and one frame on the wire."""

    id: str
    """A UUID."""
    seq: EventSeq = EventSeq(0)
    """0, and omitted, for an event that is not journaled."""
    timestamp: str
    type: str
    """The event."""
    data: EventData
    run_id: RunId | None = None
    """The run that it concerns, if known."""
    codon_id: CodonId | None = None
    """The codon that it concerns, if known."""
    causes: tuple[int | str, ...] = ()
    """Seqs of the events, or the id of the command, that caused this one."""


# --- the server ---------------------------------------------------------------------------------


class ServerReady(EventData):
    """The first event of a connection, for this client alone.

    `hankweave run --json` prints it, too, without `id` and `timestamp`.
    """

    TYPE: ClassVar[str] = "server.ready"
    JOURNALED: ClassVar[bool] = False
    server_version: str
    execution_path: str
    agent_root_path: str
    """The work tree."""
    data_path: str | None
    """The data, as agents see it; null if there is none."""
    port: int
    url: str
    """The address of the server."""
    current_run_id: RunId | None = None
    last_event_seq: int = 0
    """The `seq` of the newest event."""
    output_directory: str | None = None
    """The directory that output files are copied to, if any."""
    page_url: str | None = None
    """The address of the page, as people open it, without a slash at its end."""


class ServerIdle(EventData):
    """Nothing runs until the next command.

    A plan whose last codon was skipped by a person ends with `codon-completed`. After `startup` and
    `rollback-completed` the plan may continue by itself.
    """

    TYPE: ClassVar[str] = "server.idle"
    reason: Literal[
        "startup",
        "codon-completed",
        "codon-failed",
        "all-codons-completed",
        "rollback-completed",
        "stopped",
    ]
    """Why nothing runs."""
    message: str


class ServerStarted(EventData):
    """A server has started on the directory; the fields describe what the last one left."""

    TYPE: ClassVar[str] = "server.started"
    server_version: str
    pid: int
    previous_pid: int | None = None
    """The process id of a server that had died."""
    previous_heartbeat_age_ms: int | None = None
    """How old its last heartbeat was."""
    previous_pid_reused: bool = False
    """Whether another process has that id now."""
    leftover_agents_killed: tuple[int, ...] = ()
    """The process ids of its agents, which were killed."""
    leftovers_removed: tuple[str, ...] = ()
    """Lock and temporary files in the shadow repository, left by a crash."""
    containment: Literal["cgroup", "subreaper"] | None = None
    """How an agent's processes are contained: by a control group, or by its keeper alone."""


class ServerStopping(EventData):
    """The server begins to stop in order."""

    TYPE: ClassVar[str] = "server.stopping"
    reason: str


class ServerDegraded(EventData):
    """The server continues with a problem.

    If the journal has to wait because of it, for the disk or for the mirror, it is sent without a
    seq at once, and journaled when the journal can be written to.
    """

    TYPE: ClassVar[str] = "server.degraded"
    code: ProblemCode
    message: str
    since: str


class ServerRecovered(EventData):
    """A problem that `server.degraded` reported is over."""

    TYPE: ClassVar[str] = "server.recovered"
    code: ProblemCode
    message: str
    since: str
    """The time at which the problem began."""


class ServerResumed(EventData):
    """The server did not run for more than five seconds.

    The machine was suspended, or the process was stopped, frozen or starved. Time limits of agents
    exclude this time.
    """

    TYPE: ClassVar[str] = "server.resumed"
    suspended_seconds: float
    """How long the server did not run."""
    cause: Literal["suspended", "stopped"]
    """`suspended`, or `stopped`."""


class ClockJumped(EventData):
    """The wall clock was set by more than two seconds.

    Timestamps before and after are not comparable: use `seq`.
    """

    TYPE: ClassVar[str] = "clock.jumped"
    seconds: float
    """By how much."""
    direction: Literal["forward", "back"]
    """`forward` or `back`."""


class JournalRepaired(EventData):
    """An incomplete last line was cut off; its bytes are kept in a file beside the journal."""

    TYPE: ClassVar[str] = "journal.repaired"
    quarantine: str
    """The file with the removed bytes."""
    bytes: int


class StateRecovered(EventData):
    """state.json could not be used as it was, or disagrees with the other files.

    After a `cost_mismatch` the recomputed value is used, also in `state.json`.
    """

    TYPE: ClassVar[str] = "state.recovered"
    source: Literal["primary", "backup", "journal", "repository", "fresh"]
    """Where the state was taken from."""
    errors: tuple[ValidationError, ...]
    """Faults that made a file unusable."""
    warnings: tuple[ValidationWarning, ...]
    """Disagreements between files."""
    kept: tuple[str, ...] = ()
    """File names of the unreadable originals, which are kept."""


class HankChanged(EventData):
    """hank.json has changed since the last start."""

    TYPE: ClassVar[str] = "hank.changed"
    previous_hash: str
    """The hash before."""
    current_hash: str


HistoryFinding = Literal["moved", "copied", "other-project", "gone", "adopted", "relocated"]
"""What a start can find about the history of a project, besides that it continues."""


class HistoryIdentified(EventData):
    """A start found that the history of a project (`--workspace`) is not just where it was."""

    TYPE: ClassVar[str] = "history.identified"
    finding: HistoryFinding
    """What was found."""
    message: str
    kept_at: str | None = None
    """The folder with another history that was left as it is."""


class DataChanged(EventData):
    """The execution's data was replaced by other data, because of `--force`."""

    TYPE: ClassVar[str] = "data.changed"
    previous_hash: str | None
    """The hash before; null if there was no data."""
    current_hash: str
    previous_path: str | None
    """The path before; null if there was no data."""
    current_path: str
    """The path now."""


class Info(EventData):
    """A remark for people."""

    TYPE: ClassVar[str] = "info"
    message: str
    """The remark."""


class ErrorEvent(EventData):
    """A failure that concerns all clients.

    Without a `seq` it is the client's own mistake, as a client without `protocolVersion` is told
    it.
    """

    TYPE: ClassVar[str] = "error"
    message: str
    fatal: bool
    """Whether the server ends."""
    codon: CodonId | None = None
    severity: Literal["fatal", "codon", "operation", "warning"] | None = None
    """How much it concerns."""
    context: str | None = None
    """The operation or part in which it happened."""
    code: str | None = None


class FileNode(Value):
    """A file or folder of a tree."""

    name: str
    path: str
    is_directory: bool
    """Whether it is a folder."""
    children: tuple[FileNode, ...]
    """The nodes below it."""
    last_modified: str | None = None
    """For files only."""


class FileAccess(Value):
    """A file that was changed recently."""

    path: str
    """The path, relative to the work tree."""
    timestamp: str


class StateSnapshot(EventData):
    """The state of the work, after the handshake, a codon's end and a rollback.

    It is valid up to its `lastEventSeq`; `state.get` has everything.
    """

    TYPE: ClassVar[str] = "state.snapshot"
    completed_codons: tuple[CodonExecution, ...]
    """The newest hundred terminal codons of the execution thread, newest first, including failed
    and skipped ones."""
    file_tree: tuple[FileNode, ...]
    """Empty in this version."""
    total_cost: float
    total_time: int
    """Milliseconds since the server started."""
    is_rolling_back: bool
    current_codon: CodonExecution | None = None
    """The active codon, if any."""
    recent_file_access: FileAccess | None = None
    """Files that were changed recently."""
    current_run_id: RunId | None = None
    next_codon_id: CodonId | None = None
    last_event_seq: int = 0


class TransitionBody(Value):
    type: str
    data: msgspec.Raw
    """A member of `hankweave_protocol.transitions`, still encoded."""


class ResultingState(Value):
    """Sums of the state after a transition."""

    current_run_id: RunId | None
    run_count: int
    """The number of runs."""
    total_cost: float
    current_run_cost: float
    """The cost of the current run, in US dollars."""


class StateTransition(EventData):
    """One change of the state; state.json is the fold of all of these."""

    TYPE: ClassVar[str] = "state.transition"
    transition_type: str
    """The type of the transition."""
    transition: TransitionBody
    """The transition; see files."""
    resulting_state: ResultingState
    """Sums after it."""
    run_id: RunId | None = None
    codon_id: CodonId | None = None


# --- codons -------------------------------------------------------------------------------------


class PromptMetadata(Value):
    """The frontmatter of a prompt file."""

    name: str | None = None
    description: str | None = None
    """For people."""
    tags: tuple[str, ...] = ()
    """Any words."""
    version: str | None = None
    """The version of the prompt."""
    author: str | None = None
    """The author."""


class CodonKeyed(EventData):
    """The inputs of a codon as it begins, after its rig; equal ones lead to the same key.

    `hankweave why` compares them with those of an earlier execution of the codon.
    """

    TYPE: ClassVar[str] = "codon.keyed"
    codon_id: CodonId
    reuse_key: str | None = None
    """A hash of everything that its result depends on; null if that cannot be compared."""
    reason: str | None = None
    """Why there is no key, or why no earlier result was taken over although that was wanted."""
    wanted: bool = False
    """Whether it was to take over an earlier result."""
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    """Short hashes of the inputs, by name; they say what differs, and nothing else."""
    checkpoint_sha: Sha | None = None
    """The checkpoint from which the tracked files differ by `changed`."""
    changed: dict[str, str | None] | None = None
    """Hashes of these files by path, null for a removed one; absent if there are more than 200."""


class CodonStartedEvent(EventData):
    """The agent has reported its session; the codon is running."""

    TYPE: ClassVar[str] = "codon.started"
    codon_id: CodonId
    codon_name: str
    session_id: str
    start_time: str
    codon_description: str | None = None
    """The codon's description."""
    previous_session_id: str | None = None
    prompt_metadata: PromptMetadata | None = None
    """The frontmatter of its first prompt file."""


class ExitStatus(Value):
    """How the process of an agent ended."""

    type: Literal["success", "error", "killed"]
    """How the process ended."""
    code: int | None = None
    """Its exit code."""
    signal: str | None = None
    """The signal that ended the process."""


class CodonCompletedEvent(EventData):
    """A codon has ended, successfully or not."""

    TYPE: ClassVar[str] = "codon.completed"
    codon_id: CodonId
    success: bool
    """Whether it succeeded."""
    cost: float
    """The cost of all its attempts so far, in US dollars."""
    duration: int
    """Milliseconds."""
    exit_status: ExitStatus
    """How its agent ended."""
    failure_reason: FailureReason | None = None
    failure_ignored: bool | None = None
    """Whether `onFailure` lets the plan continue."""
    budget_exceeded: BudgetExceeded | None = None
    skipped: bool | None = None
    """Not in Hankweave: true if a person skipped it."""
    condition: str | None = None
    """Not in Hankweave: the condition, if the codon was skipped because it was false."""
    captured: Captured | None = None
    """Not in Hankweave: the variable that later codons may refer to."""
    warnings: tuple[str, ...] = ()
    """Not in Hankweave: the messages of its `codon.warning` events."""
    reused: ReusedResult | None = None
    """Not in Hankweave: where its result comes from, if it was not run."""


class CodonExtended(EventData):
    """An agent has succeeded, and `exhaustWithPrompt` is sent in its session.

    `cumulativeTokens` is input and output together; `tokens` has the four counts.
    """

    TYPE: ClassVar[str] = "codon.extended"
    codon_id: CodonId
    codon_name: str
    extension_number: int
    """Which extension this is, from 1."""
    exhaust_with_prompt: str
    """The prompt that was sent."""
    cumulative_tokens: int
    """Sum of input and output tokens. Clients without `protocolVersion` get the four counts, as in
    Hankweave."""
    cumulative_cost: float
    """The cost so far, in US dollars."""
    tokens: Tokens | None = None
    """The four counts; absent in journals of earlier versions."""


class CodonRetrying(EventData):
    """A codon has failed and will be retried, with the files restored to the start of the attempt.

    `attempt` is the number of the next one.
    """

    TYPE: ClassVar[str] = "codon.retrying"
    codon_id: CodonId
    attempt: int
    """The number of the next attempt."""
    max_attempts: int
    """How many attempts there are."""
    delay_ms: int
    """The time until then, in milliseconds."""
    failure_reason: FailureReason


class CodonWaiting(EventData):
    """A codon waits for the end of a limit of its provider; not in Hankweave.

    Its files are saved and its agent has ended; the same conversation continues at `until`.
    """

    TYPE: ClassVar[str] = "codon.waiting"
    codon_id: CodonId
    until: str
    """When its conversation continues."""
    reason: Literal["usage", "rate", "overload"]
    """The kind of limit: `usage`, `rate` or `overload`."""
    source: Literal["event", "header", "text", "none", "shared"]
    """As in the state's `wait`."""
    number: int
    """The number of waits in a row without an answer of the model."""
    model: str = ""
    message: str = ""
    """The agent's own words."""


class CodonResumed(EventData):
    """A codon's wait has ended, and its agent starts again; not in Hankweave.

    Its time has come, a client sent `codon.start` or `codon.next`, or another execution with the
    same account got an answer.
    """

    TYPE: ClassVar[str] = "codon.resumed"
    codon_id: CodonId
    by: Literal["time", "command", "other"]
    """Its time has come, a client sent `codon.start`, or another execution of the account found
    that the limit has ended."""
    waited_ms: int
    """How long all waits of the codon have taken."""
    session_id: str | None = None
    """The conversation that continues; null if there is none yet."""


class CodonWarning(EventData):
    """A codon is about to be completed, but its work should be checked; not in Hankweave.

    `tools-refused`: the agent was refused every tool with which it could have worked (`tools`), by
    the hank's permissions, by a person, by time, or by its own mode.
    """

    TYPE: ClassVar[str] = "codon.warning"
    codon_id: CodonId
    kind: Literal["tools-refused"]
    """`tools-refused`: every call of a tool that could have done the work was refused."""
    message: str
    """Text for people, with advice."""
    tools: tuple[str, ...] = ()
    """The names of the tools concerned."""


class AgentConfined(EventData):
    """The sandbox around an agent or a command has refused a path; not in Hankweave.

    It is sent once for each path, at most 20 times for a codon.
    """

    TYPE: ClassVar[str] = "agent.confined"
    codon_id: CodonId
    path: str
    """The path, absolute."""
    operation: Literal["read", "write"]
    """What was tried: `read` or `write`."""
    setting: str | None
    """The line of the hank that would allow it; null if none can."""
    message: str
    """Text for people, with advice."""


class AssistantAction(EventData):
    """An agent thinks, writes, or calls a tool."""

    TYPE: ClassVar[str] = "assistant.action"
    codon_id: CodonId
    action: Literal["thinking", "message", "tool_use"]
    """`thinking`, `message` or `tool_use`."""
    content: str
    """The text, or a summary of the call."""
    tool_name: str | None = None
    tool_input: dict[str, object] | None = None
    tool_use_id: str | None = None
    external: bool = False
    """True if the call may have effects outside the work tree, which no rollback undoes."""


class ToolResult(EventData):
    """A tool has returned."""

    TYPE: ClassVar[str] = "tool.result"
    codon_id: CodonId
    tool_use_id: str
    tool_name: str
    result: str
    """At most 2,500 characters of the result, then `...`."""
    truncated: bool
    """Whether the result was cut."""
    original_length: int
    """Its length in characters."""
    execution_time_ms: int
    """How long the call took."""
    is_error: bool
    """Whether the tool failed."""


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
    suggestion: str | None = None
    """The narrowest useful rule for `always` of `permission.answer`; null if there is none."""
    on_expiry: Literal["deny", "allow"] = "deny"
    """What is decided at `expiresAt`: `deny` or `allow`."""


class PermissionResolved(EventData, kw_only=True):
    """A call was allowed or denied; durable before the agent gets the answer.

    `by` says whether a pattern of the hank (`rule`), a client, the time limit, or the end of the
    agent has decided.
    """

    TYPE: ClassVar[str] = "permission.resolved"
    codon_id: CodonId
    request_id: str
    tool_name: str
    decision: Literal["allow", "deny"]
    """`allow` or `deny`."""
    by: Literal["policy", "client", "timeout", "ended"]
    """`ended`: the agent, its codon or the server ended, or the agent withdrew the request."""
    client_id: ClientId | None = None
    rule: str | None = None
    """The pattern (of the hank, or added by an answer) or the name of the field that decided."""
    message: str | None = None
    """The message to the agent, or the reason for the missing answer."""
    always: str | None = None
    """The rule that the answer has added: it allows calls like this one from now on."""


class TokenUsage(EventData):
    """Tokens and cost in USD of one message or, with `final`, of the whole codon."""

    TYPE: ClassVar[str] = "token.usage"
    codon_id: CodonId
    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int
    total_cost: float
    """The cost, in US dollars; 0 if no price is known."""
    model_id: str | None = None
    """The model, as the provider names it."""
    model_usage: dict[str, object] | None = None
    """Tokens and cost by model, as the agent reports them."""
    final: bool | None = None
    """True for the totals of the codon."""


class FileSource(Value):
    """The source of a change of a file."""

    kind: Literal["tool_use", "codon-start", "codon-end", "rig", "rollback", "person", "archive"]
    """What or who changed the file."""
    tool_use_id: str | None = None


class FileUpdated(EventData):
    """A tracked file has changed, whatever changed it.

    It is version 2 of Hankweave's event, without the content.
    """

    TYPE: ClassVar[str] = "file.updated"
    path: str
    filename: str
    """The name without its folder."""
    action: Literal["created", "modified", "deleted"]
    sha256: str
    """Of the content; empty for a deleted file."""
    bytes: int
    source: FileSource
    """What changed it."""
    codon_id: CodonId | None = None


class ChangedPath(Value):
    """A changed file."""

    path: str
    action: Literal["created", "modified", "deleted"]


class ChangedFolder(Value):
    """A folder, and how many of its files changed."""

    folder: str
    """The folder that directly holds the files; empty for the top of the work tree."""
    files: int
    """How many of its files changed."""


class FilesChanged(EventData):
    """More than 200 tracked files changed at once; sent instead of a `file.updated` for each.

    Not in Hankweave. The encoded event stays below 32 KiB. `checkpoint.diff` lists all files.
    """

    TYPE: ClassVar[str] = "files.changed"
    total: int
    """How many files changed."""
    created: int
    """How many files were created."""
    modified: int
    """How many files were changed."""
    deleted: int
    """How many files were deleted."""
    folders: tuple[ChangedFolder, ...]
    """The folders with the most changed files, at most 20."""
    other_folders: int
    """Number of folders that are not listed."""
    in_other_folders: int
    """Number of changed files in them."""
    paths: tuple[ChangedPath, ...]
    """The first files in the order of their paths: at most 200, and fewer if paths are long."""
    source: FileSource
    """What changed them."""
    codon_id: CodonId | None = None

    @property
    def summary(self) -> str:
        """The numbers of files, for people."""
        named = (("created", self.created), ("modified", self.modified), ("deleted", self.deleted))
        parts = ", ".join(f"{count} {action}" for action, count in named if count)
        return f"{self.total} files changed at once: {parts}"


class FiletreeUpdated(EventData):
    """Tracked files came or went: how they lie now.

    At most 500 of them and 30 KiB, upper levels first. It is sent at a codon's start and end, and
    at most every five seconds in between.
    """

    TYPE: ClassVar[str] = "filetree.updated"
    tree: tuple[FileNode, ...]
    """The folders and files."""
    omitted: int = 0
    """Number of files and folders of lower levels that were left out."""


class AgentOutput(EventData):
    """A line of an agent's plain-text output, or of its stderr."""

    TYPE: ClassVar[str] = "agent.output"
    codon_id: CodonId
    stream: Literal["stdout", "stderr"]
    line: str


class RigSetupCompleted(EventData):
    """The rig of a codon is set up."""

    TYPE: ClassVar[str] = "rig.setup.completed"
    codon_id: CodonId
    rig_type: Literal["command", "commands"]
    """`command`, or `commands` if there are several operations."""
    command_count: int
    """The number of operations."""
    duration_ms: int
    created_checkpoint: bool
    """The checkpoint of the result."""


class RigSetupFailed(EventData):
    """An operation of a rig failed."""

    TYPE: ClassVar[str] = "rig.setup.failed"
    codon_id: CodonId
    failure_type: Literal["command_failed", "timeout", "other"]
    """How it failed."""
    ignored: bool
    """Whether `allowFailure` lets the codon continue."""
    exit_code: int | None = None
    command_index: int | None = None
    message: str | None = None


class RigOutput(EventData):
    """A line of the output of a rig's command, at most 500 characters of it."""

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
    """The position of the check, from 0."""
    command: str
    """The command."""
    passed: bool
    """Whether it passed."""
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
    """An iteration of a loop has ended."""

    TYPE: ClassVar[str] = "loop.iteration.completed"
    loop_id: str
    iteration: int
    duration_ms: int
    cost_usd: float
    """The cost, in US dollars."""
    tokens_used: int
    """The tokens of the iteration, input and output."""
    is_final: bool
    """Whether the loop ends."""
    termination_reason: Literal["iteration_limit", "context_exceeded", "budget_exceeded"] | None = (
        None
    )
    """Why the loop ends."""


class FailedPath(Value):
    """A path that could not be moved."""

    path: str
    error: str


class ArchiveCompleted(EventData):
    """The remains of a codon or loop were moved to `rigArchive`.

    For a loop, `codonId` is its id.
    """

    TYPE: ClassVar[str] = "archive.completed"
    codon_id: CodonId
    archived_paths: tuple[str, ...]


class ArchivePartial(EventData):
    """A part of what a codon or loop left was moved to `rigArchive`; the rest is where it was."""

    TYPE: ClassVar[str] = "archive.partial"
    codon_id: CodonId
    archived_paths: tuple[str, ...]
    failed_paths: tuple[FailedPath, ...]


class BudgetFigures(Value):
    """The limits of a codon."""

    max_dollars: float | None = None
    """US dollars."""
    max_time_seconds: float | None = None
    """Seconds."""
    max_output_tokens: int | None = None
    """Tokens that the agent writes."""


class SpentFigures(Value):
    """The use of one codon."""

    dollars: float
    """US dollars."""
    time_seconds: float
    """Seconds of work."""
    output_tokens: int
    """Tokens that the agent wrote."""


class BudgetRow(Value):
    """The budget of one codon, and its use."""

    codon_id: CodonId
    status: Literal["completed", "failed", "skipped", "exceeded", "running"]
    budget: BudgetFigures
    """What the codon was allowed."""
    actual: SpentFigures
    """What it has used."""
    loop_context: LoopContext | None = None


class BudgetTotals(Value):
    """The sums of a run."""

    actual_dollars: float
    """US dollars that were used."""
    actual_time_seconds: float
    """Seconds of work."""
    budget_dollars: float | None = None
    """The limit, in US dollars."""


class BudgetSummary(EventData):
    """A run with a limit has ended: what each codon was allowed and has used."""

    TYPE: ClassVar[str] = "budget.summary"
    ceiling: BudgetFigures
    """The limit of the run."""
    allocation: str
    """How the limit is shared."""
    rows: tuple[BudgetRow, ...]
    """One for each codon."""
    totals: BudgetTotals
    """The sums."""


# --- sentinels ----------------------------------------------------------------------------------


class SentinelLoaded(EventData):
    """A sentinel observes a codon."""

    TYPE: ClassVar[str] = "sentinel.loaded"
    sentinel_id: str
    codon_id: CodonId
    model: str
    trigger_type: Literal["event", "sequence"]
    """`event` or `sequence`."""
    execution_strategy: str
    """How firings become calls."""
    conversational: bool
    """Whether it remembers earlier turns."""
    source: Literal["file", "inline"]
    """`file` or `inline`."""
    source_path: str | None = None
    """The path of its file."""


class SentinelUnloaded(EventData):
    """A sentinel no longer observes its codon."""

    TYPE: ClassVar[str] = "sentinel.unloaded"
    sentinel_id: str
    codon_id: CodonId
    reason: Literal["codon-complete", "fatal-error", "consecutive-failures", "shutdown"]
    final_cost: float
    llm_call_count: int
    error_type: Literal["template", "configuration", "corruption", "resource"] | None = None
    """The kind of the error that ended it."""


class SentinelError(EventData):
    """A sentinel has failed."""

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
    """How many calls have failed in a row."""
    dropped: int = 0
    """Number of dropped triggers; Hankweave only logs them."""


class SentinelOutput(EventData):
    """A sentinel has answered."""

    TYPE: ClassVar[str] = "sentinel.output"
    sentinel_id: str
    codon_id: CodonId
    trigger_number: int
    output_type: Literal["text", "structured"]
    """`text` or `structured`."""
    content: str | dict[str, object] | list[object]
    """The answer: a text, an object or a list."""
    cost: float
    tokens: dict[str, int]
    event_count: int


class SentinelTriggered(EventData):
    """A sentinel is called."""

    TYPE: ClassVar[str] = "sentinel.triggered"
    sentinel_id: str
    codon_id: CodonId
    trigger_number: int
    strategy: str
    """How firings become calls."""
    event_count: int
    queue_size: int
    """How many triggers wait."""


# --- checkpoints and rollback -------------------------------------------------------------------


class ListedCheckpoint(Value):
    """A checkpoint in `checkpoint.list`: Hankweave's fields, then the fields of this server."""

    codon_id: CodonId | None
    codon_name: str
    checkpoint_type: CheckpointKind
    """The kind of the checkpoint."""
    sha: Sha
    status: str | None
    timestamp: str
    label: str | None = None
    summary: str | None = None
    """What has changed since the checkpoint before, in a few words."""
    partial: bool = False
    """Whether some files could not be captured."""
    coordinate: Coordinate | None = None


class CheckpointList(EventData):
    """The checkpoints: the reply to `checkpoint.list` for clients without `protocolVersion`.

    It is Hankweave's own, and sent to all clients.
    """

    TYPE: ClassVar[str] = "checkpoint.list"
    run_id: RunId | None
    checkpoints: tuple[ListedCheckpoint, ...]
    current_branch: str | None
    """The branch of the current run; null before its first checkpoint."""


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
    """The line, from 1."""


class CheckpointSecret(EventData):
    """A checkpoint holds secrets in files that are new in it, or new in their content.

    It follows the checkpoint a moment later, and does not have the value. The checkpoint is exact
    all the same. `hankweave redact` removes a secret from all checkpoints.
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
    """Whether the checkpoint is excluded from every gc."""
    name: str | None = None
    """The name that it was given."""


class CheckpointPruned(EventData):
    """Checkpoints were pruned; the events about them stay in the journal."""

    TYPE: ClassVar[str] = "checkpoint.pruned"
    checkpoints: tuple[Sha, ...]
    """Their commits."""
    recovered: bool = False
    """True if a crash kept the server that pruned them from recording it."""
    lost: bool = False
    """True if they were not pruned: some of their objects were lost, and a repair gave them up."""


class StoreRepaired(EventData):
    """Lost objects were restored, or checkpoints with lost objects were given up.

    It is caused by `store.fsck` with `repair`, or by a checkpoint on a branch whose tip is lost.
    """

    TYPE: ClassVar[str] = "store.repaired"
    repair: StoreRepair
    """What was repaired."""


class HistoryRedacted(EventData):
    """A secret was removed from the journal, the logs and the checkpoints (`hankweave redact`).

    It is the last line of the rewritten journal.
    """

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
    """The store's objects were packed together, in the background or by a gc."""

    TYPE: ClassVar[str] = "store.consolidated"
    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    bytes_before: int
    bytes_after: int
    """The size of the store afterwards."""


class StoreProgress(EventData):
    """Progress of a long operation on checkpoints; only for clients that requested `progress`.

    At most ten a second for each operation, and none for a short operation. Not journaled.
    """

    TYPE: ClassVar[str] = "store.progress"
    JOURNALED: ClassVar[bool] = False
    operation: StoreOperation
    """The operation."""
    operation_id: str
    """The same in all events of one operation."""
    phase: str
    """The name of the current phase; an operation has several, one after the other."""
    done: int
    """Of this phase."""
    total: int | None
    """Null while it is unknown."""
    unit: ProgressUnit
    """What `done` and `total` count."""
    command_id: CommandId | None = None
    """The command that requested it; null if the server started it by itself."""
    ended: bool = False
    """True in the last event; the result is in the reply and the journal."""


class RollbackStarted(EventData):
    """A rollback is recorded, and files begin to change.

    If it concerns at most 1,000 files, it is sent with the events that follow, when they have
    changed.
    """

    TYPE: ClassVar[str] = "rollback.started"
    from_run: RunId
    from_codon: CodonId | None
    """The codon before."""
    to_codon: CodonId | None
    """The codon of the target."""
    to_checkpoint: Sha
    """The checkpoint that is restored."""
    checkpoint_type: str
    codons_to_process: tuple[CodonId, ...]
    source: Coordinate | None = None
    """The position before."""
    target: Coordinate | None = None
    recovered: bool = False
    """Whether a start finished or recorded it after a crash."""


class RollbackProgress(EventData):
    """A step of a rollback: one for each undone codon, the newest first, and one for the target."""

    TYPE: ClassVar[str] = "rollback.progress"
    current_step: int
    """The step, from 1."""
    total_steps: int
    """The number of steps."""
    message: str


class RollbackCodonCheckpoint(EventData):
    """A codon that a rollback undoes; at last, the target."""

    TYPE: ClassVar[str] = "rollback.codonCheckpoint"
    codon_id: CodonId | None
    codon_name: str
    checkpoint: Sha
    checkpoint_type: str
    message: str


class FailedDirectory(Value):
    """A directory that could not be removed."""

    directory: str
    """The directory."""
    error: str


class RollbackRigCleanup(EventData):
    """The directories of the rig of an undone codon are removed."""

    TYPE: ClassVar[str] = "rollback.rigCleanup"
    codon_id: CodonId
    codon_name: str
    directories: tuple[str, ...]
    """The directories."""
    status: Literal["started", "completed", "partial", "failed"]
    successful_cleanups: tuple[str, ...] | None = None
    """The directories that were removed."""
    failed_cleanups: tuple[FailedDirectory, ...] | None = None
    """The directories that could not be removed."""
    error: str | None = None


class RollbackArchiveRestore(EventData):
    """A rollback has restored files that were archived after its target and are in no checkpoint.

    `codonId` is the sha of the target, as in Hankweave. An undo archives the files again, with
    `archive.completed`.
    """

    TYPE: ClassVar[str] = "rollback.archiveRestore"
    codon_id: str
    """The target's sha, as in Hankweave."""
    restored_paths: tuple[str, ...]
    """The paths that were restored."""
    status: Literal["completed", "partial", "failed"]
    failed_paths: tuple[FailedPath, ...] | None = None


class RollbackCompleted(EventData):
    """A rollback is complete: files, run and plan are those of the target.

    The exception is `report.cannotRestore`, with as many paths as `exceptions` says. If the content
    of one differs, `autoRestart` is false.
    """

    TYPE: ClassVar[str] = "rollback.completed"
    from_run: RunId
    to_run: RunId
    """The run after the rollback; null if only files were restored."""
    checkpoint: Sha
    codon_id: CodonId | None
    codon_name: str
    checkpoint_type: str
    auto_restart: bool
    report: RollbackReport | None = None
    """What the rollback changed."""
    operation_id: str | None = None
    direction: Movement = "back"
    reason: str | None = None
    exceptions: int = 0
    """The number of paths that could not be restored; see `report.cannotRestore`."""


class CheckpointRollback(EventData):
    """Files were restored from a checkpoint.

    With a `report`, nothing else changed: some `paths` were restored, the agent was frozen, or
    (`direction` `retry`) a failed codon is retried. Without one it was a complete rollback, and
    `rollback.completed` with the same `operationId` follows with the report.
    """

    TYPE: ClassVar[str] = "checkpoint.rollback"
    operation_id: str
    checkpoint: Sha
    source: Coordinate | None
    """The position before."""
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
    """An agent got the message about a rollback, with its prompt or while it was working."""

    TYPE: ClassVar[str] = "rollback.told"
    operation_id: str
    codon_id: CodonId
    target: Coordinate
    text: str
    """The message."""
    how: Literal["prompt", "live"]
    """With the prompt of a starting codon, or while a codon is running."""


class RollbackFailed(EventData):
    """A rollback has begun but could not finish.

    The disk is full: it is finished when there is space. Or it was given up, because its target is
    gone, or because a checkpoint, a codon or another rollback followed it. The message says where
    the previous files are.
    """

    TYPE: ClassVar[str] = "rollback.failed"
    target: Coordinate
    message: str


class WorkspaceInvalidated(EventData):
    """Files changed; a client that keeps an index of them must refresh it.

    With `total`, `paths` is incomplete: refresh everything.
    """

    TYPE: ClassVar[str] = "workspace.invalidated"
    paths: tuple[str, ...]
    """The first of them: at most 200, and fewer if paths are long."""
    reason: Literal["rollback", "branch"]
    total: int | None = None
    """Number of changed files, if not all are listed; then a client must refresh everything."""


class ExecutionOrigin(EventData):
    """The first event of a branch: its original, and the moment in the journal of that one."""

    TYPE: ClassVar[str] = "execution.origin"
    execution_path: str
    coordinate: Coordinate
    """In the journal of that execution."""
    run_id: RunId
    """The first run of the branch itself."""


class ExecutionBranched(EventData):
    """A new execution was made from a checkpoint of this one.

    `runId` is its first own run.
    """

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
    """The exploration."""


class AttemptEnded(EventData):
    """An attempt has ended; its result, if it has one, is a timeline of this execution."""

    TYPE: ClassVar[str] = "exploration.attemptEnded"
    exploration_id: str
    attempt: AttemptRecord
    """The attempt."""


class ExplorationEnded(EventData):
    """No attempt of an exploration runs or waits any more."""

    TYPE: ClassVar[str] = "exploration.ended"
    exploration_id: str
    best: str | None = None
    """The id of the attempt to adopt; null if none has succeeded."""


# --- bisections ---------------------------------------------------------------------------------


class BisectStarted(EventData):
    """A search for the first checkpoint at which a command fails has begun."""

    TYPE: ClassVar[str] = "bisect.started"
    bisect_id: str
    """The id of the search."""
    command: str
    """The shell command line."""
    good: Sha
    """Where it has to pass."""
    bad: Sha
    """Where it has to fail."""
    checkpoints: int
    """How many there are between these two, both included."""


class BisectProgress(EventData):
    """The command of a search was run on a checkpoint; all clients get it, and nothing keeps it."""

    TYPE: ClassVar[str] = "bisect.progress"
    JOURNALED: ClassVar[bool] = False
    bisect_id: str
    """The id of the search."""
    checkpoint_sha: Sha
    verdict: Literal["passes", "fails", "skipped"]
    """What the exit code says about the checkpoint."""
    last_line: str
    """The last line of the command's output: its first 200 characters."""
    runs: int
    """How often the command was started so far."""


class BisectEnded(EventData):
    """A search has ended: with the first failure, with suspects, or without a result."""

    TYPE: ClassVar[str] = "bisect.ended"
    bisect_id: str
    """The id of the search."""
    checkpoint_sha: Sha | None = None
    """The first checkpoint at which the command fails; null if there is no single one."""
    parent_sha: Sha | None = None
    """The checkpoint just before it."""
    codon_id: CodonId | None = None
    """Its codon."""
    summary: str | None = None
    """What it holds, as its record says it."""
    suspects: tuple[Sha, ...] = ()
    """The checkpoints of which one is the first; several only if some were skipped."""
    runs: int = 0
    """How often the command was run."""
    skipped: int = 0
    """The number of checkpoints that it could not judge."""
    message: str | None = None
    """Why there is no result; null if there is one."""


# --- one client ---------------------------------------------------------------------------------


class Pong(EventData):
    """The answer to `ping`; with `clientId`, the `ping.broadcast` of that client."""

    TYPE: ClassVar[str] = "pong"
    JOURNALED: ClassVar[bool] = False
    message: str
    """`pong`."""
    timestamp: str
    client_id: ClientId | None = None
    """The sender of a `ping.broadcast`."""


class HistoryBatch(EventData):
    """A part of the journal: the answer to `history.sync`."""

    TYPE: ClassVar[str] = "history.batch"
    JOURNALED: ClassVar[bool] = False
    events: tuple[msgspec.Raw, ...]
    """Lines of the journal, the oldest first."""
    has_more: bool
    """Whether further batches follow."""


class IncompleteCodon(EventData):
    """The newest codon has no end, because the server died while it was running.

    Reserved: this version does not send it.
    """

    TYPE: ClassVar[str] = "incomplete.codon"
    JOURNALED: ClassVar[bool] = False
    codon_id: CodonId
    codon_name: str
    status: str
    run_id: RunId
    run_status: RunStatus
    """The status of its run."""


EVENTS: Registry[EventData] = Registry(*EventData.__subclasses__())
"""Every event, in the order of declaration."""
