"""The listener: accepts connections, runs one session for each, and shuts down in bounded time.

Leaving websockets' `serve` does not cancel handlers, and a client that reads nothing can hold them
for ever. So the body of each handler runs in the listener's own task group, under a scope that
`aclose` can cancel, and the sockets of sessions that do not end in time are aborted.

`ListenerSettings` says where the port is open and for whom.
"""

from __future__ import annotations

import errno
import logging
import socket
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.http11 import Request, Response

from hankweave_protocol import reference
from hankweave_server.background_tasks import task_group
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.fsutil import bind_private
from hankweave_server.redaction.redactor import Redactor
from hankweave_server.transport.auth import (
    Gate,
    KeptAddress,
    Keyring,
    Role,
    issued_tokens,
    kept_address,
    withdraw_tokens,
)
from hankweave_server.transport.client_session import ClientSessions, ClientTimeouts
from hankweave_server.transport.connection import (
    MAX_FRAME,
    Shared,
    Snapshots,
)
from hankweave_server.transport.exposure import Exposure
from hankweave_server.transport.frames import JournalPages
from hankweave_server.transport.http import HttpHandler
from hankweave_server.transport.hub import Hub
from hankweave_server.transport.idempotency import RecentAnswers
from hankweave_server.transport.outbox import OutboxLimits
from hankweave_server.transport.server_api import ServerApi
from hankweave_server.transport.sockets import Port, Socket
from hankweave_server.transport.traffic_log import TrafficLog

__all__ = ["Listener", "ListenerSettings", "reserve", "serve"]


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Address, access and limits of the port."""

    controller_token: Path
    viewer_token: Path
    traffic_log: Path
    exposure: Exposure = field(default_factory=Exposure)
    port: int = 0
    """0: the port of the former server if it is free, or else any other one."""
    address: Path | None = None
    """Where port and tokens are kept for the next start; None: they are not."""
    new_tokens: bool = False
    """True: kept tokens hold no longer."""
    no_token: bool = False
    """True: any process that can reach loopback on this machine is a controller."""
    max_connections: int = 1_100
    handshake_seconds: float = 10.0
    grace_seconds: float = 2.0
    """Time that clients have to close when the server stops."""
    outbox: OutboxLimits = field(default_factory=OutboxLimits)
    is_refused: Callable[[TransportSocket], bool] = lambda _socket: False
    """Returns True for a connection to close before anything is read, as of a confined agent."""
    redactor: Redactor = field(default_factory=Redactor)
    """Removes secrets from websocket.log; it learns the tokens."""


GOING_AWAY = 1001
# A frame larger than MAX_FRAME is refused and the socket stays open. One larger than this limit is
# not even read, and the socket closes with 1009.
HARD_FRAME_LIMIT = 4 * MAX_FRAME

ACCEPTED_AT_ONCE = 16
"""Connections accepted in one turn of the loop; each costs about a millisecond until its handshake.

