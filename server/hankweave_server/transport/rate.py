"""How fast a client may talk."""

from __future__ import annotations

MESSAGES_PER_SECOND = 200.0
BURST = 400.0


class TokenBucket:
    """Allows a burst, then a steady rate; time is an argument, in seconds."""

    def __init__(self, now: float, rate: float = MESSAGES_PER_SECOND, burst: float = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._seen = now

    def take(self, now: float) -> bool:
        """Says whether one more message is allowed now, and counts it."""
        self._left = min(self._burst, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1.0:
            return False

        self._left -= 1.0
        return True
