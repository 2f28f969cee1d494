"""A file that holds nothing but room: given up when the disk has none, made again when it has.

It lets the write that met the full disk come to its end. Nothing depends on it: where it cannot be
made, a full disk only makes the ledger wait sooner.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

from hankweave_server.fsutil import PRIVATE_FILE, is_full

RESERVE_BYTES = 1 << 20
"""More than a batch of events and a state file of a thousand codons need together."""

ROOM_BYTES = 2 << 20
"""What has to be free beside the reserve before a disk counts as having room again."""

ROOM_FILES = 16
"""The same in files: a checkpoint makes about so many."""


class Reserve:
    """The reserve file of one execution; all calls block, and only the ledger's owner may call."""

    def __init__(self, path: Path) -> None:
        # The folder as it is now: if another one takes its path, nothing is touched there.
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        self._path = Path(f"/proc/self/fd/{descriptor}") / path.name

    def make(self) -> bool:
        """Sees to it that the reserve stands; False where the disk has no room for it and more.

        A file system that cannot reserve has room as long as it says so.
        """
        try:
            stands = self._path.exists()
            if not self._has_room(ROOM_BYTES + (0 if stands else RESERVE_BYTES)):
                return False

            if not stands:
                self._allocate()
        except OSError as error:
            self.spend()
            return not is_full(error)

        return True

    def spend(self) -> bool:
        """Gives the room back to the disk; False where there was none to give."""
        try:
            # Truncated first: some file systems free an unlinked file only later.
            os.truncate(self._path, 0)
            self._path.unlink()
        except OSError:
            return False

        return True

    def _has_room(self, size: int) -> bool:
        status = os.statvfs(self._path.parent)
        files_free = status.f_favail if status.f_files else ROOM_FILES
        return status.f_bavail * status.f_frsize >= size and files_free >= ROOM_FILES

    def _allocate(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, PRIVATE_FILE)
        with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)):
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
