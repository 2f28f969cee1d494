"""Start-up: of a server, to its `server.ready`, and of commands, from exec to their end.

A server starts with and without a long journal. The commands are `--version`, `--help`, a
preview of a rollback on a running server, and looks at the end of a long journal; beside each is
what it cannot be faster than.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from bench.executions import Prepared, with_a_past, without_a_past
from bench.figures import AtMost, Figure
from bench.long_past import lengthened
from bench.rounds import medians
from bench.scale import Scale
from support.running_server import command, environment

BENCH = "startup"
LOOKS = (("log",), ("events", "--limit", "20"))


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    empty = await without_a_past(folder / "empty")
    long = await with_a_past(folder / "long", scale.messages)
    name = f"start with {long.events:,} events"
    found = await medians(
        {"empty": lambda: _start(empty), "long": lambda: _start(long)}, scale.rounds
    )
    target = AtMost(1.5 * found["empty"] + 0.5)
    start = Figure(BENCH, name, found["long"], "s", "empty execution", found["empty"], target)
    return [start, *await _commands(folder, scale)]


async def _start(prepared: Prepared) -> float:
    began = perf_counter()
    async with prepared.serve() as server:
        seconds = perf_counter() - began
        await server.stop()

    return seconds


async def _commands(folder: Path, scale: Scale) -> list[Figure]:
    short = await with_a_past(folder / "short", messages=1)
    long = await with_a_past(folder / "longest", messages=1)
    lengthened(long, scale.long_events)
    interpreter = _Command(sys.executable, "-c", "pass")
    version = _Command(*command("--version"))
    listed = _Command(*command("--help"))
    preview = _Command(*command("rollback", "--preview", "-e", str(short.root)))
    async with short.serve() as server:
        found = await medians(
            {
                "interpreter": interpreter.run,
                "version": version.run,
                "help": listed.run,
                "preview": preview.run,
            },
            scale.rounds,
        )
        await server.stop()

    figures = [
        version.figure("--version", found["version"], "an interpreter", found["interpreter"], 0.2),
        listed.figure("--help", found["help"], "--version", found["version"], 0.4),
        preview.figure("rollback --preview", found["preview"], "--version", found["version"], 0.5),
    ]
    for words in LOOKS:
        few, many = (_Command(*command(*words, "-e", str(where.root))) for where in (short, long))
        found = await medians({"few": few.run, "many": many.run}, scale.rounds)
        name = f"{' '.join(words)}, {long.events:,} events"
        figures.append(many.figure(name, found["many"], "few events", found["few"], 0.5))

    return figures


class _Command:
    """A program that is run to its end, several times."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._processor: list[float] = []
        """Seconds of processor time; on a busy machine they say more than those that pass."""

    async def run(self) -> float:
        before, began = _of_children(), perf_counter()
        await anyio.run_process(self._words, env=environment())
        passed = perf_counter() - began
        self._processor.append(_of_children() - before)
        return passed

    def figure(
        self, name: str, value: float, beside: str, reference: float, limit: float
    ) -> Figure:
        details = {"processor": median(self._processor)}
        print(f"{BENCH}: {name}: {details['processor']:.3g} s of a processor", file=sys.stderr)
        return Figure(BENCH, name, value, "s", beside, reference, AtMost(limit), details)


def _of_children() -> float:
    """Return the processor time of the processes that have been waited for; a server has not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
