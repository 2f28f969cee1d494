"""The commands that a client may send: the fourteen of Hankweave, and those of this server.

A class with a `TYPE` declares a command, and is thereby in `COMMANDS`: its fields, the type of its
reply, and who may send it and when. The server's dispatch, the client, the tools of agents and the
reference derive from these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, get_args

from msgspec import Meta, field

from hankweave_protocol.attempts import Exploration
from hankweave_protocol.executions import ExecutionAddress, ExecutionPage
from hankweave_protocol.hank import Variant
from hankweave_protocol.ids import CodonId, CommandId, RunId
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    CodonCheckpointType,
    RollbackReport,
)
from hankweave_protocol.replies import (
    BisectionBegun,
    BlamedFile,
    BranchMade,
    ChangeAuthor,
    CheckpointPage,
    CodonChosen,
    DiffPage,
    EventsPage,
    ExplorationPage,
    FileRange,
    FsckReport,
    GcReport,
    LineStory,
    MirrorEnded,
    MirrorStatus,
    PastView,
    PromptText,
    ServerStatus,
    TextHistory,
    ToolOutput,
)
from hankweave_protocol.shapes import Registry, Typed, Value
from hankweave_protocol.state import State

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_ATTEMPTS = 100

MAX_RANGE = 512 * 1024
"""Maximum bytes of a file in one reply."""


MAX_CHANGES = 500
"""Maximum changes in one reply to `file.pickaxe`."""


Examples = tuple[Mapping[str, object], ...]

_AgentAccess = Literal["no", "tools", "rollback", "always"]
"""When an agent may send a command on its own socket: always, if the hank gives it tools, or if
these also include the rollback of paths."""


class CommandData(Typed):
    """The `data` of a command."""

    MUTATES: ClassVar[bool] = True
    """Only a client with mode `readandwrite` may send it."""
    BEYOND: ClassVar[bool] = False
    """The same, although it changes nothing: it tells of other executions."""
    DURING_ROLLBACK: ClassVar[bool] = False
    """It is executed even during a rollback."""
    NEEDS_ROOM: ClassVar[bool] = False
    """It is refused while the disk is full. Commands that stop something or free space are not."""
    AGENTS: ClassVar[_AgentAccess] = "no"
    EXAMPLES: ClassVar[Examples] = ({},)
    """The data of examples, as on the wire; the reference shows them."""
    REPLY: ClassVar[type[Any] | None] = None
    """The type of the reply's data; None if the reply has none."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "TYPE" in vars(cls):
            COMMANDS.add(cls)


COMMANDS: Registry[CommandData] = Registry()
"""Every command, in the order of declaration."""


class AnsweredCommand(CommandData, Generic[R_co]):
    """The `data` of a command whose reply has data, of type R_co."""

    REPLY: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__orig_bases__:  # type: ignore[attr-defined]  # Generic sets it.
            for argument in get_args(base):
                if not isinstance(argument, TypeVar):
                    cls.REPLY = argument


class ReadCommand(AnsweredCommand[R_co]):
    """A command that only reads: any client may send it, even during a rollback."""

    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class Command(Value):
    """A command frame."""

    id: CommandId
    """An id that the client chooses; new for each command."""
    type: str
    """The command."""
    data: CommandData


OnRunning = Literal["refuse", "stop", "pause"]
"""How a rollback treats a running codon: refuse, stop the codon, or pause it meanwhile."""

LONGEST_AGE_SECONDS = 1_000 * 366 * 86_400
"""A thousand years; an earlier date may be out of range for `datetime`."""

Paths = tuple[Annotated[str, Meta(min_length=1)], ...]
"""Files and folders, relative to the work tree."""


class CodonStart(CommandData):
    """Start an entry of the plan. A codon that waits for the end of a limit continues."""

    TYPE: ClassVar[str] = "codon.start"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {
            "codonId": "review#1",
            "skipPreCommands": True,
            "expectedRunId": "1736000000000-abc123-def456",
        },
    )
    codon_id: CodonId
    skip_pre_commands: bool = False
    """Do not set up its rig."""
    expected_run_id: RunId | None = None


