"""Errors that end the process: one sentence, one hint, one exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """0 done, 1 failed, 2 usage, the rest as in sysexits.h."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_SUCH_SESSION = 3
    """Architect's code for an argument that names something missing."""
    WITH_EXCEPTIONS = 3
    """A rollback was done, but for paths that could not be restored; as in restic."""
    BAD_DATA = 65
    NO_INPUT = 66
    UNAVAILABLE = 69
    SOFTWARE = 70
    CANNOT_CREATE = 73
    IO_ERROR = 74
    LOCK_HELD = 75
    NO_PERMISSION = 77
    CONFIGURATION = 78


class Stop(Exception):
    """Ends the program with a sentence for the person who started it, never with a traceback."""

    def __init__(self, message: str, exit_code: ExitCode, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
