"""The server's latency and heartbeat while it takes a large checkpoint."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import msgspec

from bench.figures import AtMost, Figure, Within
from bench.scale import Scale
from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, CodonNext, ListCheckpoints, Ping
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import RuntimeLock
from hankweave_server.paths import Layout
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

BENCH = "responsiveness"
PING_TARGET = AtMost(100)  # Milliseconds, at the 99th of 100.
LIST_TARGET = AtMost(20)
BEAT_TARGET = Within(30, 2)

CALM = 1.0
"""Seconds of pings to an idle server: the reference of the others."""

BETWEEN_PINGS = 0.006
"""Seconds; a client may send 200 messages a second."""

POLL_SECONDS = 0.02
BEAT_DEADLINE = 60.0

NEARLY_A_BEAT = 28.0
"""Seconds after one beat when the big file's checkpoint begins, so that it spans the next."""

MEBIBYTE = 1 << 20


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    async with _tracking_server(folder) as server:
        listing = await server.listing_of(scale.history, scale.rounds)
        calm = await server.pings_during(lambda: anyio.sleep(CALM))
        many = []
        for number in range(min(3, scale.rounds)):
            _write_many(server.layout.work_tree, scale.many_files, number)
            many += await server.pings_during(server.checkpoint)

        _write_big(server.layout.work_tree / "big", scale.big_file)
        if scale.awaits_heartbeats:
            big, interval = await _between_two_beats(server)
            beats = [Figure(BENCH, "heartbeat, one big file", interval, "s", target=BEAT_TARGET)]
        else:
            big, beats = await server.pings_during(server.checkpoint), []

    listed = f"{scale.history:,} checkpoints listed"
    return [
        Figure(BENCH, listed, listing, "ms", target=LIST_TARGET),
        *_figures(f"checkpoint of {scale.many_files:,} files", many, calm),
        *_figures(f"checkpoint of {scale.big_file / MEBIBYTE:,g} MiB", big, calm),
        *beats,
    ]


@dataclass(frozen=True, slots=True)
class _Server:
    layout: Layout
    asks: Client
    pings: Client
    """On a connection of its own, like that of a client that only watches."""

    async def checkpoint(self) -> None:
        record = await self.asks.send(CheckpointCreate())
        assert not record.skipped

    async def listing_of(self, count: int, rounds: int) -> float:
        """Take the checkpoints and return the milliseconds until a client has them listed."""
        for _ in range(count):
            await self.checkpoint()
            await anyio.sleep(BETWEEN_PINGS)

        return median([await self._listed(count) for _ in range(rounds)])

    async def _listed(self, count: int) -> float:
        began = perf_counter()
        page = await self.asks.send(ListCheckpoints(limit=count))
        taken = (perf_counter() - began) * 1000
        assert len(page.checkpoints) == count
        return taken

    async def pings_during(self, work: Callable[[], Awaitable[None]]) -> list[float]:
        """Return the milliseconds of each ping's round trip until the work is done."""
        times: list[float] = []
        done = anyio.Event()

        async def ping() -> None:
            while not done.is_set():
                began = perf_counter()
                await self.pings.send(Ping())
                times.append((perf_counter() - began) * 1000)
                await anyio.sleep(BETWEEN_PINGS)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ping)
            await work()
            done.set()

        return times

    async def next_beat(self) -> datetime:
        """Wait until runtime.lock has another stamp, and return it."""
        before = self._stamp()
        with anyio.fail_after(BEAT_DEADLINE):
            while (now := self._stamp()) == before:  # noqa: ASYNC110 - a file tells nobody.
                await anyio.sleep(POLL_SECONDS)

        return now

    def _stamp(self) -> datetime:
        lock = msgspec.json.decode(self.layout.runtime_lock.read_bytes(), type=RuntimeLock)
        return from_text(lock.last_heartbeat)


@asynccontextmanager
async def _tracking_server(folder: Path) -> AsyncIterator[_Server]:
    """Start a server whose one codon has run: from there on all files are tracked."""
    hank = write_hank(folder / "hank", codon("track"))
    layout = Layout.of_execution(folder / "execution")
    async with (
        running_server(hank, None, layout.root, "--no-autostart") as running,
        running.client() as asks,
        running.client() as pings,
    ):
        await asks.send(CodonNext())
        await idle(asks)
        yield _Server(layout, asks, pings)
        await running.stop()


async def _between_two_beats(server: _Server) -> tuple[list[float], float]:
    """Take the big checkpoint when a beat is due; return the pings and the beats' distance."""
    first = await server.next_beat()
    second: list[datetime] = []

    async def beat() -> None:
        second.append(await server.next_beat())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        await anyio.sleep(NEARLY_A_BEAT)
        pings = await server.pings_during(server.checkpoint)

    return pings, (second[0] - first).total_seconds()


def _figures(name: str, pings: list[float], calm: list[float]) -> list[Figure]:
    return [
        Figure(
            BENCH,
            f"ping, {word}, {name}",
            _among(pings, share),
            "ms",
            "idle server",
            _among(calm, share),
            PING_TARGET if word == "p99" else None,
        )
        for word, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    ]


def _among(times: list[float], share: float) -> float:
    """Return the time that the given share of all does not exceed."""
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _write_many(tree: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)  # Reproducible, not secret.
    for number in range(count):
        folder = tree / f"part{number // 100}"
        folder.mkdir(exist_ok=True)
        lines = [f"value_{chance.randrange(9999)} = {n}\n" for n in range(200)]
        (folder / f"file{number}.py").write_text("".join(lines))


def _write_big(path: Path, size: int) -> None:
    block = os.urandom(min(size, MEBIBYTE))
    with path.open("wb") as stream:
        for _ in range(0, size, len(block)):
            stream.write(block)