class CodonNext(AnsweredCommand[CodonChosen]):
    """Start the next codon of the plan."""

    TYPE: ClassVar[str] = "codon.next"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"expectedRunId": "1736000000000-abc123-def456"},)
    expected_run_id: RunId | None = None


class CodonSkip(CommandData):
    """Stop the running codon; it ends as `skipped`, and the plan continues after it."""

    TYPE: ClassVar[str] = "codon.skip"
    expected_run_id: RunId | None = None


class CodonRedo(AnsweredCommand[CodonChosen]):
    """Run the newest codon again, in a new run; files are not changed."""

    TYPE: ClassVar[str] = "codon.redo"
    NEEDS_ROOM: ClassVar[bool] = True
    expected_run_id: RunId | None = None


class CodonForceStop(CommandData):
    """Kill the running codon; it ends as `failed`, and the server becomes idle."""

    TYPE: ClassVar[str] = "codon.forceStop"
    EXAMPLES: ClassVar[Examples] = ({"reason": "It reads the wrong table."},)
    reason: str | None = None
    """The reason, for the journal."""
    expected_run_id: RunId | None = None


class PermissionAnswer(CommandData, kw_only=True):
    """Allow or deny the tool call that an agent requested.

    The reply is sent when the decision is journaled and the agent has it.
    """

    TYPE: ClassVar[str] = "permission.answer"
    EXAMPLES: ClassVar[Examples] = (
        {"requestId": "5f0c2a91", "decision": "deny", "message": "Push nothing before the review."},
    )
    request_id: str
    decision: Literal["allow", "deny"]
    """`allow` or `deny`."""
    message: Annotated[str, Meta(max_length=2000)] | None = None
    """Sent to the agent if the call is denied."""
    always: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None
    """A rule, as in `permissions.allow`, that allows this call and from now on, in this execution,
    every one that it fits; it names one tool. Only with `allow`."""
    expected_run_id: RunId | None = None


class ListCheckpoints(ReadCommand[CheckpointPage]):
    """List checkpoints, the newest first."""

    TYPE: ClassVar[str] = "checkpoint.list"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = (
        {
            "runId": "1736000000000-abc123-def456",
            "kinds": ["completed", "rig-setup"],
            "limit": 20,
            "cursor": "6dc2daaed756f492c0b47af2ae68dfc26d827fab",
        },
    )
    run_id: RunId | None = None
    """Only those of this run."""
    kinds: tuple[CheckpointKind, ...] | None = None
    """The kinds to include; by default, all."""
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


Label = Annotated[str, Meta(max_length=500)]
"""A description of a checkpoint; it becomes part of the commit message."""


class CheckpointCreate(AnsweredCommand[CheckpointRecord]):
    """Take a `manual` checkpoint now."""

    TYPE: ClassVar[str] = "checkpoint.create"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"label": "before I edit by hand"},)
    label: Label | None = None
    """Its description; it becomes part of the commit message, without secrets."""
    expected_run_id: RunId | None = None


class CheckpointPin(AnsweredCommand[CheckpointRecord]):
    """Keep a checkpoint permanently, or with `pinned` false allow its pruning again.

    If the checkpoint is already pinned, it gets the new name.
    """

    TYPE: ClassVar[str] = "checkpoint.pin"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {"checkpointSha": "6dc2daaed756", "pinned": True, "name": "before the review"},
    )
    checkpoint_sha: str
    """A full sha, or a prefix that is unique among all checkpoints."""
    pinned: bool
    """True to keep it, false to allow its pruning again."""
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """One line of printable characters; it replaces an earlier name."""
    expected_run_id: RunId | None = None


