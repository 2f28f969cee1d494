"""Latency of checkpoints and rollbacks for a client: from the command to its reply.

A real server and a real client over a socket, durable, beside what others do (see `peers`), each on
a copy of the same tree. All take turns in one run. Two servers take part: one watches the work tree
(`--watch auto`), the other compares all files. Their rows include the flushes of the disk and the
looks at files (`lstat`) in all threads, counted by a library that is loaded before libc.

Every row has two paces. Settled: two seconds pass between acts, so that what a server does after a
reply is done. Busy: a contender's acts follow each other, as agents' do. Beside each stands how
long a flush of the disk took then.

By default only git takes part, with small trees; `--peers all`, `--sizes`, `--rounds` and `--runs`
measure more. With `--busy` everything is measured once more while another process appends and
flushes 20 MB/s.

The row "agent goes on" is the time from an agent's call of a tool that writes a small file to its
next call: the checkpoint before it, its work, and everything that is recorded of it. Its peers take
a checkpoint of one changed file, as they do at that point.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from bench import contenders
from bench.contenders import Contender, Peer, served
from bench.disk import flush_time, kept_busy
from bench.figures import AtMost, Figure
from bench.peers import GIT, peers
from bench.scale import Scale
from bench.trees import make_tree

BENCH = "socket"
OURS, UNWATCHED = "ours", "ours, watch off"
FIRST, AGENT, LAST_SUCCESS, UNDO = "first", "agent goes on", "toLastSuccess", "undo"
AFTER = "no change after a rollback"
CHANGES: Mapping[str, int | None] = {"no change": 0, "one file": 1, "100 files": 100, "all": None}
ROLLBACKS: Mapping[str, int | None] = {
    "rollback of 1": 1,
    "rollback of 100": 100,
    "rollback of all": None,
}
ROWS = (FIRST, *CHANGES, AFTER, *ROLLBACKS, UNDO, LAST_SUCCESS, AGENT)
TARGETS: Mapping[str, Mapping[int, float]] = {
    FIRST: {1_000: 0.4, 10_000: 0.25, 100_000: 0.3},
    "no change": {1_000: 0.15, 10_000: 0.05, 100_000: 0.01},
    AFTER: {1_000: 0.5, 10_000: 0.2, 100_000: 0.05},
    "one file": {1_000: 0.2, 10_000: 0.06, 100_000: 0.02},
    "100 files": {1_000: 0.5, 10_000: 0.25, 100_000: 0.12},
    "rollback of 1": {1_000: 0.5, 10_000: 0.25, 100_000: 0.08},
    "rollback of 100": {1_000: 0.7, 10_000: 0.6, 100_000: 0.3},
    "rollback of all": {1_000: 0.7, 10_000: 0.5, 100_000: 0.45},
}
"""Targets as ratios to git, by row and by the number of files."""

BUSY_TARGETS: Mapping[str, Mapping[int, float]] = {
    "no change": {1_000: 0.5, 10_000: 0.2, 100_000: 0.05},
    AFTER: {1_000: 0.5, 10_000: 0.2, 100_000: 0.05},
    "one file": {1_000: 0.5, 10_000: 0.2, 100_000: 0.05},
    "100 files": {1_000: 1.0, 10_000: 0.6, 100_000: 0.2},
    "rollback of 1": {1_000: 1.0, 10_000: 0.6, 100_000: 0.1},
    "rollback of 100": {1_000: 1.0, 10_000: 0.8, 100_000: 0.3},
    "rollback of all": {1_000: 1.5, 10_000: 1.0, 100_000: 1.0},
}
"""The same for acts that follow each other."""

BUSY_DISK_LIMIT = 1.3
"""On the busy disk a ratio may be this multiple of its value on the idle one."""

IDLE_DISK, BUSY_DISK = "idle disk", "busy disk"

IN_A_ROW = 5
"""Acts of one contender that follow each other before the next one's turn."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon one act follows another."""

    name: str
    in_a_row: int
    """Acts of one contender in its turn."""
    targets: Mapping[str, Mapping[int, float]]

    async def pause(self) -> None:
        """Wait between two acts of one turn, or of one measurement."""
        if self.in_a_row == 1:
            await anyio.sleep(contenders.SETTLE)


