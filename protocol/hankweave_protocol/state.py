"""state.json (seed 002): runs, codon executions and the execution plan.

Each of the eight codon states is a class of its own, told apart by `status`, and has just the
fields that seed 002 gives that state. All values are frozen: a transition makes a new one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.hank import Codon, ContainerBudget
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import Conversation, Notice, Travel
from hankweave_protocol.shapes import Value

SCHEMA_VERSION = 1

RunStatus = Literal["running", "completed", "failed", "crashed"]
CodonStatus = Literal[
    "preparing",
    "starting",
    "initializing",
    "running",
    "completing-sentinels",
    "completed",
    "failed",
    "skipped",
]
ActiveStatus = Literal["preparing", "starting", "initializing", "running", "completing-sentinels"]


class Tokens(Value):
    """Token counts of one message, codon or run."""

    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_tokens=self.cache_creation_tokens + other.cache_creation_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
        )


NO_TOKENS = Tokens(input_tokens=0, output_tokens=0, cache_creation_tokens=0, cache_read_tokens=0)


class LoopContext(Value):
    """Where in a loop a codon stands: rollback and resume depend on it."""

    loop_id: str
    iteration: int
    """0-indexed."""
    codon_index_in_loop: int
    loop_budget: ContainerBudget | None = None
    """What the whole loop may use, as the hank said when the iteration was laid out."""


class FailureReason(Value):
    type: Literal[
        "timeout", "rate-limit", "api-error", "sentinel-load-failure", "check-failed", "unknown"
    ]
    retriable: bool
    message: str | None = None
    sentinel_refs: tuple[str, ...] = ()
    retry_after_ms: int | None = None


class BudgetExceeded(Value):
    """Which limit ended a codon, and how much it had used by then."""

    currency: Literal["cost", "outputTokens", "contextTokens", "duration"]
    """USD, tokens, or seconds."""
    limit: float
    used: float


class Captured(Value):
    """A codon's answer, for the codons after it (`outputVar`)."""

    name: str
    value: str
    truncated: bool = False
    """True where the answer was longer; all of it is in the codon's log."""


class SentinelState(Value, kw_only=True):
    """What one sentinel did during one codon; costs in USD."""

    id: str
    model: str
    loaded_at: str
    llm_call_count: int
    failed_llm_calls: int = msgspec.field(name="failedLLMCalls")
    total_triggers: int
    total_cost: float
    status: Literal["active", "unloaded"]
    unloaded_at: str | None = None
    last_llm_call_at: str | None = None
    unload_reason: str | None = None
    dropped_triggers: int = 0
    """Triggers that were never called for: no room, or no time at the codon's end."""


class LoadedSentinels(Value):
    """Sentinels of a codon that is still active."""

    loaded: tuple[SentinelState, ...]
    total_cost: float


class ExecutedSentinels(Value):
    """Sentinels of a terminal codon: the key's name says that all is final (seed 002)."""

    executed: tuple[SentinelState, ...]
    total_cost: float


NO_SENTINELS = LoadedSentinels(loaded=(), total_cost=0.0)


class CodonBase(Value, kw_only=True, tag_field="status"):
    codon_id: CodonId
    start_time: str
    loop_context: LoopContext | None = None
    attempt: int = 1
    """1 for the first try in this run, one more for each retry or redo."""


class PreparingCodon(CodonBase, kw_only=True, tag="preparing"):
    """The rig is being set up; there is no agent yet."""


class StartingCodon(CodonBase, kw_only=True, tag="starting"):
    """The agent is about to be started."""

    sentinels: LoadedSentinels
    rig_setup_checkpoint: Sha | None = None


class InitializingCodon(CodonBase, kw_only=True, tag="initializing"):
    """The agent lives; its session id is awaited."""

    sentinels: LoadedSentinels
    claude_pid: int
    claude_log_path: str
    rig_setup_checkpoint: Sha | None = None
    previous_session_id: str | None = None


class WorkingCodon(CodonBase, kw_only=True):
    """What `running` and `completing-sentinels` share; costs in USD."""

    sentinels: LoadedSentinels
    claude_pid: int
    claude_session_id: str
    claude_log_path: str
    current_cost: float
    current_tokens: Tokens
    assistant_message_count: int
    rig_setup_checkpoint: Sha | None = None
    previous_session_id: str | None = None
    extension_count: int = 0


class RunningCodon(WorkingCodon, kw_only=True, tag="running"):
    """The agent works."""


class CompletingSentinelsCodon(WorkingCodon, kw_only=True, tag="completing-sentinels"):
    """The agent has ended; sentinels finish what they began."""