class StoreGc(AnsweredCommand[GcReport]):
    """Prune checkpoints beyond the limits, and pack the store.

    Without a limit, nothing is pruned. Checkpoints that are `completed`, pinned or part of the
    thread are never pruned, except for `completed` ones of attempts that were discarded.
    """

    TYPE: ClassVar[str] = "store.gc"
    EXAMPLES: ClassVar[Examples] = (
        {
            "dryRun": True,
            "maxAgeSeconds": 2592000,
            "maxCount": 500,
            "maxBytes": 500000000,
            "kinds": ["safety", "manual"],
        },
    )
    dry_run: bool = False
    """Only report what would be pruned."""
    max_age_seconds: Annotated[int, Meta(ge=0, le=LONGEST_AGE_SECONDS)] | None = None
    """No remaining checkpoint is older."""
    max_count: Annotated[int, Meta(ge=0)] | None = None
    """At most so many checkpoints remain."""
    max_bytes: Annotated[int, Meta(ge=0)] | None = None
    """The store is at most so large."""
    kinds: tuple[CheckpointKind, ...] | None = None
    """Prune only these kinds."""
    expected_run_id: RunId | None = None


class StoreFsck(AnsweredCommand[FsckReport]):
    """Read every checkpoint down to each blob, after a repair if requested.

    Without `repair` it changes nothing, but it reads the whole store: viewers may not send it.
    """

    TYPE: ClassVar[str] = "store.fsck"
    repair: bool = False
    """Restore lost objects that can be found, and give up those that cannot."""
    mirror: str | None = None
    """A git repository or execution directory to search for them; only with `repair`."""


Comparison = Literal["previous", "now"]
"""What a view is compared with: the preceding checkpoint, or the work tree."""


class CheckpointDiff(ReadCommand[DiffPage], kw_only=True):
    """Compare two checkpoints, or without `to` a checkpoint and the work tree."""

    TYPE: ClassVar[str] = "checkpoint.diff"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = (
        {"from": "d3bcdb658ffe", "to": "6dc2daaed756", "paths": ["notes"], "patch": True},
    )
    from_sha: str = field(name="from")
    """The checkpoint to compare: its sha, or a unique prefix."""
    to_sha: str | None = field(name="to", default=None)
    """The other checkpoint; by default, the work tree."""
    paths: tuple[str, ...] | None = None
    """Files or folders; by default, all."""
    patch: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


class CheckpointReadFile(ReadCommand[FileRange], kw_only=True):
    """Read a file of a checkpoint, or a range of its bytes."""

    TYPE: ClassVar[str] = "checkpoint.readFile"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = (
        {
            "checkpointSha": "6dc2daaed756",
            "path": "notes/observations.md",
            "offset": 1048576,
            "length": 524288,
        },
    )
    checkpoint_sha: str
    path: str
    offset: Annotated[int, Meta(ge=0)] = 0
    """The first byte."""
    length: Annotated[int, Meta(ge=1, le=MAX_RANGE)] | None = None
    """By default, up to the end; an error if that is more than MAX_RANGE."""


class FileBlame(ReadCommand[BlamedFile], kw_only=True):
    """Find who has written each line of a file: an agent's call, a person, or the start."""

    TYPE: ClassVar[str] = "file.blame"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = ({"path": "src/records.py", "first": 10, "last": 40},)
    path: str
    at: str | None = None
    """A checkpoint, by its sha or a unique prefix, or a codon, for the end of that; by default, the
    newest checkpoint."""
    first: Annotated[int, Meta(ge=1)] = 1
    """The first line."""
    last: Annotated[int, Meta(ge=1)] | None = None
    """The last line; by default, that of the file."""
    copies: bool = False
    """Whether lines are also followed into files from which they were copied."""


class FileWhy(ReadCommand[LineStory], kw_only=True):
    """Tell how a line came to be: prompt, the model's words, call, change, and later changes."""

    TYPE: ClassVar[str] = "file.why"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = ({"path": "src/records.py", "line": 13},)
    path: str
    line: Annotated[int, Meta(ge=1)]
    """The number of the line, from 1."""
    at: str | None = None
    """As in `file.blame`."""


