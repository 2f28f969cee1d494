"""When an agent has taken too long: three limits on one clock that can be held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hankweave_server.agents.base import AgentLimits, TimeLimit

PAUSE_TOLERANCE = 5.0
"""Seconds that we may come late on a busy machine; more, and it was us who did not listen."""


@dataclass(frozen=True, slots=True)
class Remaining:
    which: TimeLimit
    seconds: float

    @property
    def is_over(self) -> bool:
        return self.seconds <= 0


class Patience:
    """Judges the start, idle and total limits; every moment is the caller's, in seconds."""

    def __init__(self, limits: AgentLimits, now: float) -> None:
        self._limits = limits
        self._born = now
        self._last_heard = now
        self._session_began = False
        self._held = 0.0
        self._holds = 0
        self._held_since = now

    def heard(self, now: float) -> None:
        self._last_heard = self._own_time(now)

    def session_began(self) -> None:
        self._session_began = True

    def hold(self, now: float) -> None:
        """Stops the clock until as many releases; what is not the agent's fault does not count."""
        if self._holds == 0:
            self._held_since = now

        self._holds += 1

    def release(self, now: float) -> None:
        self._holds -= 1
        if self._holds == 0:
            self._held += now - self._held_since

    def excuse(self, late: float, now: float) -> None:
        """Leaves out the seconds up to now for which we did not run: stopped, frozen, or starved.

        What the agent said meanwhile may still wait to be read.
        """
        is_held_already = self._holds > 0 and self._held_since <= now - late
        if late > PAUSE_TOLERANCE and not is_held_already:
            self._held += late
            self._last_heard = min(self._last_heard, self._own_time(now))

    def remaining(self, now: float) -> Remaining | None:
        """Returns the limit that will be reached first, or None if there will be none."""
        own_time = self._own_time(now)
        limits: tuple[tuple[TimeLimit, timedelta | None, float], ...] = (
            ("start", None if self._session_began else self._limits.start, self._born),
            ("idle", self._limits.idle, self._last_heard),
            ("total", self._limits.total, self._born),
        )
        return min(
            (
                Remaining(which, since + limit.total_seconds() - own_time)
                for which, limit, since in limits
                if limit is not None
            ),
            key=lambda remaining: remaining.seconds,
            default=None,
        )

    def _own_time(self, now: float) -> float:
        moment = now if self._holds == 0 else self._held_since
        return moment - self._held
