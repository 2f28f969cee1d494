"""What Architect's door raises: a sentence and a hint, never a traceback's text.

`CheckpointError` is the one to catch. They are defined with the git work they are about.
"""

from __future__ import annotations

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

__all__ = [
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