class FilePickaxe(ReadCommand[TextHistory], kw_only=True):
    """Find the changes that made a text more or less frequent in a file, as `git log -S` does."""

    TYPE: ClassVar[str] = "file.pickaxe"
    EXAMPLES: ClassVar[Examples] = ({"text": "def parse_date", "limit": 20},)
    text: Annotated[str, Meta(min_length=1)]
    """The text to search for; it may have several lines."""
    at: str | None = None
    """The newest checkpoint to search, as in `file.blame`."""
    everywhere: bool = False
    """Whether abandoned timelines are searched as well; excludes `at`."""
    limit: Annotated[int, Meta(ge=1, le=MAX_CHANGES)] = MAX_CHANGES
    """Maximum number of changes."""


class ChangeOfFile(ChangeAuthor, kw_only=True, omit_defaults=False):
    """A change of a file."""

    path: str
    """The file's path then."""
    lines_added: int
    """0 if the file is not text."""
    lines_removed: int
    """The same for lines that are gone."""


class ChangesOfFile(Value, kw_only=True):
    """The reply to `file.changes`."""

    changes: tuple[ChangeOfFile, ...]
    """Newest first."""
    has_more: bool = False
    """Whether there are older ones, beyond the limit."""


class ListFileChanges(ReadCommand[ChangesOfFile], kw_only=True):
    """List the changes of a file, through renames, with who made each."""

    TYPE: ClassVar[str] = "file.changes"
    EXAMPLES: ClassVar[Examples] = ({"path": "src/records.py", "limit": 20},)
    path: str
    at: str | None = None
    """The newest checkpoint to search, as in `file.blame`."""
    limit: Annotated[int, Meta(ge=1, le=MAX_CHANGES)] = MAX_CHANGES
    """Maximum number of changes."""


class CodonReadResult(ReadCommand[ToolOutput]):
    """Read the whole result of a tool, of which the journal has the beginning."""

    TYPE: ClassVar[str] = "codon.readResult"
    EXAMPLES: ClassVar[Examples] = ({"seq": 117, "length": 200000},)
    seq: Annotated[int, Meta(ge=1)]
    """The `seq` of its `tool.result` event."""
    offset: Annotated[int, Meta(ge=0)] = 0
    """The first character; beyond the end, the range is empty."""
    length: Annotated[int, Meta(ge=1, le=MAX_RANGE)] = MAX_RANGE
    """Maximum number of characters."""


class CodonReadPrompt(ReadCommand[PromptText]):
    """Read the prompt of an entry of the plan."""

    TYPE: ClassVar[str] = "codon.readPrompt"
    EXAMPLES: ClassVar[Examples] = ({"codonId": "review#0"},)
    codon_id: CodonId


class ReplayView(ReadCommand[PastView]):
    """Show a past moment: that of a checkpoint, or that right after an event."""

    TYPE: ClassVar[str] = "replay.view"
    AGENTS: ClassVar[_AgentAccess] = "tools"
    EXAMPLES: ClassVar[Examples] = (
        {"seq": 117, "paths": ["notes", "reports/review-0.json"], "compare": ["previous"]},
    )
    checkpoint_sha: str | None = None
    """The checkpoint to show; excludes `seq`."""
    seq: Annotated[int, Meta(ge=0)] | None = None
    """Show the moment right after this event; excludes `checkpointSha`."""
    paths: tuple[str, ...] | None = None
    compare: tuple[Comparison, ...] = ()
    """Comparisons to include: with the preceding checkpoint, with the work tree."""
    limit: Annotated[int, Meta(ge=0)] | None = None
    """Maximum number of files in one reply; 0 omits the tree."""
    cursor: str | None = None


