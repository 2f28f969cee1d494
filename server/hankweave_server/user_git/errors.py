"""What can go wrong with checkpoints in a person's repository: a sentence, and what to do now."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint or rollback could not be done; unless it says otherwise, nothing changed."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}" if hint else message)
        self.message = message
        self.hint = hint


class WorkspaceMissing(CheckpointError):
    """The workspace is not there, or is no folder."""


class NotARepository(CheckpointError):
    """The workspace is in no git repository."""


class UnsupportedRepository(CheckpointError):
    """The repository is bare, or of a kind that cannot be read here."""


class RepositoryBusy(CheckpointError):
    """Another program works on the repository, or a merge or rebase is under way."""


class UnknownCheckpoint(CheckpointError, ValueError):
    """A name that should be a commit of this repository is none."""


class RollbackIncomplete(CheckpointError):
    """The rollback was done, but some files changed meanwhile and were left as they are."""

    def __init__(self, message: str, hint: str, paths: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.paths = paths


class UndoImpossible(CheckpointError):
    """The branch has moved on since the rollback."""


class CheckpointWarning(UserWarning):
    """Something was left out of a checkpoint or a rollback, on purpose."""
