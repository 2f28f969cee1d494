"""state.json (seed 002): runs, codon executions and the execution plan.

Each of the eight codon states is a class of its own, discriminated by `status`, with exactly the
fields that seed 002 lists for that state. All values are frozen: a transition creates a new one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.attempts import Exploration
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
    """The position of a codon in a loop; rollback and resume depend on it."""

    loop_id: str
    iteration: int
    """0-indexed."""
    codon_index_in_loop: int
    """The position of the codon in the loop, from 0."""
    loop_budget: ContainerBudget | None = None
    """The budget of the whole loop, as in the hank when the iteration was added to the plan."""


class FailureReason(Value):
    """Why a codon failed."""

    type: Literal[
        "timeout", "rate-limit", "api-error", "sentinel-load-failure", "check-failed", "unknown"
    ]
    """The kind of failure."""
    retriable: bool
    message: str | None = None
    sentinel_refs: tuple[str, ...] = ()
    """The sentinels that could not be loaded."""
    retry_after_ms: int | None = None
    """The delay that the provider requested."""


class BudgetExceeded(Value):
    """The limit that ended a codon, and how much it had used."""

    currency: Literal["cost", "outputTokens", "contextTokens", "duration"]
    """USD, tokens, or seconds."""
    limit: float
    """The limit."""
    used: float
    """What was used."""


class Captured(Value):
    """A codon's answer, for later codons (`outputVar`)."""

    name: str
    """The variable."""
    value: str
    """The answer, at most 65,536 characters."""
    truncated: bool = False
    """True if the answer was longer; the whole answer is in the codon's log."""


class SentinelState(Value, kw_only=True):
    """The work of one sentinel during one codon; costs in USD."""

    id: str
    """The sentinel."""
    model: str
    loaded_at: str
    """When it was loaded."""
    llm_call_count: int
    failed_llm_calls: int = msgspec.field(name="failedLLMCalls")
    """How many calls failed."""
    total_triggers: int
    """How many times it was triggered."""
    total_cost: float
    status: Literal["active", "unloaded"]
    unloaded_at: str | None = None
    """When it was unloaded."""
    last_llm_call_at: str | None = None
    """When it was last called."""
    unload_reason: str | None = None
    """Why it was unloaded."""
    dropped_triggers: int = 0
    """Number of triggers without a call: the queue was full, or the codon had ended."""


class LoadedSentinels(Value):
    """Sentinels of a codon that is still active."""

    loaded: tuple[SentinelState, ...]
    """The sentinels that run."""
    total_cost: float


class ExecutedSentinels(Value):
    """Sentinels of a terminal codon; the values are final (seed 002)."""

    executed: tuple[SentinelState, ...]
    """The sentinels that ran."""
    total_cost: float


NO_SENTINELS = LoadedSentinels(loaded=(), total_cost=0.0)


class CodonWait(Value, kw_only=True):
    """A wait of an active codon for the end of its provider's limit; its agent has ended."""

    kind: Literal["usage", "rate", "overload"]
    """An allowance of hours or days, too many requests in a short time, or an outage."""
    until: str
    """When the codon continues."""
    since: str
    source: Literal["event", "header", "text", "none", "shared"]
    """Where `until` comes from: a field that the agent reported, a header of its provider, its
    words, nowhere (a delay that grows with each wait), or another execution of the account."""
    number: int = 1
    """1, and one more for each wait in a row after which the model did not answer."""
    model: str = ""
    """The model whose limit it is; empty for the agent's default."""
    message: str = ""
    """The agent's own words."""


class CodonBase(Value, kw_only=True, tag_field="status"):
    codon_id: CodonId
    start_time: str
    loop_context: LoopContext | None = None
    attempt: int = 1
    """1 for the first attempt in this run, one more for each retry or redo."""
    waited_ms: int = 0
    """Time spent waiting for the end of limits; it counts for no budget."""