class RollbackCommand(AnsweredCommand[RollbackReport], kw_only=True):
    """The fields that the three rollback commands share."""

    NEEDS_ROOM: ClassVar[bool] = True
    auto_restart: bool = False
    on_running: OnRunning = "refuse"
    paths: Paths | None = None
    """Restore only these; no run ends or begins."""
    keep_edits: bool = False
    """Keep files that people changed after an agent or rig last wrote them."""
    rewind_memory: bool = False
    reason: str | None = None
    """The reason, in a sentence; the agent gets it."""
    expected_run_id: RunId | None = None


class RollbackToCheckpoint(RollbackCommand, kw_only=True):
    """Roll back to a commit: a full sha, or a prefix that is unique among all checkpoints."""

    TYPE: ClassVar[str] = "rollback.toCheckpoint"
    AGENTS: ClassVar[_AgentAccess] = "rollback"
    EXAMPLES: ClassVar[Examples] = (
        {"autoRestart": True, "onRunning": "stop", "checkpointSha": "6dc2daaed756"},
        {
            "onRunning": "pause",
            "paths": ["notes", "reports/review-0.json"],
            "keepEdits": True,
            "reason": "The review read the wrong table.",
            "checkpointSha": "6dc2daaed756",
        },
    )
    checkpoint_sha: str


class RollbackToCodon(RollbackCommand, kw_only=True):
    """Roll back to the newest checkpoint of a codon.

    It is searched on the current thread, then on any other run, which the report's `note` names.
    """

    TYPE: ClassVar[str] = "rollback.toCodon"
    EXAMPLES: ClassVar[Examples] = (
        {
            "expectedRunId": "1736000000000-abc123-def456",
            "codonId": "review#0",
            "checkpointType": "start",
        },
    )
    codon_id: CodonId
    checkpoint_type: CodonCheckpointType
    """Which checkpoint of the codon: its kind, or `beginning`, `start` or `end`."""
    reuse: bool = False
    """In the run that follows, run this codon; later ones take over earlier results of the same
    inputs. The checkpoint must be `beginning`."""


class RollbackToLastSuccess(RollbackCommand, kw_only=True):
    """Roll back to the newest `completed` codon.

    If there is none, the target is the newest rig, otherwise the beginning.
    """

    TYPE: ClassVar[str] = "rollback.toLastSuccess"
    EXAMPLES: ClassVar[Examples] = ({"rewindMemory": True},)


class RollbackUndo(AnsweredCommand[RollbackReport]):
    """Undo the last rollback: restore the files and the position in the plan."""

    TYPE: ClassVar[str] = "rollback.undo"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {"keepEdits": True, "expectedRunId": "1736000300000-0a1b2c-3d4e5f"},
    )
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    reason: str | None = None
    expected_run_id: RunId | None = None


class RollbackRedo(AnsweredCommand[RollbackReport]):
    """Redo the rollback that was undone last."""

    TYPE: ClassVar[str] = "rollback.redo"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"onRunning": "stop", "reason": "It was right after all."},)
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    reason: str | None = None
    expected_run_id: RunId | None = None


class RollbackPreview(AnsweredCommand[RollbackReport]):
    """Report what a rollback would do, without changing anything.

    Without a target it is the last success.
    """

    TYPE: ClassVar[str] = "rollback.preview"
    MUTATES: ClassVar[bool] = False
    EXAMPLES: ClassVar[Examples] = (
        {"codonId": "review#0", "checkpointType": "rig-setup"},
        {"direction": "undo", "keepEdits": True, "patch": True},
    )
    checkpoint_sha: str | None = None
    codon_id: CodonId | None = None
    checkpoint_type: CodonCheckpointType | None = None
    """Which checkpoint of the codon; by default, `end`."""
    direction: Literal["undo", "redo"] | None = None
    """The target is that of `rollback.undo` or `rollback.redo`."""
    paths: Paths | None = None
    keep_edits: bool = False
    rewind_memory: bool = False
    patch: bool = False
    """Include unified diffs of the files it would change."""


