"""Architect's documented Python API, backed by the user's git or by the shadow repository.

    from hankweave_server.architect import CHECKPOINT_PREFIX, Checkpoint, CheckpointManager

Modules, in reading order:

- `checkpoints`: `CheckpointManager`, the public class
- `model`: checkpoints and errors of the API
- `backend`: the interface of the two backends
- `workspace`: checkpoints as commits in the workspace's own repository
- `shadow`: checkpoints in the shadow repository, through a server
"""

from __future__ import annotations

from hankweave_server.architect.checkpoints import CheckpointManager
from hankweave_server.architect.model import (
    CHECKPOINT_PREFIX,
    Checkpoint,
    CheckpointError,
    CheckpointWarning,
    UnknownCheckpoint,
)

__all__ = [
    "CHECKPOINT_PREFIX",
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "CheckpointWarning",
    "UnknownCheckpoint",
]
