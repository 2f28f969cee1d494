"""Three time limits on one clock."""

from __future__ import annotations

from datetime import timedelta

from hankweave_server.agents.base import AgentLimits
from hankweave_server.agents.session import AgentTimeouts, Remaining


def timeouts(start: float | None, idle: float | None, total: float | None) -> AgentTimeouts:
    seconds = (
        None if limit is None else timedelta(seconds=limit) for limit in (start, idle, total)
    )
    return AgentTimeouts(AgentLimits(*seconds), now=100.0)


def test_the_nearest_limit_is_named() -> None:
    """The limit that expires first is returned, with the time left."""
    assert timeouts(5, 10, 20).remaining(102.0) == Remaining("start", 3.0)


def test_a_session_ends_the_start_limit() -> None:
    """Once the session has started, only the idle and total limits count."""
    limits = timeouts(5, 10, 20)
    limits.session_began()
    assert limits.remaining(102.0) == Remaining("idle", 8.0)


def test_output_renews_the_idle_limit_only() -> None:
    """Output does not renew the total limit."""
    limits = timeouts(None, 10, 20)
    limits.note_output(109.0)
    assert limits.remaining(109.0) == Remaining("idle", 10.0)
    limits.note_output(118.0)
    assert limits.remaining(118.0) == Remaining("total", 2.0)


def test_a_reached_limit_is_over() -> None:
    """Zero seconds left counts as expired."""
    assert timeouts(None, 10, None).remaining(110.0).is_over


def test_without_limits_nothing_ends() -> None:
    """Without limits nothing expires."""
    assert timeouts(None, None, None).remaining(1e9) is None


def test_held_time_does_not_count() -> None:
    """While held, even twice, the clock stands still; it resumes after the last release."""
    limits = timeouts(None, None, 10)
    limits.pause(102.0)
    limits.pause(103.0)
    limits.resume(150.0)
    assert limits.remaining(180.0) == Remaining("total", 8.0)
    limits.resume(200.0)
    assert limits.remaining(201.0) == Remaining("total", 7.0)


def test_a_pause_of_ours_is_not_the_agents() -> None:
    """Time in which the server itself was stopped uses up no limit and renews none."""
    limits = timeouts(None, 10, 20)
    limits.note_output(104.0)
    limits.note_output(165.0)  # Output of the gap is read before the gap is noticed.
    limits.exclude(60.0, 165.0)
    assert limits.remaining(165.0) == Remaining("idle", 10.0)
    assert limits.remaining(171.0) == Remaining("idle", 4.0)


def test_a_pause_while_the_clock_is_held_counts_once() -> None:
    """An agent that was frozen meanwhile gets no more time than one that was not."""
    limits = timeouts(None, 10, None)
    limits.pause(101.0)
    limits.exclude(60.0, 165.0)
    limits.resume(166.0)
    assert limits.remaining(166.0) == Remaining("idle", 9.0)


def test_a_late_check_is_no_pause() -> None:
    """A delay of some seconds on a busy machine counts as the agent's time."""
    limits = timeouts(None, 10, None)
    limits.exclude(4.0, 104.0)
    assert limits.remaining(104.0) == Remaining("idle", 6.0)
