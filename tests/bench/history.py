"""A long history: the disk space of a small checkpoint, and the time to find old ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.figures import AtMost, Figure
from bench.scale import Scale
from bench.stopwatch import Stopwatch
from bench.stores import OurStore
from bench.trees import make_tree
from hankweave_protocol.ids import Sha
from hankweave_server.git.repack import Pace

BENCH = "history"
FILES = 1_000
KILOBYTE = 1_000

READ_TARGET = AtMost(1)  # Milliseconds.
COST_TARGET = AtMost(25)  # Kilobytes.
PACKED = 0.1
"""The fraction of it that may remain after packing."""

READINGS = 100


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    store = OurStore(make_tree(folder / "execution", min(FILES, *scale.trees)))
    store.renew()
    store.checkpoint()
    past = _Past(store, scale)
    loose = past.grow()
    figures = [
        _figure("one-file checkpoint on disk", loose, "KB", COST_TARGET),
        *past.reads(""),
    ]
    took = past.pack()
    figures += [
        _figure(f"packing of {scale.history:,} checkpoints", took, "ms", None),
        _figure("one-file checkpoint on disk, packed", past.cost(), "KB", AtMost(PACKED * loose)),
        *past.reads(", packed"),
    ]
    store.close()
    return figures


class _Past:
    """Checkpoints of one file each, with the measurements of reading them."""

    def __init__(self, store: OurStore, scale: Scale) -> None:
        self._store = store
        self._scale = scale
        self._watch = Stopwatch()
        self._small = store.engine.housekeeping.size().bytes_on_disk
        self._files: dict[Sha, str] = {}

    def grow(self) -> float:
        for number in range(self._scale.history):
            path = self._store.edit_file(number)
            self._files[Sha(self._store.checkpoint())] = path

        return self.cost()

    def cost(self) -> float:
        """Return the kilobytes that each of them occupies."""
        grown = self._store.engine.housekeeping.size().bytes_on_disk - self._small
        return grown / self._scale.history / KILOBYTE

    def pack(self) -> float:
        housekeeping = self._store.engine.housekeeping
        return self._timed("packing", lambda: housekeeping.consolidate(Pace(lambda: False)))

    def reads(self, how: str) -> list[Figure]:
        listed = f"{self._scale.history:,} checkpoints read from git alone{how}"
        read = f"one file of an old checkpoint{how}"
        return [
            _figure(listed, self._listing(listed), "ms", None),
            _figure(read, self._reading(read), "ms", READ_TARGET),
        ]

    def _listing(self, name: str) -> float:
        def read() -> None:
            listed = {facts.sha for facts in self._store.engine.commits()}
            assert listed >= self._files.keys()

        return median(self._cold(name, read) for _ in range(self._scale.rounds))

    def _reading(self, name: str) -> float:
        """Read files of checkpoints all over the history; no two of the same one."""
        self._store.reopen()
        chosen = list(self._files.items())[:: max(1, len(self._files) // READINGS)]
        read = self._store.engine.read_file
        return median(self._watch.time(partial(read, s, p.encode())) for s, p in chosen)

    def _cold(self, name: str, act: Callable[[], object]) -> float:
        self._store.reopen()
        return self._timed(name, act)

    def _timed(self, name: str, act: Callable[[], object]) -> float:
        if self._scale.profiles is None:
            return self._watch.time(act)

        with self._watch.profiling(self._scale.profiles, name):
            return self._watch.time(act)


def _figure(name: str, value: float, unit: str, target: AtMost | None) -> Figure:
    return Figure(BENCH, name, value, unit, target=target)
