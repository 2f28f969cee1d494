"""A bounded queue of events that have arrived and were not taken yet.

A client that only sends commands must not fill its memory with unread events. A full inbox lags: it
accepts nothing more, and its owner fetches the missed events from the journal once there is space
again. So no event is lost, however late it is read.
"""

from __future__ import annotations

from collections import deque

import anyio

from hankweave_protocol.events import Event

CAPACITY = 10_000


class Closed(Exception):
    """The inbox is empty and no more events will come."""


class Inbox:
    """A bounded queue of events with one cursor, shared by all readers."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self._changed = anyio.Event()
        self._is_closed = False
        self.is_lagging = False

    def put(self, event: Event) -> bool:
        """Add an event; return False if the inbox lags and the event must be fetched later."""
        if self.is_lagging or len(self._events) >= self._capacity:
            self.is_lagging = True
            return False

        self._events.append(event)
        self._changed.set()
        return True

    def offer(self, event: Event) -> None:
        """Add an event that is only useful now; drop it if many events are waiting."""
        if not self.is_lagging and self.has_room():
            self.put(event)

    def has_room(self) -> bool:
        """Return whether the inbox has enough space to fetch missed events."""
        return len(self._events) * 2 <= self._capacity

    async def take(self) -> Event:
        """Wait for the next event; raise Closed."""
        while not self._events:
            if self._is_closed:
                raise Closed

            self._changed = anyio.Event()
            await self._changed.wait()

        return self._events.popleft()

    def close(self) -> None:
        """Close the inbox; events already in it can still be taken."""
        self._is_closed = True
        self._changed.set()
