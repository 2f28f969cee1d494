"""Latency of checkpoints and rollbacks for a client: from the command to its reply.

A real server and a real client over a socket, durable, beside what others do (see `peers`), each on
a copy of the same tree. All take turns in one run. Two servers take part: one watches the work tree
(`--watch auto`), the other compares all files. Their rows include the flushes of the disk and the
looks at files (`lstat`) in all threads, counted by a library that is loaded before libc.

With `--busy` everything is measured once more while another process appends and flushes 20 MB/s.

The row "agent goes on" is the time from an agent's call of a tool to its result, for a call that
writes a small file: the checkpoint before it included, and after it the next call is waiting. Its
peers take a checkpoint of one changed file, as they do at that point.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
import msgspec
import psutil

from bench.figures import AtMost, Figure
from bench.peers import GIT, HermesStore, peers
from bench.scale import Scale
from bench.stores import Store
from bench.trees import copy_tree, make_tree
from hankweave_client.client import Client
from hankweave_protocol.commands import CodonNext
from hankweave_protocol.ids import Sha
from hankweave_protocol.instants import from_text
from hankweave_server.paths import Layout
from support.flushes import FlushCounter
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle

BENCH = "socket"
OURS, UNWATCHED = "ours", "ours, watch off"
FIRST, AGENT, LAST_SUCCESS, UNDO = "first", "agent goes on", "toLastSuccess", "undo"
CHANGES: Mapping[str, int | None] = {"no change": 0, "one file": 1, "100 files": 100, "all": None}
ROLLBACKS: Mapping[str, int | None] = {
    "rollback of 1": 1,
    "rollback of 100": 100,
    "rollback of all": None,
}
ROWS = (FIRST, *CHANGES, *ROLLBACKS, UNDO, LAST_SUCCESS, AGENT)
TARGETS: Mapping[str, Mapping[int, float]] = {
    FIRST: {1_000: 0.4, 10_000: 0.25, 100_000: 0.3},
    "no change": {1_000: 0.15, 10_000: 0.05, 100_000: 0.01},
    "one file": {1_000: 0.2, 10_000: 0.06, 100_000: 0.02},
    "100 files": {1_000: 0.5, 10_000: 0.25, 100_000: 0.12},
    "rollback of 1": {1_000: 0.5, 10_000: 0.25, 100_000: 0.08},
    "rollback of 100": {1_000: 0.7, 10_000: 0.6, 100_000: 0.3},
    "rollback of all": {1_000: 0.7, 10_000: 0.5, 100_000: 0.45},
}
"""Targets as ratios to git, by row and by the number of files."""

BUSY_LIMIT = 1.3
"""On the busy disk a ratio may be this multiple of its value on the idle one."""

BUSY_BYTES = 20 << 20
"""Bytes per second that the other process writes and flushes."""

IDLE, BUSY = "idle disk", "busy disk"

REST = 0.3
"""Seconds between two measurements, at least: state.json and other late writes are done by then."""

QUIET = 0.05
"""A server rests if it takes less of a processor than this; what follows a reply is then done."""

REST_LIMIT = 10.0
STEPS = 20
"""Calls of the agent whose waiting is measured."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    figures: list[Figure] = []
    for size in scale.trees:
        ratios: dict[str, float] = {}
        for place in (IDLE, BUSY) if scale.is_busy else (IDLE,):
            with _busy_disk(folder / "noise") if place == BUSY else _nothing():
                trial = _Trial(folder / "work", size, scale, place, ratios)
                figures += await trial.figures()

            shutil.rmtree(folder / "work")

    return figures


# --- who takes part -------------------------------------------------------------------------------


class Contender(ABC):
    """One program with its copy of the tree."""

    store: Store

    @abstractmethod
    async def checkpoint(self) -> None: ...

    @abstractmethod
    def newest(self) -> str:
        """Return the name of the newest checkpoint."""

    def found(self, name: str) -> str:
        """Return what `rollback` and `undo` need to be told of a checkpoint."""
        return name

    @abstractmethod
    async def rollback(self, sha: str) -> None: ...

    @abstractmethod
    async def undo(self, later: str) -> None:
        """Take the last rollback back; `later` is the checkpoint before it."""

    async def mark_success(self) -> None:  # noqa: B027 - a server knows its last success
        """Let the present files be the last success; no-op if a codon has succeeded."""

    @abstractmethod
    async def to_last_success(self) -> None: ...

    async def agent_waits(self) -> list[float]:
        """Return the milliseconds that each call of an agent waits; empty if none can be run."""
        return []

    async def rest(self) -> None:
        await anyio.sleep(REST)

    def counts(self) -> tuple[int, int]:
        """Return flushes of the disk and looks at files so far."""
        return 0, 0