class ExecutionBranch(AnsweredCommand[BranchMade], kw_only=True):
    """Create a new execution from a checkpoint; this one is not changed."""

    TYPE: ClassVar[str] = "execution.branch"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {"checkpointSha": "6dc2daaed756", "path": "/home/ann/executions/another-way"},
    )
    checkpoint_sha: str
    """A full sha, or a prefix that is unique among all checkpoints."""
    path: str | None = None
    """Absolute path of an absent or empty directory; by default, next to this execution."""
    expected_run_id: RunId | None = None


class ExplorationStart(AnsweredCommand[Exploration], kw_only=True):
    """Try a codon, or the rest of the plan, several times from one checkpoint, side by side.

    The reply comes when the exploration is recorded; `exploration.ended` follows the last attempt.
    """

    TYPE: ClassVar[str] = "exploration.start"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {
            "codonId": "research",
            "variants": [
                {"name": "short", "promptText": "Answer in one paragraph."},
                {"name": "long", "promptText": "Answer in depth, with sources.", "model": "opus"},
            ],
            "score": "python3 score.py notes/answer.md",
            "parallel": 2,
            "maxDollars": 4.0,
        },
    )
    checkpoint_sha: str | None = None
    """A full sha, or a prefix that is unique; by default, the newest checkpoint of the thread."""
    codon_id: CodonId | None = None
    """Begin where this codon began; excludes `checkpointSha`."""
    n: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    """The number of attempts; by default, one for each variant, or two."""
    variants: Annotated[tuple[Variant, ...], Meta(max_length=MAX_ATTEMPTS)] = ()
    """What the attempts do differently, in turn."""
    rest: bool = False
    """Run the rest of the plan, and not only one codon."""
    score: Annotated[str, Meta(min_length=1)] | None = None
    """A shell command that runs in the work tree of each attempt when its codons are done.

    The last line of its output is the score: a number, the higher the better."""
    judge: Annotated[str, Meta(min_length=1)] | None = None
    """A model, such as `anthropic/claude-sonnet-4-5`, that compares the results if their scores are
    equal."""
    parallel: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    """How many attempts run at the same time; by default, all."""
    max_dollars: Annotated[float, Meta(gt=0)] | None = None
    """The budget of all attempts together, in equal shares."""
    good_enough: float | None = None
    """A score with which no further attempt is started."""
    adopt: Literal["ask", "best"] = "ask"
    """Whether the best attempt is adopted when all have ended."""
    expected_run_id: RunId | None = None


class ExplorationList(ReadCommand[ExplorationPage]):
    """List the explorations of the execution, the newest first."""

    TYPE: ClassVar[str] = "exploration.list"


class ExplorationShow(ReadCommand[Exploration]):
    """Show one exploration with its attempts."""

    TYPE: ClassVar[str] = "exploration.show"
    EXAMPLES: ClassVar[Examples] = ({"explorationId": "5d1f0a"},)
    exploration_id: str | None = None
    """By default, the newest."""


class ExplorationCompare(ReadCommand[DiffPage], kw_only=True):
    """Compare the results of two attempts, or that of one with where it began."""

    TYPE: ClassVar[str] = "exploration.compare"
    EXAMPLES: ClassVar[Examples] = (
        {"attemptId": "5d1f0a-1", "otherId": "5d1f0a-2", "patch": True},
    )
    attempt_id: str
    other_id: str | None = None
    """The other attempt; by default, the checkpoint where the attempt began."""
    paths: tuple[str, ...] | None = None
    patch: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


