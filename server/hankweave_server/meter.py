"""Counts long work where it is done, so that somebody else can look how far it is.

The worker only ever adds to a number; nobody is called, nothing is waited for, and no clock is
read. Whoever wants to know reads the meter from another thread, as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hankweave_protocol.records import ProgressUnit


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a phase of some work is."""

    phase: str
    unit: ProgressUnit
    done: int
    total: int | None
    """None while nobody knows it."""


@dataclass(slots=True)
class _Count:
    phase: str
    unit: ProgressUnit
    total: int | None
    done: int = 0


class Meter:
    """How far one piece of work is; written by one thread, read by any."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: _Count | None = None

    def begin(self, phase: str, unit: ProgressUnit, total: int | None = None) -> None:
        """Begins to count anew."""
        # One assignment, so that no reader sees the count of one phase and the total of another.
        self._count = _Count(phase, unit, total)

    def advance(self, by: int = 1) -> None:
        if self._count is not None:
            self._count.done += by

    def read(self) -> Reading | None:
        """Gives how far it is; None before the first phase."""
        count = self._count
        if count is None:
            return None

        done = count.done
        # A total may be an estimate: what is beyond it was not counted before.
        total = None if count.total is None else max(count.total, done)
        return Reading(count.phase, count.unit, done, total)


UNWATCHED = Meter()
"""For work that nobody looks at; what it says means nothing."""
