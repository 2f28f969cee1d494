"""What the server says to one client: the handshake and the answers to commands.

Only a client that sent `protocolVersion` in its handshake gets `command.succeeded` and
`command.failed`; the others get Hankweave's events instead (DESIGN 9).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import BudgetFigures
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
from hankweave_protocol.state import State

Mode = Literal["readonly", "readandwrite"]


class HandshakeData(Value):
    mode: Mode
    send_previous_events: bool = False
    protocol_version: int | None = None
    since_seq: int | None = None
    """The last seq the client has; it gets all later events, without gap or duplicate."""
    token: str | None = None
    client_name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """What the client calls itself, for whoever reads websocket.log; it grants nothing."""
    progress: bool = False
    """Whether the client wants to be told of `store.progress`."""


class Handshake(Value, tag_field="type", tag="handshake"):
    data: HandshakeData


class HandshakeResponseData(Value):
    client_id: ClientId
    mode: Mode
    """What was granted: never more than the token's role allows."""
    event_history: tuple[msgspec.Raw, ...]
    """Newest first, at most 50; only where `sendPreviousEvents` asked for it."""
    total_events: int


class HandshakeResponse(Value, tag_field="type", tag="handshake.response"):
    data: HandshakeResponseData


class CommandSucceeded(Value, tag_field="type", tag="command.succeeded"):
    in_reply_to: CommandId
    timestamp: str
    data: msgspec.Raw
    """`null` where the command answers with nothing but that it was done."""


class Failure(Value):
    code: ErrorCode
    message: str
    path: str | None = None
    """JSON path into the command."""
    hint: str | None = None


class CommandFailed(Value, tag_field="type", tag="command.failed"):
    in_reply_to: CommandId | None
    """Null where the frame had no readable id."""
    timestamp: str
    data: Failure


class CodonChosen(Value):
    """The answer to `codon.next` and `codon.redo`: what it is that starts."""

    codon_id: CodonId


class CheckpointPage(Value):
    """The answer to `checkpoint.list`: newest first."""

    checkpoints: tuple[CheckpointRecord, ...]
    current_branch: str | None
    """None while HEAD is detached, after a rollback and before the next checkpoint."""
    cursor: str | None = None
    """Give it back to get the next page; absent on the last one."""


class FileDifference(Value, gc=False):
    """What became of one file between two moments."""

    path: str
    status: Literal["created", "modified", "deleted"]
    added: int
    """Lines; 0 where the content is binary or too large to be compared by lines."""
    removed: int
    patch: str | None = None
    """A unified diff, if asked for; absent where it would not fit into an answer."""


class DiffStats(Value):
    """What a whole comparison comes to, be it one page or many."""

    files: int
    added: int
    removed: int


class DiffPage(Value, kw_only=True):
    """The answer to `checkpoint.diff`, in the order of paths."""

    from_sha: Sha = msgspec.field(name="from")
    to_sha: Sha | None = msgspec.field(name="to")
    """Null: the work tree as it was found."""
    files: tuple[FileDifference, ...]
    stats: DiffStats
    cursor: str | None = None


class FileRange(Value):
    """The answer to `checkpoint.readFile`: the whole file, or a range of its bytes."""

    content: str
    encoding: Literal["utf-8", "base64"]
    """Each range has its own: one that is no whole UTF-8 text comes in base64."""
    size: int
    """Of the whole file, in bytes."""
    mode: int
    """Type and permissions as in `st_mode`; the content of a link is its target."""
    offset: int = 0
    next_offset: int | None = None
    """Where the next range begins; absent at the end of the file."""


class TreeFile(Value, gc=False):
    """One file of many thousands; gc=False keeps the collector from visiting each of them."""

    path: str
    size: int
    mode: int
    """Type and permissions as in `st_mode`."""


class TreeStats(Value):
    files: int
    bytes: int


class EventSlice(Value):
    """The events from the begin of the run to the moment; both ends belong to it."""

    from_seq: int = msgspec.field(name="from")
    to_seq: int = msgspec.field(name="to")


