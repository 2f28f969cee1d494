"""One at a time: our own lock, and git's lock on the index.

Ours is a `flock` that the kernel frees when a process dies. `index.lock` keeps other git programs
out; it holds our mark, so that one that a crash left is known for ours and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hankweave_server.checkpoints.workspace_git.errors import RepositoryBusy

PATIENCE_S = 30.0
"""For another checkpoint or rollback of the same repository."""
PATIENCE_WITH_GIT_S = 1.0
"""`git status` and editors hold the index for an instant."""

_MARK = b"hankweave\n"
_PAUSE_S = 0.02


@contextlib.contextmanager
def alone(common_dir: Path) -> Iterator[None]:
    """Keeps other managers of the repository out; raises RepositoryBusy after half a minute."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(common_dir / "hankweave.lock", flags, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RepositoryBusy(
                    "Another checkpoint or rollback of this repository has not ended.",
                    "Wait for it, or see what holds hankweave.lock in the git directory.",
                ) from None

            time.sleep(_PAUSE_S)
        else:
            return


@contextlib.contextmanager
def index_held(git_dir: Path) -> Iterator[None]:
    """Keeps git out of the index; only for who is `alone`."""
    lock, ours = git_dir / "index.lock", git_dir / "hankweave-index.lock"
    ours.write_bytes(_MARK)
    try:
        # A link: at no moment is there a lock without its mark.
        _link(ours, lock)
    finally:
        ours.unlink(missing_ok=True)

    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _link(ours: Path, lock: Path) -> None:
    deadline = time.monotonic() + PATIENCE_WITH_GIT_S
    while True:
        try:
            os.link(ours, lock)
        except FileExistsError:
            if _is_left_behind(lock):
                lock.unlink(missing_ok=True)
            elif time.monotonic() > deadline:
                raise RepositoryBusy(
                    f"Another git program works on this repository: {lock} is there.",
                    "Wait for it; if none runs, remove that file.",
                ) from None
            else:
                time.sleep(_PAUSE_S)
        else:
            return


def _is_left_behind(lock: Path) -> bool:
    try:
        return lock.read_bytes() == _MARK
    except OSError:
        return False
