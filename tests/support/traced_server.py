"""A server that records which of its functions are called, and in which order.

Its first argument names the file of the trace, the rest are the arguments of `hankweave`. The first
SIGUSR2 begins a trace, the second one writes it: a line for each call, `module.py Qualified.name`,
the module relative to the package. A coroutine is listed where it begins, not where it resumes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import hankweave_server

PACKAGE = f"{Path(hankweave_server.__file__).parent}{os.sep}"


class Trace:
    """The calls of one period, from all threads, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_on = False
        self._calls: list[str] = []

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        """Begin a trace, or end it and write it, so that a reader finds all of it or nothing."""
        self._is_on = not self._is_on
        if self._is_on:
            self._calls = []
            Path(f"{self._path}.begun").touch()
            return

        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text("\n".join(self._calls))
        unfinished.rename(self._path)

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record a call; the interpreter calls this for each."""
        if self._is_on and event == "call" and _begins(frame):
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                self._calls.append(f"{code.co_filename[len(PACKAGE) :]} {code.co_qualname}")


def _begins(frame: FrameType) -> bool:
    """Distinguish a function's start from a coroutine's resumption: RESUME 0 and RESUME n."""
    at = frame.f_lasti
    return at < 0 or frame.f_code.co_code[at + 1] & 3 == 0


def main() -> None:
    trace = Trace(Path(sys.argv.pop(1)))
    signal.signal(signal.SIGUSR2, trace.toggle)
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    del sys.path[0]  # The folder of this file would precede all others.
    from hankweave_server.cli.app import main as hankweave

    hankweave()


if __name__ == "__main__":
    main()
