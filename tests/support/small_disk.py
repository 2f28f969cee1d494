"""A small file system in memory, which a test may fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import enclosure


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs with these options on a folder; skip the test where that is not allowed."""
    if (reason := enclosure.why_not()) is not None:
        pytest.skip(reason)

    place.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")

    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def resize(disk: Path, size: str) -> None:
    """Give a small disk another size."""
    enclosure.require()
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
