"""Latency of checkpoints and rollbacks for a client: from the command to its reply.

A real server and a real client over a socket, durable, beside the git program on a copy of the same
tree. git runs with its speed settings (`feature.manyFiles`, the untracked cache) and its own
durability. All take turns in one run. Each row includes the number of disk flushes in all of the
server's threads, counted by a library that is loaded before libc.

On the busy disk another process appends and flushes 20 MB/s beside the measurement.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import ClassVar

import anyio

from bench.figures import AtMost, Figure
from bench.git_stores import GitStore
from bench.scale import Scale
from bench.stores import Store
from bench.trees import copy_tree, make_tree
from hankweave_client.client import Client
from hankweave_protocol.commands import CodonNext
from hankweave_protocol.ids import Sha
from hankweave_server.paths import Layout
from support.flushes import FlushCounter
from support.running_server import running_server
from support.scripted_hank import codon, write_hank
from support.watching import idle

BENCH = "socket"
CHANGES: Mapping[str, int | None] = {"no change": 0, "one file": 1, "100 files": 100, "all": None}
ROLLBACKS: Mapping[str, int | None] = {
    "rollback of 1": 1,
    "rollback of 100": 100,
    "rollback of all": None,
}
TARGETS: Mapping[str, Mapping[int, float]] = {
    "first": {1_000: 0.4, 10_000: 0.25, 100_000: 0.3},
    "no change": {1_000: 0.15, 10_000: 0.05, 100_000: 0.01},
    "one file": {1_000: 0.2, 10_000: 0.06, 100_000: 0.02},
    "100 files": {1_000: 0.5, 10_000: 0.25, 100_000: 0.12},
    "rollback of 1": {1_000: 0.5, 10_000: 0.25, 100_000: 0.08},
    "rollback of 100": {1_000: 0.7, 10_000: 0.6, 100_000: 0.3},
    "rollback of all": {1_000: 0.7, 10_000: 0.5, 100_000: 0.45},
}
"""Targets as ratios to git, by row and by the number of files."""

BUSY_BYTES = 20 << 20
"""Bytes per second that the other process writes and flushes."""

REST = 0.4
"""Seconds between two measurements: state.json and other late writes are done by then."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    figures: list[Figure] = []
    for size in scale.trees:
        for is_busy in (False, True):
            figures += await _figures_of(folder / "work", size, scale, is_busy=is_busy)
            shutil.rmtree(folder / "work")

    return figures


async def _figures_of(folder: Path, size: int, scale: Scale, *, is_busy: bool) -> list[Figure]:
    original = make_tree(folder / "original", size)
    git = TunedGit(copy_tree(original, folder / "git"))
    git.renew()
    ours = copy_tree(original, folder / "ours")
    with _busy_disk(folder / "noise") if is_busy else _nothing():
        async with _served(ours, folder) as server:
            trial = _Trial(server, git, size, scale, is_busy=is_busy)
            return await trial.figures()


class TunedGit(GitStore):
    """git with the settings that make it fast, and `reset --hard` for rollbacks."""

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "feature.manyFiles": "true",
        "core.untrackedCache": "true",
    }

    def rollback(self, sha: str) -> None:
        self._git("reset", "-q", "--hard", sha)


class _Server(Store):
    """The work tree of a running server, and a client."""

    def __init__(self, root: Path, client: Client, counter: FlushCounter | None) -> None:
        super().__init__(root)
        self.client = client
        self._counter = counter

    def renew(self) -> None:
        raise AssertionError("a server keeps its history")

    def checkpoint(self) -> str:
        raise AssertionError("a server is asked through its client")

    def flushes(self) -> int:
        return 0 if self._counter is None else self._counter.count()


@asynccontextmanager
async def _served(root: Path, folder: Path) -> AsyncIterator[_Server]:
    """Start a server for a prepared work tree; after its one codon it tracks every file."""
    hank = write_hank(folder / "hank", codon("track"))
    layout = Layout.of_execution(root)
    kept = folder / "kept"
    layout.work_tree.rename(kept)
    counter = FlushCounter.in_folder(folder)
    env = {} if counter is None else counter.environment
    async with (
        running_server(hank, None, layout.root, "--no-autostart", env=env) as running,
        running.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client)
        for path in kept.iterdir():
            path.rename(layout.work_tree / path.name)

        yield _Server(root, client, counter)
        await running.stop()


