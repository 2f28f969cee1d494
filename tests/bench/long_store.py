"""Thousands of checkpoints of one file: what one costs at the end, and what all take on the disk.

A client asks a real server for a checkpoint after each change, without a pause, as agents do. The
last ones must cost what the first ones of another server do, in turn, and the store must stay small
meanwhile, not only after a `gc`.

Also runs alone: `PYTHONPATH=tests python -m bench.long_store [CHECKPOINTS]`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
import psutil

from bench.figures import AtMost, Figure, print_table
from bench.scale import Scale
from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, CodonNext, StoreGc
from hankweave_server.git.store_files import StoreFiles
from hankweave_server.paths import Layout
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

BENCH = "store"
CHECKPOINTS = 10_000
COMPARED = 100
"""Checkpoints at the end, and at the beginning of another store, whose median is taken."""

LINES = 2_000
"""Lines of the file, of fifty bytes each."""

CHANGED = 3
SLOWER = 1.3
MOST_PACKS = 64
LARGER = 3


class _Growing:
    """A server whose agent would change three lines of a file again and again."""

    def __init__(self, layout: Layout, server: RunningServer, client: Client) -> None:
        self.client = client
        self._chance = random.Random(1)  # Reproducible, not secret.
        self._lines = [self._line() for _ in range(LINES)]
        self._file = layout.work_tree / "file.txt"
        self._packs = layout.shadow_repository / "objects" / "pack"
        self._process = psutil.Process(server.pid)
        self.most_packs = 0

    async def checkpoint(self) -> float:
        """Return the milliseconds that a checkpoint of three changed lines takes."""
        for _ in range(CHANGED):
            self._lines[self._chance.randrange(LINES)] = self._line()

        self._file.write_text("".join(self._lines))
        start = perf_counter()
        await self.client.send(CheckpointCreate())
        return (perf_counter() - start) * 1000

    def count_packs(self) -> None:
        self.most_packs = max(self.most_packs, sum(1 for _ in self._packs.glob("*.idx")))

    def cpu(self) -> float:
        """Return the milliseconds of processor time that the server has taken."""
        return sum(self._process.cpu_times()[:2]) * 1000

    def _line(self) -> str:
        return f"{self._chance.getrandbits(192):048x}\n"


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    """Measure the store of a long execution."""
    return await measured(folder, scale.store_checkpoints)


async def measured(folder: Path, checkpoints: int = CHECKPOINTS) -> list[Figure]:
    """Take so many checkpoints, and compare the last ones with the first ones of another store."""
    async with _served(folder / "long") as long:
        for number in range(checkpoints - COMPARED):
            await long.checkpoint()
            if number % 10 == 0:
                long.count_packs()

        async with _served(folder / "short") as short:
            figures = await _compared(long, short, f"of {checkpoints:,} checkpoints")

        files = StoreFiles(Layout.of_execution(folder / "long" / "execution").shadow_repository)
        before = files.size().bytes_on_disk / 1e6
        await long.client.send(StoreGc())
        after = files.size().bytes_on_disk / 1e6

    what = f"of {checkpoints:,} checkpoints"
    return [
        *figures,
        Figure(BENCH, f"packs at most {what}", long.most_packs, "", target=AtMost(MOST_PACKS)),
        Figure(BENCH, f"store {what}", before, "MB", "after gc", after, AtMost(LARGER * after)),
    ]


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[_Growing]:
    layout = Layout.of_execution(folder / "execution")
    hank = write_hank(folder / "hank", codon("track"))
    async with (
        running_server(hank, None, layout.root, "--no-autostart") as server,
        server.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client, "all-codons-completed")
        yield _Growing(layout, server, client)
        await server.stop()


async def _compared(long: _Growing, short: _Growing, what: str) -> list[Figure]:
    """Take checkpoints of both in turn, so that other work on the machine slows both down."""
    began, other = long.cpu(), short.cpu()
    last, first = [], []
    for _ in range(COMPARED):
        last.append(await long.checkpoint())
        first.append(await short.checkpoint())
        long.count_packs()

    start, cpu = median(first), (short.cpu() - other) / COMPARED
    details = {"p95": _p95(last), "reference p95": _p95(first)}
    times = f"the last {COMPARED} {what}", f"the first {COMPARED}"
    return [
        Figure(
            BENCH, times[0], median(last), "ms", times[1], start, AtMost(SLOWER * start), details
        ),
        Figure(
            BENCH,
            f"{times[0]}, processor",
            (long.cpu() - began) / COMPARED,
            "ms",
            times[1],
            cpu,
            AtMost(SLOWER * cpu),
        ),
    ]


def _p95(taken: list[float]) -> float:
    return sorted(taken)[int(0.95 * len(taken))]


async def _alone(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = await measured(Path(folder), count)

    print_table(figures)
    for figure in figures:
        print(figure.name, figure.details, file=sys.stderr)


if __name__ == "__main__":
    anyio.run(_alone, int(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINTS)
