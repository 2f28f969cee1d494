"""The documented values of seed 003: what a checkpoint is called and what it tells.

What Architect's door raises: a sentence and a hint, never a traceback's text.

`CheckpointError` is the one to catch. They are defined with the git work they are about.

The labels of checkpoints: how a step, or a named step of a pipeline, is written and read.
"""

from __future__ import annotations

import re
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

CHECKPOINT_PREFIX = "architect:checkpoint"
"""How every checkpoint's message begins (seed 003, "Constant")."""


@dataclass(frozen=True)
class Checkpoint:
    """One restore point (seed 003, "Checkpoint")."""

    step: int
    """Step number; 0 for a named step of a pipeline."""
    commit_hash: str
    """Full git hash."""
    message: str
    """What was said about it; of a named step, its name."""
    timestamp: float
    """Unix timestamp: when it was made, as its commit tells."""
    files_changed: list[str]
    """The files it changed, relative to the workspace; a byte that is no UTF-8 is a surrogate."""

    def short_hash(self) -> str:
        """Gives the first 7 characters of the hash."""
        return self.commit_hash[:7]


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


_LABEL = re.compile(rf"{CHECKPOINT_PREFIX}:(?P<mark>.+?)(?: -- (?P<text>.*))?", re.DOTALL)
_STEP = re.compile(r"step-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a label says: a step by its number, or by its name."""

    step: int | None
    name: str | None
    text: str

    @property
    def message(self) -> str:
        """What the documented record calls its message; a named step is told apart by it."""
        if self.name is None:
            return self.text

        return f"{self.name} -- {self.text}" if self.text else self.name

    def is_called(self, step: int | str) -> bool:
        """Tells whether a person may mean this one by a number, or by a name."""
        if isinstance(step, int):
            return self.step == step

        return step in (self.name, None if self.step is None else str(self.step))


def label_of(step: int, message: str) -> str:
    """Writes `architect:checkpoint:step-<N>`, with ` -- <message>` behind it if there is one."""
    if step < 0:
        raise ValueError(f"{step} is no step: steps are counted from 0.")

    label = f"{CHECKPOINT_PREFIX}:step-{step}"
    return f"{label} -- {message}" if message else label


def mark_in(label: str | None) -> Mark | None:
    """Reads a label; None for one that is not Architect's."""
    found = _LABEL.fullmatch(label or "")
    if found is None:
        return None

    step = _STEP.fullmatch(found["mark"])
    text = found["text"] or ""
    if step is not None:
        return Mark(int(step[1]), None, text)

    return Mark(None, found["mark"], text)
