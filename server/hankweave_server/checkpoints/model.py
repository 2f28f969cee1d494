"""The values that go in and out of the engine: all frozen, all paths as bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_server.worktree.open_files import OpenFiles

NO_CODON = CodonId("-")
"""Stands where the commit message wants a codon and none is concerned (initial, manual, safety)."""

ChangeKind = Literal["created", "modified", "deleted"]
ObjectKind = Literal["blob", "tree", "commit"]

REASONS_THAT_LOSE_CONTENT = frozenset({"unreadable", "too-large", "changing", "reserved-name"})
CAPTURED_ANYWAY = "unstable"
WITHOUT_CONTENT = frozenset({"fifo", "socket", "device"})
"""What a restore may replace although it was not captured: nothing in it can be lost."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """What the daemon knows about the moment that a checkpoint captures (DESIGN 7, "Commit")."""

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
    """The accumulated trackedFiles; what is tracked already stays so, whatever they say."""
    codon_state: str | None = None
    message_id: str | None = None
    """The agent's message that its session had come to."""
    also: frozenset[bytes] = frozenset()
    """Paths to capture whatever patterns and `.gitignore` say."""
    open_files: Callable[[], OpenFiles] = OpenFiles
    """Looks at what agents have open for writing at this moment: those files are `unstable`."""
    before: RestorePlan | None = None
    """The restore that a safety checkpoint precedes: all it will touch is captured, whatever
    patterns say, and what its plan saw besides is not looked at again if nothing came between."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that a checkpoint or a restore passed over, and why.

    Reasons of a checkpoint: `fifo`, `socket`, `device`, `unreadable`, `too-large`, `changing`
    (three readings, all torn), `reserved-name`; `unstable` was captured, but while it changed, or
    while a process of an agent had it open for writing.
    Of a restore: those, and `in-the-way` (a folder that holds what nobody captured), `changed`
    (neither as in the safety checkpoint nor as in the target), `os-error`.
    """

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class FileChange:
    path: bytes
    kind: ChangeKind
    size: int
    """Bytes now; 0 for a deleted file."""


@dataclass(frozen=True, slots=True)
class CheckpointMade:
    sha: Sha
    tree: Sha
    kind: str
    skipped: tuple[Skipped, ...]
    partial: bool
    """Something that should be in the checkpoint is not."""
    files: int
    changed: tuple[FileChange, ...]
    """Against the parent commit."""


@dataclass(frozen=True, slots=True)
class PathEntry:
    path: bytes
    size: int
    mode: int
    """Type and permission bits as in `st_mode`."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do to the work tree as it is now."""

    target: Sha
    added: tuple[PathEntry, ...]
    updated: tuple[PathEntry, ...]
    removed: tuple[PathEntry, ...]
    unchanged_count: int
    kept: tuple[Skipped, ...]
    """Left alone because nobody could bring it back: not captured there, or not capturable here."""
    bytes_to_write: int
    unsaved: frozenset[bytes] = frozenset()
    """What it would change although HEAD has it otherwise: files edited, made or deleted since."""
    folders_differ: bool = False
    """Whether, where no file does, permissions or empty folders may differ from the target's."""

    @property
    def changes_nothing(self) -> bool:
        return not self.touched and not self.folders_differ

    @property
    def touched(self) -> frozenset[bytes]:
        """What the safety checkpoint must hold (`CheckpointRequest.before`)."""
        return frozenset(entry.path for entry in (*self.added, *self.updated, *self.removed))


@dataclass(frozen=True, slots=True)
class RestoreReport:
    added: tuple[PathEntry, ...]
    updated: tuple[PathEntry, ...]
    removed: tuple[PathEntry, ...]
    kept: tuple[PathEntry, ...]
    """Left alone because the caller asked so."""
    skipped: tuple[Skipped, ...]
    """Left alone because the path was not captured, here or there."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One object of the shadow repository that cannot be read back."""

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
    """Unified diff, if asked for; a binary file's says only that it differs."""


@dataclass(frozen=True, slots=True)
class FileContent:
    data: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class ContentRange:
    """Some bytes of a file; fewer than asked for where the file ends."""

    data: bytes
    size: int
    """Of the whole file."""
    mode: int