class ReusedResult(Value):
    """The codon whose result another one has taken over instead of running."""

    run_id: RunId
    codon_id: CodonId
    checkpoint_sha: Sha
    """The checkpoint of its success."""


class PreparingCodon(CodonBase, kw_only=True, tag="preparing"):
    """The rig is being set up; there is no agent yet."""


class StartingCodon(CodonBase, kw_only=True, tag="starting"):
    """The agent is about to be started."""

    sentinels: LoadedSentinels
    rig_setup_checkpoint: Sha | None = None
    wait: CodonWait | None = None
    """A wait for the end of a limit that another execution has met."""


class InitializingCodon(CodonBase, kw_only=True, tag="initializing"):
    """The agent has started; its session id is not known yet."""

    sentinels: LoadedSentinels
    claude_pid: int
    claude_log_path: str
    rig_setup_checkpoint: Sha | None = None
    previous_session_id: str | None = None


class WorkingCodon(CodonBase, kw_only=True):
    """The fields that `running` and `completing-sentinels` share; costs in USD."""

    sentinels: LoadedSentinels
    claude_pid: int
    claude_session_id: str
    claude_log_path: str
    current_cost: float
    """The cost so far, in US dollars."""
    current_tokens: Tokens
    """The tokens so far."""
    assistant_message_count: int
    rig_setup_checkpoint: Sha | None = None
    previous_session_id: str | None = None
    extension_count: int = 0
    wait: CodonWait | None = None
    """The wait for the end of a limit; null while the agent works."""


class RunningCodon(WorkingCodon, kw_only=True, tag="running"):
    """The agent is working."""


class CompletingSentinelsCodon(WorkingCodon, kw_only=True, tag="completing-sentinels"):
    """The agent has ended; sentinels finish their pending work."""


class CompletedCodon(CodonBase, kw_only=True, tag="completed"):
    """Terminal: success; cost and tokens are final.

    Session and log path are empty if no agent was started because the budget was already spent.
    """

    end_time: str
    claude_session_id: str
    claude_log_path: str
    exit_code: int
    final_cost: float
    final_tokens: Tokens
    """The tokens."""
    result_message_received: bool
    """Whether the agent reported its end."""
    completion_checkpoint: Sha
    """The checkpoint of its success."""
    sentinels: ExecutedSentinels
    rig_setup_checkpoint: Sha | None = None
    extension_count: int = 0
    assistant_message_count: int = 0
    context_exceeded: bool = False
    """True if it ended because the agent's context was full, as configured in the codon or loop."""
    budget_exceeded: BudgetExceeded | None = None
    captured: Captured | None = None
    """Its answer, as the variable of its `outputVar`."""
    warnings: tuple[str, ...] = ()
    """Not in Hankweave: why its work should be checked although it is completed."""
    reuse_key: str | None = None
    """Not in Hankweave: a hash of everything that its result depends on; null if that is not
    known, or if its result depends on more. A codon with the same key may take it over."""
    reused: ReusedResult | None = None
    """Not in Hankweave: where its result comes from, if it was not run."""


class FailedCodon(CodonBase, kw_only=True, tag="failed"):
    """Terminal: failed, with the phase and the reason."""

    end_time: str
    failed_during: ActiveStatus
    """The status in which it failed."""
    exit_code: int
    """The agent's exit code; -1 if there was none."""
    failure_reason: FailureReason
    partial_cost: float
    partial_tokens: Tokens
    sentinels: ExecutedSentinels
    claude_pid: int | None = None
    claude_session_id: str | None = None
    claude_log_path: str | None = None
    rig_setup_checkpoint: Sha | None = None
    error_checkpoint: Sha | None = None
    """The checkpoint of its failure."""
    extension_count: int = 0
    assistant_message_count: int = 0
    budget_exceeded: BudgetExceeded | None = None