class PastView(Value):
    """The answer to `replay.view`: files and state as they were."""

    coordinate: Coordinate | None
    """The checkpoint whose files are shown; null before the first one."""
    tree: tuple[TreeFile, ...]
    stats: TreeStats
    """Of all selected files, be the tree in one page or many."""
    state: State | None
    """Null on later pages, and where the journal does not reach back to the moment."""
    events: EventSlice | None
    previous: DiffPage | None = None
    now: DiffPage | None = None
    cursor: str | None = None


class BranchMade(Value):
    """The answer to `execution.branch`."""

    execution_path: str
    run_id: RunId
    """The new execution's first run of its own."""


class AgentToolsGranted(Value):
    """What `hankweave mcp` may give to agents, as the hank says."""

    enabled: bool
    rollback_paths: bool


class ServerStatus(Value):
    """The answer to `server.status`."""

    server_version: str
    pid: int
    execution_path: str
    started_at: str
    uptime_ms: int
    current_run_id: RunId | None
    active_codon_id: CodonId | None
    next_codon_id: CodonId | None
    is_rolling_back: bool
    last_event_seq: int
    total_cost: float
    """USD, over all runs."""
    checkpoints: int
    clients: int
    lock: RuntimeLock
    store_bytes: int
    """Size of the shadow repository on disk."""
    store_packs: int
    store_loose_objects: int
    """Objects that no pack holds yet; where they pile up they are packed in the background."""
    containment: Literal["cgroup", "subreaper"]
    """What holds an agent's processes together: a control group of its own, or its keeper alone."""
    problems: tuple[Problem, ...] = ()
    """What is wrong, the oldest first; none where all is well."""
    pending_permissions: tuple[PendingPermission, ...] = ()
    """What agents wait for leave to do, the oldest first."""
    agent_tools: AgentToolsGranted = AgentToolsGranted(enabled=True, rollback_paths=False)
    active_allowance: BudgetFigures | None = None
    """What the codon that runs may use in all: the tightest of its own budget, its loop's and the
    hank's; absent where no codon runs."""
    data_path: str | None = None
    """Where the execution's data is reached: `read_only_data_source` in the work tree, or, in a
    project that is served in place, in its `.hankweave`; absent where there is no data."""


class Consolidation(Value):
    """How the store's objects lay before and after they were packed together."""

    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    finished: bool
    """False where something more urgent came in between; the server goes on with it later."""


KeepReason = Literal["pinned", "completed", "thread", "undo", "kind", "ancestor", "limits"]
"""Why a checkpoint stays: pinned; `completed`; the execution thread needs it; the next undo or redo
does; no such kind was asked for; one that stays descends from it; it is within the limits."""


class KeptCheckpoint(Value):
    sha: Sha
    kind: CheckpointKind
    reason: KeepReason


class GcReport(Value):
    """The answer to `store.gc`."""

    dry_run: bool
    pruned: tuple[CheckpointRecord, ...]
    """What went or, in a dry run, would go: newest first."""
    kept: int
    kept_because: tuple[KeptCheckpoint, ...]
    """All that stay, newest first; the first reason that holds."""
    bytes_before: int
    bytes_after: int
    """In a dry run an estimate, from what the pruned ones alone need."""
    consolidated: Consolidation | None
    """Null in a dry run."""
    undos_lost: int = 0
    """Rollbacks that can be undone now and not after it, because their safety checkpoints go."""
    redos_lost: int = 0
    unreadable: Sha | None = None
    """A lost object that may hide what is needed: no garbage was removed because of it."""


class DamagedObject(Value):
    sha: Sha
    kind: Literal["blob", "tree", "commit"]
    path: str
    """Where it stands in the checkpoint; empty for the commit and the top."""


class DamagedCheckpoint(Value):
    checkpoint: Sha
    damages: tuple[DamagedObject, ...]


class FsckReport(Value):
    """The answer to `store.fsck`."""

    checked: int
    """Checkpoints that were read down to each blob."""
    damages: tuple[DamagedCheckpoint, ...]
    missing: tuple[Sha, ...]
    """Checkpoints that the journal names, that nobody pruned, and that are gone."""
    repair: StoreRepair | None = None
    """What was repaired before this was checked; null where no repair was asked for."""
