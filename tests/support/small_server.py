"""The real transport over a small server: a journal that is a list, commands that are callables.

It is unrealistic in two ways: nothing is durable, and an event is published the moment it is
appended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket

from hankweave_protocol.codec import encode
from hankweave_protocol.commands import Command
from hankweave_protocol.events import Event, EventData, Info, ServerReady, StateSnapshot
from hankweave_protocol.ids import EventSeq
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.clock import Clock
from hankweave_server.transport.hub import Hub
from hankweave_server.transport.listener import Listener, ListenerSettings, serve
from hankweave_server.transport.outbox import OutboxLimits
from hankweave_server.transport.server_api import HealthAnswer, ServerApi
from support import waiting

NOON = "2025-01-04T12:00:00.000Z"
Handler = Callable[[Command, Caller], Awaitable[CommandAnswer]]


async def _echo(command: Command, caller: Caller) -> CommandAnswer:
    return CommandAnswer(data={"did": command.type})


@dataclass
class SmallRest:
    """The rest of the server, in memory."""

    handler: Handler = _echo
    lines: list[bytes] = field(default_factory=list)
    handled: list[Command] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    welcome: tuple[EventData, ...] = ()
    health: HealthAnswer = field(default_factory=lambda: HealthAnswer(alive=True, ready=True))
    hub: Hub | None = None

    def publish(self, data: EventData | None = None) -> int:
        """Append an event and send it to all clients; return its seq."""
        seq = len(self.lines) + 1
        data = data or Info(message=f"event {seq}")
        event = Event(id=f"e{seq}", seq=EventSeq(seq), timestamp=NOON, type=data.TYPE, data=data)
        self.lines.append(encode(event))
        if self.hub is not None:
            self.hub.publish(self.lines[-1], seq)

        return seq

    def server_api(self) -> ServerApi:
        return ServerApi(
            handle=self._handle,
            history_page=self._page,
            last_seq=lambda: len(self.lines),
            ready=self._ready,
            snapshot=self._snapshot,
            initial_events=self._initial_events,
            health=lambda: self.health,
            metrics=lambda: b"hankweave_clients 1\n",
        )

    async def _handle(self, command: Command, caller: Caller) -> CommandAnswer:
        self.handled.append(command)
        return await self.handler(command, caller)

    def _page(self, since: int) -> list[bytes]:
        assert threading.current_thread() is not threading.main_thread(), "the loop would wait"
        return self.lines[since : since + 20]

    def _initial_events(self, caller: Caller) -> tuple[EventData, ...]:
        self.callers.append(caller)
        return self.welcome

    def _ready(self) -> ServerReady:
        return ServerReady(
            server_version="0",
            execution_path="/execution",
            agent_root_path="/execution/agentRoot",
            data_path=None,
            port=0,
            url="",
            last_event_seq=len(self.lines),
        )

    def _snapshot(self) -> StateSnapshot:
        return StateSnapshot(
            completed_codons=(),
            file_tree=(),
            total_cost=0.0,
            total_time=0,
            is_rolling_back=False,
            last_event_seq=len(self.lines),
        )


UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version: 13",
)
"""The headers that ask for a WebSocket."""


class Response(NamedTuple):
    """An HTTP response; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class SmallServer:
    """A listening transport and the objects behind it."""

    rest: SmallRest
    listener: Listener
    settings: ListenerSettings

    @property
    def url(self) -> str:
        return self.listener.url

    @property
    def controller(self) -> str:
        return self.settings.controller_token.read_text().strip()

    @property
    def viewer(self) -> str:
        return self.settings.viewer_token.read_text().strip()

    async def ask(
        self, path: str, *headers: str, host: str | None = "127.0.0.1:{port}", method: str = "GET"
    ) -> Response:
        """Send one HTTP request with path and headers unchanged; `{port}` is the server's."""
        port = self.listener.port
        named = () if host is None else (f"Host: {host.format(port=port)}",)
        lines = [f"{method} {path} HTTP/1.1", *named, *headers, "", ""]
        reader, writer = await asyncio.open_connection(self.listener.local_host, port)
        writer.write("\r\n".join(lines).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        first, *fields = head.decode().strip().split("\r\n")
        status = int(first.split(" ")[1])
        body = b"" if status == 101 else await reader.read()
        writer.close()
        pairs = (field.split(": ", 1) for field in fields)
        return Response(status, {name.lower(): value for name, value in pairs}, body)

    @asynccontextmanager
    async def raw(self, **hello: Any) -> AsyncIterator[RawClient]:
        """Connect a client that speaks JSON by hand; send a handshake if its data is given."""
        async with connect_websocket(
            f"{self.url}?token={self.controller}", proxy=None, compression=None, max_size=None
        ) as socket:
            client = RawClient(socket)
            if hello:
                await client.send({"type": "handshake", "data": hello})
                assert (await client.receive())["type"] == "handshake.response"
                assert (await client.receive())["type"] == "server.ready"

            yield client

    @asynccontextmanager
    async def follower(self, **hello: Any) -> AsyncIterator[RawClient]:
        """Connect a client of this protocol, which sees each event as it is in the journal."""
        async with self.raw(protocolVersion=1, **hello) as client:
            assert (await client.receive())["type"] == "state.snapshot"
            yield client


@dataclass(frozen=True)
class RawClient:
    socket: ClientConnection

    async def send(self, frame: dict[str, Any] | str | bytes) -> None:
        if isinstance(frame, dict):
            await self.socket.send(encode(frame), text=True)
        else:
            await self.socket.send(frame)

    async def receive(self) -> Any:
        return msgspec.json.decode(await self.socket.recv())


def settings_in(folder: Path, **changed: Any) -> ListenerSettings:
    state = folder / ".hankweave"
    settings = ListenerSettings(
        controller_token=state / "server.token",
        viewer_token=state / "server.viewer-token",
        traffic_log=state / "logs" / "websocket.log",
        handshake_seconds=waiting.LIMIT,
        outbox=OutboxLimits(send_seconds=waiting.LIMIT, close_seconds=waiting.LIMIT),
    )
    return replace(settings, **changed)


@asynccontextmanager
async def small_server(
    folder: Path, rest: SmallRest | None = None, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[SmallServer]:
    rest = rest or SmallRest()
    chosen = settings_in(folder, **settings)
    async with serve(rest.server_api(), chosen, clock) as listener:
        rest.hub = listener.hub
        yield SmallServer(rest, listener, chosen)

    rest.hub = None
