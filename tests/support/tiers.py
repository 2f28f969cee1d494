"""The size of a campaign: a few seeded points in the fast tier, every point in the long one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TypeVar

from support.struck import Grounds, Scenario

Lay = Callable[[Scenario], Grounds]
Point = TypeVar("Point")


@dataclass(frozen=True)
class Tier:
    is_long: bool
    rounds: int
    """Random kills, and rounds of random walks."""
    sampled: int | None = None
    """Points of each scenario of the long tier; None: every point."""

    @property
    def is_whole(self) -> bool:
        """Return True if every point is tried, and one beyond."""
        return self.is_long and self.sampled is None

    def some(self, groups: Iterable[Iterable[Point]], few: int, seed: int) -> list[Point]:
        """Return the points to try: `few` in the fast tier, all of them if the tier is whole."""
        return list(islice(spread(groups, seed), None if self.is_whole else self.sampled or few))


def spread(groups: Iterable[Iterable[Point]], seed: int) -> Iterator[Point]:
    """Yield one point of each group, then another of each, in the order of a seed.

    A point's rank depends on the seed and on the point alone. A run in which a server makes one
    call more or less therefore tries the same points, but for one.
    """
    orders = (sorted(points, key=lambda point: _rank(seed, point)) for points in groups)
    for row in zip_longest(*orders):
        yield from (point for point in row if point is not None)


def _rank(seed: int, point: object) -> float:
    return random.Random(f"{seed} {point}").random()
