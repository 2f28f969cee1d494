"""Puts files, links and folders in their places in the work tree, without following a link.

Content goes into a temporary file (`spare`) and then, all at once, to its place. Where that file
cannot be lent, because the folder is on another disk or its top is write-protected, it is made in
the folder itself and renamed. The temporary name is never taken for the agent's by a scan.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hankweave_server.worktree.dirfd import FOLDER_FLAGS, GONE, Descent
from hankweave_server.worktree.names import joined, parent_of
from hankweave_server.worktree.slots import Signature
from hankweave_server.worktree.spare import TEMPORARY, NewFile, Spares, create_anew, write_sparsely

_SPARES_CANNOT = frozenset({errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS})
"""What the kernel says when the top of the work tree cannot lend its temporary file."""


T = TypeVar("T")


class Obstructed(Exception):
    """A folder cannot be entered or made because something else has its name."""

    def __init__(self, path: bytes) -> None:
        super().__init__(os.fsdecode(path))
        self.path = path


class Placing:
    """Changes the work tree, one path at a time."""

    def __init__(self, descent: Descent, spares: int) -> None:
        """`spares` is the descriptor of the folder where new files are written first."""
        self._descent = descent
        self._spares = Spares(spares)
        self.opened_up: dict[bytes, int] = {}
        """Folders that had to be made writable, and their permissions before."""
        self.made: list[bytes] = []

    def put_file(self, path: bytes, new: NewFile, seen: Signature | None) -> os.stat_result:
        """Replaces what is at the path (but no folder) by a file; its parents are made.

        `seen` is the file that was found there, if it was one. Raises Displaced, with nothing
        changed, when another file has taken its place since.
        """
        folder = self._enter(parent_of(path))
        try:
            return self._spares.put(folder, _name_of(path), new, seen)
        except OSError as problem:
            if problem.errno not in _SPARES_CANNOT:
                raise

        return self._put_beside(path, new)

    def _put_beside(self, path: bytes, new: NewFile) -> os.stat_result:
        """Writes the temporary file in the folder itself: it may be on another disk."""

        def write(folder: int, name: bytes) -> os.stat_result:
            descriptor = create_anew(TEMPORARY, folder)
            try:
                write_sparsely(descriptor, new.content())
                os.fchmod(descriptor, new.permissions)
            except BaseException:
                os.unlink(TEMPORARY, dir_fd=folder)
                raise
            finally:
                os.close(descriptor)

            os.rename(TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
            return os.lstat(name, dir_fd=folder)

        return self._in_folder_of(path, write)

    def sweep(self) -> None:
        """Removes the temporary files of a restore that a crash cut short."""
        with contextlib.suppress(PermissionError):
            self._spares.sweep()

    def clear(self) -> None:
        """Removes the temporary files of this restore."""
        self._spares.clear()

    def put_link(self, path: bytes, target: bytes) -> os.stat_result:
        """Replaces what is at the path (but no folder) by a symbolic link."""

        def write(folder: int, name: bytes) -> os.stat_result:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(TEMPORARY, dir_fd=folder)

            os.symlink(target, TEMPORARY, dir_fd=folder)
            os.rename(TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
            return os.lstat(name, dir_fd=folder)

        return self._in_folder_of(path, write)

    def remove(self, path: bytes) -> None:
        """Removes a file or link; nothing there is as good."""

        def unlink(folder: int, name: bytes) -> None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)

        self._in_folder_of(path, unlink)

    def make_folder(self, path: bytes) -> None:
        self._enter(path)

    def remove_empty_folder(self, path: bytes) -> bool:
        """Removes a folder if it is empty; tells whether nothing is there any more."""

        def rmdir(folder: int, name: bytes) -> bool:
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as problem:
                if problem.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                    return False

                if problem.errno != errno.ENOENT:
                    raise

            return True

        try:
            folder = self._descent.folder_of(path)
        except OSError as problem:
            if problem.errno in GONE:
                return True

            raise

        done = self._changing(parent_of(path), folder, lambda: rmdir(folder, _name_of(path)))
        if done:
            self._descent.let_go()

        return done

    def set_permissions(self, path: bytes, permissions: int) -> os.stat_result:
        """Changes the permissions of a file or folder, never of what a link points to."""
        folder, name = self._descent.folder_of(path), _name_of(path)
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
                os.chmod(f"/proc/self/fd/{descriptor}", permissions)

            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _in_folder_of(self, path: bytes, change: Callable[[int, bytes], T]) -> T:
        parent = parent_of(path)
        folder = self._enter(parent)
        return self._changing(parent, folder, lambda: change(folder, _name_of(path)))

    def _enter(self, path: bytes) -> int:
        """Opens a folder, making it and its parents where they are missing."""
        try:
            return self._descent.folder(path)
        except OSError as problem:
            if problem.errno not in GONE:
                raise

        self._make(path)
        return self._descent.folder(path)

    def _make(self, path: bytes) -> None:
        here = b""
        for name in path.split(b"/"):
            above, here = here, joined(here, name)
            folder = self._descent.folder(above)
            try:
                os.close(os.open(name, FOLDER_FLAGS, dir_fd=folder))
            except FileNotFoundError:
                self._changing(above, folder, partial(os.mkdir, name, dir_fd=folder))
                self.made.append(here)
            except OSError as problem:
                if problem.errno not in GONE:
                    raise

                raise Obstructed(here) from problem

    def _changing(self, path: bytes, folder: int, change: Callable[[], T]) -> T:
        """Runs a change in a folder, lifting the folder's write protection if it must."""
        try:
            return change()
        except PermissionError:
            before = stat.S_IMODE(os.fstat(folder).st_mode)
            if before & stat.S_IRWXU == stat.S_IRWXU:
                raise

            os.fchmod(folder, before | stat.S_IRWXU)
            self.opened_up.setdefault(path, before)

        return change()


def _name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
