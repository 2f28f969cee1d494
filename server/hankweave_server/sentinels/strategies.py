"""Decide when firings become a call: at once, after quiet, by count, or by time window.

Nothing here waits. A strategy gets firings and the current time, and returns the batches to call
the model for and the time at which it wants to be asked again. Times are seconds of a monotonic
clock.

`Backlog` is the bounded queue of triggers that wait for their call; it counts those it drops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from hankweave_protocol.sentinels import (
    CountExecution,
    DebounceExecution,
    ImmediateExecution,
    SentinelConfig,
    TimeWindowExecution,
)
from hankweave_server.sentinels.triggers import Firing

Batch: TypeAlias = tuple[bytes, ...]
"""The frames of one call."""

BUFFER_LIMIT = 10_000
"""Events that a strategy may collect; at the limit it makes a batch early and drops nothing."""


@dataclass(slots=True)
class _Buffer:
    """Collected firings."""

    frames: list[bytes] = field(default_factory=list)
    firings: int = 0

    def add(self, firing: Firing) -> None:
        self.frames.extend(firing)
        self.firings += 1

    @property
    def is_full(self) -> bool:
        return len(self.frames) >= BUFFER_LIMIT

    def emptied(self) -> list[Batch]:
        batch, self.frames, self.firings = tuple(self.frames), [], 0
        return [batch] if batch else []


class Strategy(ABC):
    """The base of the four strategies: what they collect is due at a time, or at the end."""

    def __init__(self) -> None:
        self._buffer = _Buffer()

    @abstractmethod
    def add(self, firing: Firing, now: float) -> list[Batch]:
        """Add a firing; return the batches that it completes."""

    def due(self) -> float | None:
        """Return the time to call `at`; None if only a firing can change anything."""
        return None

    def at(self, now: float) -> list[Batch]:
        """Return the batches that are due by now."""
        due = self.due()
        return self._buffer.emptied() if due is not None and due <= now else []

    def flush(self) -> list[Batch]:
        """Return everything collected, at the end of the codon."""
        return self._buffer.emptied()


def strategy_of(config: SentinelConfig, now: float) -> Strategy:
    """Return the strategy that a sentinel is configured with."""
    match config.execution:
        case ImmediateExecution():
            return Immediate()
        case DebounceExecution(milliseconds=milliseconds):
            return Debounce(milliseconds / 1000)
        case CountExecution(threshold=threshold):
            return Count(threshold)
        case TimeWindowExecution(milliseconds=milliseconds):
            return TimeWindow(milliseconds / 1000, now)
        case other:
            assert_never(other)


class Immediate(Strategy):
    """A strategy that makes a batch of every firing."""

    def add(self, firing: Firing, now: float) -> list[Batch]:
        return [firing]


class Debounce(Strategy):
    """A strategy that makes a batch when nothing has fired for `quiet` seconds."""

    def __init__(self, quiet: float) -> None:
        super().__init__()
        self._quiet = quiet
        self._last = 0.0

    def add(self, firing: Firing, now: float) -> list[Batch]:
        self._buffer.add(firing)
        self._last = now
        return self._buffer.emptied() if self._buffer.is_full else []

    def due(self) -> float | None:
        return self._last + self._quiet if self._buffer.frames else None


class Count(Strategy):
    """A strategy that makes a batch of every `threshold` firings."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold

    def add(self, firing: Firing, now: float) -> list[Batch]:
        self._buffer.add(firing)
        has_enough = self._buffer.firings >= self._threshold
        return self._buffer.emptied() if has_enough or self._buffer.is_full else []


class TimeWindow(Strategy):
    """A strategy that makes a batch at the end of each window of `length` seconds with firings.

    Windows are counted from the start, so the schedule is fixed.
    """

    def __init__(self, length: float, start: float) -> None:
        super().__init__()
        self._length = length
        self._start = start
        self._end = start + length

    def add(self, firing: Firing, now: float) -> list[Batch]:
        if not self._buffer.frames:
            passed = int((now - self._start) // self._length)
            self._end = self._start + (passed + 1) * self._length

        self._buffer.add(firing)
        return self._buffer.emptied() if self._buffer.is_full else []

    def due(self) -> float | None:
        return self._end if self._buffer.frames else None


TRIGGER_LIMIT = 100
BYTES_LIMIT = 64 * 1024 * 1024
"""Size of the events in all triggers of one sentinel; one tool call may have megabytes."""


@dataclass(frozen=True, slots=True)
class PendingTrigger:
    """A pending trigger."""

    number: int
    """The number of the trigger, from 1 for each sentinel of a codon."""
    frames: Batch
    queued_at: str
    """The current time for its template."""

    @property
    def size(self) -> int:
        return sum(map(len, self.frames))


class Backlog:
    """A queue that drops its oldest trigger when it is full, as in Hankweave."""

    def __init__(self, *, limit: int = TRIGGER_LIMIT, bytes_limit: int = BYTES_LIMIT) -> None:
        self._limit = limit
        self._bytes_limit = bytes_limit
        self._waiting: deque[PendingTrigger] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, trigger: PendingTrigger) -> int:
        """Add a trigger; return the number of older ones dropped. The new one always stays."""
        self._waiting.append(trigger)
        self._bytes += trigger.size
        dropped = 0
        while len(self._waiting) > 1 and not self._fits():
            self.pop()
            dropped += 1

        return dropped

    def pop(self) -> PendingTrigger | None:
        """Remove and return the oldest trigger, or None."""
        if not self._waiting:
            return None

        trigger = self._waiting.popleft()
        self._bytes -= trigger.size
        return trigger

    def clear(self) -> int:
        """Drop all triggers; return their number."""
        count = len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return count

    def _fits(self) -> bool:
        return len(self._waiting) <= self._limit and self._bytes <= self._bytes_limit
