"""The size of a campaign: a stride in the fast tier, every point in the long one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from support.struck import Grounds, Scenario

Lay = Callable[[Scenario], Grounds]


@dataclass(frozen=True)
class Tier:
    is_long: bool
    rounds: int
    """Random kills."""
    sampled: float | None = None
    """Seconds for each scenario of the long tier; None: every point, without a time limit."""

    @property
    def is_whole(self) -> bool:
        """Return True if every point is tried, and one beyond."""
        return self.is_long and self.sampled is None

    def within(self, seconds: float) -> Callable[[], bool]:
        """Return True if there is time for another point; `seconds` are those of the fast tier."""
        end = time.monotonic() + (self.sampled or seconds)
        return lambda: self.is_whole or time.monotonic() < end
