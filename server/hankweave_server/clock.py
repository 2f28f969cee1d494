"""Time as a dependency: the server asks a `Clock`, and tests pass one that they control."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall clock in UTC. It may jump; events are ordered by seq alone."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for timers and durations; stops in a suspend."""

    def boottime(self) -> float:
        """Return seconds like `monotonic`, but including time in suspend."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