class CompletedCodon(CodonBase, kw_only=True, tag="completed"):
    """Terminal: success; cost and tokens are final.

    Session and log path are empty where the budget was spent before: no agent was started.
    """

    end_time: str
    claude_session_id: str
    claude_log_path: str
    exit_code: int
    final_cost: float
    final_tokens: Tokens
    result_message_received: bool
    completion_checkpoint: Sha
    sentinels: ExecutedSentinels
    rig_setup_checkpoint: Sha | None = None
    extension_count: int = 0
    assistant_message_count: int = 0
    context_exceeded: bool = False
    """It ended because the agent's context was full, which codon or loop had asked for."""
    budget_exceeded: BudgetExceeded | None = None
    captured: Captured | None = None
    warnings: tuple[str, ...] = ()
    """Ours: why its work should be looked at, although it was completed."""


class FailedCodon(CodonBase, kw_only=True, tag="failed"):
    """Terminal: where and why it went wrong."""

    end_time: str
    failed_during: ActiveStatus
    exit_code: int
    """The agent's exit code; -1 where there was none."""
    failure_reason: FailureReason
    partial_cost: float
    partial_tokens: Tokens
    sentinels: ExecutedSentinels
    claude_pid: int | None = None
    claude_session_id: str | None = None
    claude_log_path: str | None = None
    rig_setup_checkpoint: Sha | None = None
    error_checkpoint: Sha | None = None
    extension_count: int = 0
    assistant_message_count: int = 0
    budget_exceeded: BudgetExceeded | None = None


class SkippedCodon(CodonBase, kw_only=True, tag="skipped"):
    """Terminal: skipped by a person or its condition, or its time ran out at its start."""

    end_time: str
    skipped_during: ActiveStatus
    partial_cost: float
    partial_tokens: Tokens
    assistant_message_count: int
    sentinels: ExecutedSentinels
    claude_pid: int | None = None
    claude_session_id: str | None = None
    claude_log_path: str | None = None
    rig_setup_checkpoint: Sha | None = None
    skip_checkpoint: Sha | None = None
    budget_exceeded: BudgetExceeded | None = None
    condition: str | None = None
    """The condition that did not hold."""


ActiveCodon = (
    PreparingCodon | StartingCodon | InitializingCodon | RunningCodon | CompletingSentinelsCodon
)
TerminalCodon = CompletedCodon | FailedCodon | SkippedCodon
CodonExecution = (
    PreparingCodon
    | StartingCodon
    | InitializingCodon
    | RunningCodon
    | CompletingSentinelsCodon
    | CompletedCodon
    | FailedCodon
    | SkippedCodon
)


class FreshStart(Value, tag_field="type", tag="fresh"):
    """A run with no past."""

    initial_checkpoint_sha: Sha | None = None


class ContinuationSource(Value):
    run_id: RunId
    """The run that owns the checkpoint."""
    after_codon: CodonId | None
    """The codon after which to go on; null: from the beginning."""
    checkpoint_sha: Sha | None
    """What the files were restored to; null where they were left as they were, or where Hankweave
    wrote the state."""
    conversation: Conversation | None = None
    """Where in the work of its first codon the run goes on; null where that begins anew."""


class Continuation(Value, tag_field="type", tag="continuation"):
    """A run that goes on from a checkpoint of an earlier one."""

    source: ContinuationSource
    reason: Literal["rollback", "retry", "continue"]


StartingConditions = FreshStart | Continuation


class Run(Value):
    """One line of work from a start or a rollback to its end."""

    run_id: RunId
    run_folder: str
    """Absolute path of the run's logs."""
    git_branch: str
    starting_conditions: StartingConditions
    codons: tuple[CodonExecution, ...]
    status: RunStatus
    start_time: str
    server_pid: int
    end_time: str | None = None


class PlanEntry(Value):
    """One codon that will run or has run; loops stand unrolled, one iteration at a time."""

    codon: Codon
    codon_id: CodonId
    loop_context: LoopContext | None = None


class State(Value):
    """The whole of state.json: what the journal folds to."""

    runs: tuple[Run, ...]
    """Newest first."""
    current_run_id: RunId | None
    """The run of the server that lives, which may have ended; None where no server runs."""
    execution_plan: tuple[PlanEntry, ...]
    initial_checkpoint: Sha | None = None
    schema_version: int = msgspec.field(default=0)
    """`SCHEMA_VERSION` in what we write; 0 in a file that Hankweave wrote."""
    last_event_seq: int = 0
    undo: tuple[Travel, ...] = ()
    """Rollbacks that can be undone, the newest last."""
    redo: tuple[Travel, ...] = ()
    """Undone rollbacks that can be redone, the next one last."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    """Files that people changed after an agent or rig last wrote them, with their SHA-256."""
    notice: Notice | None = None
    """The last rollback, while no agent has been told of it."""


EMPTY_STATE = State(runs=(), current_run_id=None, execution_plan=(), schema_version=SCHEMA_VERSION)
