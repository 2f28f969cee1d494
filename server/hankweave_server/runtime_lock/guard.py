"""The guard: the file whose flock grants the directory and whose content names the grantee."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

from hankweave_protocol import codec
from hankweave_server import fsutil
from hankweave_server.domain.liveness import GuardOwner
from hankweave_server.runtime_lock import lock_file
from hankweave_server.runtime_lock.lock_file import MISSING, decoded

_LARGEST = 64 * 1024


class GuardBusy(Exception):
    """Another process holds the guard; `owner` is its content, if it can be read."""

    def __init__(self, owner: GuardOwner | None) -> None:
        super().__init__("the guard is held")
        self.owner = owner


def granted_guard(path: Path) -> int:
    """Open the guard and take its lock, which lasts until the descriptor is closed.

    Raises GuardBusy, with nothing changed, if another process holds it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        guard = os.open(path, flags, fsutil.PRIVATE_FILE)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, guard)
            _lock(guard, path)
            if still_named(path, guard):
                undo.pop_all()
                return guard


def _lock(guard: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(guard).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))

    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise GuardBusy(guard_owner(guard)) from None


def still_named(path: Path, descriptor: int) -> bool:
    """Return whether the path leads to the open file: not to another one, and not to nothing."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in MISSING:
            return False

        raise

    return os.path.samestat(named, os.fstat(descriptor))


def guard_owner(guard: int) -> GuardOwner | None:
    return decoded(GuardOwner, os.pread(guard, _LARGEST, 0))


def write_owner(guard: int, owner: GuardOwner) -> None:
    """Write the owner in place: a rename would create a new inode.

    The new content is written before the file is truncated, so it is never empty.
    """
    content = codec.encode(owner)
    os.pwrite(guard, content, 0)
    os.ftruncate(guard, len(content))
    os.fsync(guard)


def identity(start_time: str) -> GuardOwner:
    """Describe this process as the owner whose runtime.lock has this `startTime`."""
    ticks = lock_file.start_ticks(os.getpid())
    assert ticks is not None, "`acquire` has seen that /proc shows this process"
    return GuardOwner(
        pid=os.getpid(),
        start_ticks=ticks,
        boot_id=lock_file.boot_id(),
        pid_namespace=lock_file.pid_namespace(),
        host=socket.gethostname(),
        start_time=start_time,
    )
