"""A system that refuses operations on files: errno by errno, operation by operation."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ERRNOS = tuple(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES", "EPERM", "EMFILE", "ENOENT", "EBUSY"),
        *("ELOOP", "ENAMETOOLONG", "ETXTBSY"),
    )
)
"""What a rollback, a checkpoint, an adoption or a redaction can meet."""

OPERATIONS = ("open", "mkdir", "rename", "replace", "link", "unlink", "fsync", "write")
"""The calls through which all files are changed."""


class Refusals:
    """Refusals of the calls of one operation on the files below a folder."""

    def __init__(self, below: Path, only: int | None = None) -> None:
        """Refuse every call, or the one with this number, counted from 1."""
        self.below = below
        self._only = only
        self.count = 0

    def install(self, patch: pytest.MonkeyPatch, operation: str, number: int) -> None:
        """Refuse an operation from now on, as long as the patch lasts."""
        places: list[tuple[Any, str]] = [(os, operation)]
        if operation == "open":
            places += [(builtins, "open"), (io, "open")]

        for owner, name in places:
            patch.setattr(owner, name, self._refusing(getattr(owner, name), operation, number))

    def _refusing(self, real: Callable[..., Any], operation: str, number: int) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            path = self._path_of(arguments[0], named.get("dir_fd"))
            if path is None or not path.is_relative_to(self.below) or _reads(operation, arguments):
                return real(*arguments, **named)

            self.count += 1
            if self._only not in (None, self.count):
                return real(*arguments, **named)

            if isinstance(arguments[0], int):
                raise OSError(number, os.strerror(number))

            raise OSError(number, os.strerror(number), os.fsdecode(arguments[0]))

        return call

    def _path_of(self, named: Any, folder: int | None) -> Path | None:
        try:
            if isinstance(named, int):
                return Path(os.readlink(f"/proc/self/fd/{named}"))

            above = Path.cwd() if folder is None else Path(os.readlink(f"/proc/self/fd/{folder}"))
            return above / os.fsdecode(named)
        except (OSError, TypeError):
            return None


def _reads(operation: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether this is an open for reading alone: those are refused elsewhere."""
    if operation != "open":
        return False

    how = arguments[1] if len(arguments) > 1 else "r"
    if isinstance(how, int):
        return how & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) == 0

    return isinstance(how, str) and not set(how) & set("wax+")
