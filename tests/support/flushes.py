"""The flushes of a server, and its looks at files, counted in all of its threads.

A library that is loaded before libc counts them.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("flush_counter.c")


@dataclass(frozen=True, slots=True)
class FlushCounter:
    """A counter in a file, shared with the server that is started with `environment`."""

    environment: dict[str, str]
    _file: Path

    @classmethod
    def in_folder(cls, folder: Path) -> FlushCounter | None:
        """Build the library and create the counter; return None without a C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None

        library, counter = folder / "flush_counter.so", folder / "flushes"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        counter.write_bytes(bytes(16))
        return cls({"LD_PRELOAD": str(library), "HANKWEAVE_TEST_FLUSHES": str(counter)}, counter)

    def count(self) -> int:
        """Return the calls of fsync, fdatasync and syncfs so far."""
        return self._counts()[0]

    def stat_calls(self) -> int:
        """Return the calls of stat and lstat by name so far."""
        return self._counts()[1]

    def _counts(self) -> tuple[int, int]:
        flushes, stat_calls = struct.unpack("=2Q", self._file.read_bytes())
        return int(flushes), int(stat_calls)
