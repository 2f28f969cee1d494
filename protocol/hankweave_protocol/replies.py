"""The handshake, and the replies to commands.

Only a client that sent `protocolVersion` in its handshake gets `command.succeeded` and
`command.failed`; other clients get Hankweave's events instead.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.attempts import Exploration
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import BudgetFigures
from hankweave_protocol.hank import ConfinementProfile
from hankweave_protocol.ids import ClientId, CodonId, CommandId, RunId, Sha
from hankweave_protocol.records import (
    CheckpointKind,
    CheckpointRecord,
    Coordinate,
    PendingPermission,
    Problem,
    RuntimeLock,
    StoreRepair,
)
from hankweave_protocol.shapes import Value
from hankweave_protocol.state import CodonWait, State

Mode = Literal["readonly", "readandwrite"]


class HandshakeData(Value):
    """The description of a client."""

    mode: Mode
    """The mode that the client wants: `readonly` or `readandwrite`."""
    send_previous_events: bool = False
    """Whether the response has the newest 50 events."""
    protocol_version: int | None = None
    """`1`; without it, the client is treated as one of Hankweave's."""
    since_seq: int | None = None
    """The last seq that the client has; it gets all later events, without gap or duplicate."""
    token: str | None = None
    """The token, if the request had none."""
    client_name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The client's name in websocket.log; it grants nothing."""
    progress: bool = False
    """Whether the client wants `store.progress` events."""


class Handshake(Value, tag_field="type", tag="handshake"):
    """The first frame of a client."""

    data: HandshakeData


class HandshakeResponseData(Value):
    """The rights that the server grants a client."""

    client_id: ClientId
    mode: Mode
    """The granted mode: never more than the token's role allows."""
    event_history: tuple[msgspec.Raw, ...]
    """Newest first, at most 50; empty unless `sendPreviousEvents` was set."""
    total_events: int
    """The `seq` of the newest event."""


class HandshakeResponse(Value, tag_field="type", tag="handshake.response"):
    """The answer to a handshake."""

    data: HandshakeResponseData


class CommandSucceeded(Value, tag_field="type", tag="command.succeeded"):
    """The reply to a command that was executed."""

    in_reply_to: CommandId
    """The id of the command."""
    timestamp: str
    data: msgspec.Raw
    """`null` if the reply to the command has no data."""


class Failure(Value):
    """Why a command was refused."""

    code: ErrorCode
    message: str
    path: str | None = None
    """JSON path in the command."""
    hint: str | None = None
    """Advice, for people."""


class CommandFailed(Value, tag_field="type", tag="command.failed"):
    """The reply to a command that was refused."""

    in_reply_to: CommandId | None
    """Null if the frame had no readable id."""
    timestamp: str
    data: Failure


class CodonChosen(Value):
    """The reply to `codon.next` and `codon.redo`: the codon that starts."""

    codon_id: CodonId


class CheckpointPage(Value):
    """The reply to `checkpoint.list`, newest first."""

    checkpoints: tuple[CheckpointRecord, ...]
    current_branch: str | None
    """Null while HEAD is detached: after a rollback and before the next checkpoint."""
    cursor: str | None = None
    """Send it to get the next page; absent on the last one."""


class EventsPage(Value):
    """The reply to `events.query`: `events`, or `counts` if it counts."""

    events: tuple[msgspec.Raw, ...] | None = None
    """Journal lines, unchanged."""
    counts: dict[str, int] | None = None
    """The number of matching events of each type."""
    cursor: str | None = None
    """Send it with the same query to get the next page; absent on the last one."""


class FileDifference(Value, gc=False):
    """The difference of one file between two moments."""

    path: str
    status: Literal["created", "modified", "deleted"]
    """`created`, `modified` or `deleted`."""
    added: int
    """Lines; 0 if the content is binary or too large to be compared by lines."""
    removed: int
    """Removed lines."""
    patch: str | None = None
    """A unified diff, if requested; absent if it would not fit into a reply."""


