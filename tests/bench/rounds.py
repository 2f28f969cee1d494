"""Variants that take turns, so that a machine that slows down slows all of them."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Mapping
from statistics import median

Variant = Callable[[], Awaitable[float]]
"""Measures once."""

NONE_LESS: Mapping[str, int] = {}


async def medians(
    variants: Mapping[str, Variant], rounds: int, fewer: Mapping[str, int] = NONE_LESS
) -> dict[str, float]:
    """Run all variants in each round, each round beginning with another one.

    Those that `fewer` names take part only in that many of the first rounds.
    """
    names = list(variants)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if number >= fewer.get(name, rounds):
                continue

            # The garbage of one variant is not collected during the next one.
            gc.collect()
            measured[name].append(await variants[name]())

    return {name: median(values) for name, values in measured.items()}
