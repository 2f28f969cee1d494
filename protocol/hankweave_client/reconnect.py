"""Delays between attempts to reconnect."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling delays in seconds, each shortened at random.

    The jitter keeps a crowd of clients that lost the same server from coming back all at once.
    """

    first: float = 0.05
    longest: float = 5.0
    attempts: int | None = None
    """The number of attempts in a row; None for no limit."""

    def delays(self, uniform: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
        """Yield one delay for each attempt."""
        ceiling = self.first
        tries = 0
        while self.attempts is None or tries < self.attempts:
            yield uniform(ceiling / 2, ceiling)
            ceiling = min(ceiling * 2, self.longest)
            tries += 1
