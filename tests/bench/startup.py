"""Start-up: from exec of `hankweave run` to its `server.ready`, with and without a long journal."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from bench.executions import Prepared, with_a_past, without_a_past
from bench.figures import AtMost, Figure
from bench.rounds import medians
from bench.scale import Scale


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    empty = await without_a_past(folder / "empty")
    long = await with_a_past(folder / "long", scale.messages)
    name = f"start with {long.events:,} events"
    found = await medians(
        {"empty": lambda: _start(empty), "long": lambda: _start(long)}, scale.rounds
    )
    target = AtMost(1.5 * found["empty"] + 0.5)
    return [Figure("startup", name, found["long"], "s", "empty execution", found["empty"], target)]


async def _start(prepared: Prepared) -> float:
    began = perf_counter()
    async with prepared.serve() as server:
        seconds = perf_counter() - began
        await server.stop()

    return seconds
