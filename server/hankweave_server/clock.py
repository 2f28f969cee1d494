"""Time as an argument: the daemon asks a `Clock`, tests hand in one that they move."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock in UTC. It may jump; only seq orders events, never this."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; timers and durations use it. Stands while we sleep."""

    def boottime(self) -> float:
        """Seconds like `monotonic`, but those that the machine was suspended count too."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
