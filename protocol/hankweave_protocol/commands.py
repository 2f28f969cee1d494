"""The commands that a client may send: the fourteen of Hankweave, and those of this server.

Class variables describe a command: `MUTATES` (only a `readandwrite` client may send it),
`DURING_ROLLBACK` (it is executed even during a rollback) and `REPLY`, which an `AnsweredCommand[R]`
takes from R.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

from msgspec import Meta, field

from hankweave_protocol.ids import CodonId, CommandId, RunId
from hankweave_protocol.queries import EventsPage, Moment, Order, Reduction, Where
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    CodonCheckpointType,
    RollbackReport,
)
from hankweave_protocol.replies import (
    BranchMade,
    CheckpointPage,
    CodonChosen,
    DiffPage,
    FileRange,
    FsckReport,
    GcReport,
    PastView,
    ServerStatus,
)
from hankweave_protocol.shapes import Registry, Typed, Value
from hankweave_protocol.state import State

R = TypeVar("R")

MAX_RANGE = 512 * 1024
"""Bytes of a file in one answer."""


class CommandData(Typed):
    """The `data` of a command."""

    MUTATES: ClassVar[bool] = True
    DURING_ROLLBACK: ClassVar[bool] = False
    REPLY: ClassVar[type[Any] | None] = None
    """The type of the reply's data; None if the reply has none."""


class AnsweredCommand(CommandData, Generic[R]):
    """The `data` of a command whose reply has data, of type R."""

    REPLY: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__orig_bases__:  # type: ignore[attr-defined]  # Generic sets it.
            for argument in get_args(base):
                if not isinstance(argument, TypeVar):
                    cls.REPLY = argument


class Command(Value):
    """One command as a client sends it."""

    id: CommandId
    type: str
    data: CommandData


OnRunning = Literal["refuse", "stop", "pause"]
"""What a rollback does about a running codon: nothing at all, end it, or freeze it meanwhile."""

LONGEST_AGE_SECONDS = 1_000 * 366 * 86_400
"""A thousand years: a moment before that is none that a clock can say."""

Paths = tuple[Annotated[str, Meta(min_length=1)], ...]
"""Files and folders of the work tree, relative to it."""


class CodonStart(CommandData):
    """Starts one entry of the plan."""

    TYPE: ClassVar[str] = "codon.start"
    codon_id: CodonId
    skip_pre_commands: bool = False
    expected_run_id: RunId | None = None


class CodonNext(AnsweredCommand[CodonChosen]):
    """Starts the thread's next codon."""

    TYPE: ClassVar[str] = "codon.next"
    expected_run_id: RunId | None = None


class CodonSkip(CommandData):
    """Stops the active codon; it ends as `skipped` and the plan goes on after it."""

    TYPE: ClassVar[str] = "codon.skip"
    expected_run_id: RunId | None = None


class CodonRedo(AnsweredCommand[CodonChosen]):
    """Runs the thread's newest codon again."""

    TYPE: ClassVar[str] = "codon.redo"
    expected_run_id: RunId | None = None


class CodonForceStop(CommandData):
    """Kills the active codon; it ends as `failed` and the server idles."""

    TYPE: ClassVar[str] = "codon.forceStop"
    reason: str | None = None
    expected_run_id: RunId | None = None


class PermissionAnswer(CommandData, kw_only=True):
    """Lets an agent call the tool that it asked for, or not."""

    TYPE: ClassVar[str] = "permission.answer"
    request_id: str
    decision: Literal["allow", "deny"]
    message: Annotated[str, Meta(max_length=2000)] | None = None
    """The agent is told, where it is denied."""
    expected_run_id: RunId | None = None


class ListCheckpoints(AnsweredCommand[CheckpointPage]):
    TYPE: ClassVar[str] = "checkpoint.list"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True
    run_id: RunId | None = None
    kinds: tuple[CheckpointKind, ...] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


Label = Annotated[str, Meta(max_length=500)]
"""A person's words about a checkpoint; they become part of its commit message."""


class CheckpointCreate(AnsweredCommand[CheckpointRecord]):
    """Takes a `manual` checkpoint now."""

    TYPE: ClassVar[str] = "checkpoint.create"
    label: Label | None = None
    expected_run_id: RunId | None = None


Comparison = Literal["previous", "now"]
"""What a view is compared with: the checkpoint it was made upon, or the work tree."""


class LookCommand(AnsweredCommand[R]):
    """What only looks: answered to everybody, and even during a rollback."""

    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class CheckpointDiff(LookCommand[DiffPage], kw_only=True):
    """Compares two checkpoints, or without `to` a checkpoint and the work tree."""

    TYPE: ClassVar[str] = "checkpoint.diff"
    from_sha: str = field(name="from")
    to_sha: str | None = field(name="to", default=None)
    paths: tuple[str, ...] | None = None
    """Files or folders; absent: all."""
    patch: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


class CheckpointReadFile(LookCommand[FileRange], kw_only=True):
    """Reads a file of a checkpoint, or a range of its bytes."""

    TYPE: ClassVar[str] = "checkpoint.readFile"
    checkpoint_sha: str
    path: str
    offset: Annotated[int, Meta(ge=0)] = 0
    length: Annotated[int, Meta(ge=1, le=MAX_RANGE)] | None = None
    """Absent: up to the end, if that is no more than MAX_RANGE."""