class ExplorationAdopt(AnsweredCommand[RollbackReport], kw_only=True):
    """Make the result of an attempt that of this execution; `rollback.undo` reverts it.

    The plan continues after the attempt's last codon, with its conversation. With `paths`, only
    these files are adopted, and the plan stays where it is. With `merge`, what the attempt has
    changed is merged into the files as they are now, and the plan stays, too.
    """

    TYPE: ClassVar[str] = "exploration.adopt"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"attemptId": "5d1f0a-2", "preview": True},)
    attempt_id: str
    paths: Paths | None = None
    preview: bool = False
    """Only report what would happen."""
    merge: bool = False
    """Keep what has changed here since the attempt began; excludes `keepEdits`."""
    on_conflict: Literal["ask", "ours", "theirs"] = "ask"
    """With `merge`: whose version of a conflicting file wins; `ask` refuses and names them."""
    conflicts_in: str | None = None
    """With `merge`: absolute path of a new folder for the versions of conflicting files."""
    on_running: OnRunning = "refuse"
    keep_edits: bool = False
    """Keep files that people changed after an agent or rig last wrote them."""
    expected_run_id: RunId | None = None


class ExplorationDiscard(AnsweredCommand[Exploration]):
    """End the attempts of an exploration, or one of them, and remove their executions.

    Results that were recorded stay as timelines of this execution, until `store.gc` with a limit
    prunes them.
    """

    TYPE: ClassVar[str] = "exploration.discard"
    EXAMPLES: ClassVar[Examples] = ({"explorationId": "5d1f0a"},)
    exploration_id: str
    attempt_id: str | None = None
    """Only this attempt."""
    expected_run_id: RunId | None = None


class BisectStart(AnsweredCommand[BisectionBegun], kw_only=True):
    """Find the first checkpoint at which a command fails, in the background.

    The shell runs the command in throw-away copies of checkpoints, confined as the checks of a
    codon are; no file of the execution changes. Exit code 0 means that it passes, 125 that it
    cannot judge the checkpoint, and 1 to 124, 126 and 127 that it fails. `bisect.ended` has the
    result. One search runs at a time; it ends with the server.
    """

    TYPE: ClassVar[str] = "bisect.start"
    NEEDS_ROOM: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = (
        {"command": "python -m pytest -q tests", "good": "build", "parallel": 2},
    )
    command: Annotated[str, Meta(min_length=1)]
    """A shell command line."""
    good: str | None = None
    """Where it passes: a full sha, a prefix that is unique, or a codon, for the end of that; by
    default, the beginning."""
    bad: str | None = None
    """Where it fails, in the same form; by default, the newest checkpoint."""
    parallel: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many copies are tried at the same time."""
    expected_run_id: RunId | None = None


class BisectStop(CommandData):
    """End the search that `bisect.start` began; `bisect.ended` follows."""

    TYPE: ClassVar[str] = "bisect.stop"
    expected_run_id: RunId | None = None


class GetMirrorStatus(ReadCommand[MirrorStatus]):
    """Return how far the mirror is behind, and who has its lease."""

    TYPE: ClassVar[str] = "mirror.status"


class MirrorNow(AnsweredCommand[MirrorStatus]):
    """Wait until everything that the journal has now is in the mirror.

    If that takes too long, it is refused; the server goes on trying.
    """

    TYPE: ClassVar[str] = "mirror.now"
    DURING_ROLLBACK: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"withinSeconds": 10},)
    within_seconds: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Seconds to wait at most."""


