"""How long a wait for a limit lasts if a clock is set, or the machine sleeps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hankweave_protocol.instants import to_text
from hankweave_protocol.state import CodonWait
from hankweave_server.execution.codon.waits import WaitDeadline

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass
class Clocks:
    wall: datetime = NOON
    boot: float = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.boot

    def boottime(self) -> float:
        return self.boot

    def pass_by(self, time: timedelta, *, set_by: timedelta = timedelta(0)) -> None:
        """Let time pass, in a suspend or not, and set the wall clock."""
        self.wall += time + set_by
        self.boot += time.total_seconds()


def a_wait(until: datetime, since: datetime = NOON) -> CodonWait:
    return CodonWait(
        kind="usage",
        until=to_text(until),
        since=to_text(since),
        source="event",
        number=1,
        model="",
    )


def test_a_wait_ends_at_its_instant() -> None:
    """After as long as it was foreseen; a machine that sleeps meanwhile changes nothing."""
    clocks = Clocks()
    deadline = WaitDeadline(a_wait(NOON + HOUR), clocks)
    assert deadline.over_by() == -HOUR
    clocks.pass_by(HOUR + MINUTE)
    assert deadline.over_by() == MINUTE


def test_a_clock_that_is_set_back_makes_no_wait_longer() -> None:
    clocks = Clocks()
    deadline = WaitDeadline(a_wait(NOON + MINUTE), clocks)
    clocks.pass_by(MINUTE / 2, set_by=-HOUR)
    assert deadline.over_by() == -MINUTE / 2
    clocks.pass_by(MINUTE / 2)
    assert deadline.over_by() == timedelta(0)


def test_a_clock_that_is_set_forward_ends_a_wait() -> None:
    """The instant was the provider's; if the limit still holds, the next request says so."""
    clocks = Clocks()
    deadline = WaitDeadline(a_wait(NOON + MINUTE), clocks)
    clocks.pass_by(timedelta(0), set_by=HOUR)
    assert deadline.over_by() == HOUR - MINUTE


def test_after_a_restart_a_wait_lasts_no_longer_than_as_a_whole() -> None:
    """Its server may have ended before the clock was set back, which no later one can see."""
    clocks = Clocks(wall=NOON - HOUR)
    deadline = WaitDeadline(a_wait(NOON + MINUTE), clocks)
    assert deadline.over_by() == -MINUTE