class SkippedCodon(CodonBase, kw_only=True, tag="skipped"):
    """Terminal: skipped by a person or its condition, or timed out at its start."""

    end_time: str
    skipped_during: ActiveStatus
    """The status in which it was skipped."""
    partial_cost: float
    partial_tokens: Tokens
    assistant_message_count: int
    sentinels: ExecutedSentinels
    claude_pid: int | None = None
    claude_session_id: str | None = None
    claude_log_path: str | None = None
    rig_setup_checkpoint: Sha | None = None
    skip_checkpoint: Sha | None = None
    """The checkpoint of its skip."""
    budget_exceeded: BudgetExceeded | None = None
    condition: str | None = None
    """The condition that was false."""


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
    """A run that does not continue from an earlier one."""

    initial_checkpoint_sha: Sha | None = None
    """The checkpoint that it started from."""


class ContinuationSource(Value):
    """The position in the plan that a run continues from."""

    run_id: RunId
    """The run that owns the checkpoint."""
    after_codon: CodonId | None
    """The codon after which the run continues; null: from the beginning."""
    checkpoint_sha: Sha | None
    """The checkpoint that was restored; null if the files were not changed, or if Hankweave wrote
    the state."""
    conversation: Conversation | None = None
    """Where in the work of its first codon the run continues; null if the codon starts anew."""


class Continuation(Value, tag_field="type", tag="continuation"):
    """A run that continues from a checkpoint of an earlier one."""

    source: ContinuationSource
    """The moment that it continues from."""
    reason: Literal["rollback", "retry", "continue"]
    """`rollback`, `retry` or `continue`."""


StartingConditions = FreshStart | Continuation


class Run(Value):
    """A line of work from a start or a rollback to its end."""

    run_id: RunId
    run_folder: str
    """Absolute path of the run's logs."""
    git_branch: str
    """Its branch in the shadow repository."""
    starting_conditions: StartingConditions
    """What it started from."""
    codons: tuple[CodonExecution, ...]
    """Its codons, each with its status."""
    status: RunStatus
    """`running`, `completed`, `failed` or `crashed`."""
    start_time: str
    server_pid: int
    end_time: str | None = None
    reuse_after: CodonId | None = None
    """The codon that is run again; those after it take over earlier results where they can."""


class PlanEntry(Value):
    """One codon that will run or has run; loops are unrolled, one iteration at a time."""

    codon: Codon
    """The codon, as in the hank."""
    codon_id: CodonId
    """Its id in the plan."""
    loop_context: LoopContext | None = None


class PermissionRule(Value):
    """A rule that an answer to a permission request has added; it holds for this execution."""

    rule: str
    """A pattern, as in `permissions.allow`."""
    codon_id: CodonId
    """The codon whose agent asked."""
    request_id: str
    """The request that was answered."""


class State(Value):
    """The content of state.json: the fold of the journal."""

    runs: tuple[Run, ...]
    """Newest first."""
    current_run_id: RunId | None
    """The run of the current server, which may have ended; null if no server is running."""
    execution_plan: tuple[PlanEntry, ...]
    """The plan: the codons in their order, loops unrolled."""
    initial_checkpoint: Sha | None = None
    """The checkpoint before the first codon."""
    schema_version: int = msgspec.field(default=0)
    """`SCHEMA_VERSION`; 0 in a file written by Hankweave."""
    last_event_seq: int = 0
    undo: tuple[Travel, ...] = ()
    """Rollbacks that can be undone, the newest last."""
    redo: tuple[Travel, ...] = ()
    """Undone rollbacks that can be redone, the next one last."""
    edits: dict[str, str] = msgspec.field(default_factory=dict)
    """Files that people changed after an agent or rig last wrote them, with their SHA-256.

    The digest is empty for a deleted file and for every file of a burst.
    """
    notice: Notice | None = None
    """The last rollback, until an agent has got the message about it."""
    explorations: tuple[Exploration, ...] = ()
    """The newest last."""
    permission_rules: tuple[PermissionRule, ...] = ()
    """Rules that answers to permission requests have added, the newest last."""


EMPTY_STATE = State(runs=(), current_run_id=None, execution_plan=(), schema_version=SCHEMA_VERSION)
