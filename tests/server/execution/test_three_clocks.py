"""Conclusions from the comparison of three clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hankweave_server.execution.maintenance.health_monitor import (
    JUMP_TOLERANCE,
    PAUSE_TOLERANCE,
    ClockReading,
    Jump,
    ServerPause,
    jump_between,
    pause_between,
)

NAP = 1.0
BEFORE = ClockReading(datetime(2025, 1, 4, 12, tzinfo=UTC), monotonic=100.0, boottime=250.0)


def after(seconds: float, *, asleep: float = 0.0, set_by: float = 0.0) -> ClockReading:
    """Return the clocks after these seconds of work and sleep, with the wall clock shifted."""
    return ClockReading(
        BEFORE.wall + timedelta(seconds=seconds + asleep + set_by),
        BEFORE.monotonic + seconds,
        BEFORE.boottime + seconds + asleep,
    )


def test_nothing_is_reported_while_all_clocks_agree() -> None:
    """Delays, late timers and a slewed clock are not reported."""
    for now in (after(NAP), after(NAP + PAUSE_TOLERANCE), after(NAP, set_by=-JUMP_TOLERANCE)):
        assert jump_between(BEFORE, now) is None
        assert pause_between(BEFORE, now, NAP) is None


def test_a_wall_clock_that_was_set_has_jumped() -> None:
    """Two hours back and a year forward are reported with their length, and not as a pause."""
    year = 365 * 24 * 3600.0
    assert jump_between(BEFORE, after(NAP, set_by=-7200)) == Jump(7200.0, "back")
    assert jump_between(BEFORE, after(NAP, set_by=year)) == Jump(year, "forward")
    assert pause_between(BEFORE, after(NAP, set_by=year), NAP) is None


def test_a_machine_that_slept_was_suspended_and_no_clock_was_set() -> None:
    """The wall clock and the boot clock advance during sleep."""
    now = after(NAP, asleep=3600)
    assert pause_between(BEFORE, now, NAP) == ServerPause(3600.0, "suspended")
    assert jump_between(BEFORE, now) is None


def test_a_process_that_only_stood_still_was_stopped() -> None:
    """All three clocks advanced while the process did not run."""
    now = after(NAP + 60)
    assert pause_between(BEFORE, now, NAP) == ServerPause(60.0, "stopped")
    assert jump_between(BEFORE, now) is None


def test_a_clock_that_was_set_while_the_machine_slept_is_both() -> None:
    """Suspension and jump are reported separately, each with its length."""
    now = after(NAP, asleep=600, set_by=-7200)
    assert pause_between(BEFORE, now, NAP) == ServerPause(600.0, "suspended")
    assert jump_between(BEFORE, now) == Jump(7200.0, "back")
