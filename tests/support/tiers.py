"""How much of a campaign is to be done: a stride in the fast tier, everything in the long one."""

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
    """Seconds for each scenario of the long tier; None: every point, all night."""

    @property
    def is_whole(self) -> bool:
        """Every point is to be tried, and one beyond."""
        return self.is_long and self.sampled is None

    def within(self, seconds: float) -> Callable[[], bool]:
        """Tells whether there is time for another point; `seconds` are those of the fast tier."""
        end = time.monotonic() + (self.sampled or seconds)
        return lambda: self.is_whole or time.monotonic() < end
