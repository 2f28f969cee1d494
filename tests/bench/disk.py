"""The disk under a benchmark: how long a flush takes, and another program that keeps it busy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

BUSY_BYTES = 20 << 20
"""Bytes per second that the other program writes and flushes."""

_FLUSHES = 20
_APPENDED = bytes(4096)


def flush_time(path: Path) -> float:
    """Return the milliseconds that an append of 4 KiB and its flush take, as a median."""
    taken: list[float] = []
    with path.open("wb", buffering=0) as stream:
        for _ in range(_FLUSHES):
            began = perf_counter()
            stream.write(_APPENDED)
            os.fdatasync(stream.fileno())
            taken.append((perf_counter() - began) * 1000)

    path.unlink()
    return median(taken)


@contextmanager
def kept_busy(path: Path) -> Iterator[None]:
    """Let another process append and flush while the block runs."""
    with subprocess.Popen([sys.executable, __file__, str(path)]) as noise:
        try:
            yield
        finally:
            noise.terminate()


def make_noise(path: Path) -> None:
    """Append to a file and flush it, a megabyte at a time, until killed."""
    block = os.urandom(1 << 20)
    with path.open("wb", buffering=0) as stream:
        while True:
            began = perf_counter()
            stream.write(block)
            os.fsync(stream.fileno())
            if stream.tell() > 200 * len(block):
                stream.seek(0)

            rest = len(block) / BUSY_BYTES - (perf_counter() - began)
            if rest > 0:
                time.sleep(rest)


if __name__ == "__main__":
    make_noise(Path(sys.argv[1]))
