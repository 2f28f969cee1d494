"""An agent's output, from its pipe through parsing, state, journal and transport to ten clients.

A real server, a real `command` agent that prints as fast as it is read, clients in a process of
their own. The clock runs from the agent's first event to the last client's last byte.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import msgspec
import psutil

from bench.crowd import Await, Join, allow_many_sockets
from bench.executions import WORDS
from bench.fanout import crowd_of_clients
from bench.figures import AtLeast, AtMost, Figure
from bench.scale import Scale
from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_protocol.commands import CodonNext
from hankweave_server.paths import Layout
from support.running_server import appears, command, environment
from support.scripted_hank import codon, write_hank

BENCH = "agent"
CLIENTS = 10
GROUP = "watchers"
MEGABYTE = 1_000_000

SPEED_TARGET = AtLeast(5_000)
GROWTH_TARGET = AtMost(48)
"""Megabytes; a slow client may have 4 MiB waiting."""
SAVES_TARGET = AtMost(8)
"""A second: one each 200 ms, and those of the codon's own transitions."""

POLL_SECONDS = 0.01
TAIL = 2_000
"""Bytes at the journal's end that are read to see whether the plan has ended."""
WARM = 0.1
"""The fraction of the lines after which the server's memory is warm."""
DEADLINE = 120.0
CHANGES_FILES = 100
"""After each hundredth tool call the work tree is scanned."""
NOTHING: Mapping[str, str] = {}


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    allow_many_sockets()
    lines = folder / "lines.jsonl"
    count = write_lines(lines, scale.agent_lines)
    hank = write_hank(folder / "hank", codon("talk") | prints(lines))
    async with crowd_of_clients() as crowd, serving(hank, folder / "execution") as server:
        async with server.client() as client:
            address = discover(server.execution)
            url = f"{address.url}?token={address.token}"
            await crowd.execute(Join(GROUP, url, CLIENTS, greets=True))
            before = server.journal.stat().st_size
            await client.send(CodonNext())

        began, busy = perf_counter(), server.processor_seconds()
        watch = _Watch(server)
        with anyio.fail_after(DEADLINE):
            await watch.until_idle()

        await crowd.execute(Await(GROUP, _on_the_wire(server.journal, before)))
        seconds, busy = perf_counter() - began, server.processor_seconds() - busy

    name = f"{count:,} lines to {CLIENTS} clients"
    return [
        Figure(BENCH, name, count / seconds, "lines/s", target=SPEED_TARGET),
        Figure(BENCH, "lines in a second of its processor", count / busy, "lines/s"),
        Figure(BENCH, "memory, growth", watch.growth / MEGABYTE, "MB", target=GROWTH_TARGET),
        Figure(BENCH, "state.json saved", watch.saves / seconds, "/s", target=SAVES_TARGET),
    ]


@dataclass(frozen=True, slots=True)
class _Server:
    """One `hankweave run` that only its clients listen to."""

    pid: int
    execution: Path

    @property
    def journal(self) -> Path:
        return Layout.of_execution(self.execution).journal

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        address = discover(self.execution)
        async with connect(address.url, token=address.token) as client:
            yield client

    def processor_seconds(self) -> float:
        """Return the server's own processor time, which shows its speed on a busy machine too."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def is_idle(self) -> bool:
        with self.journal.open("rb") as stream:
            stream.seek(max(0, self.journal.stat().st_size - TAIL))
            return b'"reason":"all-codons-completed"' in stream.read()


@asynccontextmanager
async def serving(
    hank: Path, execution: Path, env: Mapping[str, str] = NOTHING
) -> AsyncIterator[_Server]:
    words = command("run", str(hank), "--execution", str(execution), "--no-autostart")
    async with await anyio.open_process(
        words, env=environment(**env), stdout=subprocess.DEVNULL, stderr=None
    ) as process:
        try:
            server = _Server(process.pid, execution)
            await appears(server.journal)
            with anyio.fail_after(DEADLINE):
                while b"server.idle" not in server.journal.read_bytes():  # noqa: ASYNC110
                    await anyio.sleep(POLL_SECONDS)

            yield server
        finally:
            process.kill()


@dataclass
class _Watch:
    """A periodic look at a server: its resident memory, and the time of each save of its state."""

    server: _Server
    resident: list[int] = field(default_factory=list)
    saves: int = 0

    @property
    def growth(self) -> float:
        warm = int(len(self.resident) * WARM)
        return max(self.resident) - self.resident[warm]

    async def until_idle(self) -> None:
        process = psutil.Process(self.server.pid)
        state, last = Layout.of_execution(self.server.execution).state, 0
        while not self.server.is_idle():
            self.resident.append(process.memory_info().rss)
            with contextlib.suppress(FileNotFoundError):  # Between two renames.
                last, before = state.stat().st_ino, last
                self.saves += last != before

            await anyio.sleep(POLL_SECONDS)


def _on_the_wire(journal: Path, since: int) -> int:
    """Return the bytes sent to every client: the journal's lines, each with its frame's header."""
    with journal.open("rb") as stream:
        stream.seek(since)
        return sum(_framed(len(line) - 1) for line in stream)


def _framed(size: int) -> int:
    return size + (2 if size < 126 else 4 if size < 1 << 16 else 10)


def prints(lines: Path) -> dict[str, Any]:
    return {"agent": {"type": "command", "command": ["cat", str(lines)]}}


def write_lines(path: Path, count: int) -> int:
    """Write an agent's output: texts, costs, tool calls and their results."""
    with path.open("wb") as stream:
        written = [stream.write(msgspec.json.encode(each) + b"\n") for each in _messages(count)]

    return len(written)


def _messages(count: int) -> Iterator[dict[str, Any]]:
    yield {"type": "system", "subtype": "init", "session_id": "s", "model": "sonnet"}
    for number in range(max(1, count // 3)):
        name = "Read" if number % CHANGES_FILES else "Bash"
        called = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"path": "a.md"}}
        block = {"type": "text", "text": WORDS * 3}
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": WORDS * 5}
        yield _assistant(number, block)
        yield _assistant(number, called)
        yield {"type": "user", "message": {"content": [back]}}

    yield {"type": "result", "subtype": "success", "is_error": False, "result": "done"}


def _assistant(number: int, block: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1_000, "output_tokens": 50 + number % 7}
    message = {"id": f"m{number}", "model": "sonnet", "content": [block], "usage": usage}
    return {"type": "assistant", "message": message}