asyncio accepts as many as the backlog it is given: a thousand at once would delay all others.
"""

AGENT_CONNECTIONS = 16
"""Connections that one agent may have at a time."""

Judge = Callable[[ServerConnection, Request], Response | None]
"""Refuse a request by returning a response."""

OUT_OF_DESCRIPTORS: Final = "OUT_OF_DESCRIPTORS"
_FULL = (
    "Almost no file descriptors are left, so new connections are refused. Close some "
    "connections, or raise the limit (ulimit -n)."
)
_CHECK_INTERVAL = 1.0
"""Seconds between two checks for free descriptors."""

_log = logging.getLogger("hankweave.transport")
# At debug level websockets logs request lines, which may contain `?token=`.
_websockets_log = logging.getLogger("hankweave.transport.websockets")
_websockets_log.setLevel(logging.ERROR)


def reserve(host: str, number: int) -> Port:
    """Bind a port before anything else is done; raise Stop if it is taken.

    No client can connect before `serve` is given the port. The caller must close the port.
    """
    try:
        return Port.bound(host, number)
    except OSError as error:
        raise _cannot_listen(host, number, error) from None


@asynccontextmanager
async def serve(
    api: ServerApi,
    settings: ListenerSettings,
    clock: Clock | None = None,
    port: Port | None = None,
) -> AsyncIterator[Listener]:
    """Listen until the block is left; then close clients with 1001 and remove the tokens.

    `port` was returned by `reserve`; without one the port of the settings is bound. Raises Stop if
    the address is unavailable, or `Exposure.refuse_insecure` does, and OSError if tokens cannot
    be written.
    """
    settings.exposure.refuse_insecure(no_token=settings.no_token)
    clock = clock or SystemClock()
    former = KeptAddress() if settings.address is None else kept_address(settings.address)
    tokens = None if settings.new_tokens else former.tokens
    keyring = None if settings.no_token else tokens or Keyring.new()
    with closing(port or _bound(settings, former.port)) as listening, _issued(settings, keyring):
        address = KeptAddress(listening.getsockname()[1], keyring or tokens)
        if settings.address is not None and address != former:
            address.keep(settings.address)

        redactor = settings.redactor
        if keyring is not None:
            redactor.add("server-token", keyring.controller)
            redactor.add("viewer-token", keyring.viewer)

        traffic = TrafficLog(settings.traffic_log, clock, redactor=redactor, report=_report_log)
        async with task_group() as group:
            group.start_soon(traffic.run)
            listener = Listener(api, settings, Gate(keyring), clock, traffic, group)
            try:
                await listener.open(listening)
                yield listener
            finally:
                with anyio.CancelScope(shield=True):
                    await listener.aclose()

            group.cancel_scope.cancel()


class Listener:
    """An open port and the sessions on it."""

    def __init__(
        self,
        api: ServerApi,
        settings: ListenerSettings,
        gate: Gate,
        clock: Clock,
        traffic: TrafficLog,
        group: TaskGroup,
    ) -> None:
        self._api = api
        self._settings = settings
        self._gate = gate
        self._group = group
        self._grace_seconds = settings.grace_seconds
        self._sockets: set[Socket] = set()
        self._http: HttpHandler | None = None
        self._server: Server | None = None
        self._port: Port | None = None
        self._is_full = False
        self.port = settings.port
        self.hub = Hub(
            api.last_seq,
            lambda frame: traffic.record("out", frame),
            clock,
            on_change=api.clients_changed,
        )
        """The hub that the ledger publishes to."""
        self._sessions = ClientSessions(
            Shared(
                api=api,
                gate=gate,
                answers=RecentAnswers(),
                clock=clock,
                pages=(
                    JournalPages(api.history_page),
                    JournalPages(api.history_page, reference.project),
                ),
                snapshots=Snapshots(api, clock),
            ),
            self.hub,
            traffic,
            ClientTimeouts(settings.handshake_seconds, settings.outbox),
        )

    @property
    def url(self) -> str:
        return self._settings.exposure.socket(self.port)

    @property
    def page_url(self) -> str:
        """The address of the page, as people open it, without a slash at its end."""
        return self._settings.exposure.page(self.port)

    @property
    def local_host(self) -> str:
        return self._settings.exposure.local_host

    @property
    def connections(self) -> int:
        """The number of open sockets, with or without a handshake."""
        return len(self._sockets)

    @property
    def evicted_clients(self) -> int:
        """The number of clients disconnected for being slow."""
        return self._sessions.evicted

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes queued in all outboxes together."""
        return self._sessions.waiting_bytes

    async def open(self, port: Port) -> None:
        """Serve on a port that is bound; raise Stop if that is not possible."""
        settings = self._settings
        self._port = port
        port.measure()
        port.on_full = self._on_full
        try:
            server = await self._serve_on(port, self._judge, self._new_socket, start_serving=False)
        except OSError as error:
            port.close()
            raise _cannot_listen(settings.exposure.host, settings.port, error) from error

        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        # Created before the first request is accepted, because both checks include the port.
        self._http = HttpHandler(settings.exposure, self.port, self._gate, self._api)
        self._group.start_soon(self._sessions.freed_memory.run)
        await server.start_serving()

    async def _serve_on(
        self, listening: socket.socket, judge: Judge, create: Callable[..., Socket], **options: Any
    ) -> Server:
        return await serve_websockets(
            self._handle,
            sock=listening,
            process_request=judge,
            create_connection=cast("type[ServerConnection]", create),
            compression=None,
            server_header=None,
            max_size=HARD_FRAME_LIMIT,
            # A task that waits for a socket waits until the kernel has everything: a client that
            # does not read costs one write, not one write and another buffer.
            write_limit=0,
            open_timeout=self._settings.handshake_seconds,
            ping_interval=20,
            ping_timeout=20,
            close_timeout=5,
            logger=_websockets_log,
            backlog=ACCEPTED_AT_ONCE,
            **options,
        )

    def limit_grace(self, seconds: float) -> None:
        """Limit the time that clients have to close to at most `seconds`."""
        self._grace_seconds = min(self._grace_seconds, seconds)

    async def aclose(self) -> None:
        """Stop listening and end all sessions, within the grace time and little more."""
        server, self._server = self._server, None
        if server is None:
            return

        server.close(close_connections=False)
        self._sessions.finish(GOING_AWAY, "server is shutting down")

        with anyio.move_on_after(self._grace_seconds):
            await server.wait_closed()
            return

        self._sessions.cancel()
        for client in tuple(self._sockets):
            client.transport.abort()

        await server.wait_closed()

    @asynccontextmanager
    async def agent_access(self, path: Path) -> AsyncIterator[None]:
        """Serve one agent on a Unix socket until the block is left; then end its connections.

        Any process that can open the socket is taken for the agent, so its folder must be closed to
        all others. Raises OSError if the socket cannot be created.
        """
        clients: set[Socket] = set()

        def admitted(*args: Any, **options: Any) -> Socket:
            made = Socket(*args, **options)
            made.all, made.most, made.role = clients, AGENT_CONNECTIONS, Role.AGENT
            return made

        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind_private(listening, path)
            server = await self._serve_on(listening, _judge_agent, admitted)
        except OSError:
            listening.close()
            raise

        try:
            yield
        finally:
            server.close(close_connections=False)  # It closes the socket, too.
            for client in tuple(clients):
                client.transport.abort()

            withdraw_tokens(path)

    # --- running out of descriptors -----------------------------------------------------------

    def _on_full(self) -> None:
        """Report once that connections are turned away, and watch for the end of it."""
        if not self._is_full:
            self._is_full = True
            self._api.report(OUT_OF_DESCRIPTORS, _FULL)
            self._group.start_soon(self._await_descriptors)

    async def _await_descriptors(self) -> None:
        while self._server is not None and self._port is not None:
            await anyio.sleep(_CHECK_INTERVAL)
            if self._port.has_room:
                self._is_full = False
                self._api.withdraw(OUT_OF_DESCRIPTORS)
                return

    # --- sessions -------------------------------------------------------------------------------

    def _new_socket(self, *args: Any, **options: Any) -> Socket:
        made = Socket(*args, **options)
        made.all = self._sockets
        made.most = self._settings.max_connections
        made.is_refused = self._settings.is_refused
        return made

    def _judge(self, client: ServerConnection, request: Request) -> Response | None:
        assert isinstance(client, Socket)
        assert self._http is not None
        verdict = self._http.judge(request, client.peer_host)
        if isinstance(verdict, Response):
            return verdict

        client.role = verdict.role
        return None

    async def _handle(self, client: ServerConnection) -> None:
        """Wait, in websockets' task, for the session, which runs in the listener's group."""
        assert isinstance(client, Socket)
        if self._server is None:
            return

        ended = anyio.Event()
        self._group.start_soon(self._run_session, client, ended)
        await ended.wait()

    async def _run_session(self, client: Socket, ended: anyio.Event) -> None:
        try:
            await self._sessions.serve(client)
        finally:
            ended.set()


