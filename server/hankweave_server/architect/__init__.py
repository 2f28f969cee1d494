"""Architect's documented Python API, backed by the user's git or by the shadow repository.

    from hankweave_server.architect import CHECKPOINT_PREFIX, Checkpoint, CheckpointManager

The errors are those of `user_git`: each has a sentence and a hint, never the text of a traceback.

Modules, in reading order:

- `checkpoints`: `CheckpointManager`, the public class
- `backend`: the interface of the two backends; the one on the user's repository is in `user_git`
- `shadow`: checkpoints in the shadow repository, through a server
"""

from __future__ import annotations

from hankweave_server.architect.checkpoints import CheckpointManager
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
