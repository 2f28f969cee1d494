"""Errors that end the process: one sentence, one hint, one exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """0 done, 1 failed, 2 usage, the rest as in sysexits.h."""

    DONE = 0
    """The command succeeded; the plan has ended successfully."""
    FAILED = 1
    """The command failed or was refused, or the plan failed."""
    USAGE = 2
    """An option or argument is wrong, or the hank is invalid."""
    NO_SUCH_SESSION = 3
    """Of `sessions`: there is no such run; Architect's code."""
    WITH_EXCEPTIONS = 3
    """Of `rollback`: it was done, except for paths that could not be restored; as in restic."""
    BAD_DATA = 65
    """Files of the execution are damaged, or are not what they should be."""
    NO_INPUT = 66
    """The hank, the data, or the execution does not exist."""
    UNAVAILABLE = 69
    """No server is running, or something that the command needs is missing or does not answer."""
    SOFTWARE = 70
    """The server has lost its directory, or its shutdown took too long; the next start recovers."""
    CANNOT_CREATE = 73
    """A file or directory cannot be created."""
    IO_ERROR = 74
    """The disk is full, or the system refused an operation on a file."""
    LOCK_HELD = 75
    """Another server owns the directory."""
    NO_PERMISSION = 77
    """The directory belongs to somebody else, or its permissions forbid this."""
    CONFIGURATION = 78
    """A requirement is not met: a program, a key, a setting, a sentinel."""


class Stop(Exception):
    """Ends the program with a sentence for the person who started it, never with a traceback."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode,
        *,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.code = code
        """The error code of the protocol, if there is one; the reference has a section on it."""
