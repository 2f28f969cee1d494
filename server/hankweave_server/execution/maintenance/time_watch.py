"""Looks whether the clock was set, or the server stood still, and puts it on record.

Nothing of ours goes wrong by either: seq orders events, and what takes or may take a time is
measured by the monotonic clock. But whoever reads the journal later should know why its stamps
run backwards, or why nothing happened for an hour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import anyio

from hankweave_protocol.events import ClockJumped, EventData, ServerResumed
from hankweave_server.clock import Clock
from hankweave_server.domain.three_clocks import Reading, jump_between, pause_between
from hankweave_server.ledger.writer import Ledger
from hankweave_server.logs import logger

BETWEEN_LOOKS = 1.0
"""Seconds: shorter than a heartbeat, so that the stamps are explained close to where they jump."""

log = logger(__name__)


class TimeWatch:
    """Watches the clocks of one server."""

    def __init__(
        self, ledger: Ledger, clock: Clock, *, nap: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._nap = nap
        self._is_stopping = False
        self._before = self._reading()

    def stop(self) -> None:
        """Tells nothing more: the journal is about to be closed."""
        self._is_stopping = True

    async def run(self) -> None:
        """Looks every second until stopped; raises LedgerFailed."""
        while not self._is_stopping:
            await self._nap(BETWEEN_LOOKS)
            if not self._is_stopping:
                self._look()

    def _look(self) -> None:
        before, self._before = self._before, self._reading()
        for event in _news(before, self._before):
            log.warning("%s", event)
            self._ledger.leave(event)

    def _reading(self) -> Reading:
        clock = self._clock
        return Reading(clock.now(), clock.monotonic(), clock.boottime())


def _news(before: Reading, after: Reading) -> Iterator[EventData]:
    pause = pause_between(before, after, BETWEEN_LOOKS)
    if pause is not None:
        yield ServerResumed(suspended_seconds=round(pause.seconds, 3), cause=pause.cause)

    jump = jump_between(before, after)
    if jump is not None:
        yield ClockJumped(seconds=round(jump.seconds, 3), direction=jump.direction)