class DiffStats(Value):
    """The totals of a comparison, over all pages."""

    files: int
    """The number of files."""
    added: int
    """Added lines."""
    removed: int
    """Removed lines."""


class DiffPage(Value, kw_only=True):
    """The reply to `checkpoint.diff`, ordered by path."""

    from_sha: Sha = msgspec.field(name="from")
    """The checkpoint before."""
    to_sha: Sha | None = msgspec.field(name="to")
    """Null for the work tree."""
    from_title: str | None = None
    """What the checkpoint before is called."""
    to_title: str | None = None
    """What the other one is called; null for the work tree."""
    files: tuple[FileDifference, ...]
    """The files."""
    stats: DiffStats
    """The sums over all files."""
    cursor: str | None = None


class FileRange(Value):
    """The reply to `checkpoint.readFile`: the whole file, or a range of its bytes."""

    content: str
    """The bytes of the range, encoded as `encoding` says."""
    encoding: Literal["utf-8", "base64"]
    """Of this range: base64 if it is not valid UTF-8."""
    size: int
    """Size of the whole file in bytes."""
    mode: int
    """Type and permissions as in `st_mode`; the content of a link is its target."""
    offset: int = 0
    """The first byte."""
    next_offset: int | None = None
    """The offset of the next range; absent at the end of the file."""


class ToolImage(Value):
    """A picture in the result of a tool."""

    media_type: str
    """As the tool says, for example `image/png`."""
    data: str
    """The bytes in base64."""


class ToolOutput(Value):
    """The reply to `codon.readResult`: the whole result of a tool, or a range of its characters."""

    content: str
    """The characters of the range, without secrets."""
    size: int
    """Characters of the whole text."""
    offset: int = 0
    """The first character."""
    next_offset: int | None = None
    """The offset of the next range; absent at the end of the text."""
    images: tuple[ToolImage, ...] = ()
    """The pictures beside the text; only in a reply from offset 0."""


class PromptText(Value):
    """The reply to `codon.readPrompt`: the prompt as the hank has it, without secrets."""

    text: str
    """The prompt, before its variables are filled in; at most MAX_RANGE characters."""
    size: int
    """Characters of the whole prompt."""
    system_prompt: str | None = None
    """What is appended to the agent's system prompt, with the same limit."""


# There may be many thousands: gc=False keeps the garbage collector from visiting each of them.
class TreeFile(Value, gc=False):
    """One file of a tree."""

    path: str
    size: int
    """The size in bytes."""
    mode: int
    """Type and permissions as in `st_mode`."""


class TreeStats(Value):
    """The sums of a tree."""

    files: int
    """The number of files."""
    bytes: int


class EventSlice(Value):
    """The events from the start of the run to the moment, both included."""

    from_seq: int = msgspec.field(name="from")
    """The first `seq`."""
    to_seq: int = msgspec.field(name="to")
    """The last `seq`."""


class PastView(Value):
    """The reply to `replay.view`: files and state at a past moment."""

    coordinate: Coordinate | None
    """The checkpoint whose files are shown; null before the first checkpoint."""
    tree: tuple[TreeFile, ...]
    """The files."""
    stats: TreeStats
    """Of all selected files, over all pages."""
    state: State | None
    """Null on later pages, and if the journal does not reach back to the moment."""
    events: EventSlice | None
    """The `seq`s from the start of the run to the moment."""
    previous: DiffPage | None = None
    """The first page of the comparison with the preceding checkpoint."""
    now: DiffPage | None = None
    """The first page of the comparison with the work tree."""
    cursor: str | None = None


class BisectionBegun(Value):
    """The reply to `bisect.start`."""

    bisect_id: str
    """The id of the search, which its events have."""
    checkpoints: int
    """How many there are from the good to the bad one, both included."""


