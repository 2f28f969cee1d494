"""A WebSocket as an outbox sees it.

The listening socket, which leaves descriptors for the server's own work.

Each connection costs a descriptor, and whoever may connect may take all of them; then no file can
be opened any more: no heartbeat, no state, no checkpoint. So some are kept back: the kernel gives
the lowest number that is free, hence the number of a new connection tells how many are left at
least. One that would take from what is kept back is closed at once. It is accepted first, because
one that is left waiting would wake the loop for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import resource
import socket
import socket as sockets
import time
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from hankweave_server.transport.auth import Role
from hankweave_server.transport.frames import Fragment
from hankweave_server.transport.outbox import ConnectionLost


class Socket(ServerConnection):
    """A server connection that is counted from its first byte and knows what it was granted.

    websockets answers pings the moment they come, whether or not the peer takes the answers. So
    nothing more is read of a peer while what was written to it waits: else a flood of pings from
    one that reads nothing would grow our memory without an end.
    """

    role: Role | None = None
    """What the upgrade request's token stood for."""
    all: set[Socket]
    """Every connection of the listener, those included that have not asked for anything yet."""
    most: int
    """How many there may be."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.recv_messages.resume = self._read_on
        self.all.add(self)
        if len(self.all) > self.most:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.all.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.recv_messages.paused:
            self.transport.resume_reading()

    def _read_on(self) -> None:
        if not self.paused:
            self.transport.resume_reading()

    @property
    def peer(self) -> str:
        address = self.remote_address
        return f"{address[0]}:{address[1]}" if address else "unknown"

    @property
    def peer_host(self) -> str:
        address = self.remote_address
        return str(address[0]) if address else "unknown"


@functools.lru_cache(maxsize=1)
def _as_text(frame: bytes) -> bytes:
    """The frame as it goes over the wire, the same for every client (RFC 6455, 5.2)."""
    return Frame(Opcode.TEXT, frame).serialize(mask=False)


UNSENT_BYTES = 64 * 1024
"""What the kernel buffers, beyond what the peer's window takes, for a client that is streamed to.

Without a limit it buffers some four megabytes for each client that does not read.
"""

AT_ONCE = 64 * 1024
"""Bytes of frames that are gathered for one write: as much as a socket's buffer takes."""


class SocketWire:
    """The outbox's wire over a WebSocket; frames are UTF-8 and go out as text, as they are.

    What is written in one turn of the loop goes to the kernel in one piece at its end: where many
    events are told at once, to many clients, most of the work would be asking the kernel.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._buffers_little = False

    def write_now(self, frame: bytes) -> bool:
        # An empty write buffer means that the kernel took all there was. Then the frame is handed
        # over without a task switch: the back-pressure that this lacks is this very check. It goes
        # past the library, which would encode it anew for each client; no message of ours is in
        # parts or compressed, so nothing can be under way that a frame would break into.
        if self._bytes >= AT_ONCE:
            self._hand_over()

        socket = self._socket
        if socket.state is not State.OPEN or socket.transport.get_write_buffer_size():
            return False

        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._hand_over)

        self._gathered.append(_as_text(frame))
        self._bytes += len(frame)
        return True

    async def send(self, frame: bytes) -> None:
        self._hand_over()
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed:
            raise ConnectionLost from None

    def write_fragment(self, fragment: Fragment) -> bool:
        # Past the library as well: its own fragmented messages would keep the connection's lock
        # from the first to the last, and no event could go out between two of them.
        self._hand_over()
        socket = self._socket
        if socket.state is not State.OPEN:
            raise ConnectionLost

        socket.transport.write(_serialized(fragment))
        return not socket.transport.get_write_buffer_size()

    async def drained(self) -> None:
        try:
            await self._socket.drain()
        except OSError:
            raise ConnectionLost from None

        if self._socket.state is not State.OPEN:
            raise ConnectionLost

    def buffer_little(self, wanted: bool) -> None:
        if wanted is self._buffers_little:
            return

        self._buffers_little = wanted
        connection = self._socket.transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):  # A closed one, or another system's.
            connection.setsockopt(
                sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, UNSENT_BYTES if wanted else 0
            )

    async def close(self, code: int, reason: str) -> None:
        self._hand_over()
        await self._socket.close(code, reason)

    def abort(self) -> None:
        self._socket.transport.abort()

    def _hand_over(self) -> None:
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        if gathered and self._socket.state is State.OPEN:
            self._socket.transport.write(b"".join(gathered))


def _serialized(fragment: Fragment) -> bytes:
    opcode = Opcode.TEXT if fragment.begins else Opcode.CONT
    return Frame(opcode, fragment.payload, fin=fragment.ends).serialize(mask=False)


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
