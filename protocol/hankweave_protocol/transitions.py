"""The changes of the state: the payloads of `state.transition`.

state.json is the fold of these, in journal order; `hankweave_server.domain.reducer` applies them.
A transition holds facts, not instructions, so that its meaning never changes.
"""

from __future__ import annotations

from typing import ClassVar, get_args

import msgspec

from hankweave_protocol.attempts import Exploration
from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointRecord, Direction, Notice, Travel
from hankweave_protocol.shapes import Registry, Typed, Value
from hankweave_protocol.state import (
    CodonExecution,
    CodonStatus,
    CodonWait,
    LoadedSentinels,
    LoopContext,
    PermissionRule,
    PlanEntry,
    Run,
    Tokens,
)


class Transition(Typed):
    """A member of the union; `TYPE` is Hankweave's name if it has one."""


class RunStarted(Transition):
    """A run was started; it is the newest and the current one."""

    TYPE: ClassVar[str] = "RunStarted"
    run: Run


class RunCompleted(Transition):
    """A run has ended; it stays current until its server stops or another run begins."""

    TYPE: ClassVar[str] = "RunCompleted"
    run_id: RunId
    end_time: str


class RunFailed(Transition):
    """A run has ended because its newest codon finally failed."""

    TYPE: ClassVar[str] = "RunFailed"
    run_id: RunId
    end_time: str


class RunCrashed(Transition):
    """The server of the run died; the run is no longer current.

    Separate events mark its active codons as failed.
    """

    TYPE: ClassVar[str] = "RunCrashed"
    run_id: RunId
    end_time: str
    server_pid: int


class CurrentRunCleared(Transition):
    """No run is current any more: its server stops, or was found to have stopped."""

    TYPE: ClassVar[str] = "CurrentRunCleared"
    run_id: RunId
    """The run that was current."""


class CodonStarted(Transition):
    """A codon's record was added to the current run."""

    TYPE: ClassVar[str] = "CodonStarted"
    run_id: RunId
    codon: CodonExecution


class CodonTransitioned(Transition):
    """The newest record of a codon has a new state; `codon` is the new record."""

    TYPE: ClassVar[str] = "CodonTransitioned"
    run_id: RunId
    from_status: CodonStatus
    """The status before."""
    codon: CodonExecution


class CostsIncremented(Transition):
    """One message of the agent was counted."""

    TYPE: ClassVar[str] = "CostsIncremented"
    run_id: RunId
    codon_id: CodonId
    cost: float
    tokens: Tokens
    messages: int = 0
    """The number of assistant messages it counts for."""


class CostsUpdated(Transition):
    """The agent reported the codon's totals at its end; they replace the running sums."""

    TYPE: ClassVar[str] = "CostsUpdated"
    run_id: RunId
    codon_id: CodonId
    cost: float
    tokens: Tokens


class SentinelStatesUpdated(Transition):
    """The current sentinels of an active codon."""

    TYPE: ClassVar[str] = "SentinelStatesUpdated"
    run_id: RunId
    codon_id: CodonId
    sentinels: LoadedSentinels


class ExtensionCountUpdated(Transition):
    """The number of times that `exhaustWithPrompt` was sent to a codon's agent."""

    TYPE: ClassVar[str] = "ExtensionCountUpdated"
    run_id: RunId
    codon_id: CodonId
    extension_count: int
    session_id: str | None = None
    """The agent continues in a session with another id."""


class CodonWaitChanged(Transition):
    """An active codon began or ended a wait for the end of a limit."""

    TYPE: ClassVar[str] = "CodonWaitChanged"
    run_id: RunId
    codon_id: CodonId
    wait: CodonWait | None = None
    """Null when it has ended."""
    waited_ms: int = 0
    """All waits of the codon that have ended, together."""
    session_id: str | None = None
    """The conversation that continues, if it has another id than the codon's session."""


class CheckpointCreated(Transition):
    """A checkpoint was recorded."""

    TYPE: ClassVar[str] = "CheckpointCreated"
    checkpoint: CheckpointRecord
    recovered: bool = False
    """True if a start found the commit of a server that died before it recorded it."""


