"""The session of each client socket: a reader, a sender, and a handshake deadline.

`ClientSessions.serve` runs one session. `FreedMemory` returns memory to the operating system after
many clients have left. Python frees objects to the C library, which keeps the pages: small blocks
still in use lie scattered among the free ones, so a server that once had a thousand clients would
keep their memory for ever. `malloc_trim` releases pages that contain no block in use. Before that,
a garbage collection frees the reference cycles of closed connections, because an idle server makes
too little garbage for the collector to run on its own.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import anyio
from anyio import to_thread
from websockets.exceptions import ConnectionClosed

from hankweave_protocol.ids import ClientId
from hankweave_server.transport.connection import POLICY_VIOLATION, Connection, Outlet, Shared
from hankweave_server.transport.frames import (
    JournalPages,
    Message,
    PageRead,
    fragments,
    size_of,
    whole,
)
from hankweave_server.transport.hub import Hub
from hankweave_server.transport.outbox import ClientGone, Outbox, OutboxLimits, Step
from hankweave_server.transport.sockets import Socket, SocketWire
from hankweave_server.transport.traffic_log import TrafficLog

CROWD = 32
"""The number of clients from which releasing their memory is worthwhile."""

CALM_SECONDS = 2.0
"""Delay before a release, in which more clients may leave, and minimum time between releases.

A release holds the interpreter for some tens of milliseconds.
"""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl and macOS do not.


class FreedMemory:
    """A counter of clients that releases memory when half of a crowd has left."""

    def __init__(self) -> None:
        self._most = 0
        self._clients = 0
        self._due = anyio.Event()

    def count(self, clients: int) -> None:
        """Record the current number of clients."""
        self._clients = clients
        self._most = max(self._most, clients)
        if self._most >= CROWD and clients <= self._most // 2:
            self._due.set()

    async def run(self) -> None:
        """Release memory whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            await anyio.sleep(CALM_SECONDS)
            self._most = self._clients
            self._due = anyio.Event()
            await to_thread.run_sync(_release)


def _release() -> None:
    gc.collect()
    if _trim is not None:
        _trim(0)


_log = logging.getLogger("hankweave.transport")


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """The limits of a session: the handshake deadline and the outbox's bounds."""

    handshake_seconds: float
    outbox: OutboxLimits


class ClientSessions:
    """All client sessions of one listener."""

    def __init__(
        self, shared: Shared, hub: Hub, traffic: TrafficLog, timeouts: ClientTimeouts
    ) -> None:
        self._shared = shared
        self._hub = hub
        self._traffic = traffic
        self._timeouts = timeouts
        self._numbers = count(1)
        self._scopes: dict[Outbox, anyio.CancelScope] = {}
        self._turns = anyio.Lock()
        """Held by the one outbox that is making fragments of a stream."""
        self.freed_memory = FreedMemory()
        self.evicted = 0

    @property
    def waiting_bytes(self) -> int:
        return sum(outbox.waiting_bytes for outbox in self._scopes)

    async def serve(self, socket: Socket) -> None:
        """Serve one client until it leaves, is evicted, or the server stops."""
        outbox = Outbox(
            SocketWire(socket), self._timeouts.outbox, self._count_eviction, self._turns
        )
        client_id = ClientId(f"client-{next(self._numbers)}")
        connection = Connection(client_id, socket.role, self._outlet(outbox), self._shared)
        try:
            with anyio.CancelScope() as scope:
                self._scopes[outbox] = scope
                self.freed_memory.count(len(self._scopes))
                async with anyio.create_task_group() as group:
                    group.start_soon(outbox.run)
                    group.start_soon(self._await_handshake, connection, outbox)
                    await self._receive_frames(socket, connection, outbox)
                    group.cancel_scope.cancel()
        except Exception:
            # The outermost frame of one session: its failure must not end the others.
            _log.exception("The connection with %s at %s failed", client_id, socket.peer)
        finally:
            self._hub.leave(outbox)
            self._scopes.pop(outbox, None)
            self.freed_memory.count(len(self._scopes))
            socket.transport.abort()

    def finish(self, code: int, reason: str) -> None:
        """End every session after it has sent what is queued."""
        for outbox in self._scopes:
            outbox.finish(code, reason)

    def cancel(self) -> None:
        """End every session immediately."""
        for scope in self._scopes.values():
            scope.cancel()

    async def _receive_frames(self, socket: Socket, connection: Connection, outbox: Outbox) -> None:
        # A command is not cancelled when its client leaves, only when the server stops.
        try:
            while True:
                frame = await socket.recv()
                self._traffic.record("in", frame if isinstance(frame, bytes) else frame.encode())
                await connection.receive(frame)
        except ClientGone:
            await outbox.ended.wait()  # The close frame with the reason is sent first.
        except ConnectionClosed:
            return

    async def _await_handshake(self, connection: Connection, outbox: Outbox) -> None:
        with anyio.move_on_after(self._timeouts.handshake_seconds):
            await connection.handshake_done.wait()
            return

        outbox.finish(POLICY_VIOLATION, "no handshake in time")

    def _outlet(self, outbox: Outbox) -> Outlet:
        def send(frame: bytes) -> None:
            self._traffic.record("out", frame)
            outbox.put(frame)

        async def stream(messages: Iterable[Message | PageRead], pages: JournalPages) -> None:
            await outbox.stream(self._cut(messages, pages))

        return Outlet(
            send=send,
            stream=stream,
            room=outbox.room,
            join=lambda after: self._hub.join(outbox, after),
            close=outbox.finish,
            address=lambda as_reference: self._hub.address(outbox, as_reference=as_reference),
            show_progress=lambda wanted: self._hub.show_progress(outbox, wanted=wanted),
        )

    def _cut(self, messages: Iterable[Message | PageRead], pages: JournalPages) -> Iterator[Step]:
        """Cut messages into fragments; yield None for an event that this client is not sent."""
        for message in messages:
            if isinstance(message, PageRead):
                yield message
                continue

            if not message:
                yield None
                continue

            size = yield from size_of(message, pages)
            if self._traffic.has_room_for(size):
                frame = yield from whole(message, pages)
                self._traffic.record("out", frame)
            else:
                self._traffic.leave_out()

            yield from fragments(message, pages)

    def _count_eviction(self, why: str) -> None:
        self.evicted += 1
        _log.warning("A client was disconnected: %s", why)
