"""The listening socket, which leaves descriptors for the server's own work.

Each connection costs a descriptor, and whoever may connect may take all of them; then no file can
be opened any more: no heartbeat, no state, no checkpoint. So some are kept back: the kernel gives
the lowest number that is free, hence the number of a new connection tells how many are left at
least. One that would take from what is kept back is closed at once. It is accepted first, because
one that is left waiting would wake the loop for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Callable

KEPT_BACK = 64
"""Descriptors for files, pipes and folders; two thirds of them all where there are very few."""

WAITING = 1_100
"""Connections that may wait to be accepted."""

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_REST_SECONDS = 0.5
"""Told that there is none, the loop looks away for a second; until then none is tried."""


class Port(socket.socket):
    """A socket whose `accept` the loop calls; it turns away whom there is no descriptor for."""

    def __init__(self, family: int) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self.on_crowded: Callable[[], None] = lambda: None
        """Called for everyone who is turned away."""
        # Given up for a moment where there is no other, to accept a connection and close it.
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._highest = _highest(self._spare)
        self._resting_until = 0.0

    @classmethod
    def bound(cls, host: str, port: int) -> Port:
        """Bind the first address of a host; raise OSError."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        made = cls(family)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)

            made.bind(address)
        except OSError:
            made.close()
            raise

        return made

    def listen(self, backlog: int = 0) -> None:
        """Let the kernel keep waiting connections, however few the loop accepts at once."""
        super().listen(max(backlog, WAITING))

    def measure(self) -> None:
        """Count again which descriptors are in use, for a port that was bound long ago."""
        probe = os.dup(self.fileno())
        os.close(probe)
        self._highest = _highest(probe)

    @property
    def has_room(self) -> bool:
        """Tells whether the next connection would be taken."""
        try:
            next_one = os.dup(self.fileno())
        except OSError:
            return False

        os.close(next_one)
        return next_one <= self._highest

    def accept(self) -> tuple[socket.socket, object]:
        """Takes a connection; raises BlockingIOError where there is none, or none may be taken."""
        if time.monotonic() < self._resting_until:
            raise BlockingIOError

        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise

            self._turn_away(error)
        else:
            if connection.fileno() <= self._highest:
                return connection, address

            connection.close()

        self.on_crowded()
        raise BlockingIOError

    def close(self) -> None:
        super().close()
        self._let_go_of_spare()

    def _turn_away(self, error: OSError) -> None:
        """Spends the spare one on it; without one raises the error, upon which the loop rests."""
        if self._spare is None and not self._has_found_spare():
            self._resting_until = time.monotonic() + _REST_SECONDS
            self.on_crowded()
            raise error

        self._let_go_of_spare()
        with contextlib.suppress(OSError):  # Another thread was quicker, or the peer has left.
            super().accept()[0].close()

        self._has_found_spare()

    def _has_found_spare(self) -> bool:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

        return self._spare is not None

    def _let_go_of_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)


def _highest(in_use: int) -> int:
    """The highest descriptor that a connection may have; all that lives as long as we is open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = max(0, limit - in_use - 1)
    return limit - 1 - min(KEPT_BACK, 2 * free // 3)
