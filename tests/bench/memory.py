"""Memory of an idle server: its resident size, beside a bare interpreter's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import anyio
import psutil

from bench.executions import Prepared, with_a_past, without_a_past
from bench.figures import AtMost, Figure
from bench.rounds import medians
from bench.scale import Scale

TARGET = AtMost(80)
MEGABYTE = 1_000_000

POLL_SECONDS = 0.1
"""Seconds; a process that uses no processor time in that span has settled."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    empty = await without_a_past(folder / "empty")
    long = await with_a_past(folder / "long", scale.messages)
    name = f"idle server, {long.events:,} events"
    found = await medians(
        {
            "python": _bare_python,
            "empty": lambda: _idle_server(empty),
            "long": lambda: _idle_server(long),
        },
        scale.rounds,
    )
    bare = ("bare Python", found["python"])
    return [
        Figure("memory", "idle server", found["empty"], "MB", *bare, TARGET),
        Figure("memory", name, found["long"], "MB", *bare, TARGET),
    ]


async def _idle_server(prepared: Prepared) -> float:
    async with prepared.serve() as server:
        resident = await _settled(server.pid)
        await server.stop()

    return resident


async def _bare_python() -> float:
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    async with await anyio.open_process(waiting, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        await process.stdout.receive()
        resident = await _settled(process.pid)
        process.kill()

    return resident


async def _settled(pid: int) -> float:
    """Return the resident megabytes of a process and its children, once they are idle."""
    process = psutil.Process(pid)
    before = None
    while before != (now := process.cpu_times()):
        before = now
        await anyio.sleep(POLL_SECONDS)

    resident = process.memory_info().rss
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # It has ended since.
            resident += child.memory_info().rss

    return resident / MEGABYTE
