"""A WebSocket as an outbox sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket as sockets

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from hankweave_server.transport.auth import Role
from hankweave_server.transport.messages import Fragment
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
