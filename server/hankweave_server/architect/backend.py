"""What keeps checkpoints: the workspace's own git repository, or the shadow repository."""

from __future__ import annotations

from typing import Protocol

from hankweave_server.architect.model import Checkpoint


class Backend(Protocol):
    """The manager's methods, answered by one kind of repository."""

    def create(self, step: int, message: str) -> Checkpoint | None:
        """Makes a checkpoint; None when nothing has changed."""

    def list_checkpoints(self) -> list[Checkpoint]:
        """Lists checkpoints, newest first."""

    def rollback(self, step: int | str | None, commit: str | None) -> bool:
        """Goes back; False when there is no such target, and then nothing was touched."""

    def get_latest(self) -> Checkpoint | None:
        """Gives the newest checkpoint on the line that leads to now."""

    def has_changes_since(self, commit_hash: str) -> bool:
        """Tells whether a file differs from a commit; raises UnknownCheckpoint for no commit."""

    def undo(self) -> bool:
        """Takes the last rollback back; False when there is none to take back."""

    def close(self) -> None:
        """Gives back what the backend holds; it is not used afterwards."""
