"""The duration of an action and, on demand, its profile."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import perf_counter

LINES = 60
"""In each table; later lines cost nothing."""


class Stopwatch:
    """A timer of actions, in milliseconds."""

    def __init__(self) -> None:
        self._profile: cProfile.Profile | None = None

    def time(self, act: Callable[[], object]) -> float:
        with self._profile or nullcontext():
            began = perf_counter()
            act()
            return (perf_counter() - began) * 1000

    @contextmanager
    def profiling(self, folder: Path, what: str) -> Iterator[None]:
        """Write a profile of the measured code; other threads' work appears as waiting."""
        self._profile = cProfile.Profile()
        try:
            yield
            self._write(self._profile, folder / f"{what.replace(', ', '-').replace(' ', '-')}.txt")
        finally:
            self._profile = None

    def _write(self, profile: cProfile.Profile, path: Path) -> None:
        with path.open("w", encoding="utf-8") as stream:
            for order in ("tottime", "cumulative"):
                pstats.Stats(profile, stream=stream).sort_stats(order).print_stats(LINES)