SETTLED = Pace("settled", 1, TARGETS)
BUSY = Pace("busy", IN_A_ROW, BUSY_TARGETS)
PACES = (SETTLED, BUSY)


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    runs = [await _run(folder, scale) for _ in range(scale.runs)]
    return [_median(list(each)) for each in zip(*runs, strict=True)]


async def _run(folder: Path, scale: Scale) -> list[Figure]:
    figures: list[Figure] = []
    for size in scale.socket_trees:
        ratios: dict[tuple[str, str], float] = {}
        for disk in (IDLE_DISK, BUSY_DISK) if scale.is_busy else (IDLE_DISK,):
            with kept_busy(folder / "noise") if disk == BUSY_DISK else nullcontext():
                trial = _Trial(folder / "work", size, scale, disk, ratios)
                figures += await trial.figures()

            shutil.rmtree(folder / "work")

    return figures


def _median(figures: Sequence[Figure]) -> Figure:
    """Return the medians of the same figure in several runs."""
    first = figures[0]
    references = [each.reference for each in figures if each.reference is not None]
    limits = [each.target.limit for each in figures if isinstance(each.target, AtMost)]
    return replace(
        first,
        value=median(each.value for each in figures),
        reference=median(references),
        target=AtMost(median(limits)) if limits else None,
        details={key: median(each.details[key] for each in figures) for key in first.details},
    )


@dataclass
class _Samples:
    """Milliseconds of each round, and the flushes and looks of each."""

    flush: float
    """Milliseconds that a flush of the disk took before."""
    taken: list[float] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
    stats: list[int] = field(default_factory=list)

    @property
    def p95(self) -> float:
        return sorted(self.taken)[math.ceil(0.95 * len(self.taken)) - 1]

    def details(self) -> dict[str, float]:
        return {
            "p95": self.p95,
            "rounds": len(self.taken),
            "flush": self.flush,
            "flushes": median(self.flushes or [0]),
            "lstats": median(self.stats or [0]),
        }


Pause = Callable[[], Awaitable[None]]
Act = Callable[[], Awaitable[None]]
Prepared = Callable[[Contender, Pause], Awaitable[Act]]
"""Prepares a contender for one measurement, and returns what is measured."""


def _checkpoint(count: int | None) -> Prepared:
    async def prepare(who: Contender, pause: Pause) -> Act:
        who.store.edit(count)
        return who.checkpoint

    return prepare


async def _checkpoint_after_a_rollback(who: Contender, pause: Pause) -> Act:
    before, _ = await _two_states(who, 1)
    await who.rollback(who.found(before))
    await pause()
    return who.checkpoint


def _rollback(count: int | None) -> Prepared:
    async def prepare(who: Contender, pause: Pause) -> Act:
        before, _ = await _two_states(who, count)
        await pause()
        target = who.found(before)
        return lambda: who.rollback(target)

    return prepare


async def _undo(who: Contender, pause: Pause) -> Act:
    before, after = await _two_states(who, 1)
    await who.rollback(who.found(before))
    await pause()
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


async def _to_last_success(who: Contender, pause: Pause) -> Act:
    await who.mark_success()
    who.store.edit(1)
    await who.checkpoint()
    await pause()
    return who.to_last_success