def _bound(settings: ListenerSettings, former: int) -> Port:
    """Bind the port of the settings, or without one that of the former server if it is free."""
    if settings.port == 0 and former:
        with suppress(OSError):
            port = Port.bound(settings.exposure.host, former)
            try:
                port.listen()  # Until then, the kernel lets another server bind the same port.
            except OSError:
                port.close()
                raise

            return port

    return reserve(settings.exposure.host, settings.port)


def _issued(settings: ListenerSettings, keyring: Keyring | None) -> AbstractContextManager[None]:
    if keyring is not None:
        return issued_tokens(keyring, settings.controller_token, settings.viewer_token)

    withdraw_tokens(settings.controller_token, settings.viewer_token)
    return nullcontext()


def _judge_agent(client: ServerConnection, request: Request) -> Response | None:
    """Refuse all pages: an agent's socket is for the WebSocket alone."""
    if request.path == "/ws":
        return None

    return client.respond(HTTPStatus.NOT_FOUND, "This socket serves /ws.\n")


def _cannot_listen(host: str, number: int, error: OSError) -> Stop:
    hint = "Choose another --port, or 0 for any free one."
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "Name an address of this machine with --host; `ip address` lists them."

    return Stop(
        f"Cannot listen on {host}:{number}: {error.strerror or error}.",
        ExitCode.UNAVAILABLE,
        hint=hint,
    )


def _report_log(error: OSError) -> None:
    _log.error("websocket.log could not be written: %s.", error)
