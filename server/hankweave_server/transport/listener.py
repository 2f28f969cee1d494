"""The port: sockets in, one conversation for each, and a bounded end.

Leaving websockets' `serve` does not cancel handlers, and a peer that reads nothing can hold them
for ever (DESIGN 13). So the body of each handler runs in a task group of ours, under a scope that
`aclose` can cancel, and what does not end in time has its socket aborted.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from hankweave_protocol.ids import ClientId
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.transport.answers import AnswerBook
from hankweave_server.transport.auth import (
    Gate,
    Keyring,
    is_loopback,
    issued_tokens,
    withdraw_tokens,
)
from hankweave_server.transport.connection import (
    MAX_FRAME,
    POLICY_VIOLATION,
    Connection,
    Outlet,
    Shared,
)
from hankweave_server.transport.doors import Doors
from hankweave_server.transport.http import Addresses, FrontDoor
from hankweave_server.transport.hub import Hub
from hankweave_server.transport.outbox import ClientGone, Outbox, OutboxLimits
from hankweave_server.transport.sockets import Socket, SocketWire
from hankweave_server.transport.traffic_log import TrafficLog

GOING_AWAY = 1001
HARD_FRAME_LIMIT = 4 * MAX_FRAME  # What is larger than a frame may be is refused and the socket
# stays open; what is larger than this is not even read, and the socket closes with 1009.

_log = logging.getLogger("hankweave.transport")
# websockets logs request lines when debugging, and a request line may hold `?token=`.
_websockets_log = logging.getLogger("hankweave.transport.websockets")
_websockets_log.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where and for whom the port is open."""

    controller_token: Path
    viewer_token: Path
    traffic_log: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    no_token: bool = False
    """True: whoever can reach loopback on this machine is a controller."""
    tls: ssl.SSLContext | None = None
    names: tuple[str, ...] = ()
    """Further host names to be spoken to under, beside loopback's."""
    origins: tuple[str, ...] = ()
    """Further origins whose pages may connect."""
    max_connections: int = 1_100
    handshake_seconds: float = 10.0
    grace_seconds: float = 2.0
    """How long clients may take to say goodbye when the server stops."""
    outbox: OutboxLimits = field(default_factory=OutboxLimits)


@asynccontextmanager
async def serve(
    doors: Doors, settings: ListenerSettings, clock: Clock | None = None
) -> AsyncIterator[Listener]:
    """Listens until the block is left; then clients are told 1001, and tokens are gone.

    Raises Stop where the address cannot be had, or must not be: off loopback only with TLS and
    with tokens.
    """
    _refuse_open_doors(settings)
    clock = clock or SystemClock()
    failure: Exception | None = None
    with _tokens(settings) as keyring:
        secrets = () if keyring is None else (keyring.controller, keyring.viewer)
        traffic = TrafficLog(settings.traffic_log, clock, secrets=secrets, report=_report_log)
        async with anyio.create_task_group() as group:
            group.start_soon(traffic.run)
            listener = Listener(doors, settings, Gate(keyring), clock, traffic, group)
            try:
                await listener.open()
                yield listener
            except Exception as error:
                # Raised again outside: a task group would wrap the caller's own exception.
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await listener.aclose()

                group.cancel_scope.cancel()

    if failure is not None:
        raise failure


