"""Conclusions from the comparison of three clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

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
YEAR = 365 * 24 * 3600.0
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


@pytest.mark.parametrize(
    ("now", "pause", "jump"),
    [
        pytest.param(after(NAP, set_by=-7200), None, Jump(7200.0, "back"), id="set-back"),
        pytest.param(after(NAP, set_by=YEAR), None, Jump(YEAR, "forward"), id="set-forward"),
        pytest.param(
            after(NAP, asleep=3600), ServerPause(3600.0, "suspended"), None, id="machine-asleep"
        ),
        pytest.param(after(NAP + 60), ServerPause(60.0, "stopped"), None, id="process-stopped"),
        pytest.param(
            after(NAP, asleep=600, set_by=-7200),
            ServerPause(600.0, "suspended"),
            Jump(7200.0, "back"),
            id="set-while-asleep",
        ),
    ],
)
def test_a_jump_and_a_pause_are_reported_apart_with_their_lengths(
    now: ClockReading, pause: ServerPause | None, jump: Jump | None
) -> None:
    """The wall clock and the boot clock advance during sleep, and all three while the process does
    not run; a jump alone is no pause."""
    assert pause_between(BEFORE, now, NAP) == pause
    assert jump_between(BEFORE, now) == jump
