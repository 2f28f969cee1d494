"""How often the work tree is looked at while an agent works that does not wait for us.

A look that finds a change is followed by a checkpoint, so a high pace saves more moments, and costs
more time and disk. Three bounds: looks never take more than a twentieth of the time; the pauses
grow with the age of the conversation, so that a program which writes without end makes about 200
checkpoints in its first minute and some 3,000 in eight hours; and they end at ten seconds, for
what a person edits must be saved before the agent comes to the same file.
"""

from __future__ import annotations

SHORTEST = 0.25
"""Seconds between two looks at the work tree of an agent that never waits."""

SHORTEST_IN_A_CALL = 1.0
"""Seconds between two looks while an agent that waits before its calls is in the midst of one."""

SHORTEST_BETWEEN_LINES = 0.05
"""Seconds between two looks when the agent prints a line: often it has just written a file."""

LONGEST = 10.0

_SHARE = 20
_GROWTH = 200


class LookPace:
    """Decides when the next look is due; pure, moments are seconds on any monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._ended = began
        self._cost = 0.0

    def looked(self, now: float, cost: float) -> None:
        """Note a look that took `cost` seconds, without the checkpoint that it led to."""
        self._ended = now
        self._cost = cost

    def due_in(self, now: float, shortest: float) -> float:
        """Return the seconds until a look is due; zero or less if it is due now."""
        grown = min((now - self._began) / _GROWTH, LONGEST)
        pause = max(shortest, grown, self._cost * _SHARE)
        return self._ended + pause - now