class InitialCheckpointSet(Transition):
    """The checkpoint before the first codon was taken."""

    TYPE: ClassVar[str] = "InitialCheckpointSet"
    checkpoint_sha: Sha


class PlanSet(Transition):
    """The execution plan was set: at the start, after an iteration, or after a rollback.

    The journal has it as `PlanChanged` wherever a plan was set before.
    """

    TYPE: ClassVar[str] = "PlanSet"
    execution_plan: tuple[PlanEntry, ...]
    """The plan."""


class AddedStep(Value):
    """One codon that was added to the execution plan."""

    codon_id: CodonId
    loop_context: LoopContext | None = None
    like: CodonId | None = None
    """The entry of the former plan that has the same codon."""
    codon: Codon | None = None
    """Null if `like` is set."""


class PlanChanged(Transition):
    """The execution plan was set; recorded as its difference from the former one.

    A loop adds an iteration at a time, so recording the whole plan each time would let the journal
    grow with the square of the iterations.
    """

    TYPE: ClassVar[str] = "PlanChanged"
    at: int
    """The number of entries that stay before the change."""
    removed: int
    """The number of entries that leave the plan from there on."""
    added: tuple[AddedStep, ...] = ()
    """The entries that take their place."""


class TimeTravelled(Transition):
    """The files were restored: by a rollback, the undo of one, or a redo."""

    TYPE: ClassVar[str] = "TimeTravelled"
    direction: Direction
    travel: Travel
    """The rollback; its `edits` are those it removed."""
    restored_edits: dict[str, str] = msgspec.field(default_factory=dict)
    notice: Notice | None = None
    """The rollback that the next agent is told of."""


class TravelsForgotten(Transition):
    """Rollbacks can no longer be undone or redone: their safety checkpoints were pruned."""

    TYPE: ClassVar[str] = "TravelsForgotten"
    operation_ids: tuple[str, ...]
    """Rollbacks that can no longer be undone or redone."""


class EditsNoticed(Transition):
    """People changed files after an agent or rig last wrote them.

    With the SHA-256 of each; empty for a deleted file, and for every file of a burst.
    """

    TYPE: ClassVar[str] = "EditsNoticed"
    edits: dict[str, str]


class EditsOvertaken(Transition):
    """An agent or rig wrote files that people had changed."""

    TYPE: ClassVar[str] = "EditsOvertaken"
    paths: tuple[str, ...]
    """Files that an agent or rig has written since."""


class AgentTold(Transition):
    """An agent got the message about the last rollback."""

    TYPE: ClassVar[str] = "AgentTold"
    operation_id: str


class ExplorationSet(Transition):
    """An exploration was started, or one of its attempts has changed."""

    TYPE: ClassVar[str] = "ExplorationSet"
    exploration: Exploration
    """The whole record; it replaces the former one."""


class PermissionRuleAdded(Transition):
    """The answer to a permission request has allowed further calls, too."""

    TYPE: ClassVar[str] = "PermissionRuleAdded"
    rule: PermissionRule
    """The rule; it replaces an equal one."""


class RunImported(Transition):
    """A run of an attempt has become a timeline of this execution; it does not become current."""

    TYPE: ClassVar[str] = "RunImported"
    run: Run


AnyTransition = (
    RunStarted
    | RunCompleted
    | RunFailed
    | RunCrashed
    | CurrentRunCleared
    | CodonStarted
    | CodonTransitioned
    | CostsIncremented
    | CostsUpdated
    | SentinelStatesUpdated
    | ExtensionCountUpdated
    | CodonWaitChanged
    | CheckpointCreated
    | InitialCheckpointSet
    | PlanSet
    | PlanChanged
    | TimeTravelled
    | TravelsForgotten
    | EditsNoticed
    | EditsOvertaken
    | AgentTold
    | ExplorationSet
    | RunImported
    | PermissionRuleAdded
)

TRANSITIONS: Registry[Transition] = Registry(*get_args(AnyTransition))