@dataclass
class _Samples:
    """Milliseconds of each round, and the server's flushes."""

    ours: list[float]
    git: list[float]
    flushes: list[int]


class _Trial:
    """All rows of one tree."""

    def __init__(
        self, server: _Server, git: TunedGit, size: int, scale: Scale, *, is_busy: bool
    ) -> None:
        self._server = server
        self._git = git
        self._size = size
        self._scale = scale
        self._is_busy = is_busy

    async def figures(self) -> list[Figure]:
        figures = [await self._first()]
        for name, count in CHANGES.items():
            figures.append(await self._row(name, count, self._checkpoint, _git_checkpoint))

        for name, count in ROLLBACKS.items():
            figures.append(await self._row(name, count, self._rollback, _git_rollback))

        return figures

    async def _first(self) -> Figure:
        ours, flushes = await self._timed(self._server.client.create_checkpoint)
        git = _time(self._git.checkpoint)
        return self._figure("first", _Samples([ours], [git], [flushes]))

    async def _row(
        self,
        name: str,
        count: int | None,
        ours: Callable[[int | None], Awaitable[tuple[float, int]]],
        git: Callable[[TunedGit, int | None], float],
    ) -> Figure:
        rounds = self._scale.rounds * 2
        if count is None:
            rounds = self._scale.heavy_rounds(self._size)

        samples = _Samples([], [], [])
        for number in range(rounds):
            for who in ("ours", "git") if number % 2 else ("git", "ours"):
                await anyio.sleep(REST)
                if who == "git":
                    samples.git.append(git(self._git, count))
                else:
                    taken, flushes = await ours(count)
                    samples.ours.append(taken)
                    samples.flushes.append(flushes)

        return self._figure(name, samples)

    async def _checkpoint(self, count: int | None) -> tuple[float, int]:
        self._server.edit(count)
        return await self._timed(self._server.client.create_checkpoint)

    async def _rollback(self, count: int | None) -> tuple[float, int]:
        client = self._server.client
        before = await client.create_checkpoint()
        self._server.edit(count)
        await client.create_checkpoint()
        await anyio.sleep(REST)
        sha = Sha(before.sha)
        return await self._timed(lambda: client.roll_back_to_checkpoint(sha, auto_restart=False))

    async def _timed(self, command: Callable[[], Awaitable[object]]) -> tuple[float, int]:
        flushes, began = self._server.flushes(), perf_counter()
        await command()
        return (perf_counter() - began) * 1000, self._server.flushes() - flushes

    def _figure(self, name: str, samples: _Samples) -> Figure:
        place = "busy disk" if self._is_busy else "idle disk"
        ours, git = median(samples.ours), median(samples.git)
        ratio = TARGETS.get(name, {}).get(self._size)
        limit = None if ratio is None or self._is_busy else AtMost(ratio * git)
        worst = sorted(samples.ours)[int(len(samples.ours) * 0.95)]
        label = f"{name}, {self._size:,} files, {place}"
        print(
            f"{BENCH}: {label}: ours {ours:.3g} (p95 {worst:.3g}), git {git:.3g} ms, "
            f"ratio {ours / git:.2g}, flushes {median(samples.flushes):g}",
            file=sys.stderr,
            flush=True,
        )
        return Figure(BENCH, label, ours, "ms", "git", git, limit)


def _git_checkpoint(git: TunedGit, count: int | None) -> float:
    git.edit(count)
    return _time(git.checkpoint)


def _git_rollback(git: TunedGit, count: int | None) -> float:
    before = git.checkpoint()
    git.edit(count)
    git.checkpoint()
    return _time(lambda: git.rollback(before))


def _time(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return (perf_counter() - began) * 1000


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _busy_disk(path: Path) -> Iterator[None]:
    """Let another process append and flush while the block runs."""
    with subprocess.Popen([sys.executable, __file__, str(path)]) as noise:
        try:
            yield
        finally:
            noise.terminate()


def make_noise(path: Path) -> None:
    """Append to a file and flush it, a megabyte at a time, until killed."""
    block = os.urandom(1 << 20)
    with path.open("wb", buffering=0) as stream:
        while True:
            began = perf_counter()
            stream.write(block)
            os.fsync(stream.fileno())
            if stream.tell() > 200 * len(block):
                stream.seek(0)

            rest = len(block) / BUSY_BYTES - (perf_counter() - began)
            if rest > 0:
                time.sleep(rest)


if __name__ == "__main__":
    make_noise(Path(sys.argv[1]))
