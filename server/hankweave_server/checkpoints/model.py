"""Input and output values of the engine: all frozen, all paths as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeVar

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.domain.checkpoints.titles import Extent
from hankweave_server.worktree.open_files import OpenFiles

L = TypeVar("L", bound="PathEntry | Skipped | LostAttributes")

NO_CODON = CodonId("-")
"""Placeholder for the codon in commit messages that concern none (initial, manual, safety)."""

ChangeKind = Literal["created", "modified", "deleted"]
ObjectKind = Literal["blob", "tree", "commit"]

REASONS_THAT_LOSE_CONTENT = frozenset({"unreadable", "too-large", "changing", "reserved-name"})
CAPTURED_ANYWAY = "unstable"
WITHOUT_CONTENT = frozenset({"fifo", "socket", "device"})
"""Kinds of files that a restore may replace uncaptured: they hold no content."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """The facts about the moment that a checkpoint captures, for its commit message."""

    kind: str
    codon_id: CodonId | None
    codon_name: str
    run_id: RunId
    timestamp: datetime
    duration_ms: int | None
    operation_id: str
    event_seq: int
    session_id: str | None
    memory_epoch: int
    label: str | None
    patterns: tuple[str, ...]
    """The accumulated trackedFiles; files that are already tracked stay tracked regardless."""
    codon_state: str | None = None
    message_id: str | None = None
    """The agent's message that its session had reached."""
    session_files: frozenset[str] = frozenset()
    """Further session files to keep: those of a conversation that the codon has taken over."""
    also: frozenset[bytes] = frozenset()
    """Paths to capture regardless of patterns and `.gitignore`."""
    open_files: Callable[[], OpenFiles] = OpenFiles
    """Return what agents have open for writing at this moment: those files are `unstable`."""
    before: RestorePlan | None = None
    """For a safety checkpoint, the restore that follows it.

    Everything that the restore will touch is captured, regardless of patterns. The rest of the
    plan's scan is reused if nothing came between.
    """
    intent_of: Callable[[CheckpointMade], bytes] | None = None
    """Return the intent of that restore, which becomes durable with the checkpoint."""
    journal_tail: tuple[int, bytes] | None = None
    """Offset and content of lines of the journal that become durable with the checkpoint.

    They come before `event_seq`, or are its own line. Needs a write-ahead log.
    """
    summarized: Callable[[Extent], str] | None = None
    """Return the summary of what has changed since the parent."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that a checkpoint or a restore skipped, and the reason.

    Reasons of a checkpoint: `fifo`, `socket`, `device`, `unreadable`, `too-large`, `changing`
    (three attempts to read, all torn), `reserved-name`. `unstable` files were captured, but while
    they changed, or while a process of an agent had them open for writing.

    Reasons of a restore: those, and `in-the-way` (a folder that holds files no checkpoint has),
    `changed` (neither as in the safety checkpoint nor as in the target), `damaged` (the target's
    content cannot be read), `permissions` (only they could not be set), `os-error` (the system
    refused the change), or the obstacle, if known (`worktree.obstacles`).
    """

    path: bytes
    reason: str
    errno: int = 0
    """Why the system refused to change the path; 0 if it did not."""


@dataclass(frozen=True, slots=True)
class WorkTreeChange:
    path: bytes
    kind: ChangeKind
    size: int
    """Present size in bytes; 0 for a deleted file."""


def kind_of_change(old: tuple[int, bytes] | None, new: tuple[int, bytes] | None) -> ChangeKind:
    if old is None:
        return "created"

    return "deleted" if new is None else "modified"


@dataclass(frozen=True, slots=True)
class CheckpointMade:
    sha: Sha
    tree: Sha
    kind: str
    skipped: tuple[Skipped, ...]
    files: int
    changed: tuple[WorkTreeChange, ...]
    """Changes against the parent commit."""
    summary: str | None = None

    @property
    def partial(self) -> bool:
        """True if something is missing that should be in the checkpoint."""
        return any(item.reason in REASONS_THAT_LOSE_CONTENT for item in self.skipped)


@dataclass(frozen=True, slots=True)
class PathEntry:
    path: bytes
    size: int
    mode: int
    """Type and permission bits as in `st_mode`."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The changes that a restore would make to the present work tree."""

    target: Sha
    added: tuple[PathEntry, ...]
    updated: tuple[PathEntry, ...]
    removed: tuple[PathEntry, ...]
    unchanged_count: int
    kept: tuple[Skipped, ...]
    """Paths left alone: not captured there, or not capturable here, so not restorable."""
    bytes_to_write: int
    unsaved: frozenset[bytes] = frozenset()
    """Paths it would change that differ from HEAD: files edited, created or deleted since."""
    databases: Mapping[bytes, tuple[Skipped, ...]] = field(default_factory=dict)
    """Databases that change, each with those of its files that were not captured, or not properly,
    or are not restored."""
    folders_differ: bool = False
    """True if no file differs, but permissions or empty folders may."""
    unreported: tuple[WorkTreeChange, ...] = ()
    """What the scan for the plan has found, if it was to report that."""

    @property
    def changes_nothing(self) -> bool:
        return not self.touched and not self.folders_differ

    @property
    def touched(self) -> frozenset[bytes]:
        """The paths that the safety checkpoint must hold (`CheckpointRequest.before`)."""
        return frozenset(entry.path for entry in (*self.added, *self.updated, *self.removed))


@dataclass(frozen=True, slots=True)
class LostAttributes:
    """A restored file that lacks some of its attributes."""

    path: bytes
    sentence: str


@dataclass(frozen=True, slots=True)
class RestoreReport:
    added: tuple[PathEntry, ...]
    updated: tuple[PathEntry, ...]
    removed: tuple[PathEntry, ...]
    kept: tuple[PathEntry, ...]
    """Paths left alone because the caller asked for it."""
    skipped: tuple[Skipped, ...]
    """Paths left alone because they were not captured, here or there."""
    unrestored: tuple[Skipped, ...] = ()
    """Paths that are not as in the target, because of a change meanwhile or a refusal."""
    lost_attributes: tuple[LostAttributes, ...] = ()

    def continued(self, paths: frozenset[bytes], then: RestoreReport) -> RestoreReport:
        """Return the report of this restore and of a second one, of paths that it had left."""
        others = tuple(left for left in self.unrestored if left.path not in paths)
        return RestoreReport(
            added=_by_path(self.added, then.added),
            updated=_by_path(self.updated, then.updated),
            removed=_by_path(self.removed, then.removed),
            kept=_by_path(self.kept, then.kept),
            skipped=_by_path(self.skipped, then.skipped),
            unrestored=_by_path(others, then.unrestored),
            lost_attributes=_by_path(self.lost_attributes, then.lost_attributes),
        )


def _by_path(first: tuple[L, ...], then: tuple[L, ...]) -> tuple[L, ...]:
    found = {each.path: each for each in (*first, *then)}
    return tuple(found[path] for path in sorted(found))


@dataclass(frozen=True, slots=True)
class Damage:
    """One unreadable object of the shadow repository."""

    sha: Sha
    kind: ObjectKind
    path: bytes
    checkpoints: tuple[Sha, ...]
    """Every checkpoint commit on our refs that needs the object."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    path: bytes
    status: ChangeKind
    added: int
    removed: int
    patch: bytes | None
    """Unified diff, if requested; for a binary file it says only that the file differs."""


@dataclass(frozen=True, slots=True)
class FileContent:
    data: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class ContentRange:
    """Some bytes of a file; fewer than requested at its end."""

    data: bytes
    size: int
    """Size of the whole file."""
    mode: int