class MirrorOff(AnsweredCommand[MirrorEnded]):
    """End the mirror: push the rest, release the lease, and forget the address.

    If the rest cannot be pushed in time, it is refused, and the mirror goes on. Afterwards, the
    server works without one; elsewhere, the execution can be continued from the mirror at once.
    """

    TYPE: ClassVar[str] = "mirror.off"
    DURING_ROLLBACK: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"withinSeconds": 10},)
    within_seconds: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Seconds to wait at most for the push of the rest."""


class Ping(CommandData):
    """Send `pong` to the sender."""

    TYPE: ClassVar[str] = "ping"
    AGENTS: ClassVar[_AgentAccess] = "always"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True


class PingBroadcast(CommandData):
    """Send `pong` to all clients, with the id of the sender."""

    TYPE: ClassVar[str] = "ping.broadcast"


class HistorySync(CommandData):
    """Send the journal as `history.batch` events, at most 200 lines and about 256 KiB each."""

    TYPE: ClassVar[str] = "history.sync"
    MUTATES: ClassVar[bool] = False
    DURING_ROLLBACK: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"sinceSeq": 100},)
    since_seq: Annotated[int, Meta(ge=0)] = 0
    """Only events after this one."""


Moment: TypeAlias = int | str
"""A seq, or a timestamp."""


class EventsQuery(ReadCommand[EventsPage], forbid_unknown_fields=True):
    """Return the events of the journal that all given filters let pass, or how many there are.

    Unlike elsewhere, unknown keys are refused: with a misspelt filter, too much would match.
    """

    TYPE: ClassVar[str] = "events.query"
    EXAMPLES: ClassVar[Examples] = (
        {
            "types": ["codon.completed", "rollback.completed"],
            "since": "2025-01-04T12:00:00.000Z",
            "count": True,
        },
    )
    types: tuple[str, ...] | None = None
    """Only events of these types."""
    codon_id: CodonId | None = None
    """Only events of this codon."""
    run_id: RunId | None = None
    """Only events of this run."""
    text: str | None = None
    """Only events with this text in their type, codon or data, ignoring case."""
    since: Moment | None = None
    """Only events after this seq, or from this time on."""
    until: Moment | None = None
    """Only events up to and including this seq or time."""
    caused_by: int | str | None = None
    """Only events with this seq or command id in their `causes`."""
    descendants_of: int | str | None = None
    """Only direct and indirect effects of this seq or command."""
    ancestors_of: int | None = None
    """Only direct and indirect causes of this seq."""
    newest_first: bool = False
    """Return the newest event first; by default, the oldest."""
    count: bool = False
    """Return the number of events of each type in place of the events."""
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: str | None = None


class GetState(ReadCommand[State]):
    """Return the whole state, as in `state.json`."""

    TYPE: ClassVar[str] = "state.get"


class GetServerStatus(ReadCommand[ServerStatus]):
    """Return the server's problems, lock, sizes and settings."""

    TYPE: ClassVar[str] = "server.status"
    AGENTS: ClassVar[_AgentAccess] = "always"


class ExecutionsList(ReadCommand[ExecutionPage]):
    """List the executions of the user whom the server belongs to.

    Only a client with mode `readandwrite` may send it, and no client of a server without tokens.
    """

    TYPE: ClassVar[str] = "executions.list"
    BEYOND: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"search": "quakes", "limit": 50},)
    search: Annotated[str, Meta(max_length=200)] = ""
    """Only those with each of these words in their hank, path, data or codon."""
    map_path: str | None = None
    """Only the executions of this map. Otherwise a map is one row, and its executions are left out
    unless words are searched for."""
    spent_since: str | None = None
    """A time: the reply has what was spent since then."""
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: str | None = None


class GetExecutionAddress(ReadCommand[ExecutionAddress], kw_only=True):
    """Return the address of another execution's page with its token, as the terminal prints it.

    Only a client with mode `readandwrite` may send it, to a server with tokens that is open on
    loopback alone.
    """

    TYPE: ClassVar[str] = "executions.address"
    BEYOND: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"executionPath": "/home/ann/projects/quakes"},)
    execution_path: str
    """A path that `executions.list` has returned."""


class ServerShutdown(CommandData):
    """Stop the server: end agents, take an `exit` checkpoint, save the state, release the lock."""

    TYPE: ClassVar[str] = "server.shutdown"
    DURING_ROLLBACK: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"reason": "end of the day"},)
    reason: str = "client request"
    """The reason, for the journal."""


class ServerForceShutdown(CommandData):
    """Kill agents and exit immediately with code 1; the next start recovers. There is no reply."""

    TYPE: ClassVar[str] = "server.force_shutdown"
    DURING_ROLLBACK: ClassVar[bool] = True
    EXAMPLES: ClassVar[Examples] = ({"reason": "the disk is on fire"},)
    reason: str = "client force request"
    """The reason, for the log."""
