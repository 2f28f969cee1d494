"""Server health: the current problems, and clock jumps and pauses.

Each problem has a code, a sentence and a start time. A server with a problem is *degraded*: it
stays up, answers queries, and refuses commands whose results it could not keep. A fatal problem is
not reported here: the server ends with a sentence and an exit code.

Jumps and pauses are found by comparing three clocks. The wall clock may be set, the monotonic one
stops while the machine is suspended, and the boot clock does neither. So a wall clock that moved
differently from the boot clock was set; a boot clock that ran ahead of the monotonic one means a
suspend; and if all three ran on and the process is late all the same, the process itself was
stopped, frozen with a container, or starved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from hankweave_protocol.records import Problem, ProblemCode

__all__ = ["Problem", "ProblemCode", "ServerHealth"]


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """All current problems, the oldest first; at most one of each code."""

    problems: tuple[Problem, ...] = ()

    @property
    def status(self) -> Literal["ok", "degraded"]:
        return "degraded" if self.problems else "ok"

    @property
    def sentence(self) -> str:
        """All problems as text; empty if there are none."""
        return " ".join(problem.message for problem in self.problems)

    def problem(self, code: ProblemCode) -> Problem | None:
        return next((problem for problem in self.problems if problem.code == code), None)

    def with_problem(self, problem: Problem) -> ServerHealth:
        """Add a problem; a known one keeps its first message and time."""
        if self.problem(problem.code) is not None:
            return self

        return replace(self, problems=(*self.problems, problem))

    def without(self, code: ProblemCode) -> ServerHealth:
        """Remove a problem, if it is there."""
        return replace(self, problems=tuple(each for each in self.problems if each.code != code))


JUMP_TOLERANCE = 2.0
"""Seconds: a clock that is only slewed moves by some milliseconds between two readings."""

PAUSE_TOLERANCE = 5.0
"""Seconds: a busy machine may delay the process this long without a report."""

Direction = Literal["forward", "back"]
PauseCause = Literal["suspended", "stopped"]


@dataclass(frozen=True, slots=True)
class ClockReading:
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
class ServerPause:
    """This process did not run: the machine was suspended, or the process was stopped."""

    seconds: float
    cause: PauseCause


def jump_between(before: ClockReading, after: ClockReading) -> Jump | None:
    """Return the jump of the wall clock between two readings; a suspend is not a jump."""
    passed = after.boottime - before.boottime
    ahead = (after.wall - before.wall).total_seconds() - passed
    if abs(ahead) <= JUMP_TOLERANCE:
        return None

    return Jump(abs(ahead), "forward" if ahead > 0 else "back")


def pause_between(before: ClockReading, after: ClockReading, nap: float) -> ServerPause | None:
    """Return the pause if more than `nap` seconds passed between two readings, with its cause."""
    passed = after.boottime - before.boottime
    asleep = passed - (after.monotonic - before.monotonic)
    late = passed - nap
    if late <= PAUSE_TOLERANCE:
        return None

    return ServerPause(late, "suspended" if asleep > late / 2 else "stopped")