class _Peer(Contender):
    def __init__(self, store: Store) -> None:
        self.store = store
        self._newest = self._success = ""

    async def checkpoint(self) -> None:
        self._newest = self.store.checkpoint()

    def newest(self) -> str:
        return self._newest

    def found(self, name: str) -> str:
        return self.store.find(name) if isinstance(self.store, HermesStore) else name

    async def rollback(self, sha: str) -> None:
        self.store.rollback(sha)

    async def undo(self, later: str) -> None:
        self.store.rollback(later)

    async def mark_success(self) -> None:
        self.store.edit(1)
        await self.checkpoint()
        self._success = self._newest

    async def to_last_success(self) -> None:
        self.store.rollback(self.found(self._success))


class _Tree(Store):
    """The work tree of a running server."""

    def renew(self) -> None:
        raise AssertionError("a server keeps its history")

    def checkpoint(self) -> str:
        raise AssertionError("a server is asked through its client")


class _Served(Contender):
    """A running server and a client of it."""

    def __init__(
        self, root: Path, server: RunningServer, client: Client, counter: FlushCounter | None
    ) -> None:
        self.store = _Tree(root)
        self._server = server
        self._client = client
        self._counter = counter
        self._newest = ""

    async def checkpoint(self) -> None:
        self._newest = (await self._client.create_checkpoint()).sha

    def newest(self) -> str:
        return self._newest

    async def rollback(self, sha: str) -> None:
        await self._client.roll_back_to_checkpoint(Sha(sha), auto_restart=False)

    async def undo(self, later: str) -> None:
        await self._client.undo()

    async def to_last_success(self) -> None:
        await self._client.roll_back_to_last_success(auto_restart=False)

    async def agent_waits(self) -> list[float]:
        await self._client.send(CodonNext())
        await idle(self._client)
        journal = Layout.of_execution(self._server.execution).journal
        lines = map(msgspec.json.decode, journal.read_bytes().splitlines())
        events = [event for event in lines if event.get("codonId") == "work"]
        called = [_moment(each) for each in events if _is_call(each)]
        returned = [_moment(each) for each in events if each["type"] == "tool.result"]
        return [after - before for before, after in zip(called, returned, strict=True)]

    async def rest(self) -> None:
        """Wait until what follows a reply in the background is done."""
        process, deadline = psutil.Process(self._server.pid), anyio.current_time() + REST_LIMIT
        busy = 1.0
        while busy > QUIET and anyio.current_time() < deadline:
            before = sum(process.cpu_times()[:2])
            await anyio.sleep(REST)
            busy = (sum(process.cpu_times()[:2]) - before) / REST

    def counts(self) -> tuple[int, int]:
        return (0, 0) if self._counter is None else (self._counter.count(), self._counter.looks())


def _is_call(event: Mapping[str, Any]) -> bool:
    return (event["type"], event["data"].get("action")) == ("assistant.action", "tool_use")


def _moment(event: Mapping[str, Any]) -> float:
    return from_text(event["timestamp"]).timestamp() * 1000


@asynccontextmanager
async def _served(original: Path, root: Path, watch: str) -> AsyncIterator[_Served]:
    """Start a server for a copy of the tree; after its first codon it tracks every file."""
    copy_tree(original, root)
    layout, aside = Layout.of_execution(root), root.with_name(f"{root.name}-aside")
    aside.mkdir()
    steps = [writes("agent.txt", f"step {number}\n") for number in range(STEPS)]
    hank = write_hank(aside / "hank", codon("track"), codon("work", *steps))
    kept = aside / "kept"
    layout.work_tree.rename(kept)
    counter = FlushCounter.in_folder(aside)
    env = {} if counter is None else counter.environment
    options = ("--no-autostart", "--watch", watch)
    async with (
        running_server(hank, None, layout.root, *options, env=env) as running,
        running.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        for path in kept.iterdir():
            path.rename(layout.work_tree / path.name)

        yield _Served(root, running, client, counter)
        await running.stop()


# --- rows -----------------------------------------------------------------------------------------


@dataclass
class _Samples:
    """Milliseconds of each round, and the flushes and looks of each."""

    taken: list[float] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)

    @property
    def p95(self) -> float:
        return sorted(self.taken)[math.ceil(0.95 * len(self.taken)) - 1]

    def details(self) -> dict[str, float]:
        return {
            "p95": self.p95,
            "rounds": len(self.taken),
            "flushes": median(self.flushes or [0]),
            "lstats": median(self.looks or [0]),
        }


Prepared = Callable[[Contender], Awaitable[Callable[[], Awaitable[None]]]]
"""Prepares a contender for one measurement, and returns what is measured."""


def _checkpoint(count: int | None) -> Prepared:
    async def prepare(who: Contender) -> Callable[[], Awaitable[None]]:
        who.store.edit(count)
        return who.checkpoint

    return prepare


def _rollback(count: int | None) -> Prepared:
    async def prepare(who: Contender) -> Callable[[], Awaitable[None]]:
        before, _ = await _two_states(who, count)
        await who.rest()
        target = who.found(before)
        return lambda: who.rollback(target)

    return prepare