class ReplayView(LookCommand[PastView]):
    """Shows a past moment: that of a checkpoint, or that right after an event."""

    TYPE: ClassVar[str] = "replay.view"
    checkpoint_sha: str | None = None
    seq: Annotated[int, Meta(ge=0)] | None = None
    paths: tuple[str, ...] | None = None
    compare: tuple[Comparison, ...] = ()
    limit: Annotated[int, Meta(ge=0)] | None = None
    """Files in one answer; 0 leaves the tree out."""
    cursor: str | None = None


class CheckpointPin(AnsweredCommand[CheckpointRecord]):
    """Keeps a checkpoint for good, or with `pinned` false gives it back to the retention.

    A checkpoint that is pinned already takes the new name.
    """

    TYPE: ClassVar[str] = "checkpoint.pin"
    checkpoint_sha: str
    """A full sha, or a prefix that is unique among all checkpoints."""
    pinned: bool
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    expected_run_id: RunId | None = None


class StoreGc(AnsweredCommand[GcReport]):
    """Prunes the checkpoints beyond the limits, and packs the store.

    Without a limit nothing is pruned. `completed`, pinned and the thread's own never are.
    """

    TYPE: ClassVar[str] = "store.gc"
    dry_run: bool = False
    """Only says what would go."""
    max_age_seconds: Annotated[int, Meta(ge=0, le=LONGEST_AGE_SECONDS)] | None = None
    max_count: Annotated[int, Meta(ge=0)] | None = None
    max_bytes: Annotated[int, Meta(ge=0)] | None = None
    kinds: tuple[CheckpointKind, ...] | None = None
    """Only these may go."""
    expected_run_id: RunId | None = None


class StoreFsck(AnsweredCommand[FsckReport]):
    """Reads every checkpoint down to each blob, and repairs the store before if asked to.

    Without `repair` it changes nothing, but reads the whole store: viewers may not send it.
    """

    TYPE: ClassVar[str] = "store.fsck"
    repair: bool = False
    """Write lost objects again where they can be found, and give up what cannot."""
    mirror: str | None = None
    """A git repository or execution directory that may have them; only with `repair`."""


class RollbackCommand(AnsweredCommand[RollbackReport], kw_only=True):
    """What the three rollbacks have in common."""

    auto_restart: bool = False
    on_running: OnRunning = "refuse"
    paths: Paths | None = None
    """Restores these and nothing else; no run changes."""
    keep_edits: bool = False
    """Leaves files alone that people changed after an agent or rig last wrote them."""
    rewind_memory: bool = False
    reason: str | None = None
    """Why, in a sentence: the agent is told."""
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


class RollbackUndo(AnsweredCommand[RollbackReport]):
    """Takes back the last rollback: files, and the place in the plan, as they were before it."""

    TYPE: ClassVar[str] = "rollback.undo"
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    reason: str | None = None
    expected_run_id: RunId | None = None


class RollbackRedo(AnsweredCommand[RollbackReport]):
    """Takes back the last undo."""

    TYPE: ClassVar[str] = "rollback.redo"
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    reason: str | None = None
    expected_run_id: RunId | None = None


class RollbackPreview(AnsweredCommand[RollbackReport]):
    """Says what a rollback would do; exactly one target, or none for the last success."""

    TYPE: ClassVar[str] = "rollback.preview"
    MUTATES: ClassVar[bool] = False
    checkpoint_sha: str | None = None
    codon_id: CodonId | None = None
    checkpoint_type: CodonCheckpointType | None = None
    direction: Literal["undo", "redo"] | None = None
    """The target is what `rollback.undo` or `rollback.redo` would go to."""
    paths: Paths | None = None
    keep_edits: bool = False
    patch: bool = False
    """Adds unified diffs of the files it would touch."""


class ExecutionBranch(AnsweredCommand[BranchMade], kw_only=True):
    """Makes a new execution from a checkpoint; this one stays as it is."""

    TYPE: ClassVar[str] = "execution.branch"
    checkpoint_sha: str
    """A full sha, or a prefix that is unique among all checkpoints."""
    path: str | None = None
    """Absolute: a directory that does not exist, or is empty. Absent: beside this execution."""
    expected_run_id: RunId | None = None


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


class EventsQuery(AnsweredCommand[EventsPage], forbid_unknown_fields=True):
    """Asks the journal: a window, causes and conditions; then events, columns or an aggregate."""

    TYPE: ClassVar[str] = "events.query"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True
    where: Where | None = None
    since: Moment | None = None
    """Only events after this seq, or from this moment on."""
    until: Moment | None = None
    """Only events up to this seq or moment, itself included."""
    caused_by: int | str | None = None
    """Only events that name this seq or command id in their `causes`."""
    descendants_of: int | str | None = None
    """Only events that this seq or command led to, over any number of others."""
    ancestors_of: int | None = None
    """Only events that led to this seq, over any number of others."""
    select: tuple[str, ...] | None = None
    order_by: Order | tuple[Order, ...] | None = None
    reduce: Reduction | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: str | None = None


class GetState(AnsweredCommand[State]):
    TYPE: ClassVar[str] = "state.get"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class GetServerStatus(AnsweredCommand[ServerStatus]):
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
    PermissionAnswer,
    ListCheckpoints,
    CheckpointCreate,
    CheckpointPin,
    StoreGc,
    StoreFsck,
    CheckpointDiff,
    CheckpointReadFile,
    ReplayView,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
    RollbackUndo,
    RollbackRedo,
    RollbackPreview,
    ExecutionBranch,
    Ping,
    PingBroadcast,
    HistorySync,
    EventsQuery,
    GetState,
    GetServerStatus,
    ServerShutdown,
    ServerForceShutdown,
)
