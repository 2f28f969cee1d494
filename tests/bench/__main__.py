"""`scripts/bench [NAME...]`: runs the benches, prints the table, exits 1 if a target is missed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import anyio

from bench import appends, fanout, memory, startup
from bench.figures import RESULTS, Figure, print_table, write_results
from bench.scale import FULL, Scale

Bench = Callable[[Path, Scale], Awaitable[list[Figure]]]

BENCHES: dict[str, Bench] = {
    "journal": appends.measure,
    "fanout": fanout.measure,
    "startup": startup.measure,
    "memory": memory.measure,
}

CHECKOUT = Path(__file__).resolve().parents[2]
USAGE = 2


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"There is no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return USAGE

    began = perf_counter()
    figures = [figure for name in names or BENCHES for figure in _run(name)]
    seconds = perf_counter() - began
    print_table(figures)
    write_results(CHECKOUT / RESULTS, figures, seconds)
    missed = [figure for figure in figures if not figure.is_met]
    print(f"{seconds:.0f} s; {len(missed)} targets missed; figures in {RESULTS}")
    return 1 if missed else 0


def _run(name: str) -> list[Figure]:
    print(f"{name} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="hankweave-bench-") as folder:
        return anyio.run(BENCHES[name], Path(folder), FULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