async def _undo(who: Contender) -> Callable[[], Awaitable[None]]:
    before, after = await _two_states(who, 1)
    await who.rollback(who.found(before))
    await who.rest()
    later = who.found(after)
    return lambda: who.undo(later)


async def _two_states(who: Contender, count: int | None) -> tuple[str, str]:
    """Take a checkpoint, and another after so many changes."""
    who.store.edit(1)
    await who.checkpoint()
    before = who.newest()
    who.store.edit(count)
    await who.checkpoint()
    return before, who.newest()


async def _to_last_success(who: Contender) -> Callable[[], Awaitable[None]]:
    await who.mark_success()
    who.store.edit(1)
    await who.checkpoint()
    await who.rest()
    return who.to_last_success


class _Trial:
    """All rows of one tree on one disk."""

    def __init__(
        self, folder: Path, size: int, scale: Scale, place: str, ratios: dict[str, float]
    ) -> None:
        self._folder = folder
        self._size = size
        self._scale = scale
        self._place = place
        self._ratios = ratios
        """Ratios to git by row, found on the idle disk."""
        self._all: dict[str, Contender] = {}

    async def figures(self) -> list[Figure]:
        original = make_tree(self._folder / "original", self._size)
        documented_up_to = self._scale.documented_up_to
        async with AsyncExitStack() as stack:
            for name, watch in ((OURS, "auto"), (UNWATCHED, "off")):
                served = _served(original, self._folder / f"ours-{watch}", watch)
                self._all[name] = await stack.enter_async_context(served)

            opened = peers(original, self._folder / "peers", self._size, documented_up_to)
            self._all |= {name: _Peer(p) for name, p in stack.enter_context(opened).items()}
            return [figure async for figure in self._rows()]

    async def _rows(self) -> AsyncIterator[Figure]:
        for figure in await self._row(FIRST, _checkpoint(0), 1):
            yield figure

        for name, count in CHANGES.items():
            for figure in await self._row(name, _checkpoint(count), self._rounds(count)):
                yield figure

        for name, count in ROLLBACKS.items():
            for figure in await self._row(name, _rollback(count), self._rounds(count)):
                yield figure

        for figure in await self._row(UNDO, _undo, self._rounds(1)):
            yield figure

        agents = await self._agents()  # Its codon is the last success.
        for figure in await self._row(LAST_SUCCESS, _to_last_success, self._rounds(1)):
            yield figure

        for figure in agents:
            yield figure

    def _rounds(self, count: int | None) -> int:
        return self._scale.heavy_rounds(self._size) if count is None else 2 * self._scale.rounds

    async def _row(self, name: str, prepare: Prepared, rounds: int) -> list[Figure]:
        samples = {who: _Samples() for who in self._all}
        names = list(self._all)
        for number in range(rounds):
            first = number % len(names)
            for who in names[first:] + names[:first]:
                await self._sample(self._all[who], prepare, samples[who])

        return self._told(name, samples)

    async def _sample(self, who: Contender, prepare: Prepared, samples: _Samples) -> None:
        act = await prepare(who)
        (flushes, looks), began = who.counts(), perf_counter()
        await act()
        samples.taken.append((perf_counter() - began) * 1000)
        after = who.counts()
        samples.flushes.append(after[0] - flushes)
        samples.looks.append(after[1] - looks)
        await who.rest()

    async def _agents(self) -> list[Figure]:
        """Measure how long calls of agents wait; peers take checkpoints of one file."""
        samples: dict[str, _Samples] = {}
        for name, who in self._all.items():
            samples[name] = _Samples(await who.agent_waits())
            if not samples[name].taken:
                for _ in range(self._rounds(1)):
                    await self._sample(who, _checkpoint(1), samples[name])

        return self._told(AGENT, samples)

    def _told(self, row: str, samples: Mapping[str, _Samples]) -> list[Figure]:
        """Return a figure of ours beside each other contender."""
        ours, git = samples[OURS], samples[GIT]
        value, best = median(ours.taken), median(git.taken)
        name = f"{row}, {self._size:,} files, {self._place}"
        found: list[Figure] = []
        for who, each in samples.items():
            if who == OURS:
                continue

            details = ours.details() | {f"reference {k}": v for k, v in each.details().items()}
            limit = self._limit(row, value / best, best) if who == GIT else None
            beside = median(each.taken)
            found.append(Figure(BENCH, name, value, "ms", who, beside, limit, details))
            print(
                f"{BENCH}: {name}: ours {value:.3g} (p95 {ours.p95:.3g}), "
                f"{who} {beside:.3g} (p95 {each.p95:.3g}) ms, ratio {value / beside:.2g}",
                file=sys.stderr,
                flush=True,
            )

        return found

    def _limit(self, row: str, ratio: float, git: float) -> AtMost | None:
        if self._place == BUSY:
            return AtMost(BUSY_LIMIT * self._ratios[row] * git)

        self._ratios[row] = ratio
        target = TARGETS.get(row, {}).get(self._size)
        return None if target is None else AtMost(target * git)


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
