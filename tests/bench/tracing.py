"""The same agent's output with and without traces and metrics, which a real collector receives.

Every third line is a tool call, at thousands of lines a second: a flood of spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from bench.agent_lines import NOTHING, POLL_SECONDS, prints, serving, write_lines
from bench.figures import AtLeast, Figure
from bench.scale import Scale
from hankweave_protocol.commands import CodonNext
from support.scripted_hank import codon, write_hank

BENCH = "tracing"
TARGET = AtLeast(0.98)
SHARE = 5
"""Fewer lines in a round than in the bench of an agent."""
DEADLINE = 120.0
OFTEN = {"OTEL_BSP_SCHEDULE_DELAY": "1000", "OTEL_METRIC_EXPORT_INTERVAL": "2000"}
"""Milliseconds: a round is shorter than the default intervals, of 5 s and 60 s."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    from support.collector import collecting  # It needs the extra otel; the other benches do not.

    lines = folder / "lines.jsonl"
    count = write_lines(lines, max(scale.agent_lines // SHARE, 30))
    hank = write_hank(folder / "hank", codon("talk") | prints(lines))
    without, traced = [], []
    with collecting() as collector:
        for number in range(scale.rounds):
            without.append(await _round(hank, folder / f"without-{number}", NOTHING))
            env = {**collector.environment, **OFTEN}
            traced.append(await _round(hank, folder / f"with-{number}", env))

    pairs = (
        (f"{count:,} lines", "lines/s", 0),
        ("lines in a second of its processor", "lines/s", 1),
    )
    return [
        Figure(
            BENCH,
            f"{name}, traced",
            count / median(each[index] for each in traced),
            unit,
            reference_name="without",
            reference=count / median(each[index] for each in without),
            target=TARGET,
        )
        for name, unit, index in pairs
    ]


async def _round(hank: Path, execution: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds until the plan has ended, and the processor's seconds in them."""
    async with serving(hank, execution, env) as server, server.client() as client:
        began, busy = perf_counter(), server.processor_seconds()
        await client.send(CodonNext())
        with anyio.fail_after(DEADLINE):
            while not server.is_idle():  # noqa: ASYNC110
                await anyio.sleep(POLL_SECONDS)

        return perf_counter() - began, server.processor_seconds() - busy