class ChangeAuthor(Value, kw_only=True, omit_defaults=False):
    """The author of a change: an agent's call, a person, or the start."""

    by: Literal["agent", "person", "initial"]
    """`initial`: it was there at the start, or the rig of a codon made it."""
    codon_id: CodonId | None = None
    """The codon; null if none was running."""
    attempt: str | None = None
    """The id of the exploration's attempt in which it was done."""
    call: str | None = None
    """The tool and what it was called with, as `Edit records.py`; `rig` for a rig."""
    checkpoint_sha: Sha
    """The checkpoint that has the change."""
    run_id: RunId | None = None
    timestamp: str
    """Of the call, or of the checkpoint."""
    cost: float | None = None
    """US dollars: the share of the call in its message's cost; null if it is not known."""
    agent: str | None = None
    """The type of the agent that the hank names; null for the one that runs the model."""
    model: str | None = None
    event_seq: int | None = None
    """The `seq` of the call's event; or of the last event before the checkpoint."""
    tool_use_id: str | None = None


class BlamedRange(ChangeAuthor, kw_only=True, omit_defaults=False):
    """Neighbouring lines with the same author."""

    from_line: int = msgspec.field(name="from")
    """The first line, from 1."""
    to_line: int = msgspec.field(name="to")
    """The last line."""
    path: str
    """The path of the file when they were written."""


class BlamedFile(Value, kw_only=True):
    """The reply to `file.blame`."""

    path: str
    checkpoint_sha: Sha
    """The checkpoint whose file it is."""
    lines: int
    """The number of lines of the file."""
    ranges: tuple[BlamedRange, ...]
    """The requested lines, in their order."""
    next_line: int | None = None
    """The first line that did not fit into the reply; null if all did."""


class LineStory(Value, kw_only=True, omit_defaults=False):
    """The reply to `file.why`: how a line came to be."""

    path: str
    line: int
    text: str
    """The line."""
    author: ChangeAuthor
    """Who wrote it."""
    prompt: str | None
    """Of the codon; the names of files if the hank has it in files."""
    words: str | None
    """The model's text before the call."""
    patch: str
    """The part of the change that has the line."""
    later: tuple[ChangeAuthor, ...]
    """The changes of the file since, newest first."""


class TextChange(ChangeAuthor, kw_only=True, omit_defaults=False):
    """A change that made a text more or less frequent in a file."""

    path: str
    before: int
    """How often the file had the text."""
    after: int
    """How often it has it."""


class TextHistory(Value, kw_only=True):
    """The reply to `file.pickaxe`."""

    changes: tuple[TextChange, ...]
    """Newest first."""
    has_more: bool = False
    """Whether there are older ones, beyond the limit."""


class ExplorationPage(Value):
    """The explorations of an execution."""

    explorations: tuple[Exploration, ...]
    """The newest first."""


class BranchMade(Value):
    """The reply to `execution.branch`."""

    execution_path: str
    run_id: RunId
    """The new execution's first run of its own."""


class AgentToolsGranted(Value):
    """The tools that `hankweave mcp` offers to agents, as configured in the hank."""

    enabled: bool
    """Whether agents are offered the tools."""
    rollback_paths: bool
    """Whether they may restore files."""


WatchReason = Literal[
    "off",
    "start",
    "overflow",
    "exhausted",
    "file-system",
    "mount",
    "clock",
    "replaced",
    "unavailable",
    "distrusted",
]
"""Why a scan compares all files: the setting; the first scan after a start; too many events at
once; no watches left; a file system whose events cannot be trusted, or one mounted inside of the
work tree; a clock that was set or a suspend; another folder in place of the work tree; no inotify;
a change that the watch missed."""


class WatchStatus(Value):
    """The watch of the work tree, with which a scan costs what changed."""

    active: bool
    """True if the next scan compares only what may have changed."""
    reason: WatchReason | None
    """Why the next scan compares all files; null if it does not."""
    watched_scans: int
    """Scans that compared only what may have changed."""
    full_scans: int
    """Scans that compared all files."""


BackgroundTask = Literal["verification", "packing", "index", "secrets", "watch"]
"""Reading checkpoints whole, packing the store, writing its index for stock git, the search for
secrets in checkpoints, settling and comparing the watch of the work tree."""


