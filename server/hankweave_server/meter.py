"""Progress counters: long work counts where it is done, and other threads read the count.

The worker only adds to a number: it makes no call, waits for nothing and reads no clock. A reader
in another thread may read the meter at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hankweave_protocol.records import ProgressUnit


@dataclass(frozen=True, slots=True)
class MeterReading:
    """The progress of one phase of some work."""

    phase: str
    unit: ProgressUnit
    done: int
    total: int | None
    """None while it is unknown."""


@dataclass(slots=True)
class _Count:
    phase: str
    unit: ProgressUnit
    total: int | None
    done: int = 0


class Meter:
    """The progress of one piece of work; written by one thread, read by any."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: _Count | None = None

    def begin(self, phase: str, unit: ProgressUnit, total: int | None = None) -> None:
        """Start a new phase."""
        # One assignment, so that no reader combines the count of one phase with another's total.
        self._count = _Count(phase, unit, total)

    def advance(self, by: int = 1) -> None:
        if self._count is not None:
            self._count.done += by

    def read(self) -> MeterReading | None:
        """Return the progress; None before the first phase."""
        count = self._count
        if count is None:
            return None

        done = count.done
        # A total may be an estimate: a count beyond it raises it.
        total = None if count.total is None else max(count.total, done)
        return MeterReading(count.phase, count.unit, done, total)


UNWATCHED = Meter()
"""For work without a reader; its content is meaningless."""
