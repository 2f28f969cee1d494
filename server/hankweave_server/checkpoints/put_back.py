"""Puts a remembered file back, which may lie anywhere: in an agent's own folder, for one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from hankweave_server.fsutil import PRIVATE_FILE, make_private_directory, sync_directory, write_all

_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotOurs(Exception):
    """The file, or the folder it lies in, belongs to somebody else, or is no file."""


def put_back(path: Path, content: Iterable[bytes]) -> None:
    """Replaces a file at once and durably, readable by its owner alone.

    Raises NotOurs and OSError, and whatever `content` raises, with the file as it was.
    """
    make_private_directory(path.parent)
    _refuse_foreign(path)
    temporary = path.with_name(f".{path.name}.hankweave-tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, _CREATING, PRIVATE_FILE)
    try:
        try:
            for piece in content:
                write_all(descriptor, piece)

            os.fsync(descriptor)
        finally:
            os.close(descriptor)

        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

    sync_directory(path.parent)


def _refuse_foreign(path: Path) -> None:
    if path.parent.stat().st_uid != os.geteuid():
        raise NotOurs(path)

    try:
        status = path.lstat()
    except FileNotFoundError:
        return

    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        raise NotOurs(path)