class BackgroundWork(Value):
    """Work that follows commands, and waits until nothing is served."""

    name: BackgroundTask
    """The work: `verification`, `packing`, `index`, `secrets` or `watch`."""
    waiting_ms: int
    """Milliseconds since it became necessary."""
    late: bool
    """True if it waits no longer, but is done bit by bit beside commands."""


class ConfinementStatus(Value):
    """The confinement of agents and their commands on this machine."""

    level: Literal["namespace", "bwrap", "landlock", "none"]
    """The strongest level that works on this machine."""
    landlock_abi: int
    """The version of the kernel's interface for Landlock; 0 without it."""
    profile: ConfinementProfile
    """The profile of codons that do not set their own."""
    not_covered: tuple[str, ...]
    """What an agent can reach all the same, as sentences for people."""


class StepForecast(Value):
    """The likely use of a step; of the running one, only the rest."""

    codon_id: CodonId
    ms: int | None
    """Milliseconds; null if nothing is known."""
    cost: float | None
    """USD; null if nothing is known."""


class Forecast(Value):
    """The time and money to the end of the plan, from what this execution has used before."""

    remaining_ms: int | None
    """Milliseconds of work, with a wait that goes on; null if a part of it is unknown."""
    cost_at_end: float | None
    """USD, all that will have been paid; null if a part of it is unknown."""
    basis: str
    """Where the numbers come from, as `from 3 earlier rounds`."""
    steps: tuple[StepForecast, ...]
    """The step that works or comes next, and those after it, as far as the plan has them."""


class MirrorStatus(Value):
    """The mirror of an execution, and the lease that its server has of it."""

    address: str
    """The git repository."""
    mode: Literal["async", "sync"]
    """`async`: the mirror follows. `sync`: no event is published before it is in the mirror."""
    ttl_seconds: float
    """Seconds for which a push gives the lease."""
    owner: str
    """The machine and the directory that have the lease."""
    epoch: int
    """How often the lease was taken."""
    lease_held: bool
    """False if it has run out: the agent is stopped, and the journal waits."""
    lease_seconds_left: float
    """Seconds until it runs out, unless a push succeeds; 0 if it has."""
    mirrored_seq: int
    """The last event in the mirror."""
    mirrored_bytes: int
    """The size of the journal in the mirror."""
    events_behind: int
    """Events that only the journal has."""
    bytes_behind: int
    """The size of these events."""
    seconds_behind: float
    """Seconds since the beginning of the last push that succeeded; 0 if no event is behind."""
    seconds_since_push: float
    """Seconds since the beginning of the last push that succeeded."""
    pushes: int
    """Pushes of this server that succeeded."""
    sent_bytes: int
    """Bytes that this server has sent."""
    problem: str | None = None
    """Why the last push failed, in the words of git; absent if it succeeded."""


class MirrorEnded(Value):
    """The reply to `mirror.off`."""

    address: str
    """The git repository; everything in it stays."""
    released: bool
    """False if the lease was not released: others wait until it runs out."""


