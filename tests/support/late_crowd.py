"""Clients that request a real server's whole journal and do not read the reply."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec

from hankweave_client.discovery import discover
from hankweave_server.transport.client_session import CALM_SECONDS, CROWD
from intruders.wire import frame, port_of, request
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank
from support.waiting import eventually, limited

KIB = 1024
MIB = 1024 * KIB
READONLY = {"mode": "readonly", "protocolVersion": 1}
SYNC = frame(b'{"id":"sync","type":"history.sync","data":{"sinceSeq":0}}')


def _hello(**data: object) -> bytes:
    return frame(msgspec.json.encode({"type": "handshake", "data": data}))


WAYS_TO_ASK = (
    _hello(**READONLY, sinceSeq=0),
    _hello(**READONLY, sendPreviousEvents=True),
    _hello(**READONLY) + SYNC,
    _hello(mode="readonly") + SYNC,
)


@asynccontextmanager
async def server_with_journal(folder: Path, megabytes: int) -> AsyncIterator[RunningServer]:
    """Run a verbose agent, and serve its execution: short lines, long ones and very long ones.

    The server is idle when this returns: its journal no longer grows.
    """
    talk = [{"say": "word, wörd " * 900}] * (90 * megabytes) + [{"say": "y" * 300_000}] * 4
    agent = {"type": "scripted", "script": "script.json"}  # A prompt would be in the plan, too.
    hank = write_hank(folder / "hank", codon("one", agent=agent, promptText="Talk."))
    hank.with_name("script.json").write_text(json.dumps({"steps": talk}))
    async with running_server(hank, None, folder / "execution", "--headless") as server:
        with limited():
            assert await server.process.wait() == 0

    async with running_server(hank, None, folder / "execution", "--no-autostart") as server:
        journal = server.execution / ".hankweave" / "events" / "events.jsonl"
        await eventually(lambda: b"nothing to do" in journal.read_bytes())
        yield server


class LateCrowd:
    """Many clients of one server, each of which makes one kind of request."""

    def __init__(self, server: RunningServer, ways: Sequence[bytes] = WAYS_TO_ASK) -> None:
        self._ways = ways
        address = discover(server.execution)
        self._port = port_of(address.url)
        self._request = request(self._port, f"/ws?token={address.token}")
        self._sockets: list[socket.socket] = []

    async def connect(self, clients: int) -> None:
        """Connect clients, and return when each of them has received something."""
        for number in range(clients):
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            deaf.connect(("127.0.0.1", self._port))
            deaf.sendall(self._request + self._ways[number % len(self._ways)])
            deaf.setblocking(False)
            self._sockets.append(deaf)
            if number % 20 == 0:
                await anyio.lowlevel.checkpoint()

    def sip(self, size: int, part: slice = slice(None)) -> None:
        """Read a little for some clients, all by default, so that they are not disconnected."""
        for each in self._sockets[part]:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                each.recv(size)

    def __enter__(self) -> LateCrowd:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()


async def settled(server: RunningServer, clients: int = CROWD + 1) -> int:
    """Return the resident bytes of a server that has released the memory it no longer needs.

    To cause that, this many clients connect and leave without a request.
    """
    with LateCrowd(server, (_hello(mode="readonly"),)) as crowd:
        await crowd.connect(clients)
        await anyio.sleep(0.5)
        most = resident(server.pid)

    # If the clients cost less than what was free before, nothing can be seen.
    with anyio.move_on_after(10 * CALM_SECONDS):
        await eventually(lambda: resident(server.pid) < most)

    await anyio.sleep(CALM_SECONDS)
    return resident(server.pid)


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    return _status(pid, "VmRSS:")


def peak(pid: int) -> int:
    """Return a process's peak resident memory in bytes since `forget_peak`."""
    return _status(pid, "VmHWM:")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, key: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(key)[2].split()[0]) * KIB
