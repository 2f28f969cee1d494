"""A hank on many inputs: `hankweave map` beside GNU parallel and `xargs -P`.

Those run `hankweave run` for each input: neither a shared budget, nor an input that is not run
again, nor a table. GNU parallel is left out where it is not installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio.to_thread

from bench.figures import AtLeast, AtMost, Figure
from bench.scale import Scale
from support.running_server import command, environment
from support.scripted_hank import Step, codon, write_hank

BENCH = "map"
INPUTS = 24
PARALLEL = 2
MOST_MEMORY = 300.0
"""MiB of a supervisor."""

NOT_SLOWER = 0.9
"""Share of the others' rate: the same servers do the work, and two measurements differ."""

_COUNTS: Step = {"append": {"path": "count.txt", "text": "one\n"}}


async def measure(folder: Path, _scale: Scale) -> list[Figure]:
    """Return items per minute, and the memory of the supervisor."""
    hank = write_hank(folder / "hank", codon("one", _COUNTS, {"cost": 0.01}))
    (folder / "in").mkdir()
    for number in range(INPUTS):
        (folder / "in" / f"{number}.txt").write_text(str(number))

    run = partial(anyio.to_thread.run_sync, _seconds, folder)
    mapped = shlex.join(command("map", str(hank), "-d", "map", "-j", str(PARALLEL), "--plain"))
    seconds, memory = await run(f"exec {mapped} in/*")
    rate, figures = INPUTS * 60 / seconds, []
    for name, script in _others(hank).items():
        reference = INPUTS * 60 / (await run(script))[0]
        figures.append(
            Figure(
                BENCH,
                f"{INPUTS} items, {PARALLEL} at a time",
                rate,
                "items/min",
                name,
                reference,
                AtLeast(NOT_SLOWER * reference),
            )
        )

    memory_figure = Figure(
        BENCH, "memory of the command", memory, "MiB", target=AtMost(MOST_MEMORY)
    )
    return [*figures, memory_figure]


def _others(hank: Path) -> dict[str, str]:
    """Return scripts that do the same with other programs, by their names."""
    words = shlex.join([*command("run", str(hank)), "--headless", "--plain"])
    each = f"{words} -e xargs/$(basename $0) $0"
    others = {
        f"xargs -P {PARALLEL}": f"printf '%s\\0' in/* | xargs -0 -P {PARALLEL} -n 1 "
        f"sh -c {shlex.quote(each)}"
    }
    program = shutil.which("parallel")
    if program is not None:
        task = shlex.quote(f"{words} -e parallel/{{/}} {{}}")
        others["GNU parallel"] = f"{program} --will-cite -j {PARALLEL} {task} ::: in/*"

    return others


def _seconds(folder: Path, script: str) -> tuple[float, float]:
    """Run a script; return its seconds, and the MiB of its own process."""
    began = perf_counter()
    process = subprocess.Popen(
        ["sh", "-c", script], cwd=folder, env=environment(), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, script
    return perf_counter() - began, usage.ru_maxrss / 1024
