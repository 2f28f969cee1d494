"""Many clients in a process of their own: `python -m bench.crowd`, driven by JSON lines on stdin.

A client is a real WebSocket until it is live; from then on it only counts bytes, because the cost
of reading frames in Python would hide the speed of the server.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable
from typing import Any, cast

import msgspec
from websockets.asyncio.client import ClientConnection, connect

AT_ONCE = 50
"""Connections being opened at the same time."""

HANDSHAKE = json.dumps({"type": "handshake", "data": {"mode": "readonly", "protocolVersion": 1}})
GREETING = 3
"""Frames before the first event: handshake.response, server.ready and state.snapshot."""


class Join(msgspec.Struct, tag_field="do", tag="join"):
    """Open clients of one server; answered when all of them have been greeted."""

    group: str
    url: str
    clients: int
    greets: bool
    """True if the server requires a handshake; the reference server does not."""


class Await(msgspec.Struct, tag_field="do", tag="await"):
    """Answered when every client of a group has received this many bytes since it joined."""

    group: str
    bytes: int


Order = Join | Await


class CountingConnection(ClientConnection):
    """A connection detached from websockets once it is live: its bytes are counted and discarded.

    It no longer answers pings; a server sends the first after 20 s, and then waits 20 more.
    """

    received = 0
    awaited = 0
    counts = False
    _arrived: asyncio.Event | None = None

    def data_received(self, data: bytes) -> None:
        if not self.counts:
            super().data_received(data)
            return

        self.received += len(data)
        if self._arrived is not None and self.received >= self.awaited:
            self._arrived.set()

    async def until(self, awaited: int) -> None:
        if self.received < awaited:
            self.awaited, self._arrived = awaited, asyncio.Event()
            await self._arrived.wait()


class Crowd:
    """All clients, by group."""

    def __init__(self) -> None:
        self._groups: dict[str, list[CountingConnection]] = {}
        self._opening = asyncio.Semaphore(AT_ONCE)

    async def execute(self, order: Order) -> None:
        match order:
            case Join():
                opened = [self._open(order) for _ in range(order.clients)]
                self._groups[order.group] = await _all(opened)
            case Await():
                await _all([each.until(order.bytes) for each in self._groups[order.group]])

    async def _open(self, order: Join) -> CountingConnection:
        async with self._opening:
            client = await connect(
                order.url,
                compression=None,
                ping_interval=None,
                create_connection=CountingConnection,
            )
            if order.greets:
                await client.send(HANDSHAKE)
                for _ in range(GREETING):
                    await client.recv()

        counting = cast("CountingConnection", client)
        counting.counts = True
        return counting


async def _all(works: list[Any]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_result(work)) for work in works]

    return [task.result() for task in tasks]


async def _result(work: Awaitable[Any]) -> Any:
    return await work


async def main() -> None:
    crowd = Crowd()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    decode = msgspec.json.Decoder(Order).decode
    async for line in lines:
        await crowd.execute(decode(line))
        print("done", flush=True)


def allow_many_sockets() -> None:
    """Raise the soft limit of open files; 1,000 clients need a descriptor each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))


if __name__ == "__main__":
    allow_many_sockets()
    asyncio.run(main())
