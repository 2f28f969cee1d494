"""Faults of a store on the disk: no room, damage, or a disk that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.fsutil import BROKEN, FULL, is_full


class InsufficientSpace(Exception):
    """The disk cannot take what has to be written."""

    def __init__(self, need: int, free: int) -> None:
        super().__init__(
            f"{need} bytes are needed, {free} are free" if need else "the disk is full"
        )
        self.need = need
        self.free = free


class ShadowRepositoryError(Exception):
    """The shadow repository itself does not work, or is not ours."""

    is_of_a_broken_disk = False
    """True where the disk said so by a message alone; else `__cause__` may tell."""


class StoreFailed(Exception):
    """The shadow repository could not take an object; the file that was being read is innocent."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def disk_faults(place: str | PathLike[str]) -> Iterator[None]:
    """Says a full disk (or a full quota) as what it is, and any other fault of a store as that."""
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


def is_for_want_of_room(error: BaseException) -> bool:
    """Tells whether work failed because the disk is full, and may do when it is not."""
    return (
        isinstance(error, InsufficientSpace)
        or is_full(error)
        or (isinstance(error, Refused) and error.code == ErrorCode.INSUFFICIENT_SPACE)
    )


def named_by_libgit2(problem: Exception) -> Exception:
    """Reads what libgit2 met out of its message: it keeps no error numbers."""
    text = str(problem)
    for number in FULL:
        if os.strerror(number) in text:
            return InsufficientSpace(need=0, free=0)

    failure = ShadowRepositoryError(text)
    failure.is_of_a_broken_disk = any(os.strerror(number) in text for number in BROKEN)
    return failure


def free_bytes(place: str | PathLike[str]) -> int:
    """Gives what an unprivileged process may still write."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize
