"""The documented values of seed 003: what a checkpoint is called and what it tells."""

from __future__ import annotations

from dataclasses import dataclass

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
