"""Errors of an object store on disk: no space left, damage, or a failing disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.fsutil import (
    BROKEN,
    FULL,
    described,
    is_full,
    next_step,
    os_error_in,
)


class InsufficientSpace(Exception):
    """The disk has no space for the data to be written."""

    def __init__(self, need: int, free: int) -> None:
        super().__init__(
            f"{need} bytes are needed, {free} are free" if need else "the disk is full"
        )
        self.need = need
        self.free = free


class ShadowRepositoryError(Exception):
    """The shadow repository is unusable, or was not created by this program."""

    is_of_a_broken_disk = False
    """True where only the message shows a disk error; otherwise see `__cause__`."""

    hint = "`hankweave fsck --repair` repairs what it can, and reports what is lost."
    """The next step for a person."""


class StoreFailed(Exception):
    """The shadow repository could not store an object; the file being read is not at fault."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def disk_faults(place: str | PathLike[str]) -> Iterator[None]:
    """Turn a full disk or quota into `InsufficientSpace` and other errors into a store error."""
    try:
        yield
    except StoreFailed as failure:
        raise _named(failure.problem, place) from failure
    except OSError as problem:
        raise _named(problem, place) from problem


def _named(problem: OSError, place: str | PathLike[str]) -> Exception:
    if is_full(problem):
        return InsufficientSpace(need=0, free=free_bytes(place))

    return ShadowRepositoryError(str(problem))


def is_out_of_space(error: BaseException) -> bool:
    """Return whether work failed because the disk is full, so that a retry may succeed later."""
    return (
        isinstance(error, InsufficientSpace)
        or is_full(error)
        or (isinstance(error, Refused) and error.code == ErrorCode.INSUFFICIENT_SPACE)
    )


def code_of(error: Exception) -> ErrorCode:
    """Return the code of a failure of the disk or the store; INTERNAL_ERROR for a defect."""
    problem = os_error_in(error)
    if is_out_of_space(error) or is_full(problem):
        return ErrorCode.INSUFFICIENT_SPACE

    if isinstance(error, ShadowRepositoryError) and problem is None:
        return ErrorCode.IO_ERROR if error.is_of_a_broken_disk else ErrorCode.STORE_UNUSABLE

    return ErrorCode.INTERNAL_ERROR if problem is None else ErrorCode.IO_ERROR


def refusal_of(error: Exception, root: Path) -> Refused:
    """Return the refusal for a failure of the disk or the store of an execution."""
    code, problem = code_of(error), os_error_in(error)
    if problem is not None:
        return Refused(code, f"{described(problem, root)}.", hint=next_step(problem))

    message = f"The store of {root} cannot be used: {str(error).rstrip('.')}."
    return Refused(code, message, hint=getattr(error, "hint", None))


def named_by_libgit2(problem: Exception) -> Exception:
    """Derive the error from a message of libgit2, which keeps no error numbers."""
    text = str(problem)
    for number in FULL:
        if os.strerror(number) in text:
            return InsufficientSpace(need=0, free=0)

    failure = ShadowRepositoryError(text)
    failure.is_of_a_broken_disk = any(os.strerror(number) in text for number in BROKEN)
    return failure


def free_bytes(place: str | PathLike[str]) -> int:
    """Return the number of bytes an unprivileged process may still write."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize
