"""A hank on many inputs: `hankweave map`, local and on Ray, beside GNU parallel and `xargs -P`.

Those run `hankweave run` for each input: neither a shared budget, nor an input that is not run
again, nor a table. GNU parallel is left out where it is not installed, and Ray where there is no
`.venv-ray`; `scripts/bench map` makes both. Ray's time is without the start of the cluster.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio.to_thread

from bench.figures import AtLeast, AtMost, Figure
from bench.scale import Scale
from hankweave_protocol import instants
from support.running_server import command, environment
from support.scripted_hank import Step, codon, write_hank

BENCH = "map"
INPUTS = 24
MANY_INPUTS = 1000
PARALLEL = 2
MOST_MEMORY = 300.0
"""MiB of a supervisor."""

NOT_SLOWER = 0.9
"""Share of the others' rate: the same servers do the work, and two measurements differ."""

RAY = Path(__file__).resolve().parents[2] / ".venv-ray" / "bin" / "hankweave"

_COUNTS: Step = {"append": {"path": "count.txt", "text": "one\n"}}


async def measure(folder: Path, _scale: Scale) -> list[Figure]:
    """Return items per minute, and the memory of the supervisor."""
    hank = write_hank(folder / "hank", codon("one", _COUNTS, {"cost": 0.01}))
    for name, count in (("in", INPUTS), ("many-in", MANY_INPUTS)):
        (folder / name).mkdir()
        for number in range(count):
            (folder / name / f"{number}.txt").write_text(str(number))

    run = partial(anyio.to_thread.run_sync, _seconds, folder)
    mapped = shlex.join(command("map", str(hank), "-j", str(PARALLEL), "--plain"))
    seconds, memory = await run(f"exec {mapped} -d map in/*")
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

    figures.append(_memory_figure(INPUTS, memory))
    if RAY.exists():
        seconds = await anyio.to_thread.run_sync(_ray_seconds, folder, hank)
        on_ray = INPUTS * 60 / seconds
        figures.append(Figure(BENCH, "the same with ray", on_ray, "items/min", "local", rate))

    # The budget is enough for a few items: the command has read and planned all of them by then.
    many = await run(f"exec {mapped} -d many --max-cost 0.05 many-in/*", 1)
    return [*figures, _memory_figure(MANY_INPUTS, many[1])]


def _memory_figure(inputs: int, memory: float) -> Figure:
    name = f"memory of the command, {inputs:,} inputs"
    return Figure(BENCH, name, memory, "MiB", target=AtMost(MOST_MEMORY))


def _ray_seconds(folder: Path, hank: Path) -> float:
    """Run the map on a cluster of this machine; return the seconds between its first records."""
    temporary = tempfile.mkdtemp(prefix="ray-")  # Ray's sockets need a short path.
    words = shlex.join([str(RAY), "map", str(hank), "-d", "ray", "-j", str(PARALLEL), "--plain"])
    try:
        _seconds(folder, f"RAY_TMPDIR={temporary} exec {words} --executor ray in/*")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

    lines = (folder / "ray" / "map.jsonl").read_text().splitlines()
    times = {each["type"]: each["at"] for each in map(json.loads, lines)}
    begun, ended = (instants.from_text(times[kind]) for kind in ("map.begun", "map.ended"))
    return (ended - begun).total_seconds()


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


def _seconds(folder: Path, script: str, code: int = 0) -> tuple[float, float]:
    """Run a script; return its seconds, and the MiB of its own process."""
    began = perf_counter()
    process = subprocess.Popen(
        ["sh", "-c", script], cwd=folder, env=environment(), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == code, script
    return perf_counter() - began, usage.ru_maxrss / 1024
