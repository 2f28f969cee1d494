"""A process that dies between two of its changes of the disk, without a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest


class SimulatedCrash(BaseException):
    """The end of the process: no `except Exception` catches it."""


class Crash:
    """Counts calls, and ends the process before one of them and before every later one."""

    def __init__(self, calls_before: int) -> None:
        self._left = calls_before
        self.happened = False

    def count(self) -> None:
        if self._left == 0:
            self.happened = True
            raise SimulatedCrash

        self._left -= 1


@contextmanager
def crash_after(calls_before: int, *functions: tuple[object, str]) -> Iterator[Crash]:
    """End the block after this many calls of the named functions, as a crash would.

    Of `os.open`, only the calls that may create a file count.
    """
    crash = Crash(calls_before)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in functions:
            patch.setattr(owner, name, _counted(owner, name, crash))

        with suppress(SimulatedCrash):
            yield crash


def _counted(owner: object, name: str, crash: Crash) -> Callable[..., Any]:
    real = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if owner is not os or name != "open" or arguments[1] & os.O_CREAT:
            crash.count()

        return real(*arguments, **named)

    return call
