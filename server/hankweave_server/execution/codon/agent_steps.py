"""Counting an agent's steps: one is an answer of its model and the tools that it called with it.

After every so many of them a checkpoint is due (seed 003, "every_n_steps").
"""

from __future__ import annotations

LABEL = "architect:checkpoint:step-"
"""What the checkpoint of a step is labelled with, before its number (seed 003, "Concept")."""


class AgentSteps:
    """The steps of one codon's agent; they count on through its extensions."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._ended = 0
        self._calls: set[str] = set()

    def spoke(self) -> None:
        """Forgets the calls of earlier answers: what has not returned by now never will."""
        self._calls.clear()

    def called(self, tool_use_id: str) -> None:
        self._calls.add(tool_use_id)

    def returned(self, tool_use_id: str) -> str | None:
        """Notes a tool's return; gives the label of a checkpoint that is due now."""
        self._calls.discard(tool_use_id)
        if self._calls:
            return None  # Its answer called others, too.

        self._ended += 1
        is_due = self._every is not None and self._ended % self._every == 0
        return f"{LABEL}{self._ended}" if is_due else None
