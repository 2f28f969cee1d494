"""Architect's documented Python API, which is a feature.

    from hankweave_server.architect import CHECKPOINT_PREFIX, Checkpoint, CheckpointManager

The errors are those of `user_git`: each has a sentence and a hint, never the text of a traceback.
"""

from __future__ import annotations

from hankweave_server.features.architect.checkpoints import CheckpointManager
from hankweave_server.user_git.errors import CheckpointError, CheckpointWarning, UnknownCheckpoint
from hankweave_server.user_git.labels import CHECKPOINT_PREFIX, Checkpoint

__all__ = [
    "CHECKPOINT_PREFIX",
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "CheckpointWarning",
    "UnknownCheckpoint",
]
