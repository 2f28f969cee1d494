"""Architect's door: its Python API (seed 003), kept by git or by the shadow repository.

from hankweave_server.architect import CHECKPOINT_PREFIX, Checkpoint, CheckpointManager
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
