"""Moves a ref as git does: a lock file beside it, flushed, then renamed over it.

libgit2 does the same while it holds the interpreter, and a flush may take its time.
"""

from __future__ import annotations

import os
from pathlib import Path

from hankweave_server.fsutil import PRIVATE_DIRECTORY, PRIVATE_FILE, sync_directory, write_all


def move_ref(repository: Path, ref: str, sha: str) -> None:
    """Makes a ref, or HEAD, name an object, durably, whatever it named before.

    Raises FileExistsError while another git program holds the ref, and OSError for faults of the
    disk; the ref then is as it was.
    """
    _write(repository, ref, f"{sha}\n")


def attach_head(repository: Path, branch: str) -> None:
    """Makes HEAD follow a branch, born or not; raises as `move_ref`."""
    _write(repository, "HEAD", f"ref: {branch}\n")


def _write(repository: Path, ref: str, content: str) -> None:
    path = repository / ref
    _make_durably(path.parent)
    lock = path.with_name(path.name + ".lock")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock, flags, PRIVATE_FILE)
    try:
        try:
            write_all(descriptor, content.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

        lock.rename(path)
    except OSError:
        lock.unlink(missing_ok=True)
        raise

    sync_directory(path.parent)


def _make_durably(folder: Path) -> None:
    """Creates the folder of a ref and those above it; git removes them when they are empty."""
    if not folder.is_dir():
        _make_durably(folder.parent)
        folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        sync_directory(folder.parent)
