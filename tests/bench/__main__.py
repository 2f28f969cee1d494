"""`scripts/bench [NAME...]`: run the benchmarks, print the table, exit 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import anyio

from bench import (
    agent_lines,
    answers,
    appends,
    catching_up,
    checkpoints,
    confinement,
    fanout,
    history,
    long_loop,
    long_past,
    long_store,
    maps,
    memory,
    mirrors,
    over_socket,
    page,
    plans,
    questions,
    responsiveness,
    startup,
    tracing,
    ui,
)
from bench.figures import RESULTS, Figure, print_table, write_results
from bench.scale import FULL, Scale

Bench = Callable[[Path, Scale], Awaitable[list[Figure]]]

BENCHES: dict[str, Bench] = {
    "journal": appends.measure,
    "fanout": fanout.measure,
    "startup": startup.measure,
    "memory": memory.measure,
    catching_up.BENCH: catching_up.measure,
    checkpoints.BENCH: checkpoints.measure,
    over_socket.BENCH: over_socket.measure,
    history.BENCH: history.measure,
    long_loop.BENCH: long_loop.measure,
    long_store.BENCH: long_store.measure,
    long_past.BENCH: long_past.measure,
    responsiveness.BENCH: responsiveness.measure,
    agent_lines.BENCH: agent_lines.measure,
    plans.BENCH: plans.measure,
    questions.BENCH: questions.measure,
    answers.BENCH: answers.measure,
    ui.BENCH: ui.measure,
    confinement.BENCH: confinement.measure,
    tracing.BENCH: tracing.measure,
    maps.BENCH: maps.measure,
    mirrors.BENCH: mirrors.measure,
}
GROUPS = {
    "checkpoints": (checkpoints.BENCH, history.BENCH, long_past.BENCH, responsiveness.BENCH),
    "execution": (agent_lines.BENCH, plans.BENCH),
    "long": (long_loop.BENCH, long_store.BENCH),
}
LONG = frozenset(name for names in GROUPS.values() for name in names) | {
    answers.BENCH,
    catching_up.BENCH,
    maps.BENCH,
    mirrors.BENCH,
    confinement.BENCH,
    over_socket.BENCH,
    questions.BENCH,
    tracing.BENCH,
    ui.BENCH,
}
"""Benchmarks that take minutes: they run only if they are named."""

CHECKOUT = Path(__file__).resolve().parents[2]
MISSED = 1
USAGE = 2

DEADLINE = 120.0
"""Seconds for the quick benchmarks together."""

LONG_DEADLINE = 1_500.0
"""Seconds if a long one is among those named."""

FULL_DEADLINE = 3_600.0
"""Seconds with Hankweave's documented sequence on the largest tree."""

SOCKET_DEADLINE = 14_400.0
"""Seconds for every size on both disks, beside all peers."""

REAL = "real"


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    names = [each for name in options.names for each in GROUPS.get(name, (name,))]
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        known = ", ".join([*BENCHES, *GROUPS])
        print(f"There is no bench {unknown[0]!r}; there are: {known}", file=sys.stderr)
        return USAGE

    if (options.markdown or options.into) and not names:
        return _print_last_run(options.into)

    limits = (options.sizes, options.rounds, options.codons)
    is_quick = any(limit is not None for limit in limits)
    run = _Run(_scale(options), _deadline(names, full=options.full), is_kept=not is_quick)
    anyio.run(run.measure, names or [name for name in BENCHES if name not in LONG])
    rows = [figure.as_json() for figure in run.figures]
    if options.markdown:
        print(page.markdown(rows))

    if options.into is not None:
        page.put_into(options.into, rows)

    return run.print_results()


def _print_last_run(into: Path | None) -> int:
    """Print the tables of the last complete run, or write them into a page."""
    try:
        rows = page.rows_of(CHECKOUT / RESULTS)
        if into is None:
            print(page.markdown(rows))
        else:
            page.put_into(into, rows)
    except FileNotFoundError:
        print(f"There is no {RESULTS}; `scripts/bench NAME...` writes it.", file=sys.stderr)
        return USAGE
    except ValueError as missing:
        print(missing, file=sys.stderr)
        return USAGE

    return 0


