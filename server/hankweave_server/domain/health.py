"""How well the server is: what is wrong at the moment, each with a code, a sentence and since when.

A server with a problem is *degraded*: it stays up, answers who asks, and refuses what it could not
keep. What it cannot live with it does not report here: it ends, with a sentence and an exit code.

What three clocks say together: that somebody set one of them, or that nothing ran for a while.

The wall clock may be set, the monotonic one stands while the machine is suspended, and the boot
clock does neither. So a wall clock that moved otherwise than the boot clock was set; a boot clock
that ran ahead of the monotonic one slept; and where all three ran on and we come too late all the
same, it was us who stood still: stopped, frozen with a container, or starved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from hankweave_protocol.records import Problem, ProblemCode

__all__ = ["Health", "Problem", "ProblemCode"]


@dataclass(frozen=True, slots=True)
class Health:
    """All problems there are, the oldest first; at most one of each code."""

    problems: tuple[Problem, ...] = ()

    @property
    def status(self) -> Literal["ok", "degraded"]:
        return "degraded" if self.problems else "ok"

    @property
    def sentence(self) -> str:
        """All that is wrong, for people; empty where nothing is."""
        return " ".join(problem.message for problem in self.problems)

    def problem(self, code: ProblemCode) -> Problem | None:
        return next((problem for problem in self.problems if problem.code == code), None)

    def with_problem(self, problem: Problem) -> Health:
        """Adds a problem; one that is known already stays as it was first told."""
        if self.problem(problem.code) is not None:
            return self

        return replace(self, problems=(*self.problems, problem))

    def without(self, code: ProblemCode) -> Health:
        """Takes a problem away, if it is there."""
        return replace(self, problems=tuple(each for each in self.problems if each.code != code))


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
