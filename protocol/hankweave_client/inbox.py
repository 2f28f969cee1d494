"""Events that have come and were not taken yet.

Bounded: a client that only sends commands must not fill its memory with events nobody reads. When
it is full the inbox lags: it takes nothing more, and its owner fetches what was missed from the
journal once there is room again. So nothing is ever lost, however late it is read.
"""

from __future__ import annotations

from collections import deque

import anyio

from hankweave_protocol.events import Event

CAPACITY = 10_000


class Closed(Exception):
    """There is nothing left to take and nothing will come."""


class Inbox:
    """A bounded queue of events with one cursor, shared by all that read."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self._changed = anyio.Event()
        self._is_closed = False
        self.is_lagging = False

    def put(self, event: Event) -> bool:
        """Takes an event in; False: it lags, and the event must be fetched again later."""
        if self.is_lagging or len(self._events) >= self._capacity:
            self.is_lagging = True
            return False

        self._events.append(event)
        self._changed.set()
        return True

    def offer(self, event: Event) -> None:
        """Takes in what is of no use later; where much waits already, it is passed over."""
        if not self.is_lagging and self.has_room():
            self.put(event)

    def has_room(self) -> bool:
        """Tells whether it is worth fetching what was missed."""
        return len(self._events) * 2 <= self._capacity

    async def take(self) -> Event:
        """Waits for the next event; raises Closed."""
        while not self._events:
            if self._is_closed:
                raise Closed

            self._changed = anyio.Event()
            await self._changed.wait()

        return self._events.popleft()

    def close(self) -> None:
        """What is there can still be taken."""
        self._is_closed = True
        self._changed.set()
