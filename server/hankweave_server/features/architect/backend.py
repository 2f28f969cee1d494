"""The interface of a checkpoint backend: the user's git repository or the shadow repository."""

from __future__ import annotations

from typing import Protocol

from hankweave_server.user_git.labels import Checkpoint


class Backend(Protocol):
    """The methods of `CheckpointManager`, implemented for one kind of repository."""

    def create(self, step: int, message: str) -> Checkpoint | None:
        """Create a checkpoint; return None when nothing has changed."""

    def list_checkpoints(self) -> list[Checkpoint]:
        """Return all checkpoints, newest first."""

    def rollback(self, step: int | str | None, commit: str | None) -> bool:
        """Restore a checkpoint; return False, with no file changed, when the target is unknown."""

    def get_latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is an ancestor of the current state."""

    def has_changes_since(self, commit_hash: str) -> bool:
        """Return whether a file differs from a commit; raise UnknownCheckpoint if it is unknown."""

    def undo(self) -> bool:
        """Undo the last rollback; return False when there is none."""

    def close(self) -> None:
        """Release the backend's resources; it must not be used afterwards."""
