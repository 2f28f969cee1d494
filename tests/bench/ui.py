"""The page in Chromium with a very long history: first paint, scrolling, memory.

The first paint is the one in which the status and the steps stand, not an empty frame. A frame is
late if it takes longer than 17 ms, so that the screen, 60 times a second, shows the one before it
again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from bench.executions import Prepared
from bench.figures import AtMost, Figure, Target
from bench.page_past import with_a_past
from bench.scale import Scale

BENCH = "ui"
BROWSER = Path(__file__).resolve().parents[1] / "browser"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
WHEELS = 200
MEMORY = Path("/dev/shm")
"""Creating the history is not measured: it happens where nothing waits for a disk."""


class Row(NamedTuple):
    """A figure that the browser reports."""

    name: str
    unit: str
    target: Target | None = None


FIGURES: dict[str, Row] = {
    "paint": Row("first paint, with status and steps", "s", AtMost(0.5)),
    "fastest": Row("the fastest first paint", "s"),
    "worked": Row("work of the page's main thread until then", "s"),
    "requests": Row("requests until then", ""),
    "kilobytes": Row("answers over the socket until then", "kB"),
    "reload": Row("first paint after a reload", "s"),
    "complete": Row("until all checkpoints are known", "s"),
    "transcriptLate": Row("late frames while the transcript is scrolled", "%", AtMost(1)),
    "transcriptP95": Row("a frame of these, 95th of 100", "ms"),
    "transcriptWork": Row("work of the main thread for one", "ms"),
    "eventsLate": Row("late frames while the events are scrolled", "%", AtMost(1)),
    "eventsP95": Row("a frame of these, 95th of 100", "ms"),
    "eventsWork": Row("work of the main thread for one", "ms"),
    "heap": Row("memory of the page's scripts afterwards", "MB", AtMost(80)),
    "nodes": Row("elements in the page at most", "", AtMost(2_000)),
}


async def measure(folder: Path, scale: Scale) -> list[Figure]:
    missing = _missing()
    if missing is not None:
        print(f"{BENCH}: skipped, because there is no {missing}", file=sys.stderr)
        return []

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else folder) as quick:
        prepared = await with_a_past(
            Path(quick), scale.page_checkpoints, scale.page_events, scale.page_transcript
        )
        found = await _measure(prepared, scale.rounds)

    past = f"{scale.page_checkpoints:,} checkpoints, {scale.page_events:,} events"
    return [
        Figure(BENCH, f"{row.name}; {past}", found[key], row.unit, target=row.target)
        for key, row in FIGURES.items()
    ]


def _missing() -> str | None:
    if shutil.which("node") is None:
        return "node"

    if not (BROWSER / "node_modules" / "playwright-core").exists():
        return "playwright-core: `scripts/test --browser` installs it"

    return None if Path(CHROMIUM).exists() else f"Chromium at {CHROMIUM}"


async def _measure(prepared: Prepared, rounds: int) -> dict[str, float]:
    async with prepared.serve() as server:
        meta = prepared.root / ".hankweave"
        token = (meta / "server.token").read_text().strip()
        port = msgspec.json.decode((meta / "runtime.lock").read_bytes())["port"]
        address = f"http://127.0.0.1:{port}/#token={token}"
        done = await anyio.run_process(
            ["node", "measure.mjs", address, str(rounds), str(WHEELS)],
            cwd=BROWSER,
            stderr=subprocess.STDOUT,
            check=False,
        )
        await server.stop()

    assert done.returncode == 0, done.stdout.decode()
    found: dict[str, float] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found
