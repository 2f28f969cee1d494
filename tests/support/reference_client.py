"""A client of Hankweave 0.12 on every server of a test: it parses each frame it receives.

It sends no `protocolVersion` and changes nothing. Servers are found by their lock files below a
folder, so that it does not matter how a test starts them. It requests the whole journal, because a
short-lived server would have no events for a client that connects late, and the replies that
Hankweave sends to readers. Every frame is checked with `reference_schema`; and every line of the
journals is projected once more, to find events that were not sent because their shape was wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from hankweave_protocol import reference
from support.reference_schema import faults_of
from support.waiting import LIMIT

SCAN_INTERVAL = 0.05
DEEPEST = 4
"""Levels below a test's folder that are searched for executions."""

NOT_ENTERED = frozenset({".git", ".hankweave", "agentRoot", "read_only_data_source", "rigArchive"})
HANDSHAKE = {"mode": "readonly", "sendPreviousEvents": True, "sinceSeq": 0}
QUESTIONS = ("ping", "checkpoint.list", "history.sync")
PING = json.dumps({"id": "last", "type": "ping"})
"""The last question to a server that outlives its test, received after all else."""


@dataclass
class Received:
    """The frames that reference clients have received."""

    events: int = 0
    servers: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Received) -> None:
        self.events += other.events
        self.servers += other.servers
        self.faults += other.faults

    def __str__(self) -> str:
        count = len(self.faults)
        return (
            f"reference client: {self.events} events from {self.servers} servers, "
            f"{count} violation{'' if count == 1 else 's'}"
        )


class ReferenceClients:
    """Followers of each server that appears below a folder, in a thread of their own."""

    def __init__(self, folder: Path) -> None:
        self.received = Received()
        self._folder = folder
        self._known: set[tuple[str, int, int]] = set()
        self._executions: set[Path] = set()
        self._sockets: list[ClientConnection] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reference clients")

    def __enter__(self) -> ReferenceClients:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self.received.faults += self._misfits()

    def _run(self) -> None:
        asyncio.run(self._follow_all())

    async def _follow_all(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while not self._is_over.is_set():
            for execution, port in self._new_servers():
                tasks.add(asyncio.create_task(self._follow(execution, port)))

            await asyncio.sleep(SCAN_INTERVAL)

        for socket in self._sockets:
            with contextlib.suppress(WebSocketException):
                await socket.send(PING)

        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LIMIT)
            for task in late:
                task.cancel()

    def _new_servers(self) -> Iterator[tuple[Path, int]]:
        for execution in _executions(str(self._folder), DEEPEST):
            self._executions.add(execution)
            with contextlib.suppress(OSError, ValueError):
                lock = json.loads((execution / ".hankweave" / "runtime.lock").read_bytes())
                name = (str(execution), lock["pid"], lock.get("port", 0))
                if name[2] and name not in self._known:
                    self._known.add(name)
                    yield execution, name[2]

    async def _follow(self, execution: Path, port: int) -> None:
        headers = {}
        with contextlib.suppress(OSError):
            token = (execution / ".hankweave" / "server.viewer-token").read_text().strip()
            headers["Authorization"] = f"Bearer {token}"

        url = f"ws://127.0.0.1:{port}/ws"
        with contextlib.suppress(OSError, WebSocketException):
            async with connect(
                url, additional_headers=headers, proxy=None, max_size=None, compression=None
            ) as socket:
                self.received.servers += 1
                await socket.send(json.dumps({"type": "handshake", "data": HANDSHAKE}))
                for number, question in enumerate(QUESTIONS):
                    await socket.send(json.dumps({"id": f"q{number}", "type": question}))

                self._sockets.append(socket)
                if self._is_over.is_set():
                    await socket.send(PING)

                pongs = 0
                async for frame in socket:
                    self._receive(execution, frame)
                    pongs += _is_pong(json.loads(frame))
                    if pongs > QUESTIONS.count("ping"):
                        return

    def _receive(self, execution: Path, frame: str | bytes) -> None:
        self.received.events += _count(json.loads(frame))
        self.received.faults += [f"{execution.name}: {fault}" for fault in faults_of(frame)]

    def _misfits(self) -> Iterator[str]:
        """Name the events that Hankweave has but that could not be sent in its shape."""
        for execution in sorted(self._executions):
            journal = execution / ".hankweave" / "events" / "events.jsonl"
            with contextlib.suppress(OSError):
                lines = journal.read_bytes().splitlines()
                if lines and b'"seq":' not in lines[0]:
                    continue  # An older Hankweave wrote it; this server has not sent it.

                for line in lines:
                    try:
                        reference.convert(line)
                    except reference.Unrepresentable as misfit:
                        yield f"{execution.name}: not sent: {misfit}"
                    except ValueError:
                        continue  # A line that a test has torn.


def _is_pong(frame: dict[str, Any]) -> bool:
    """Return True for the answer to a ping of our own: that of a broadcast names its sender."""
    return frame["type"] == "pong" and "clientId" not in frame["data"]


def _count(frame: dict[str, Any]) -> int:
    """Count the events of a frame: a batch or a history has several."""
    data = frame.get("data", {})
    return len(data.get("events", data.get("eventHistory", [None])))


def _executions(folder: str, depth: int) -> Iterator[Path]:
    inner = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == ".hankweave":
                    yield Path(folder)
                elif (
                    depth and entry.name not in NOT_ENTERED and entry.is_dir(follow_symlinks=False)
                ):
                    inner.append(entry.path)
    except OSError:
        return

    for path in inner:
        yield from _executions(path, depth - 1)
