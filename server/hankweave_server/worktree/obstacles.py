"""Find what keeps a restore from changing a path, without changing anything.

A restore replaces and removes files by renaming, which needs rights in the folder and not in the
file. The kernel refuses it all the same where an attribute (chattr(1)), a mount or the sticky bit
of the folder protects the file. This is checked for the paths of a preview, and for those that a
restore was refused: what is not seen here, such as the rules of a security module, is met later.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hankweave_server.worktree.dirfd import GONE, Descent
from hankweave_server.worktree.names import parent_of

Kind = Literal[
    "immutable",
    "append-only",
    "mount-point",
    "read-only",
    "no-permission",
    "sticky",
    "immutable-folder",
    "append-only-folder",
]

_AT_SYMLINK_NOFOLLOW, _AT_NO_AUTOMOUNT = 0x100, 0x800
_IMMUTABLE, _APPEND, _MOUNT_ROOT = 0x10, 0x20, 0x2000  # STATX_ATTR_* of statx(2).
_CAP_FOWNER = 3
_SIZE_OF_STATX, _ATTRIBUTES = 256, slice(8, 16)

_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


class Obstacle(NamedTuple):
    """An obstacle, and the error that a change would meet."""

    kind: Kind
    errno: int


@dataclass(frozen=True, slots=True)
class _Folder:
    status: os.stat_result
    obstacle: Obstacle | None
    """What keeps any name in it from changing."""
    is_append_only: bool


class Obstacles:
    """The obstacles to changes in one work tree, at one moment."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._folders: dict[bytes, _Folder] = {}

    def at(self, path: bytes) -> Obstacle | None:
        """Return what would keep a file from being put at a path, or removed from it."""
        try:
            return self._at(path)
        except PermissionError:
            return Obstacle("no-permission", errno.EACCES)
        except OSError:
            return None

    def _at(self, path: bytes) -> Obstacle | None:
        above = parent_of(path)
        while True:
            try:
                descriptor = self._descent.folder(above)
                break
            except OSError as problem:
                if problem.errno not in GONE:
                    raise

                above = parent_of(above)

        folder = self._folders.get(above)
        if folder is None:
            folder = self._folders[above] = _folder_at(descriptor)

        status = self._descent.status(path) if above == parent_of(path) else None
        if folder.obstacle is not None or status is None:
            return folder.obstacle

        return _of_file(folder, status, _attributes(descriptor, path.rpartition(b"/")[2]))


def _folder_at(descriptor: int) -> _Folder:
    status, attributes = os.fstat(descriptor), _attributes(descriptor, b".")
    obstacle = None
    if os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        obstacle = Obstacle("read-only", errno.EROFS)
    elif attributes & _IMMUTABLE:
        obstacle = Obstacle("immutable-folder", errno.EPERM)
    elif not _may_write(descriptor) and status.st_uid != os.geteuid():
        obstacle = Obstacle("no-permission", errno.EACCES)  # A restore opens folders of its user.

    return _Folder(status, obstacle, bool(attributes & _APPEND))


def _of_file(folder: _Folder, status: os.stat_result, attributes: int) -> Obstacle | None:
    if attributes & _IMMUTABLE:
        return Obstacle("immutable", errno.EPERM)

    if attributes & _APPEND:
        return Obstacle("append-only", errno.EPERM)

    if attributes & _MOUNT_ROOT:
        return Obstacle("mount-point", errno.EBUSY)

    if folder.is_append_only:
        return Obstacle("append-only-folder", errno.EPERM)

    owners = status.st_uid, folder.status.st_uid
    is_sticky = folder.status.st_mode & stat.S_ISVTX and os.geteuid() not in owners
    return Obstacle("sticky", errno.EPERM) if is_sticky and not _acts_as_any_owner() else None


def _acts_as_any_owner() -> bool:
    """Return whether this thread has CAP_FOWNER; root in a container may lack it."""
    with open("/proc/thread-self/status", "rb") as file:
        effective = next(line for line in file if line.startswith(b"CapEff:"))

    return bool(int(effective.split()[1], 16) >> _CAP_FOWNER & 1)


def _may_write(descriptor: int) -> bool:
    return os.access(b".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True)


def _attributes(folder: int, name: bytes) -> int:
    """Return the attributes of a file or folder, 0 where the system does not report them."""
    buffer = ctypes.create_string_buffer(_SIZE_OF_STATX)
    flags = _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT
    if _statx is None or _statx(folder, name, flags, 0, buffer) != 0:
        return 0

    return int.from_bytes(buffer.raw[_ATTRIBUTES], sys.byteorder)
