"""Checkpoints as commits in the workspace's own git repository."""

from __future__ import annotations

from pathlib import Path

from hankweave_server.architect.model import Checkpoint
from hankweave_server.user_git.commits import ListedCommit
from hankweave_server.user_git.repository import git_folder_of
from hankweave_server.user_git.store import WorkspaceGit


class WorkspaceBackend:
    """The backend on the user's repository; it holds no resources between calls."""

    def __init__(self, root: Path) -> None:
        self._git = WorkspaceGit(root)

    def create(self, step: int, message: str) -> Checkpoint | None:
        if step < 0:
            raise ValueError(f"steps are counted from 0; found {step}")

        return _documented(self._git.create(f"step-{step}", message))

    def list_checkpoints(self) -> list[Checkpoint]:
        return [_checkpoint(found) for found in self._git.listed()]

    def rollback(self, step: int | str | None, commit: str | None) -> bool:
        if step is None and commit is None:
            return False

        return self._git.rollback(step=step, commit=commit)

    def get_latest(self) -> Checkpoint | None:
        return _documented(self._git.newest())

    def has_changes_since(self, commit_hash: str) -> bool:
        return self._git.differs_from(commit_hash)

    def undo(self) -> bool:
        return self._git.undo()

    def close(self) -> None:
        """Do nothing: every call has already released what it opened."""


def has_repository(root: Path) -> bool:
    """Return whether a folder is in a git repository that does not ignore it as a whole."""
    if not root.is_dir() or git_folder_of(root) is None:
        return False

    return not WorkspaceGit(root.absolute()).is_ignored()


def open_workspace(root: Path) -> WorkspaceBackend:
    """Open the repository around a workspace; raise CheckpointError if that is impossible."""
    return WorkspaceBackend(root.absolute())


def _documented(found: ListedCommit | None) -> Checkpoint | None:
    return None if found is None else _checkpoint(found)


def _checkpoint(found: ListedCommit) -> Checkpoint:
    return Checkpoint(
        step=found.mark.step or 0,
        commit_hash=found.sha,
        message=found.mark.message,
        timestamp=float(found.timestamp),
        files_changed=list(found.files),
    )
