"""Thousands of checkpoints of one file: what one costs at the end, and what all take on the disk.

A client asks a real server for a checkpoint after each change, without a pause, as agents do. The
last ones must cost what the first ones did, and the store must stay small meanwhile, not only after
a `gc`. Also runs alone: `PYTHONPATH=tests python -m bench.long_store [CHECKPOINTS]`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import psutil

from bench.figures import AtMost, Figure, print_table
from hankweave_client.client import Client
from hankweave_protocol.commands import CodonNext, StoreGc
from hankweave_server.git.store_files import StoreFiles
from hankweave_server.paths import Layout
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

BENCH = "store"
CHECKPOINTS = 10_000
COMPARED = 100
"""Checkpoints at the beginning and at the end whose median is taken."""

LINES = 2_000
"""Lines of the file, of fifty bytes each."""

CHANGED = 3
SLOWER = 1.3
MOST_PACKS = 64
LARGER = 3


@dataclass(slots=True)
class _Grown:
    """What was seen while the store grew."""

    milliseconds: list[float]
    most_packs: int
    cpu: float
    """Seconds of processor time that the server took for one checkpoint."""


async def measure(folder: Path, checkpoints: int = CHECKPOINTS) -> list[Figure]:
    """Take so many checkpoints, and compare the store with itself after a `gc`."""
    layout = Layout.of_execution(folder / "execution")
    hank = write_hank(folder / "hank", codon("track"))
    async with (
        running_server(hank, None, layout.root, "--no-autostart") as server,
        server.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client, "all-codons-completed")
        grown = await _grow(layout, server, client, checkpoints)
        files = StoreFiles(layout.shadow_repository)
        before = files.size()
        await client.ask(StoreGc())
        after = files.size()
        await server.stop()

    return _figures(checkpoints, grown, before.bytes_on_disk, after.bytes_on_disk)


async def _grow(layout: Layout, server: RunningServer, client: Client, count: int) -> _Grown:
    chance = random.Random(count)  # Reproducible, not secret.
    lines = [f"{chance.getrandbits(192):048x}\n" for _ in range(LINES)]
    path, packs = layout.work_tree / "file.txt", layout.shadow_repository / "objects" / "pack"
    process, grown = psutil.Process(server.pid), _Grown([], 0, 0.0)
    began = sum(process.cpu_times()[:2])
    for number in range(count):
        for _ in range(CHANGED):
            lines[chance.randrange(LINES)] = f"{chance.getrandbits(192):048x}\n"

        path.write_text("".join(lines))
        start = perf_counter()
        await client.create_checkpoint()
        grown.milliseconds.append((perf_counter() - start) * 1000)
        if number % 10 == 0:
            grown.most_packs = max(grown.most_packs, sum(1 for _ in packs.glob("*.idx")))

    grown.cpu = (sum(process.cpu_times()[:2]) - began) / count
    return grown


def _figures(count: int, grown: _Grown, before: int, after: int) -> list[Figure]:
    first, last = grown.milliseconds[:COMPARED], grown.milliseconds[-COMPARED:]
    start = median(first)
    what = f"of {count:,} checkpoints"
    return [
        Figure(
            BENCH,
            f"the last {COMPARED} {what}",
            median(last),
            "ms",
            f"the first {COMPARED}",
            start,
            AtMost(SLOWER * start),
            {"p95": _p95(last), "reference p95": _p95(first), "cpu": grown.cpu * 1000},
        ),
        Figure(BENCH, f"packs at most {what}", grown.most_packs, "", target=AtMost(MOST_PACKS)),
        Figure(
            BENCH,
            f"store {what}",
            before / 1e6,
            "MB",
            "after gc",
            after / 1e6,
            AtMost(LARGER * after / 1e6),
        ),
    ]


def _p95(taken: list[float]) -> float:
    return sorted(taken)[int(0.95 * len(taken))]


async def _alone(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = await measure(Path(folder), count)

    print_table(figures)
    for figure in figures:
        print(figure.name, figure.details, file=sys.stderr)


if __name__ == "__main__":
    anyio.run(_alone, int(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINTS)
