"""What can happen to the state: the payloads of `state.transition`.

state.json is the fold of these, in journal order; `hankweave_server.domain.reducer` applies them.
A transition carries facts, never instructions, so that it means the same whenever it is folded.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import CheckpointRecord, Direction, Notice, Travel
from hankweave_protocol.shapes import Registry, Typed
from hankweave_protocol.state import (
    CodonExecution,
    CodonStatus,
    LoadedSentinels,
    PlanEntry,
    Run,
    Tokens,
)


class Transition(Typed):
    """A member of the union; `TYPE` is Hankweave's name of it where it has one."""


class RunStarted(Transition):
    """A new run becomes the newest and the current one."""

    TYPE: ClassVar[str] = "RunStarted"
    run: Run


class RunCompleted(Transition):
    """A run came to its end; it stays the current one until its server stops or another begins."""

    TYPE: ClassVar[str] = "RunCompleted"
    run_id: RunId
    end_time: str


class RunFailed(Transition):
    """The same of a run whose newest codon failed for good."""

    TYPE: ClassVar[str] = "RunFailed"
    run_id: RunId
    end_time: str


class RunCrashed(Transition):
    """The server that drove the run died, so the run is no longer the current one.

    Its active codons are failed by events of their own.
    """

    TYPE: ClassVar[str] = "RunCrashed"
    run_id: RunId
    end_time: str
    server_pid: int


class CurrentRunCleared(Transition):
    """No run is current any more: the server that drove it stops, or is found to have stopped."""

    TYPE: ClassVar[str] = "CurrentRunCleared"
    run_id: RunId
    """The one that was current."""


class CodonStarted(Transition):
    """A codon's record is appended to the current run."""

    TYPE: ClassVar[str] = "CodonStarted"
    run_id: RunId
    codon: CodonExecution


class CodonTransitioned(Transition):
    """The newest record of a codon takes another state; `codon` is the record as it now stands."""

    TYPE: ClassVar[str] = "CodonTransitioned"
    run_id: RunId
    from_status: CodonStatus
    codon: CodonExecution


class CostsIncremented(Transition):
    """One message of the agent was counted."""

    TYPE: ClassVar[str] = "CostsIncremented"
    run_id: RunId
    codon_id: CodonId
    cost: float
    tokens: Tokens
    messages: int = 0
    """How many assistant messages are counted with it."""


class CostsUpdated(Transition):
    """The codon's totals as the agent reported them at its end replace the running sums."""

    TYPE: ClassVar[str] = "CostsUpdated"
    run_id: RunId
    codon_id: CodonId
    cost: float
    tokens: Tokens


class SentinelStatesUpdated(Transition):
    """The sentinels of an active codon, as they now stand."""

    TYPE: ClassVar[str] = "SentinelStatesUpdated"
    run_id: RunId
    codon_id: CodonId
    sentinels: LoadedSentinels


class ExtensionCountUpdated(Transition):
    """How often a working codon's agent was sent on with `exhaustWithPrompt`."""

    TYPE: ClassVar[str] = "ExtensionCountUpdated"
    run_id: RunId
    codon_id: CodonId
    extension_count: int
    session_id: str | None = None
    """The session that the agent goes on in, where it gave it another name."""


class CheckpointCreated(Transition):
    """A commit of the shadow repository is on record."""

    TYPE: ClassVar[str] = "CheckpointCreated"
    checkpoint: CheckpointRecord
    recovered: bool = False
    """True where the commit was found at a start, made by a server that died before it said so."""


class InitialCheckpointSet(Transition):
    TYPE: ClassVar[str] = "InitialCheckpointSet"
    checkpoint_sha: Sha


class PlanSet(Transition):
    """The execution plan is laid out anew: at the start, after an iteration, after a rollback."""

    TYPE: ClassVar[str] = "PlanSet"
    execution_plan: tuple[PlanEntry, ...]


class TimeTravelled(Transition):
    """The files went to another moment: a rollback, the undo of one, or a redo."""

    TYPE: ClassVar[str] = "TimeTravelled"
    direction: Direction
    travel: Travel
    """The journey just made; its `edits` are those it took away."""
    restored_edits: dict[str, str] = msgspec.field(default_factory=dict)
    notice: Notice | None = None


class TravelsForgotten(Transition):
    """Rollbacks that cannot be undone, or redone, any more: their safety checkpoints are gone."""

    TYPE: ClassVar[str] = "TravelsForgotten"
    operation_ids: tuple[str, ...]


class EditsNoticed(Transition):
    """People changed these files since an agent or rig last wrote them (SHA-256; empty: gone)."""

    TYPE: ClassVar[str] = "EditsNoticed"
    edits: dict[str, str]


class EditsOvertaken(Transition):
    """An agent or rig wrote these files after people had."""

    TYPE: ClassVar[str] = "EditsOvertaken"
    paths: tuple[str, ...]


class AgentTold(Transition):
    """An agent has learned of the last rollback."""

    TYPE: ClassVar[str] = "AgentTold"
    operation_id: str


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
    | CheckpointCreated
    | InitialCheckpointSet
    | PlanSet
    | TimeTravelled
    | TravelsForgotten
    | EditsNoticed
    | EditsOvertaken
    | AgentTold
)

TRANSITIONS: Registry[Transition] = Registry(
    RunStarted,
    RunCompleted,
    RunFailed,
    RunCrashed,
    CurrentRunCleared,
    CodonStarted,
    CodonTransitioned,
    CostsIncremented,
    CostsUpdated,
    SentinelStatesUpdated,
    ExtensionCountUpdated,
    CheckpointCreated,
    InitialCheckpointSet,
    PlanSet,
    TimeTravelled,
    TravelsForgotten,
    EditsNoticed,
    EditsOvertaken,
    AgentTold,
)
