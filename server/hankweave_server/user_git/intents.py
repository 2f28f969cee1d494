"""What is written into the git directory besides commits: the intent, and what an undo needs."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from hankweave_server.fsutil import remove_durably, replace_durably
from hankweave_server.user_git.errors import CheckpointError

INTENT = "hankweave-rollback.intent"
UNDO = "hankweave-undo.json"

_Note = TypeVar("_Note", bound=msgspec.Struct)


class UndoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How it was before the last rollback; names of paths are hex, for they may be no text."""

    folder: str
    branch: str | None
    head_before: str | None
    head_after: str | None
    safety: str
    safety_ref: str
    staged: str | None
    permissions: dict[str, int]
    exact: dict[str, str]
    """Blobs of the bytes as they stood, where git's line ends make others of them."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A move that has begun: all that is needed to end it, however often."""

    folder: str
    branch: str | None
    head_before: str | None
    head_after: str | None
    why: str
    tree_before: str | None
    """The tree of the work tree before; None where the work tree does not change."""
    tree_after: str | None
    index_tree: str | None
    """What the index shall say of the folder; None is nothing."""
    permissions: dict[str, int]
    exact_before: dict[str, str]
    exact: dict[str, str]
    safety_ref: str | None = None
    """Where the work tree as it was is kept; None where it does not change."""
    undo: UndoRecord | None
    """What can be undone afterwards."""
    replaces_undo: bool


class Notes:
    """The notes in one git directory."""

    def __init__(self, git_dir: Path) -> None:
        self._intent = git_dir / INTENT
        self._undo = git_dir / UNDO

    def intent(self) -> Intent | None:
        return _read(self._intent, Intent)

    def has_intent(self) -> bool:
        return self._intent.exists()

    def begin(self, intent: Intent) -> None:
        replace_durably(self._intent, msgspec.json.encode(intent))

    def end(self) -> None:
        remove_durably(self._intent)

    def undo_record(self) -> UndoRecord | None:
        return _read(self._undo, UndoRecord)

    def keep_undo(self, record: UndoRecord | None) -> None:
        if record is None:
            remove_durably(self._undo)
        else:
            replace_durably(self._undo, msgspec.json.encode(record))


def _read(path: Path, kind: type[_Note]) -> _Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as problem:
        # It is replaced as a whole, so that only another program can have damaged it.
        raise CheckpointError(
            f"{path} is damaged.", "Look at the refs below refs/hankweave/safety, then remove it."
        ) from problem
