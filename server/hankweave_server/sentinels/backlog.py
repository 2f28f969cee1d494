"""Triggers that wait for their call: bounded, and what has no room is counted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hankweave_server.sentinels.strategies import Batch

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
