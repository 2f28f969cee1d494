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

    def within(self, seconds: float) -> Callable[[], bool]:
        """Tells whether there is time for another point; the long tier has all night."""
        end = time.monotonic() + seconds
        return lambda: self.is_long or time.monotonic() < end
