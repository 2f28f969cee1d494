"""The labels of checkpoints: how a step, or a named step of a pipeline, is written and read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hankweave_server.architect.model import CHECKPOINT_PREFIX

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
