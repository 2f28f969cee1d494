"""Events fanned out to local clients: the real transport beside websockets' `broadcast`.

`broadcast` is the fastest way that the library has; it has no back-pressure, no journal order for
late joiners and no traffic log. Both servers run in this process, their clients in another.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter, process_time

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from websockets.asyncio.server import ServerConnection, broadcast
from websockets.asyncio.server import serve as serve_websockets

from bench.crowd import Await, Join, Order, allow_many_sockets
from bench.figures import Figure
from bench.rounds import medians
from bench.scale import Scale
from hankweave_protocol.commands import Command
from hankweave_protocol.events import ServerReady, StateSnapshot
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.transport.listener import Listener, ListenerSettings, serve
from hankweave_server.transport.server_api import HealthAnswer, ServerApi
from support.running_server import environment

FRAME = b'{"id":"0","type":"assistant.action","data":"' + b"x" * 954 + b'"}'
FRAME_ON_THE_WIRE = len(FRAME) + 4
"""A server's frame of 126 to 65,535 bytes has a header of four."""

TURN = 25
"""Events published before the loop gets a turn: about as many as the ledger publishes at once."""

BURST = 500
"""Events in flight before the clients are waited for: half of the capacity of an outbox."""

DEADLINE = 30.0

LOG_BREATH = 0.25
"""Seconds; the traffic log rests for 0.2 of them before it writes the frames."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    allow_many_sockets()
    return [await _measure_with(clients, folder, scale) for clients in scale.clients]


async def _measure_with(clients: int, folder: Path, scale: Scale) -> Figure:
    events = max(1, scale.deliveries // clients)
    # The crowd ends first: its clients only count, and would never answer a goodbye.
    async with (
        _transport(folder / f"{clients}") as ours,
        _library() as reference,
        crowd_of_clients() as crowd,
    ):
        await ours.admit(crowd, clients)
        await reference.admit(crowd, clients)
        found = await medians(
            {
                "ours": lambda: ours.fan_out(crowd, events),
                "reference": lambda: reference.fan_out(crowd, events),
            },
            scale.rounds,
        )

    name = f"events to {clients:,} client{'' if clients == 1 else 's'}"
    return Figure("fanout", name, found["ours"], "deliveries/s", "broadcast()", found["reference"])


# --- the clients, in another process --------------------------------------------------------------


@dataclass
class Crowd:
    process: anyio.abc.Process
    answers: BufferedByteReceiveStream

    async def execute(self, order: Order) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(msgspec.json.encode(order) + b"\n")
        with anyio.fail_after(DEADLINE):
            await self.answers.receive_until(b"\n", 64)


@asynccontextmanager
async def crowd_of_clients() -> AsyncIterator[Crowd]:
    async with await anyio.open_process(
        [sys.executable, "-m", "bench.crowd"],
        env=environment(PYTHONPATH=":".join(filter(None, sys.path))),
        stdout=subprocess.PIPE,
        stderr=None,
    ) as process:
        assert process.stdout is not None
        try:
            yield Crowd(process, BufferedByteReceiveStream(process.stdout))
        finally:
            process.kill()


# --- the two servers, in this process -------------------------------------------------------------


@dataclass
class _Publisher:
    """The interface to a server and its clients that this benchmark uses."""

    name: str
    url: str
    publish: Callable[[], None]
    live: Callable[[], int]
    greets: bool
    _clients: int = 0
    _sent: int = field(default=0)

    async def admit(self, crowd: Crowd, clients: int) -> None:
        await crowd.execute(Join(self.name, self.url, clients, self.greets))
        self._clients = clients
        with anyio.fail_after(DEADLINE):
            while self.live() < clients:
                await anyio.lowlevel.checkpoint()

    async def fan_out(self, crowd: Crowd, events: int) -> float:
        """Return deliveries per second, until the last client has the last byte."""
        began = perf_counter()
        for first in range(0, events, BURST):
            await self._burst(min(BURST, events - first))
            await crowd.execute(Await(self.name, self._sent * FRAME_ON_THE_WIRE))

        seconds = perf_counter() - began
        # The pending writes of the traffic log must not slow the next server.
        await _quiet()
        return events * self._clients / seconds

    async def _burst(self, events: int) -> None:
        for number in range(events):
            self.publish()
            if number % TURN == TURN - 1:
                await anyio.lowlevel.checkpoint()

        self._sent += events


async def _quiet() -> None:
    """Wait until this process is idle."""
    before = -1.0
    while process_time() - before > LOG_BREATH / 20:
        before = process_time()
        await anyio.sleep(LOG_BREATH)


@asynccontextmanager
async def _transport(folder: Path) -> AsyncIterator[_Publisher]:
    seqs = count(1)
    settings = ListenerSettings(
        controller_token=folder / "server.token",
        viewer_token=folder / "server.viewer-token",
        traffic_log=folder / "websocket.log",
        no_token=True,
    )
    async with serve(_no_api(), settings) as listener:
        yield _Publisher(
            "ours",
            listener.url,
            publish=lambda: listener.hub.publish(FRAME, next(seqs)),
            live=lambda: _live_clients(listener),
            greets=True,
        )


def _live_clients(listener: Listener) -> int:
    assert not listener.evicted_clients, "A client was cut off: the bench asks too much of it."
    return listener.hub.live_clients


@asynccontextmanager
async def _library() -> AsyncIterator[_Publisher]:
    connections: set[ServerConnection] = set()

    async def attend(connection: ServerConnection) -> None:
        connections.add(connection)
        await connection.wait_closed()
        connections.discard(connection)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serve_websockets(attend, "127.0.0.1", 0, compression=None)
        )
        port = server.sockets[0].getsockname()[1]
        yield _Publisher(
            "reference",
            f"ws://127.0.0.1:{port}",
            publish=lambda: broadcast(connections, FRAME, text=True),
            live=lambda: len(connections),
            greets=False,
        )


def _no_api() -> ServerApi:
    """Return a server API without content for the transport."""

    async def handle(command: Command, caller: Caller) -> CommandAnswer:
        raise AssertionError("No client of this bench sends a command.")

    ready = ServerReady(
        server_version="0",
        execution_path="/execution",
        agent_root_path="/execution/agentRoot",
        data_path=None,
        port=0,
        url="",
    )
    snapshot = StateSnapshot(
        completed_codons=(), file_tree=(), total_cost=0.0, total_time=0, is_rolling_back=False
    )
    return ServerApi(
        handle=handle,
        history_page=lambda since: [],
        last_seq=lambda: 0,
        ready=lambda: ready,
        snapshot=lambda: snapshot,
        initial_events=lambda caller: (),
        health=lambda: HealthAnswer(alive=True, ready=True),
        metrics=lambda: b"",
    )