class Listener:
    """An open port and the conversations on it."""

    def __init__(
        self,
        doors: Doors,
        settings: ListenerSettings,
        gate: Gate,
        clock: Clock,
        traffic: TrafficLog,
        group: TaskGroup,
    ) -> None:
        self._doors = doors
        self._settings = settings
        self._gate = gate
        self._traffic = traffic
        self._group = group
        self._shared = Shared(doors=doors, gate=gate, answers=AnswerBook(), clock=clock)
        self._client_numbers = count(1)
        self._sockets: set[Socket] = set()
        self._conversations: dict[Outbox, anyio.CancelScope] = {}
        self._front_door: FrontDoor | None = None
        self._server: Server | None = None
        self.port = settings.port
        self.evicted_clients = 0
        """How many were cut off for being slow."""
        self.hub = Hub(doors.last_seq, lambda frame: traffic.record("out", frame), clock)
        """Where the ledger publishes."""

    @property
    def url(self) -> str:
        scheme = "ws" if self._settings.tls is None else "wss"
        return f"{scheme}://{_in_url(self._settings.host)}:{self.port}/ws"

    @property
    def page_url(self) -> str:
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://{_in_url(self._settings.host)}:{self.port}/"

    @property
    def connections(self) -> int:
        """How many sockets are open, greeted or not."""
        return len(self._sockets)

    async def open(self) -> None:
        """Binds the port; raises Stop where that is not possible."""
        settings = self._settings
        try:
            server = await serve_websockets(
                self._attend,
                settings.host,
                settings.port,
                process_request=self._judge,
                create_connection=cast("type[ServerConnection]", self._new_socket),
                compression=None,
                server_header=None,
                max_size=HARD_FRAME_LIMIT,
                open_timeout=settings.handshake_seconds,
                ping_interval=20,
                ping_timeout=20,
                close_timeout=5,
                logger=_websockets_log,
                ssl=settings.tls,
                start_serving=False,
                backlog=settings.max_connections,
            )
        except OSError as error:
            raise _cannot_listen(settings, error) from error

        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        addresses = Addresses.of(
            self.port,
            tls=settings.tls is not None,
            names=settings.names,
            origins=settings.origins,
        )
        # Known before the first request is taken, because the port is part of both checks.
        self._front_door = FrontDoor(addresses, self._gate, self._doors)
        await server.start_serving()

    async def aclose(self) -> None:
        """Stops listening and ends all conversations, in the grace time and little more."""
        server, self._server = self._server, None
        if server is None:
            return

        server.close(close_connections=False)
        for outbox in self._conversations:
            outbox.finish(GOING_AWAY, "server is shutting down")

        with anyio.move_on_after(self._settings.grace_seconds):
            await server.wait_closed()
            return

        for scope in self._conversations.values():
            scope.cancel()

        for socket in tuple(self._sockets):
            socket.transport.abort()

        await server.wait_closed()

    # --- one conversation -----------------------------------------------------------------------

    def _new_socket(self, *args: Any, **options: Any) -> Socket:
        socket = Socket(*args, **options)
        socket.all = self._sockets
        socket.most = self._settings.max_connections
        return socket

    def _judge(self, socket: ServerConnection, request: Request) -> Response | None:
        assert isinstance(socket, Socket)
        assert self._front_door is not None
        verdict = self._front_door.judge(request, socket.peer_host)
        if isinstance(verdict, Response):
            return verdict

        socket.role = verdict.role
        return None

    async def _attend(self, socket: ServerConnection) -> None:
        """Runs in websockets' task: waits for the conversation, which runs in our group."""
        assert isinstance(socket, Socket)
        if self._server is None:
            return

        ended = anyio.Event()
        self._group.start_soon(self._converse, socket, ended)
        await ended.wait()

    async def _converse(self, socket: Socket, ended: anyio.Event) -> None:
        outbox = Outbox(SocketWire(socket), self._settings.outbox, self._count_eviction)
        connection = Connection(
            ClientId(f"client-{next(self._client_numbers)}"),
            socket.peer,
            socket.role,
            self._outlet(outbox),
            self._shared,
        )
        try:
            with anyio.CancelScope() as scope:
                self._conversations[outbox] = scope
                async with anyio.create_task_group() as group:
                    group.start_soon(outbox.run)
                    group.start_soon(self._await_handshake, connection, outbox)
                    await self._listen(socket, connection)
                    group.cancel_scope.cancel()
        except Exception:
            # One conversation's fault must not end the others: this is its outermost frame.
            _log.exception("A conversation with %s broke.", socket.peer)
        finally:
            self.hub.leave(outbox)
            self._conversations.pop(outbox, None)
            socket.transport.abort()
            ended.set()

    async def _listen(self, socket: Socket, connection: Connection) -> None:
        # Commands are never cancelled because their client left: only shutdown does that.
        try:
            while True:
                frame = await socket.recv()
                self._traffic.record("in", frame if isinstance(frame, bytes) else frame.encode())
                await connection.receive(frame)
        except (ConnectionClosed, ClientGone):
            return

    async def _await_handshake(self, connection: Connection, outbox: Outbox) -> None:
        with anyio.move_on_after(self._settings.handshake_seconds):
            await connection.greeted.wait()
            return

        outbox.finish(POLICY_VIOLATION, "no handshake in time")

    def _outlet(self, outbox: Outbox) -> Outlet:
        def send(frame: bytes) -> None:
            self._traffic.record("out", frame)
            outbox.put(frame)

        return Outlet(
            send=send,
            room=outbox.room,
            join=lambda after: self.hub.join(outbox, after),
            close=outbox.finish,
        )

    def _count_eviction(self, why: str) -> None:
        self.evicted_clients += 1
        _log.warning("A client was cut off: %s.", why)


def _tokens(settings: ListenerSettings) -> AbstractContextManager[Keyring | None]:
    if not settings.no_token:
        return issued_tokens(settings.controller_token, settings.viewer_token)

    withdraw_tokens(settings.controller_token, settings.viewer_token)
    return nullcontext()


def _refuse_open_doors(settings: ListenerSettings) -> None:
    if is_loopback(settings.host):
        return

    if settings.tls is None or settings.no_token:
        raise Stop(
            f"Listening on {settings.host} needs TLS and tokens.",
            ExitCode.CONFIGURATION,
            hint="Listen on 127.0.0.1, or give a certificate.",
        )


def _cannot_listen(settings: ListenerSettings, error: OSError) -> Stop:
    in_use = error.errno == errno.EADDRINUSE
    return Stop(
        f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}.",
        ExitCode.UNAVAILABLE,
        hint="Choose another port, or 0 for any free one." if in_use else None,
    )


def _report_log(error: OSError) -> None:
    _log.error("websocket.log could not be written: %s.", error)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
