"""Checkpoints and rollbacks, beside the git program, plain pygit2 and a bare walk (issue 3).

Ours are durable, with fsync on; the others run with their own defaults. A rollback of ours includes
its plan, with the target read whole, and its safety checkpoint; git's is the checkout alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import anyio

from bench.figures import AtMost, Figure
from bench.rounds import Variant, medians
from bench.scale import Scale
from bench.stores import GitStore, OurStore, PlumbingStore, Pygit2Store, Store, make_tree

SETTLED = 0.03
"""Seconds after an edit until its time stamp is older than a clock tick, for git and for us."""

EDITS = {"no change": 0, "one file changed": 1, "100 files changed": 100}
TARGETS = {"no change": 0.6, "one file changed": 0.6, "100 files changed": 0.5}
ROLLBACKS = {"one file": (1, 0.9), "100 files": (100, 0.9), "everything": (None, 0.8)}
FIRST_TARGET = 0.4


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    figures: list[Figure] = []
    for size in scale.trees:
        figures += await _Trial(folder / str(size), size, scale.rounds).figures()

    return figures


class _Trial:
    """All rows for one size of tree; every store has a work tree of its own."""

    def __init__(self, folder: Path, size: int, rounds: int) -> None:
        self._size = size
        self._rounds = rounds
        kinds = {
            "ours": OurStore,
            "git": GitStore,
            "plumbing": PlumbingStore,
            "pygit2": Pygit2Store,
        }
        self._stores: dict[str, Store] = {
            name: kind(make_tree(folder / name, size)) for name, kind in kinds.items()
        }

    async def figures(self) -> list[Figure]:
        found = await medians({n: self._first(s) for n, s in self._stores.items()}, self._rounds)
        figures = self._compared("first checkpoint", found, FIRST_TARGET)
        for name, count in EDITS.items():
            rows = {n: self._checkpoint(s, count) for n, s in self._stores.items()}
            rows["bare walk"] = self._walk
            found = await medians(rows, self._rounds)
            figures += self._compared(name, found, TARGETS[name])

        for name, (count, target) in ROLLBACKS.items():
            rows = {n: self._rollback(self._stores[n], count) for n in ("ours", "git", "pygit2")}
            found = await medians(rows, self._rounds)
            figures += self._compared(f"rollback of {name}", found, target)

        for store in self._stores.values():
            store.close()

        return figures

    def _compared(self, what: str, found: dict[str, float], target: float) -> list[Figure]:
        """Judges ours by the best git variant, and says how it stands to the others."""
        best = min(found[name] for name in ("git", "plumbing") if name in found)
        named = f"{what}, {self._size} files"
        figures = [
            Figure(
                "checkpoints", named, found["ours"], "ms", "best git", best, AtMost(target * best)
            )
        ]
        others = [name for name in ("pygit2", "bare walk") if name in found]
        return figures + [
            Figure("checkpoints", named, found["ours"], "ms", name, found[name]) for name in others
        ]

    def _first(self, store: Store) -> Variant:
        async def measured() -> float:
            store.renew()
            return _milliseconds(store.checkpoint)

        return measured

    def _checkpoint(self, store: Store, count: int) -> Variant:
        async def measured() -> float:
            store.edit(count)
            await anyio.sleep(SETTLED)
            return _milliseconds(store.checkpoint)

        return measured

    def _rollback(self, store: Store, count: int | None) -> Variant:
        async def measured() -> float:
            before = store.checkpoint()
            store.edit(self._size if count is None else count)
            store.checkpoint()
            await anyio.sleep(SETTLED)
            return _milliseconds(lambda: store.rollback(before))

        return measured

    async def _walk(self) -> float:
        return _milliseconds(lambda: _look_at_all(self._stores["ours"].tree))


def _milliseconds(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return (perf_counter() - began) * 1000


def _look_at_all(tree: Path) -> None:
    for folder, _, names in os.walk(tree):
        for name in names:
            os.lstat(f"{folder}/{name}")