class ServerStatus(Value):
    """The reply to `server.status`."""

    server_version: str
    pid: int
    execution_path: str
    started_at: str
    uptime_ms: int
    """How long the server has run."""
    current_run_id: RunId | None
    active_codon_id: CodonId | None
    """The running codon, if any."""
    next_codon_id: CodonId | None
    is_rolling_back: bool
    last_event_seq: int
    total_cost: float
    """USD, all that was paid, over all runs."""
    checkpoints: int
    """The number of checkpoints."""
    clients: int
    """The number of connected clients."""
    lock: RuntimeLock
    """The content of `runtime.lock`."""
    store_bytes: int
    """Size of the shadow repository on disk."""
    store_packs: int
    """The number of packs in the store."""
    store_loose_objects: int
    """Objects outside packs; many of them are packed in the background."""
    containment: Literal["cgroup", "subreaper"]
    """How an agent's processes are contained: by a control group, or by its keeper alone."""
    problems: tuple[Problem, ...] = ()
    """Current problems, the oldest first."""
    pending_permissions: tuple[PendingPermission, ...] = ()
    """Tool calls that wait for permission, the oldest first."""
    agent_tools: AgentToolsGranted = AgentToolsGranted(enabled=True, rollback_paths=False)
    """The tools that agents are offered."""
    active_allowance: BudgetFigures | None = None
    """The limits of the running codon: the lowest of its own budget, its loop's and the hank's;
    absent if no codon runs."""
    waiting: CodonWait | None = None
    """The wait of the active codon for the end of a limit; absent if its agent works."""
    data_path: str | None = None
    """The path of the execution's data: `read_only_data_source` in the work tree or, in a project
    that is served in place, in its `.hankweave`; absent if there is no data."""
    watch: WatchStatus | None = None
    """Whether scans of the work tree look only where something happened, or why not."""
    confinement: ConfinementStatus | None = None
    """How agents can be confined on this machine."""
    background: tuple[BackgroundWork, ...] = ()
    """What the server still has to do for earlier commands, the oldest first."""
    rolled_back_cost: float = 0.0
    """USD, the part of `totalCost` for work that rollbacks discarded; budgets do not count it."""
    forecast: Forecast | None = None
    """Time and money to the end; absent if the plan has ended, or if nothing is known."""
    budget_usd: float | None = None
    """USD that the hank may use: the lower of its own budget and `--max-cost`; absent if neither
    sets a limit."""
    hank_name: str | None = None
    """The name of the hank: that of its `meta`, or of its directory."""
    attempts_cost: float = 0.0
    """USD, the part of `totalCost` for attempts of explorations that were not adopted."""
    mirror: MirrorStatus | None = None
    """The mirror in a git repository; absent if there is none."""


class Consolidation(Value):
    """Packs and loose objects of the store before and after packing."""

    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    finished: bool
    """False if something more urgent interrupted it; the server continues later."""


KeepReason = Literal["pinned", "completed", "thread", "undo", "kind", "ancestor", "limits"]
"""Why a checkpoint is kept: it is pinned; it is `completed`; the execution thread needs it; the
next undo or redo needs it; its kind was not selected; a kept one descends from it; it is within
the limits."""


class KeptCheckpoint(Value):
    """A checkpoint that a gc keeps, with the reason."""

    sha: Sha
    kind: CheckpointKind
    """The kind."""
    reason: KeepReason
    """The first reason that applies."""


class GcReport(Value):
    """The reply to `store.gc`."""

    dry_run: bool
    """Whether it only reports."""
    pruned: tuple[CheckpointRecord, ...]
    """The pruned checkpoints or, in a dry run, those that would be pruned; newest first."""
    kept: int
    """How many checkpoints are kept."""
    kept_because: tuple[KeptCheckpoint, ...]
    """All kept checkpoints, newest first, each with the first reason that applies."""
    bytes_before: int
    bytes_after: int
    """In a dry run an estimate, from the objects that only pruned checkpoints need."""
    consolidated: Consolidation | None
    """Null in a dry run."""
    undos_lost: int = 0
    """Rollbacks that cannot be undone afterwards, because their safety checkpoints are pruned."""
    redos_lost: int = 0
    """How many undone rollbacks can no longer be redone."""
    unreadable: Sha | None = None
    """A lost object that may refer to others; because of it, no garbage was removed."""


class DamagedObject(Value):
    """An object of the store that cannot be read."""

    sha: Sha
    """The object."""
    kind: Literal["blob", "tree", "commit"]
    """`blob`, `tree` or `commit`."""
    path: str
    """Its path in the checkpoint; empty for the commit and the root tree."""


class DamagedCheckpoint(Value):
    """A checkpoint with objects that cannot be read."""

    checkpoint: Sha
    damages: tuple[DamagedObject, ...]
    """Its objects that cannot be read."""


class FsckReport(Value):
    """The reply to `store.fsck`."""

    checked: int
    """Number of checkpoints that were read down to each blob."""
    damages: tuple[DamagedCheckpoint, ...]
    """What cannot be read."""
    missing: tuple[Sha, ...]
    """Checkpoints that the journal names, that were not pruned, and that do not exist."""
    repair: StoreRepair | None = None
    """The result of the repair before this check; null if none was requested."""
