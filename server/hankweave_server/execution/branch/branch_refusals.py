"""What kept a branch from being made, said to who asked for it."""

from __future__ import annotations

import os
from errno import EDQUOT, EEXIST, ENOSPC, ENOTEMPTY

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointNotFound,
    InsufficientSpace,
    RestoreIncomplete,
)
from hankweave_server.checkpoints.grafting import Interrupted
from hankweave_server.execution.branch.branch_draft import Draft


def refusal_of(error: BaseException, draft: Draft) -> Refused | None:
    """Says what kept a branch from being made, where the caller or a person can do something."""
    sha = draft.target.checkpoint.sha[:12]
    match error:
        case InsufficientSpace(need=0):
            return _no_space("The disk became full.")
        case InsufficientSpace(need=need, free=free):
            return _no_space(f"A branch needs {need} bytes there and {free} are free.")
        case CheckpointNotFound():
            return Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {sha} is gone: it was pruned.",
                path="$.data.checkpointSha",
                hint="checkpoint.list names those that there are.",
            )
        case CheckpointDamaged(damages=damages):
            return Refused(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"Checkpoint {sha} cannot be read: {len(damages)} objects are damaged.",
                hint=f"First: {damages[0].kind} {damages[0].sha}. "
                "`hankweave fsck --repair` writes again what can be found.",
            )
        case RestoreIncomplete(unfinished=unfinished):
            first = os.fsdecode(unfinished[0].path)
            return _not_there(f"{draft.final} cannot hold these files, first {first!r}.")
        case Interrupted():
            return Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.")
        case OSError(errno=number) if number in (ENOSPC, EDQUOT):
            return _no_space("The disk became full.")
        case OSError(errno=number) if number in (EEXIST, ENOTEMPTY):
            return _not_there(f"{draft.final} is not empty any more.")
        case OSError():
            return _not_there(f"{draft.final} cannot be made: {error.strerror}.")
        case _:
            return None


def _no_space(message: str) -> Refused:
    hint = "Free some space, or name another place; nothing is left of the attempt."
    return Refused(ErrorCode.INSUFFICIENT_SPACE, message, path="$.data.path", hint=hint)


def _not_there(message: str) -> Refused:
    hint = "Name another place; nothing is left of the attempt."
    return Refused(ErrorCode.INVALID_PATH, message, path="$.data.path", hint=hint)
