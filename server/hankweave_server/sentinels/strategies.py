"""When firings become a call: at once, when it is quiet, by number, or by the clock.

Nothing here waits. A strategy is told what fired and what time it is, and says what is to be
called for and when it wants to be asked again; times are a monotonic clock's seconds.

Triggers that wait for their call: bounded, and what has no room is counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, assert_never

from hankweave_protocol.sentinels import (
    CountExecution,
    DebounceExecution,
    ImmediateExecution,
    SentinelConfig,
    TimeWindowExecution,
)
from hankweave_server.sentinels.triggers import Firing

Batch: TypeAlias = tuple[bytes, ...]
"""The frames that one call is about."""

BUFFER_LIMIT = 10_000
"""Events that may wait for a time or a number; then they are called for early, not dropped."""


@dataclass(slots=True)
class _Buffer:
    """Firings that wait."""

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


class Strategy(Protocol):
    """All four."""

    def add(self, firing: Firing, now: float) -> list[Batch]:
        """Takes a firing; returns what is to be called for because of it."""

    def due(self) -> float | None:
        """When to ask again; None where only a firing can change anything."""

    def at(self, now: float) -> list[Batch]:
        """Returns what is to be called for by now."""

    def flush(self) -> list[Batch]:
        """Returns all that waits: the codon is at its end."""


def strategy_of(config: SentinelConfig, now: float) -> Strategy:
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


class Immediate:
    """Every firing is a call."""

    def add(self, firing: Firing, now: float) -> list[Batch]:
        return [firing]

    def due(self) -> float | None:
        return None

    def at(self, now: float) -> list[Batch]:
        return []

    def flush(self) -> list[Batch]:
        return []


class Debounce:
    """Calls when nothing has fired for a while."""

    def __init__(self, quiet: float) -> None:
        self._quiet = quiet
        self._buffer = _Buffer()
        self._last = 0.0

    def add(self, firing: Firing, now: float) -> list[Batch]:
        self._buffer.add(firing)
        self._last = now
        return self._buffer.emptied() if self._buffer.is_full else []

    def due(self) -> float | None:
        return self._last + self._quiet if self._buffer.frames else None

    def at(self, now: float) -> list[Batch]:
        due = self.due()
        return self._buffer.emptied() if due is not None and due <= now else []

    def flush(self) -> list[Batch]:
        return self._buffer.emptied()


class Count:
    """Calls for each so many firings, exactly."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._buffer = _Buffer()

    def add(self, firing: Firing, now: float) -> list[Batch]:
        self._buffer.add(firing)
        has_enough = self._buffer.firings >= self._threshold
        return self._buffer.emptied() if has_enough or self._buffer.is_full else []

    def due(self) -> float | None:
        return None

    def at(self, now: float) -> list[Batch]:
        return []

    def flush(self) -> list[Batch]:
        return self._buffer.emptied()


class TimeWindow:
    """Calls on a fixed schedule since the start, wherever a window has firings."""

    def __init__(self, length: float, start: float) -> None:
        self._length = length
        self._start = start
        self._buffer = _Buffer()
        self._end = start + length

    def add(self, firing: Firing, now: float) -> list[Batch]:
        if not self._buffer.frames:
            passed = int((now - self._start) // self._length)
            self._end = self._start + (passed + 1) * self._length

        self._buffer.add(firing)
        return self._buffer.emptied() if self._buffer.is_full else []

    def due(self) -> float | None:
        return self._end if self._buffer.frames else None

    def at(self, now: float) -> list[Batch]:
        due = self.due()
        return self._buffer.emptied() if due is not None and due <= now else []

    def flush(self) -> list[Batch]:
        return self._buffer.emptied()


TRIGGER_LIMIT = 100
BYTES_LIMIT = 64 * 1024 * 1024
"""Of the events in all triggers of one sentinel: an agent may write megabytes in a tool call."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One trigger."""

    number: int
    """Counted from 1 for each sentinel of a codon."""
    frames: Batch
    queued_at: str
    """The time that its template sees."""

    @property
    def size(self) -> int:
        return sum(map(len, self.frames))


class Backlog:
    """A queue that drops its oldest trigger where there is no room for a new one (Hankweave)."""

    def __init__(self, *, limit: int = TRIGGER_LIMIT, bytes_limit: int = BYTES_LIMIT) -> None:
        self._limit = limit
        self._bytes_limit = bytes_limit
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, trigger: Waiting) -> int:
        """Takes a trigger; returns how many older ones had to go. The new one always stays."""
        self._waiting.append(trigger)
        self._bytes += trigger.size
        dropped = 0
        while len(self._waiting) > 1 and not self._fits():
            self.pop()
            dropped += 1

        return dropped

    def pop(self) -> Waiting | None:
        """Returns the oldest trigger, if any."""
        if not self._waiting:
            return None

        trigger = self._waiting.popleft()
        self._bytes -= trigger.size
        return trigger

    def clear(self) -> int:
        """Drops all that waits; returns how many."""
        count = len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return count

    def _fits(self) -> bool:
        return len(self._waiting) <= self._limit and self._bytes <= self._bytes_limit
