"""Remove trees that other programs created: links, locked folders and all, and nothing beyond.

No link is ever followed: every step starts from an open folder, by name. A folder without
permissions (mode 000) is made accessible first, and folders nested too deeply are moved up before
they are removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path

from hankweave_server.fsutil import opened

DEEP = ".hankweave.removing-"
"""Prefix of the names under which deep folders are moved up; a crash may leave one."""

_DEEPEST = 100
"""Levels that are held open at a time; far below the limits of descriptors and recursion."""

_ESCAPED = re.compile(rb"\\([0-7]{3})")


def remove(path: Path) -> int:
    """Remove what the path names, if anything; return the number of bytes freed.

    Raises OSError for what cannot be removed; other parts of it may be gone by then.
    """
    freed = 0
    with opened(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as parent:
        with contextlib.suppress(FileNotFoundError):
            freed = _Removal(parent).all_of(path.name)

        os.fsync(parent)

    return freed


class _Removal:
    """One removal; `top` is the folder into which deep ones are moved."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._moved: list[str] = []

    def all_of(self, name: str) -> int:
        freed = self.entry(self._top, name, _DEEPEST)
        while self._moved:
            freed += self.entry(self._top, self._moved.pop(), _DEEPEST)

        return freed

    def entry(self, folder: int, name: str, levels: int) -> int:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        freed = status.st_blocks * 512
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=folder)
            return freed if status.st_nlink == 1 else 0

        if levels == 0:
            os.close(_opened(folder, name))  # Moving a folder requires write permission in it.
            self._moved.append(f"{DEEP}{secrets.token_hex(8)}")
            os.rename(name, self._moved[-1], src_dir_fd=folder, dst_dir_fd=self._top)
            return 0

        inner = _opened(folder, name)
        try:
            freed += sum(self.entry(inner, each, levels - 1) for each in os.listdir(inner))
        finally:
            os.close(inner)

        os.rmdir(name, dir_fd=folder)
        return freed


def _opened(folder: int, name: str) -> int:
    """Open a folder, after giving its owner all permissions."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened(name, os.O_PATH | flags, dir_fd=folder) as found:
        reach = f"/proc/self/fd/{found}"
        if stat.S_IMODE(os.fstat(found).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(reach, stat.S_IRWXU)

        return os.open(reach, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def mounted_below(path: Path) -> Path | None:
    """Return a mount point below a folder, if any: another file system, or another place."""
    top = os.fsencode(path.resolve()) + b"/"
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split()[4])
        if place.startswith(top):
            return Path(os.fsdecode(place))

    return None


def size_of(path: Path) -> int:
    """Return the bytes that a tree takes on disk; unreadable parts count as zero."""
    total = 0
    waiting = [os.fspath(path)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)

    return total
