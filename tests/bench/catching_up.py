"""A thousand clients that request the whole journal and do not read: memory, and others' pings."""

from __future__ import annotations

from pathlib import Path
from statistics import quantiles
from time import perf_counter

import anyio

from bench.crowd import allow_many_sockets
from bench.figures import AtMost, Figure
from bench.scale import Scale
from hankweave_client.client import Client
from hankweave_protocol.commands import Ping
from support.late_crowd import (
    MIB,
    LateCrowd,
    forget_peak,
    peak,
    resident,
    server_with_journal,
    settled,
)
from support.waiting import eventually

BENCH = "catching-up"
JOURNAL_MEGABYTES = 15
SECONDS = 6.0
SIP_SECONDS = 0.1
PARTS = 20
"""A twentieth of the clients reads at a time: real ones do not read in step."""
MEMORY_TARGET = AtMost(64)
SETTLE_SECONDS = 5.0
PING_TARGET = AtMost(100)
BETWEEN_PINGS = 0.01


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    allow_many_sockets()
    clients = max(scale.clients)
    async with server_with_journal(folder, JOURNAL_MEGABYTES) as server, server.client() as watcher:
        calm = await _pings(watcher, 1.0)
        before = await settled(server)
        forget_peak(server.pid)
        with LateCrowd(server) as crowd:
            await crowd.connect(clients)
            await anyio.sleep(1)  # A thousand simultaneous handshakes are not measured.
            pings = await _pings_beside(watcher, crowd)
            most = peak(server.pid) - before

        await eventually(lambda: resident(server.pid) - before < most)
        await anyio.sleep(SETTLE_SECONDS)
        kept = resident(server.pid) - before

    name = f"{clients:,} clients that do not read"
    return [
        Figure(BENCH, name, most / MIB, "MiB", target=MEMORY_TARGET),
        Figure(BENCH, "kept when they have left", kept / MIB, "MiB"),
        Figure(
            BENCH, "p99 ping meanwhile", _p99(pings), "ms", "without them", _p99(calm), PING_TARGET
        ),
    ]


async def _pings_beside(watcher: Client, crowd: LateCrowd) -> list[float]:
    """Ping while the crowd reads just enough not to be disconnected."""
    found: list[float] = []
    for number in range(round(SECONDS / SIP_SECONDS)):
        crowd.sip(4_096, slice(number % PARTS, None, PARTS))
        found += await _pings(watcher, SIP_SECONDS)

    return found


async def _pings(watcher: Client, seconds: float) -> list[float]:
    found: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        began = perf_counter()
        await watcher.send(Ping())
        found.append(perf_counter() - began)
        await anyio.sleep(BETWEEN_PINGS)

    return found


def _p99(pings: list[float]) -> float:
    return quantiles(pings, n=100)[-1] * 1_000
