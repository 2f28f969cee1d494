"""Reach paths below the work tree without ever following a link.

An agent may replace any folder by a link out of the tree at any moment. A path of more than one
component is therefore never passed to the kernel for reading or writing content: each component is
opened relative to the descriptor of the one above it, with O_NOFOLLOW, and a link on the way is an
error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hankweave_server.worktree.names import AT_THE_TOP, parent_of

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors for a path that leads nowhere, or would lead through a link."""


def has_content(mode: int) -> bool:
    """Return whether git can store the content: of a regular file or a link."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def make_folders(root: Path, steps: Iterable[bytes], opened: contextlib.ExitStack) -> int:
    """Open a folder below `root`, creating missing ones; `opened` closes all that were passed."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, folder)
    for step in steps:
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)

        folder = os.open(step, FOLDER_FLAGS, dir_fd=folder)
        opened.callback(os.close, folder)

    return folder


class Descent:
    """An open work tree and the folder last reached, since neighbouring paths come in turn."""

    def __init__(self, work_tree: Path, at_the_top: frozenset[bytes] = AT_THE_TOP) -> None:
        self._work_tree = work_tree
        self.at_the_top = at_the_top
        """Names at the top of this work tree that belong to Hankweave."""
        self.root = self._open_root()
        self._cached: tuple[bytes, int] | None = None

    def folder(self, path: bytes) -> int:
        """Return the descriptor of a folder; it is open until the next call or `close_cached`."""
        if not path:
            return self.root

        if self._cached is not None and self._cached[0] == path:
            return self._cached[1]

        self.close_cached()
        descriptor = self._opened(path)
        self._cached = (path, descriptor)
        return descriptor

    def folder_of(self, path: bytes) -> int:
        return self.folder(parent_of(path))

    def status(self, path: bytes) -> os.stat_result | None:
        """Return the stat data of a path itself; None if it is missing or behind a link."""
        try:
            return os.lstat(path.rpartition(b"/")[2], dir_fd=self.folder_of(path))
        except ValueError:
            return None  # No name contains a NUL.
        except OSError as problem:
            if problem.errno in GONE or problem.errno == errno.ENAMETOOLONG:
                return None

            raise

    def close_cached(self) -> None:
        """Close the folder last reached: its path may lead to another one the next time."""
        if self._cached is not None:
            os.close(self._cached[1])
            self._cached = None

    def close(self) -> None:
        self.close_cached()
        os.close(self.root)

    def _open_root(self) -> int:
        return os.open(self._work_tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _opened(self, path: bytes) -> int:
        descriptor = os.dup(self.root)
        for name in path.split(b"/"):
            above = descriptor
            try:
                descriptor = os.open(name, FOLDER_FLAGS, dir_fd=above)
            finally:
                os.close(above)

        return descriptor

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Descent]:
        """Reopen the work tree from its path, and reach everything through it during the block.

        A work tree that was removed or replaced is noticed instead of being read as an empty one.
        """
        self.close_cached()
        root = self._open_root()
        os.close(self.root)
        self.root = root
        try:
            yield self
        finally:
            self.close_cached()
