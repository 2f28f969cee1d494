"""Client sockets, the wire of an outbox, and the listening socket.

`Socket` is a WebSocket connection, `SocketWire` its interface for an outbox, and `Port` the
listening socket, which reserves file descriptors for the server's own work. Each connection takes a
descriptor, and clients could take all of them; then no file could be opened any more: no heartbeat,
no state, no checkpoint. The kernel assigns the lowest free number, so a high number means that few
are left. A connection whose number is in the reserved range is closed at once. It is accepted
first, because a connection left waiting would wake the event loop for ever.
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
from asyncio.trsock import TransportSocket
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from hankweave_server.transport.auth import Role
from hankweave_server.transport.frames import Fragment
from hankweave_server.transport.outbox import PeerLost


class Socket(ServerConnection):
    """A server connection, counted from its first byte, with the role it was granted.

    websockets answers pings as they arrive, whether or not the peer reads the answers. So reading
    is paused while written data waits: otherwise a flood of pings from a peer that reads nothing
    would grow the server's memory without limit.
    """

    role: Role | None = None
    """The role of the upgrade request's token."""
    all: set[Socket]
    """Every connection of the listener, including those that have not sent a request yet."""
    most: int
    """The maximum number of connections."""
    is_refused: Callable[[TransportSocket], bool] = staticmethod(lambda _socket: False)
    """Returns True for a connection to close at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.recv_messages.resume = self._read_on
        self.all.add(self)
        opened = transport.get_extra_info("socket")
        # asyncio does this for sockets of its own alone. Without it, a reply that follows an event
        # waits for the client's acknowledgement of that, which takes up to 40 ms.
        with contextlib.suppress(OSError):  # Closed already, or no TCP.
            opened.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)

        if len(self.all) > self.most or self.is_refused(opened):
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
    """Return the frame as sent over the wire, the same for every client (RFC 6455, 5.2)."""
    return Frame(Opcode.TEXT, frame).serialize(mask=False)


UNSENT_BYTES = 64 * 1024
"""Limit on unsent kernel data, beyond the peer's window, while a client is streamed to.

Without a limit the kernel buffers some four megabytes for each client that does not read.
"""

AT_ONCE = 64 * 1024
"""Bytes of frames gathered for one write: about the size of a socket's buffer."""


class SocketWire:
    """The outbox's wire over a WebSocket; frames are UTF-8 and are sent as text, unchanged.

    Frames written in one turn of the loop are passed to the kernel in one write at its end: when
    many events are sent to many clients at once, system calls would be most of the work.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._limits_buffering = False

    def write_now(self, frame: bytes) -> bool:
        # An empty write buffer means that the kernel took everything so far, so the frame is
        # written without a task switch; this check replaces the missing backpressure. It bypasses
        # the library, which would encode the frame again for each client. The server sends no
        # compressed messages, and the outbox never calls this inside a fragmented one, so no frame
        # is split.
        if self._bytes >= AT_ONCE:
            self._write_gathered()

        socket = self._socket
        if socket.state is not State.OPEN or socket.transport.get_write_buffer_size():
            return False

        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._write_gathered)

        self._gathered.append(_as_text(frame))
        self._bytes += len(frame)
        return True

    async def send(self, frame: bytes) -> None:
        self._write_gathered()
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed:
            raise PeerLost from None

    def write_fragment(self, fragment: Fragment) -> bool:
        # Bypasses the library too: its own fragmented messages hold the connection's lock from the
        # first fragment to the last, so no event could be sent in between.
        self._write_gathered()
        socket = self._socket
        if socket.state is not State.OPEN:
            raise PeerLost

        socket.transport.write(_serialized(fragment))
        return not socket.transport.get_write_buffer_size()

    async def drained(self) -> None:
        try:
            await self._socket.drain()
        except OSError:
            raise PeerLost from None

        if self._socket.state is not State.OPEN:
            raise PeerLost

    def limit_buffering(self, wanted: bool) -> None:
        if wanted is self._limits_buffering:
            return

        self._limits_buffering = wanted
        connection = self._socket.transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):  # Closed, or not supported here.
            connection.setsockopt(
                sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, UNSENT_BYTES if wanted else 0
            )

    async def close(self, code: int, reason: str) -> None:
        self._write_gathered()
        await self._socket.close(code, reason)

    def abort(self) -> None:
        self._socket.transport.abort()

    def _write_gathered(self) -> None:
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        if gathered and self._socket.state is State.OPEN:
            self._socket.transport.write(b"".join(gathered))


def _serialized(fragment: Fragment) -> bytes:
    opcode = Opcode.TEXT if fragment.begins else Opcode.CONT
    return Frame(opcode, fragment.payload, fin=fragment.ends).serialize(mask=False)


KEPT_BACK = 64
"""Descriptors reserved for files, pipes and folders; two thirds of all if there are few."""

WAITING = 1_100
"""Connections that may wait to be accepted."""

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_REST_SECONDS = 0.5
"""Pause between attempts: after EMFILE asyncio stops accepting for a second."""


class Port(socket.socket):
    """A listening socket that closes connections for which no descriptor is free."""

    def __init__(self, family: int) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self.on_full: Callable[[], None] = lambda: None
        """Called for each connection that is turned away."""
        # Closed temporarily when no other descriptor is free, to accept and close a connection.
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
        """Let the kernel queue waiting connections, however few the loop accepts at once."""
        super().listen(max(backlog, WAITING))

    def measure(self) -> None:
        """Determine again which descriptors are in use, for a port that was bound long ago."""
        probe = os.dup(self.fileno())
        os.close(probe)
        self._highest = _highest(probe)

    @property
    def has_room(self) -> bool:
        """Return whether the next connection would be accepted."""
        try:
            next_one = os.dup(self.fileno())
        except OSError:
            return False

        os.close(next_one)
        return next_one <= self._highest

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection; raise BlockingIOError if there is none or none may be taken."""
        if time.monotonic() < self._resting_until:
            raise BlockingIOError

        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise

            self._refuse_connection(error)
        else:
            if connection.fileno() <= self._highest:
                return connection, address

            connection.close()

        self.on_full()
        raise BlockingIOError

    def close(self) -> None:
        super().close()
        self._close_spare()

    def _refuse_connection(self, error: OSError) -> None:
        """Use the spare descriptor to close a connection; without one, raise the error.

        The loop pauses accepting after that error.
        """
        if self._spare is None and not self._has_found_spare():
            self._resting_until = time.monotonic() + _REST_SECONDS
            self.on_full()
            raise error

        self._close_spare()
        with contextlib.suppress(OSError):  # Another thread was faster, or the peer has left.
            super().accept()[0].close()

        self._has_found_spare()

    def _has_found_spare(self) -> bool:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

        return self._spare is not None

    def _close_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)


def _highest(in_use: int) -> int:
    """Return the highest descriptor for a connection, assuming long-lived files are open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = max(0, limit - in_use - 1)
    return limit - 1 - min(KEPT_BACK, 2 * free // 3)
