"""The documented values of Architect's Python API: checkpoints and errors.

The prefix and the errors are defined with the git operations. All errors derive from
`CheckpointError` and carry a sentence and a hint, never the text of a traceback.
"""

from __future__ import annotations

from dataclasses import dataclass

from hankweave_server.user_git.errors import (
    CheckpointError,
    CheckpointWarning,
    NotARepository,
    RepositoryBusy,
    RollbackIncomplete,
    UndoImpossible,
    UnknownCheckpoint,
    UnsupportedRepository,
    WorkspaceMissing,
)
from hankweave_server.user_git.labels import CHECKPOINT_PREFIX

__all__ = [
    "CHECKPOINT_PREFIX",
    "CheckpointError",
    "CheckpointWarning",
    "NotARepository",
    "RepositoryBusy",
    "RollbackIncomplete",
    "UndoImpossible",
    "UnknownCheckpoint",
    "UnsupportedRepository",
    "WorkspaceMissing",
]


@dataclass(frozen=True)
class Checkpoint:
    """A restore point; the documented record of Architect's API."""

    step: int
    """Step number; 0 for a named step of a pipeline."""
    commit_hash: str
    """Full git hash."""
    message: str
    """The message given at creation; for a named step, its name comes first."""
    timestamp: float
    """Unix timestamp of the commit."""
    files_changed: list[str]
    """Changed files, relative to the workspace; bytes that are not UTF-8 become surrogates."""

    def short_hash(self) -> str:
        """Return the first 7 characters of the hash."""
        return self.commit_hash[:7]
