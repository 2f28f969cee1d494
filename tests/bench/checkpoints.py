"""Checkpoints, rollbacks and diffs, beside git, plain pygit2 and a bare walk (issue 3).

Those of the server are durable, with fsync on; the others run with their own defaults. A rollback
includes its plan, for which the target is read whole, and its safety checkpoint; git's is the
checkout alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter

import anyio

from bench.figures import AtMost, Figure
from bench.footprint import memory_figures
from bench.git_stores import DocumentedStore, GitStore, PlumbingStore
from bench.rounds import Variant, medians
from bench.scale import Scale
from bench.stopwatch import Stopwatch
from bench.stores import LineChanges, OurStore, Pygit2Store, Store
from bench.trees import copy_tree, count_files, make_real_tree, make_tree

BENCH = "trees"

SETTLED = 0.03
"""Seconds after an edit until its time stamp is older than a clock tick, for git and the server."""

FIRST_TARGET = 0.4
CHECKPOINTS = {
    "no change": (0, 0.6),
    "one file changed": (1, 0.6),
    "100 files changed": (100, 0.5),
}
DIFFS = {"diff, one file": 1, "diff, 100 files": 100}
DIFF_TARGET = 0.7
ROLLBACKS = {
    "rollback, one file": (1, 0.9),
    "rollback, 100 files": (100, 0.9),
    "rollback, everything": (None, 0.8),
}

LITTLE_TO_DO = frozenset({"no change", "one file changed"})
MANY = 5_000
"""Files from which on there is a target for these: below, git spends its time on process starts."""

DOCUMENTED_TARGET = 1 / 100

KINDS: Mapping[str, type[Store]] = {
    "ours": OurStore,
    "git": GitStore,
    "plumbing": PlumbingStore,
    "pygit2": Pygit2Store,
}
DOCUMENTED = "documented"
WALK = "bare walk"
GIT = ("git", "plumbing")
WITH_A_WAY_BACK = ("ours", "git", "pygit2")

FEWER = {DOCUMENTED: 2}
ONCE = {DOCUMENTED: 1, "pygit2": 1}
"""Rounds of variants without a target, where one round takes a minute."""


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    figures: list[Figure] = []
    for label, original in _trees(folder, scale):
        trial = _Trial(folder / "stores", original, label, scale)
        figures += await trial.figures()
        trial.close()
        figures += await memory_figures(BENCH, label, original)
        # The largest stores are a gigabyte each.
        shutil.rmtree(folder / "stores")
        shutil.rmtree(original)

    return figures


def _trees(folder: Path, scale: Scale) -> Iterator[tuple[str, Path]]:
    for size in scale.trees:
        yield f"{size:,} files", make_tree(folder / "original", size)

    if scale.has_real_tree:
        original = make_real_tree(folder / "original")
        yield f"{count_files(original):,} real files", original


class _Trial:
    """All rows for one tree; every store has a work tree of its own."""

    def __init__(self, folder: Path, original: Path, label: str, scale: Scale) -> None:
        self._label = label
        self._files = count_files(original)
        self._scale = scale
        self._watch = Stopwatch()
        self._diffs: dict[str, LineChanges] = {}
        kinds = dict(KINDS)
        if self._files <= scale.documented_up_to:
            kinds[DOCUMENTED] = DocumentedStore

        self._stores = {
            name: kind(copy_tree(original, folder / name)) for name, kind in kinds.items()
        }

    async def figures(self) -> list[Figure]:
        figures = await self._first_figures()
        for name in CHECKPOINTS:
            figures += await self._checkpoint_figures(name)

        for name in DIFFS:
            figures += await self._diff_figures(name)

        for name in ROLLBACKS:
            figures += await self._rollback_figures(name)

        return figures

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    # --- rows -----------------------------------------------------------------------------------

    async def _first_figures(self) -> list[Figure]:
        variants = {name: self._first(store) for name, store in self._stores.items()}
        found = await self._measured("first checkpoint", variants, is_heavy=True)
        return self._compared("first checkpoint", found, FIRST_TARGET)

    async def _checkpoint_figures(self, name: str) -> list[Figure]:
        count, target = CHECKPOINTS[name]
        variants = {n: self._checkpoint(store, count) for n, store in self._stores.items()}
        found = await self._measured(name, variants | {WALK: self._walk})
        is_demanded = name not in LITTLE_TO_DO or self._files >= MANY
        figures = self._compared(name, found, target if is_demanded else None)
        if DOCUMENTED in found:
            limit = AtMost(found[DOCUMENTED] * DOCUMENTED_TARGET)
            figures.append(self._beside(name, found, DOCUMENTED, limit))

        return figures

    async def _diff_figures(self, name: str) -> list[Figure]:
        variants = {n: self._diff(n, DIFFS[name]) for n in WITH_A_WAY_BACK}
        found = await self._measured(name, variants)
        assert len(set(self._diffs.values())) == 1, "all diffs tell the same"
        return self._compared(name, found, DIFF_TARGET)

    async def _rollback_figures(self, name: str) -> list[Figure]:
        count, target = ROLLBACKS[name]
        variants = {n: self._rollback(self._stores[n], count) for n in WITH_A_WAY_BACK}
        found = await self._measured(name, variants, is_heavy=count is None)
        return self._compared(name, found, target)

    async def _measured(
        self, name: str, variants: Mapping[str, Variant], *, is_heavy: bool = False
    ) -> dict[str, float]:
        rounds = self._scale.heavy_rounds(self._files) if is_heavy else self._scale.rounds
        fewer = ONCE if is_heavy else FEWER
        began = perf_counter()
        found = await medians(variants, rounds, fewer)
        each = ", ".join(f"{who} {value:.3g}" for who, value in found.items())
        _print(f"{self._label}: {name}: {each} ms; it took {perf_counter() - began:.0f} s")
        if self._scale.profiles is not None:
            with self._watch.profiling(self._scale.profiles, f"{name}, {self._label}"):
                await variants["ours"]()

        return found

    def _compared(
        self, name: str, found: Mapping[str, float], target: float | None
    ) -> list[Figure]:
        """Compare the server with the best git variant, and note its ratio to the others."""
        best = min((n for n in GIT if n in found), key=lambda n: found[n])
        limit = None if target is None else AtMost(target * found[best])
        others = [n for n in ("pygit2", WALK) if n in found]
        return [
            self._beside(name, found, best, limit),
            *(self._beside(name, found, other, None) for other in others),
        ]

    def _beside(
        self, name: str, found: Mapping[str, float], other: str, limit: AtMost | None
    ) -> Figure:
        named = f"{name}, {self._label}"
        reference = f"best git: {other}" if other in GIT else other
        return Figure(BENCH, named, found["ours"], "ms", reference, found[other], limit)

    # --- one measurement each -------------------------------------------------------------------

    def _first(self, store: Store) -> Variant:
        async def measured() -> float:
            store.renew()
            return await self._timed(store.checkpoint)

        return measured

    def _checkpoint(self, store: Store, count: int) -> Variant:
        async def measured() -> float:
            store.edit(count)
            return await self._timed(store.checkpoint)

        return measured

    def _diff(self, name: str, count: int) -> Variant:
        store = self._stores[name]

        async def measured() -> float:
            before = store.checkpoint()
            store.edit(count)
            after = store.checkpoint()
            return await self._timed(lambda: self._diffs.update({name: store.diff(before, after)}))

        return measured

    def _rollback(self, store: Store, count: int | None) -> Variant:
        async def measured() -> float:
            # Only the server flushes the file system, and would write the dirty pages of the
            # others.
            os.sync()
            before = store.checkpoint()
            store.edit(count)
            store.checkpoint()
            return await self._timed(lambda: store.rollback(before))

        return measured

    async def _walk(self) -> float:
        return await self._timed(lambda: _read_all(self._stores["ours"].tree))

    async def _timed(self, act: Callable[[], object]) -> float:
        await anyio.sleep(SETTLED)
        return self._watch.time(act)


def _print(what: str) -> None:
    """Print a row as it is measured, because the table appears after many minutes."""
    print(f"{BENCH}: {what}", file=sys.stderr, flush=True)


def _read_all(tree: Path) -> None:
    for folder, _, names in os.walk(tree):
        for name in names:
            os.lstat(f"{folder}/{name}")