class _Run:
    """The measurements so far."""

    def __init__(self, scale: Scale, deadline: float, *, is_kept: bool) -> None:
        self._scale = scale
        self._deadline = deadline
        self._is_kept = is_kept
        self.figures: list[Figure] = []
        self._seconds: dict[str, float] = {}
        self._is_cut_off = False

    async def measure(self, names: Iterable[str]) -> None:
        with anyio.move_on_after(self._deadline) as scope:
            for name in names:
                print(f"{name} ...", file=sys.stderr, flush=True)
                began = perf_counter()
                with tempfile.TemporaryDirectory(prefix="hankweave-bench-") as folder:
                    figures = await BENCHES[name](Path(folder), self._scale)

                self._add(name, figures, perf_counter() - began)

        self._is_cut_off = scope.cancelled_caught

    def print_results(self) -> int:
        """Print the table and the notes to it; return the exit code."""
        print_table(self.figures)
        missed = sum(not figure.is_met for figure in self.figures)
        where = f"the figures are in {RESULTS}" if self._is_kept else "a quick look, kept nowhere"
        print(f"{sum(self._seconds.values()):.0f} s; targets missed: {missed}; {where}")
        if self._scale.profiles is not None:
            print(f"The profiles are in {self._scale.profiles}")

        if self._is_cut_off:
            print("The benches take more than their time here.", file=sys.stderr)

        return MISSED if missed or self._is_cut_off else 0

    def _add(self, name: str, figures: list[Figure], seconds: float) -> None:
        """Keep a benchmark's figures at once, because the next one may fail."""
        self.figures += figures
        self._seconds[name] = seconds
        if self._is_kept:
            write_results(CHECKOUT / RESULTS, figures, {name: seconds})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="checkpoints, execution, or one bench"
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: text.split(","),
        help=f"a quick look at trees of these sizes only, as in 1000,{REAL}",
    )
    parser.add_argument("--rounds", type=int, help="a quick look with so many rounds")
    parser.add_argument("--codons", type=int, help="long: a quick look at a loop of so many codons")
    parser.add_argument(
        "--full",
        action="store_true",
        help="the largest tree for the socket, too, and the documented sequence on it; takes hours",
    )
    parser.add_argument(
        "--busy", action="store_true", help="socket: once more beside a writer of 20 MB/s"
    )
    parser.add_argument(
        "--peers",
        choices=["git", "all"],
        default="git",
        help="socket: who takes part; all: also a server that does not watch, and other programs",
    )
    parser.add_argument(
        "--runs", type=int, default=1, help="socket: medians of the medians of so many runs"
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the figures as Markdown; without names, those of the last run",
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="write them into a page, such as docs/figures.md",
    )
    parser.add_argument(
        "--profile", action="store_true", help="write where ours spends its time, for every row"
    )
    return parser


def _scale(options: argparse.Namespace) -> Scale:
    scale = FULL
    if options.sizes is not None:
        sizes = tuple(int(size) for size in options.sizes if size != REAL)
        scale = replace(scale, trees=sizes, socket_trees=sizes, has_real_tree=REAL in options.sizes)

    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)

    if options.codons is not None:
        scale = replace(scale, loop_codons=options.codons)

    scale = replace(
        scale, is_busy=options.busy, has_all_peers=options.peers == "all", runs=options.runs
    )
    if options.full:
        largest = max(scale.trees, default=0)
        scale = replace(scale, documented_up_to=largest, socket_trees=scale.trees)

    if options.profile:
        scale = replace(scale, profiles=Path(tempfile.mkdtemp(prefix="hankweave-profiles-")))

    return scale


def _deadline(names: Sequence[str], *, full: bool) -> float:
    if not LONG & set(names):
        return DEADLINE

    if over_socket.BENCH in names:
        return SOCKET_DEADLINE

    return FULL_DEADLINE if full else LONG_DEADLINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
