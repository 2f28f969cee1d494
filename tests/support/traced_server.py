"""A server that records which of its functions are called, and in which order.

Its first argument names the file of the trace, the rest are the arguments of `hankweave`. The first
SIGUSR2 begins a trace, the second one writes it: a line for each call, `module.py Qualified.name`,
the module relative to the package. A coroutine is listed where it begins, not where it resumes.

Beside it, the file with the suffix `.stacks` has, as JSON, the stack of each call in `WRITES`,
outermost function first, without lambdas. The stack of a worker thread continues that of its task.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import hankweave_server

PACKAGE = f"{Path(hankweave_server.__file__).parent}{os.sep}"

WRITES = ("wal.py WriteAheadLog.publish", "worktree/tree_writer.py TemporaryFiles.put")
"""The calls that write what a rollback has to make durable, and the files that it restores."""

_stack: ContextVar[tuple[str, ...]] = ContextVar("_stack", default=())
"""The stack of the last call in a task; a worker thread gets a copy of its task's context."""


class Trace:
    """The calls of one period, from all threads, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_on = False
        self._calls: list[str] = []
        self._stacks: list[tuple[str, ...]] = []

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        """Begin a trace, or end it and write it, so that a reader finds all of it or nothing."""
        self._is_on = not self._is_on
        if self._is_on:
            self._calls, self._stacks = [], []
            Path(f"{self._path}.begun").touch()
            return

        Path(f"{self._path}.stacks").write_text(json.dumps(self._stacks))
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text("\n".join(self._calls))
        unfinished.rename(self._path)

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record a call; the interpreter calls this for each."""
        if self._is_on and event == "call" and _begins(frame):
            name = _name_of(frame)
            if name is None:
                return

            self._calls.append(name)
            is_of_a_task = threading.current_thread() is threading.main_thread()
            if is_of_a_task:
                _stack.set(_calls_above(frame))

            if name in WRITES:
                begin = () if is_of_a_task else _stack.get()
                self._stacks.append((*begin, *_calls_above(frame)))


def _name_of(frame: FrameType) -> str | None:
    """Return module and qualified name of a function of the server; None for any other."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE):
        return None

    return f"{code.co_filename[len(PACKAGE) :]} {code.co_qualname}"


def _calls_above(frame: FrameType | None) -> tuple[str, ...]:
    """Return the functions on a thread's stack, outermost first, without lambdas."""
    found: list[str] = []
    while frame is not None:
        name = _name_of(frame)
        if name is not None and not frame.f_code.co_name.startswith("<"):
            found.append(name)

        frame = frame.f_back

    return tuple(reversed(found))


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
