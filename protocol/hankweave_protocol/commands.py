"""What a client may ask for: Hankweave's fourteen commands, and ours.

Each class says what kind of command it is by two class variables: `MUTATES` (only a
`readandwrite` client may send it) and `DURING_ROLLBACK` (it is answered even then).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from hankweave_protocol.ids import CodonId, CommandId, RunId
from hankweave_protocol.records import CheckpointKind, CodonCheckpointType
from hankweave_protocol.shapes import Registry, Typed, Value


class CommandData(Typed):
    """The `data` of a command."""

    MUTATES: ClassVar[bool] = True
    DURING_ROLLBACK: ClassVar[bool] = False


class Command(Value):
    """One command as a client sends it."""

    id: CommandId
    type: str
    data: CommandData


OnRunning = Literal["refuse", "stop"]


class CodonStart(CommandData):
    """Starts one entry of the plan."""

    TYPE: ClassVar[str] = "codon.start"
    codon_id: CodonId
    skip_pre_commands: bool = False
    expected_run_id: RunId | None = None


class CodonNext(CommandData):
    """Starts the thread's next codon."""

    TYPE: ClassVar[str] = "codon.next"
    expected_run_id: RunId | None = None


class CodonSkip(CommandData):
    """Stops the active codon; it ends as `skipped` and the plan goes on after it."""

    TYPE: ClassVar[str] = "codon.skip"
    expected_run_id: RunId | None = None


class CodonRedo(CommandData):
    """Runs the thread's newest codon again."""

    TYPE: ClassVar[str] = "codon.redo"
    expected_run_id: RunId | None = None


class CodonForceStop(CommandData):
    """Kills the active codon; it ends as `failed` and the server idles."""

    TYPE: ClassVar[str] = "codon.forceStop"
    reason: str | None = None
    expected_run_id: RunId | None = None


class ListCheckpoints(CommandData):
    TYPE: ClassVar[str] = "checkpoint.list"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True
    run_id: RunId | None = None
    kinds: tuple[CheckpointKind, ...] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


class CheckpointCreate(CommandData):
    """Takes a `manual` checkpoint now."""

    TYPE: ClassVar[str] = "checkpoint.create"
    label: str | None = None
    expected_run_id: RunId | None = None


class RollbackCommand(CommandData, kw_only=True):
    """What the three rollbacks have in common."""

    auto_restart: bool = False
    on_running: OnRunning = "refuse"
    expected_run_id: RunId | None = None


class RollbackToCheckpoint(RollbackCommand, kw_only=True):
    """Goes back to a commit: a full sha, or a prefix that is unique among all checkpoints."""

    TYPE: ClassVar[str] = "rollback.toCheckpoint"
    checkpoint_sha: str


class RollbackToCodon(RollbackCommand, kw_only=True):
    """Goes back to a checkpoint of the newest execution of a codon in the thread."""

    TYPE: ClassVar[str] = "rollback.toCodon"
    codon_id: CodonId
    checkpoint_type: CodonCheckpointType


class RollbackToLastSuccess(RollbackCommand, kw_only=True):
    """Goes back to the newest completed codon of the thread."""

    TYPE: ClassVar[str] = "rollback.toLastSuccess"


class RollbackPreview(CommandData):
    """Says what a rollback would do; exactly one target, or none for the last success."""

    TYPE: ClassVar[str] = "rollback.preview"
    MUTATES: ClassVar[bool] = False
    checkpoint_sha: str | None = None
    codon_id: CodonId | None = None
    checkpoint_type: CodonCheckpointType | None = None


class Ping(CommandData):
    TYPE: ClassVar[str] = "ping"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class PingBroadcast(CommandData):
    TYPE: ClassVar[str] = "ping.broadcast"


class HistorySync(CommandData):
    """Streams the whole journal to the sender, or what came after `since_seq`."""

    TYPE: ClassVar[str] = "history.sync"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True
    since_seq: Annotated[int, Meta(ge=0)] = 0


class GetState(CommandData):
    TYPE: ClassVar[str] = "state.get"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class GetServerStatus(CommandData):
    TYPE: ClassVar[str] = "server.status"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class ServerShutdown(CommandData):
    """Stops the server: agents, `exit` checkpoint, final state, lock."""

    TYPE: ClassVar[str] = "server.shutdown"
    DURING_ROLLBACK: ClassVar[bool] = True
    reason: str = "client request"


class ServerForceShutdown(CommandData):
    """Kills agents and leaves at once with exit code 1; the next start recovers."""

    TYPE: ClassVar[str] = "server.force_shutdown"
    DURING_ROLLBACK: ClassVar[bool] = True
    reason: str = "client force request"


COMMANDS: Registry[CommandData] = Registry(
    CodonStart,
    CodonNext,
    CodonSkip,
    CodonRedo,
    CodonForceStop,
    ListCheckpoints,
    CheckpointCreate,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackPreview,
    Ping,
    PingBroadcast,
    HistorySync,
    GetState,
    GetServerStatus,
    ServerShutdown,
    ServerForceShutdown,
)
