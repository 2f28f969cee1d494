"""One at a time: our own lock, and git's lock on the index.

Ours is a `flock` that the kernel frees when a process dies. `index.lock` keeps other git programs
out; it holds our mark, so that one that a crash left is known for ours and removed. `gc.pid` is how
one `git gc` keeps another out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from hankweave_server.user_git.errors import RepositoryBusy

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
def gc_held_off(common_dir: Path) -> Iterator[None]:
    """Keeps `git gc --prune=now` from what no ref names yet, as one `git gc` does another.

    One that runs already is let be: it may take minutes, and spares what is new unless it is told
    not to. What a crash leaves names a process that is gone, which git passes over.
    """
    pid, ours = common_dir / "gc.pid", common_dir / "hankweave-gc.new"
    mark = f"{os.getpid()} {socket.gethostname()}".encode()
    is_held = not _runs_elsewhere(pid)
    try:
        if is_held:
            ours.write_bytes(mark)
            ours.replace(pid)

        yield
    finally:
        ours.unlink(missing_ok=True)
        if is_held and _content(pid) == mark:
            pid.unlink(missing_ok=True)


def _runs_elsewhere(pid: Path) -> bool:
    number, _, host = _content(pid).partition(b" ")
    if not number.isdigit():
        return False

    return host != socket.gethostname().encode() or Path(f"/proc/{int(number)}").exists()


@contextlib.contextmanager
def index_held(git_dir: Path) -> Iterator[None]:
    """Keeps git out of the index; only for who is `alone`."""
    lock, ours = git_dir / "index.lock", git_dir / "hankweave-index.lock"
    try:
        ours.write_bytes(_MARK)
        # A link: at no moment is there a lock without its mark.
        _link(ours, lock)
    finally:
        ours.unlink(missing_ok=True)

    try:
        yield
    finally:
        # Who removed ours by hand may have let another program in.
        if _is_ours(lock):
            lock.unlink(missing_ok=True)


def _link(ours: Path, lock: Path) -> None:
    deadline = time.monotonic() + PATIENCE_WITH_GIT_S
    while True:
        try:
            os.link(ours, lock)
        except FileExistsError:
            if _is_ours(lock):
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


def _is_ours(lock: Path) -> bool:
    return _content(lock) == _MARK


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
