"""Memory of a fresh process that opens the engine and takes checkpoints of a tree."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import anyio
import msgspec

from bench.figures import AtMost, Figure
from bench.lone_engine import Footprint
from hankweave_server.paths import Layout
from support.running_server import environment

MEGABYTE = 1_000_000
FIXED = 60 * MEGABYTE
PER_FILE = 400


async def memory_figures(bench: str, label: str, original: Path) -> list[Figure]:
    """Measure one process; memory hardly differs from round to round."""
    shutil.rmtree(Layout.of_execution(original).checkpoints, ignore_errors=True)
    done = await anyio.run_process(
        [sys.executable, "-m", "bench.lone_engine", str(original)],
        env=environment(PYTHONPATH=":".join(filter(None, sys.path))),
        stderr=None,
    )
    found = msgspec.json.decode(done.stdout, type=Footprint)
    limit = AtMost((FIXED + PER_FILE * found.files) / MEGABYTE)
    return [
        Figure(bench, f"memory, {what}, {label}", value / MEGABYTE, "MB", target=limit)
        for what, value in (("at its peak", found.peak), ("settled", found.settled))
    ]
