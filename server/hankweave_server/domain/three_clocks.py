"""What three clocks say together: that somebody set one of them, or that nothing ran for a while.

The wall clock may be set, the monotonic one stands while the machine is suspended, and the boot
clock does neither. So a wall clock that moved otherwise than the boot clock was set; a boot clock
that ran ahead of the monotonic one slept; and where all three ran on and we come too late all the
same, it was us who stood still: stopped, frozen with a container, or starved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

JUMP_TOLERANCE = 2.0
"""Seconds: a clock that is only being slewed moves by some milliseconds between two looks."""

PAUSE_TOLERANCE = 5.0
"""Seconds: a busy machine may let us wait for that long, and nobody need hear of it."""

Direction = Literal["forward", "back"]
PauseCause = Literal["suspended", "stopped"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The three clocks, read together; the last two in seconds."""

    wall: datetime
    monotonic: float
    boottime: float


@dataclass(frozen=True, slots=True)
class Jump:
    """The wall clock was set."""

    seconds: float
    direction: Direction


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing of us ran: the machine was suspended, or we were stopped."""

    seconds: float
    cause: PauseCause


def jump_between(before: Reading, after: Reading) -> Jump | None:
    """Tells whether the wall clock was set between two looks; a suspended machine's moves on."""
    passed = after.boottime - before.boottime
    ahead = (after.wall - before.wall).total_seconds() - passed
    if abs(ahead) <= JUMP_TOLERANCE:
        return None

    return Jump(abs(ahead), "forward" if ahead > 0 else "back")


def pause_between(before: Reading, after: Reading, nap: float) -> Pause | None:
    """Tells whether more than a nap of so many seconds lay between two looks, and why."""
    passed = after.boottime - before.boottime
    asleep = passed - (after.monotonic - before.monotonic)
    late = passed - nap
    if late <= PAUSE_TOLERANCE:
        return None

    return Pause(late, "suspended" if asleep > late / 2 else "stopped")
