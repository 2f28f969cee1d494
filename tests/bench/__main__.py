"""`scripts/bench [NAME...]`: runs the benches, prints the table, exits 1 if a target is missed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import anyio

from bench import appends, checkpoints, fanout, memory, startup
from bench.figures import RESULTS, Figure, print_table, write_results
from bench.scale import FULL, Scale

Bench = Callable[[Path, Scale], Awaitable[list[Figure]]]

BENCHES: dict[str, Bench] = {
    "journal": appends.measure,
    "fanout": fanout.measure,
    "startup": startup.measure,
    "memory": memory.measure,
    "checkpoints": checkpoints.measure,
}
LONG = frozenset({"checkpoints"})
"""Benches that take minutes: they run only where they are named."""

CHECKOUT = Path(__file__).resolve().parents[2]
MISSED = 1
USAGE = 2

DEADLINE = 90.0
"""Seconds for the quick benches together."""

LONG_DEADLINE = 600.0
"""Seconds where a long one is among those named."""


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"There is no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return USAGE

    began = perf_counter()
    figures = anyio.run(_measure, names or [name for name in BENCHES if name not in LONG])
    if figures is None:
        print("The benches take more than their time here.", file=sys.stderr)
        return MISSED

    seconds = perf_counter() - began
    print_table(figures)
    write_results(CHECKOUT / RESULTS, figures, seconds)
    missed = sum(not figure.is_met for figure in figures)
    print(f"{seconds:.0f} s; targets missed: {missed}; the figures are in {RESULTS}")
    return MISSED if missed else 0


async def _measure(names: list[str]) -> list[Figure] | None:
    """Returns None where the time was up before the end."""
    figures: list[Figure] = []
    deadline = LONG_DEADLINE if LONG & set(names) else DEADLINE
    with anyio.move_on_after(deadline) as scope:
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="hankweave-bench-") as folder:
                figures += await BENCHES[name](Path(folder), FULL)

    return None if scope.cancelled_caught else figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
