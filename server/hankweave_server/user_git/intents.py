"""Files kept in the git directory besides commits: the intent and the undo record."""

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
    """The state before the last rollback; paths are in hex, because they may not be text."""

    folder: str
    branch: str | None
    head_before: str | None
    head_after: str | None
    safety: str
    safety_ref: str
    staged: str | None
    permissions: dict[str, int]
    exact: dict[str, str]
    """Blobs of a file's exact bytes, where git's line-end conversion would change them."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A move that has begun, with all that is needed to finish it, any number of times."""

    folder: str
    branch: str | None
    head_before: str | None
    head_after: str | None
    why: str
    tree_before: str | None = None
    """The tree of the work tree before; None if the work tree does not change."""
    tree_after: str | None = None
    index_tree: str | None
    """The folder's content in the index after the move; None for nothing."""
    permissions: dict[str, int] = {}
    exact_before: dict[str, str] = {}
    exact: dict[str, str] = {}
    safety_ref: str | None = None
    """The ref that keeps the former work tree; None if the work tree does not change."""
    undo: UndoRecord | None = None
    """The undo record to keep afterwards."""
    replaces_undo: bool = False


class UndoNotes:
    """The intent and the undo record in one git directory."""

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
        # The file is replaced atomically, so only another program can have damaged it.
        raise CheckpointError(
            f"{path} is damaged.",
            ("Check the refs under refs/hankweave/safety, then remove the file."),
        ) from problem
