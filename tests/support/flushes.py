"""The flushes of a server, counted in all of its threads by a library loaded before libc."""

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
        counter.write_bytes(bytes(8))
        return cls({"LD_PRELOAD": str(library), "HANKWEAVE_TEST_FLUSHES": str(counter)}, counter)

    def count(self) -> int:
        """Return the calls of fsync, fdatasync and syncfs so far."""
        (count,) = struct.unpack("=Q", self._file.read_bytes())
        return int(count)
