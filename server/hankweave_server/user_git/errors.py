"""Errors of checkpoints in the user's repository: a sentence, and a hint on what to do."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint or rollback failed; unless the message says otherwise, nothing changed."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}" if hint else message)
        self.message = message
        self.hint = hint


class WorkspaceMissing(CheckpointError):
    """The workspace does not exist, or is not a folder."""


class NotARepository(CheckpointError):
    """The workspace is not in a git repository."""


class UnsupportedRepository(CheckpointError):
    """The repository is bare, or of a kind that is not supported."""


class RepositoryBusy(CheckpointError):
    """Another program uses the repository, or a merge or rebase is in progress."""


class UnknownCheckpoint(CheckpointError, ValueError):
    """A name does not refer to a commit of this repository."""


class RollbackIncomplete(CheckpointError):
    """The rollback was done, but files that changed meanwhile were left alone."""

    def __init__(self, message: str, hint: str, paths: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.paths = paths


class UndoImpossible(CheckpointError):
    """The branch has moved since the rollback."""


class CheckpointWarning(UserWarning):
    """Something was deliberately left out of a checkpoint or a rollback."""
