"""A process that only takes checkpoints: `python -m bench.lone_engine EXECUTION`.

It prints its memory as one JSON line, and imports no more than the engine does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bench.stores import request
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.paths import Layout


class Footprint(msgspec.Struct):
    """Resident bytes."""

    files: int
    peak: int
    settled: int
    """After a second checkpoint without changes."""


def take_checkpoints(root: Path) -> Footprint:
    engine = CheckpointEngine.open(Layout.of_execution(root))
    made = engine.checkpoint(request("initial"))
    engine.checkpoint(request("manual"))
    footprint = Footprint(made.files, _resident("VmHWM"), _resident("VmRSS"))
    engine.close()
    return footprint


def _resident(what: str) -> int:
    """Read a line of the kernel's own account: getrusage's maximum includes the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) * 1024

    raise AssertionError(f"this system does not tell {what}")


if __name__ == "__main__":
    print(msgspec.json.encode(take_checkpoints(Path(sys.argv[1]))).decode())
