"""Architect's checkpoints and their labels, in the user's and in the shadow repository.

A label is the subject of a checkpoint's commit, `architect:checkpoint:step-<N>` or
`architect:checkpoint:<name>` for a named step of a pipeline, optionally followed by
` -- <message>`. `label_of` writes labels and `mark_in` parses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CHECKPOINT_PREFIX = "architect:checkpoint"
"""The prefix of every checkpoint's commit message."""

_LABEL = re.compile(rf"{CHECKPOINT_PREFIX}:(?P<mark>[^\n]+?)(?: -- (?P<text>.*)|\n.*)?", re.DOTALL)
_STEP = re.compile(r"step-([0-9]{1,18})")


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


@dataclass(frozen=True, slots=True)
class Mark:
    """The parsed content of a label: a step's number or name, and the message."""

    step: int | None
    name: str | None
    text: str

    @property
    def message(self) -> str:
        """The `message` of the documented record; it includes the name of a named step."""
        if self.name is None:
            return self.text

        return f"{self.name} -- {self.text}" if self.text else self.name

    def is_called(self, step: int | str) -> bool:
        """Return whether a number or a name given by a user refers to this mark."""
        if isinstance(step, int):
            return self.step == step

        return step in (self.name, None if self.step is None else str(self.step))


def label_of(step: int, message: str) -> str:
    """Return `architect:checkpoint:step-<N>`, followed by ` -- <message>` if there is one."""
    if step < 0:
        raise ValueError(f"{step} is not a step: steps are counted from 0.")

    label = f"{CHECKPOINT_PREFIX}:step-{step}"
    return f"{label} -- {message}" if message else label


def mark_in(label: str | None) -> Mark | None:
    """Parse a label; return None if it is not one of Architect's."""
    found = _LABEL.fullmatch(label or "")
    if found is None:
        return None

    step = _STEP.fullmatch(found["mark"])
    text = found["text"] or ""
    if step is not None:
        return Mark(int(step[1]), None, text)

    return Mark(None, found["mark"], text)
