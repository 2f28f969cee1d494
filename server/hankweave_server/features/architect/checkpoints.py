"""`CheckpointManager`, the public class of Architect's documented Python API."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, assert_never

from hankweave_server.user_git.labels import Checkpoint
from hankweave_server.user_git.repository import git_folder_of
from hankweave_server.user_git.store import WorkspaceGit

if TYPE_CHECKING:
    from hankweave_server.features.architect.shadow import Shadow

Repository = Literal["auto", "workspace", "shadow"]


class CheckpointManager:
    """Create, list and restore checkpoints of a workspace.

    Each call is complete when it returns. Raises CheckpointError, with a hint, where the repository
    cannot be used.
    """

    def __init__(self, workspace_root: str, *, repository: Repository = "auto") -> None:
        """Choose a backend; `auto` prefers a git repository around the workspace."""
        self._backend = _backend_of(Path(workspace_root), repository)

    def create(self, step: int, message: str = "") -> Checkpoint | None:
        """Creates a checkpoint. Returns None if there are no changes."""
        return self._backend.create(step, message)

    def list_checkpoints(self) -> list[Checkpoint]:
        """Lists checkpoints (most recent first)."""
        return self._backend.list_checkpoints()

    def rollback(self, step: int | str | None = None, commit: str | None = None) -> bool:
        """Rolls back to a checkpoint; `commit` wins over `step`, which may be a step's name.

        A safety commit is made first. Returns False, with no file changed, when there is no target.
        """
        return self._backend.rollback(step, commit or None)

    def get_latest(self) -> Checkpoint | None:
        """Gets the most recent checkpoint."""
        return self._backend.get_latest()

    def has_changes_since(self, commit_hash: str) -> bool:
        """Checks if there are changes since a commit, new files among them."""
        return self._backend.has_changes_since(commit_hash)

    def undo(self) -> bool:
        """Undoes the last rollback. Returns False if there is none."""
        return self._backend.undo()

    def close(self) -> None:
        """Releases resources. Optional: an unclosed manager cleans up when it is collected."""
        self._backend.close()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def has_repository(root: Path) -> bool:
    """Return whether a folder is in a git repository that does not ignore it as a whole."""
    if not root.is_dir() or git_folder_of(root) is None:
        return False

    return not WorkspaceGit(root.absolute()).is_ignored()


def _backend_of(workspace_root: Path, repository: Repository) -> WorkspaceGit | Shadow:
    match repository:
        case "workspace":
            return WorkspaceGit(workspace_root.absolute())
        case "shadow":
            return _shadow(workspace_root)
        case "auto":
            is_there = has_repository(workspace_root)
            return _backend_of(workspace_root, "workspace" if is_there else "shadow")
        case _:
            assert_never(repository)


def _shadow(workspace_root: Path) -> Shadow:
    # Imported late: the shadow backend loads the client and the server, which git does not need.
    from hankweave_server.features.architect.shadow import open_shadow

    return open_shadow(workspace_root)
