"""Start-up: of a server, to its `server.ready`, and of commands, from exec to their end.

A server starts with and without a long journal. The commands are `--version`, a preview of a
rollback on a running server, and looks at the end of a long journal; beside each is what it cannot
be faster than.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio

from bench.executions import Prepared, with_a_past, without_a_past
from bench.figures import AtMost, Figure
from bench.long_past import lengthened
from bench.rounds import medians
from bench.scale import Scale
from support.running_server import command, environment

BENCH = "startup"
VERSION_TARGET = AtMost(0.2)
PREVIEW_TARGET = AtMost(0.5)
LOOK_TARGET = AtMost(0.5)

LOOKS = (("log",), ("events", "--limit", "20"))


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    empty = await without_a_past(folder / "empty")
    long = await with_a_past(folder / "long", scale.messages)
    name = f"start with {long.events:,} events"
    found = await medians(
        {"empty": lambda: _start(empty), "long": lambda: _start(long)}, scale.rounds
    )
    target = AtMost(1.5 * found["empty"] + 0.5)
    start = Figure(BENCH, name, found["long"], "s", "empty execution", found["empty"], target)
    return [start, *await _commands(folder, scale)]


async def _start(prepared: Prepared) -> float:
    began = perf_counter()
    async with prepared.serve() as server:
        seconds = perf_counter() - began
        await server.stop()

    return seconds


async def _commands(folder: Path, scale: Scale) -> list[Figure]:
    short = await with_a_past(folder / "short", messages=1)
    long = await with_a_past(folder / "longest", messages=1)
    lengthened(long, scale.long_events)
    interpreter = partial(_run, [sys.executable, "-c", "pass"])
    version = partial(_run, command("--version"))
    preview = partial(_run, command("rollback", "--preview", "-e", str(short.root)))
    async with short.serve() as server:
        found = await medians(
            {"interpreter": interpreter, "version": version, "preview": preview}, scale.rounds
        )
        await server.stop()

    rows = [
        ("--version", found["version"], "an interpreter", found["interpreter"], VERSION_TARGET),
        ("rollback --preview", found["preview"], "--version", found["version"], PREVIEW_TARGET),
    ]
    for words in LOOKS:
        looks = {
            name: partial(_run, command(*words, "-e", str(where.root)))
            for name, where in (("short", short), ("long", long))
        }
        found = await medians(looks, scale.rounds)
        what = f"{' '.join(words)}, {long.events:,} events"
        rows.append((what, found["long"], "few events", found["short"], LOOK_TARGET))

    return [Figure(BENCH, name, value, "s", *rest) for name, value, *rest in rows]


async def _run(words: list[str]) -> float:
    began = perf_counter()
    await anyio.run_process(words, env=environment())
    return perf_counter() - began