class _Trial:
    """All rows of one tree on one disk."""

    def __init__(
        self,
        folder: Path,
        size: int,
        scale: Scale,
        disk: str,
        ratios: dict[tuple[str, str], float],
    ) -> None:
        self._folder = folder
        self._size = size
        self._scale = scale
        self._disk = disk
        self._ratios = ratios
        """Ratios to git by row and pace, found on the idle disk."""
        self._all: dict[str, Contender] = {}

    async def figures(self) -> list[Figure]:
        original = make_tree(self._folder / "original", self._size)
        async with AsyncExitStack() as stack:
            for name, watch in ((OURS, "auto"), (UNWATCHED, "off")):
                if name == OURS or self._scale.has_all_peers:
                    server = served(original, self._folder / f"ours-{watch}", watch)
                    self._all[name] = await stack.enter_async_context(server)

            documented_up_to = self._scale.documented_up_to
            opened = peers(
                original,
                self._folder / "peers",
                self._size,
                documented_up_to,
                git_alone=not self._scale.has_all_peers,
            )
            self._all |= {name: Peer(p) for name, p in stack.enter_context(opened).items()}
            return [figure async for figure in self._rows()]

    async def _rows(self) -> AsyncIterator[Figure]:
        for figure in await self._row(FIRST, _checkpoint(0), 1, (SETTLED,)):
            yield figure

        rows: list[tuple[str, Prepared, int | None]] = [
            *((name, _checkpoint(count), count) for name, count in CHANGES.items()),
            (AFTER, _checkpoint_after_a_rollback, 1),
            *((name, _rollback(count), count) for name, count in ROLLBACKS.items()),
            (UNDO, _undo, 1),
        ]
        for name, prepare, count in rows:
            for figure in await self._row(name, prepare, self._rounds(count)):
                yield figure

        agents = await self._agents()  # Its codon is the last success.
        for figure in await self._row(LAST_SUCCESS, _to_last_success, self._rounds(1)):
            yield figure

        for figure in agents:
            yield figure

    def _rounds(self, count: int | None) -> int:
        return self._scale.heavy_rounds(self._size) if count is None else self._scale.rounds

    async def _row(
        self, name: str, prepare: Prepared, rounds: int, paces: Sequence[Pace] = PACES
    ) -> list[Figure]:
        return [
            figure for pace in paces for figure in await self._paced(name, prepare, rounds, pace)
        ]

    async def _paced(self, name: str, prepare: Prepared, rounds: int, pace: Pace) -> list[Figure]:
        flush = flush_time(self._folder / "flushed")
        samples = {who: _Samples(flush) for who in self._all}
        names = list(self._all)
        for turn in range(math.ceil(rounds / pace.in_a_row)):
            first = turn % len(names)
            for each in names[first:] + names[:first]:
                await self._turn(self._all[each], prepare, pace, samples[each], rounds)

        return self._figures(name, pace, samples)

    async def _turn(
        self, who: Contender, prepare: Prepared, pace: Pace, samples: _Samples, rounds: int
    ) -> None:
        """Let a contender act, up to so many rounds in all; then it rests, so that others can."""
        if pace.in_a_row > 1:
            await (await prepare(who, pace.pause))()  # What is measured follows another act.

        for _ in range(min(pace.in_a_row, rounds - len(samples.taken))):
            act = await prepare(who, pace.pause)
            (flushes, stats), began = who.counts(), perf_counter()
            await act()
            samples.taken.append((perf_counter() - began) * 1000)
            after = who.counts()
            samples.flushes.append(after[0] - flushes)
            samples.stats.append(after[1] - stats)

        await who.rest()

    async def _agents(self) -> list[Figure]:
        """Measure calls of an agent; peers take checkpoints of one file."""
        flush = flush_time(self._folder / "flushed")
        samples: dict[str, _Samples] = {}
        for name, who in self._all.items():
            samples[name] = _Samples(flush, await who.agent_cycles())
            while len(samples[name].taken) < self._rounds(1):
                await self._turn(who, _checkpoint(1), BUSY, samples[name], self._rounds(1))

        return self._figures(AGENT, BUSY, samples)

    def _figures(self, row: str, pace: Pace, samples: Mapping[str, _Samples]) -> list[Figure]:
        """Return a figure of ours beside each other contender."""
        ours, git = samples[OURS], samples[GIT]
        value, best = median(ours.taken), median(git.taken)
        name = f"{row}, {self._size:,} files, {pace.name}, {self._disk}"
        found: list[Figure] = []
        for who, each in samples.items():
            if who == OURS:
                continue

            details = ours.details() | {f"reference {k}": v for k, v in each.details().items()}
            limit = self._limit(row, pace, value / best, best) if who == GIT else None
            beside = median(each.taken)
            found.append(Figure(BENCH, name, value, "ms", who, beside, limit, details))
            print(
                f"{BENCH}: {name}: ours {value:.3g} (p95 {ours.p95:.3g}), "
                f"{who} {beside:.3g} (p95 {each.p95:.3g}) ms, ratio {value / beside:.2g}; "
                f"a flush {ours.flush:.2g} ms",
                file=sys.stderr,
                flush=True,
            )

        return found

    def _limit(self, row: str, pace: Pace, ratio: float, git: float) -> AtMost | None:
        if self._disk == BUSY_DISK:
            return AtMost(BUSY_DISK_LIMIT * self._ratios[row, pace.name] * git)

        self._ratios[row, pace.name] = ratio
        target = pace.targets.get(row, {}).get(self._size)
        return None if target is None else AtMost(target * git)
