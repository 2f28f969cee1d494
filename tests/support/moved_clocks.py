"""Clocks of real servers that a test can set, by a library that is loaded before libc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("moved_clock.c")


class Clocks:
    """The clocks of the servers that are started with `environment`."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._moves = folder / "clocks"
        self.environment = {
            "LD_PRELOAD": str(library),
            "HANKWEAVE_TEST_CLOCKS": str(self._moves),
        }
        self.move()

    def move(self, *, wall: int = 0, boot: int = 0) -> None:
        """Set the clocks this many seconds ahead of the machine's."""
        new = self._moves.with_suffix(".new")
        new.write_text(f"{wall} {boot}")
        new.rename(self._moves)


def moved_clocks(folder: Path) -> Clocks:
    """Return clocks whose state is in a folder; skip the test without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the moved clocks with")

    library = folder / "moved_clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return Clocks(folder, library)
