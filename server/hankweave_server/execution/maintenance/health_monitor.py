"""Track what is wrong with the server now, and report it to all clients.

Other modules report problems here and withdraw those that are over. Clients get a notice without a
seq at once, because the journal may be what cannot be written. The problem is also recorded with
the next line that the disk takes, in the order in which it happened.

A server with a problem is *degraded*: it stays up, answers queries, and refuses commands whose
results it could not keep. A fatal problem is not reported here: the server ends with a sentence and
an exit code.

A second part watches for a clock that was set, or a server that was suspended, and records it.
Neither breaks anything: seq orders events, and durations and timeouts use the monotonic clock. But
a reader of the journal should know why its timestamps run backwards, or why nothing happened for an
hour.

Jumps and pauses are found by comparing three clocks. The wall clock may be set, the monotonic one
stops while the machine is suspended, and the boot clock does neither. So a wall clock that moved
differently from the boot clock was set; a boot clock that ran ahead of the monotonic one means a
suspend; and if all three ran on and the process is late all the same, the process itself was
stopped, frozen with a container, or starved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import anyio

from hankweave_protocol import instants
from hankweave_protocol.events import (
    ClockJumped,
    EventData,
    ServerDegraded,
    ServerRecovered,
    ServerResumed,
)
from hankweave_protocol.records import Problem, ProblemCode
from hankweave_server.clock import Clock
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.logs import logger

log = logger(__name__)

CHECK_INTERVAL = 1.0
"""Seconds: shorter than a heartbeat, so that a jump of the timestamps is explained near it."""

JUMP_TOLERANCE = 2.0
"""Seconds: a clock that is only slewed moves by some milliseconds between two readings."""

PAUSE_TOLERANCE = 5.0
"""Seconds: a busy machine may delay the process this long without a report."""

Direction = Literal["forward", "back"]
PauseCause = Literal["suspended", "stopped"]

_AGAIN: dict[ProblemCode, str] = {
    "INSUFFICIENT_SPACE": "Disk space is available again.",
    "OUT_OF_DESCRIPTORS": "File descriptors are available again.",
    "MIRROR_UNREACHABLE": "The mirror can be reached again.",
    "MIRROR_LEASE_EXPIRED": "The lease of the mirror is renewed; the agent continues.",
}

_JOURNAL_WAITS: frozenset[ProblemCode] = frozenset(
    {"INSUFFICIENT_SPACE", "MIRROR_UNREACHABLE", "MIRROR_LEASE_EXPIRED"}
)
"""Problems during which the journal may not grow, or not be published."""


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


class HealthMonitor:
    """The health of one server; for use in the event loop's thread. Nothing here waits."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self.health = ServerHealth()
        self._notify: Callable[[EventData], None] = lambda event: None
        ledger.space.subscribe(
            on_shortage=self._disk_is_full,
            on_recovery=lambda: self.withdraw("INSUFFICIENT_SPACE"),
        )

    def attach(self, notify: Callable[[EventData], None]) -> None:
        """Send events that the journal cannot take at the moment to all clients by `notify`."""
        self._notify = notify

    def report(self, code: ProblemCode, message: str) -> None:
        """Report a problem; once, until it is withdrawn."""
        if self.health.problem(code) is not None:
            return

        problem = Problem(code=code, message=message, since=instants.to_text(self._clock.now()))
        self.health = self.health.with_problem(problem)
        log.warning("Degraded (%s): %s", code, message)
        self._publish(ServerDegraded(code=code, message=message, since=problem.since))

    def withdraw(self, code: ProblemCode) -> None:
        """Report that a problem is over; no-op if there is none."""
        problem = self.health.problem(code)
        if problem is None:
            return

        self.health = self.health.without(code)
        log.info("Recovered (%s)", code)
        recovered = ServerRecovered(code=code, message=_AGAIN[code], since=problem.since)
        self._publish(recovered)

    def _publish(self, event: EventData) -> None:
        if any(each.code in _JOURNAL_WAITS for each in self.health.problems):
            self._notify(event)

        with contextlib.suppress(LedgerFailed):  # The ledger ends and reports that itself.
            self._ledger.leave(event)

    def _disk_is_full(self, error: BaseException) -> None:
        self.report(
            "INSUFFICIENT_SPACE",
            f"The disk is full ({_reason(error)}): no new work starts until space is available.",
        )


def _reason(error: BaseException | None) -> str:
    """Return the kernel's message without the path it is about: anyone may read this."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror

        error = error.__cause__

    return "a checkpoint does not fit"


class TimeWatch:
    """A monitor of one server's clocks."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._is_stopping = False
        self._before = self._reading()

    def stop(self) -> None:
        """Report nothing more: the journal is about to be closed."""
        self._is_stopping = True

    async def run(self) -> None:
        """Check every second until stopped; raise LedgerFailed."""
        while not self._is_stopping:
            await anyio.sleep(CHECK_INTERVAL)
            if not self._is_stopping:
                self._check()

    def _check(self) -> None:
        before, self._before = self._before, self._reading()
        for event in _clock_changes(before, self._before):
            self._ledger.leave(event)

    def _reading(self) -> ClockReading:
        clock = self._clock
        return ClockReading(clock.now(), clock.monotonic(), clock.boottime())


def _clock_changes(before: ClockReading, after: ClockReading) -> Iterator[EventData]:
    pause = pause_between(before, after, CHECK_INTERVAL)
    if pause is not None:
        yield ServerResumed(suspended_seconds=round(pause.seconds, 3), cause=pause.cause)

    jump = jump_between(before, after)
    if jump is not None:
        yield ClockJumped(seconds=round(jump.seconds, 3), direction=jump.direction)
