"""Read what is at a path: content, link target, or the reason why neither is available.

Never follow a link, never block on a pipe, and never trust a read during which the file changed:
stat data is taken before and after, and describes the content only if both agree.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hankweave_server.git.errors import StoreFailed
from hankweave_server.git.objects import STREAMED_FROM
from hankweave_server.git.trees import EXECUTABLE, LINK, REGULAR
from hankweave_server.worktree.attributes import Attributes, attributes_of
from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent
from hankweave_server.worktree.names import is_reserved
from hankweave_server.worktree.open_files import has_writer
from hankweave_server.worktree.stat_index import Signature, signature_of

ATTEMPTS = 3

PERMISSIONS = 0o777
"""Mask without set-uid, set-gid and sticky bits: a restore by another user would grant them."""


class Sink(Protocol):
    """A receiver of content that returns its name; it may store the content or not."""

    def blob(self, data: bytes) -> bytes: ...

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None: ...

    def withdraw(self, digest: bytes) -> None: ...


class CapturedFile(NamedTuple):
    """Content that was read, and the stat data it belongs to."""

    digest: bytes
    git_mode: int
    signature: Signature | None
    """None for a file that changed during each attempt: it must be read again."""
    permissions: int
    size: int
    has_writer: bool | None = False
    """Whether a process had it open for writing, so that stat data may not show what it writes.

    None if that is unknown.
    """
    attributes: Attributes | None = None
    """None for a link."""


@dataclass(frozen=True, slots=True)
class FileRefused:
    """Something that cannot be captured."""

    reason: str


@dataclass(frozen=True, slots=True)
class Vanished:
    """Nothing is there, or a folder."""


Observation = CapturedFile | FileRefused | Vanished


class FileReader:
    """A reader that passes content of the work tree to a sink."""

    def __init__(self, descent: Descent, sink: Sink, size_limit: int | None = None) -> None:
        self._descent = descent
        self._sink = sink
        self._size_limit = size_limit

    def read(self, path: bytes) -> Observation:
        """Read one path, up to three times if it changes meanwhile.

        Raises StoreFailed when the sink cannot take the content, OSError for disk errors.
        """
        name = path.rpartition(b"/")[2]
        if is_reserved(name):
            return FileRefused("reserved-name")

        try:
            folder = self._descent.folder_of(path)
            for attempt in range(ATTEMPTS):
                seen = self._read_once(folder, name, is_last=attempt == ATTEMPTS - 1)
                if seen is not None:
                    return seen
        except OSError as problem:
            return _without_access(problem)

        return FileRefused("changing")

    def _read_once(self, folder: int, name: bytes, *, is_last: bool) -> Observation | None:
        """Read a name; return None when it changed meanwhile and should be read again."""
        status = os.lstat(name, dir_fd=folder)
        if stat.S_ISREG(status.st_mode):
            return self._read_file(folder, name, is_last=is_last)

        if not stat.S_ISLNK(status.st_mode):
            return _refusal(status.st_mode)

        target = os.readlink(name, dir_fd=folder)
        signature = signature_of(status)
        if signature != signature_of(os.lstat(name, dir_fd=folder)):
            return None

        return CapturedFile(self._stored(target), LINK, signature, 0o777, len(target))

    def _read_file(self, folder: int, name: bytes, *, is_last: bool) -> Observation | None:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        try:
            # First: the stat data shows what is written by those who open the file later.
            has_a_writer = has_writer(descriptor)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return _refusal(status.st_mode)

            if self._size_limit is not None and status.st_size > self._size_limit:
                return FileRefused("too-large")

            if status.st_size >= STREAMED_FROM:
                seen = self._read_in_a_stream(descriptor, status, is_last=is_last)
            else:
                seen = self._read_at_once(descriptor, status, is_last=is_last)

            if seen is None:
                return None

            # Not `_replace`, which takes a third of the time of all this.
            return CapturedFile(*seen[:5], has_a_writer, attributes_of(descriptor, status))
        finally:
            os.close(descriptor)

    def _read_at_once(
        self, descriptor: int, status: os.stat_result, *, is_last: bool
    ) -> CapturedFile | None:
        # One byte more than promised reveals a file that grew.
        data = os.read(descriptor, status.st_size + 1)
        if len(data) != status.st_size:
            # The file changes, or is a pseudo file, whose size means nothing.
            return self._read_on(descriptor, status, data) if is_last else None

        signature = _signature_if_unchanged(descriptor, status)
        if signature is None and not is_last:
            return None

        return _captured(self._stored(data), status, len(data), signature)

    def _read_on(self, descriptor: int, status: os.stat_result, data: bytes) -> CapturedFile | None:
        """Read the whole content of a file whose size was wrong."""
        while data and (part := os.read(descriptor, STREAMED_FROM)):
            data += part
            if len(data) > 2 * STREAMED_FROM:
                return None

        return _captured(self._stored(data), status, len(data), None)

    def _read_in_a_stream(
        self, descriptor: int, status: os.stat_result, *, is_last: bool
    ) -> CapturedFile | None:
        try:
            digest = self._sink.streamed_blob(descriptor, status.st_size)
        except OSError as problem:
            raise StoreFailed(problem) from problem

        if digest is None:
            return None

        signature = _signature_if_unchanged(descriptor, status)
        if signature is None and not is_last:
            self._sink.withdraw(digest)
            return None

        return _captured(digest, status, status.st_size, signature)

    def _stored(self, data: bytes) -> bytes:
        try:
            return self._sink.blob(data)
        except OSError as problem:
            raise StoreFailed(problem) from problem


def _signature_if_unchanged(descriptor: int, status: os.stat_result) -> Signature | None:
    now = signature_of(os.fstat(descriptor))
    return now if now == signature_of(status) else None


def _captured(
    digest: bytes, status: os.stat_result, size: int, signature: Signature | None
) -> CapturedFile:
    return CapturedFile(
        digest,
        EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR,
        signature,
        stat.S_IMODE(status.st_mode) & PERMISSIONS,
        size,
    )


def _refusal(mode: int) -> Observation:
    if stat.S_ISDIR(mode):
        return Vanished()

    if stat.S_ISFIFO(mode):
        return FileRefused("fifo")

    return FileRefused("socket" if stat.S_ISSOCK(mode) else "device")


def _without_access(problem: OSError) -> Observation:
    if problem.errno in GONE:
        return Vanished()

    # Opening yields ENXIO when a socket takes the file's place after the lstat.
    if problem.errno in (errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENAMETOOLONG):
        return FileRefused("unreadable")

    raise problem
