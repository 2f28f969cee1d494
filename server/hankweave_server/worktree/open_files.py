"""Find the files of a work tree that some processes have open for writing right now.

Stat data shows that a file has changed, but not that a writer is still at work. For a file written
through a shared mapping it does not even show the change: the kernel updates the times only with
the first write to a clean page (Linux 6, ext4; on tmpfs, once per mapping). /proc shows both:
descriptors open for writing and writable shared mappings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CAN_WRITE = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Open files, as paths relative to the work tree."""

    open: frozenset[bytes] = frozenset()
    """Open for writing, by a descriptor or by a mapping."""

    mapped: frozenset[bytes] = frozenset()
    """Mapped, shared and writable: their times do not show what was written."""

    def __or__(self, other: OpenFiles) -> OpenFiles:
        return OpenFiles(self.open | other.open, self.mapped | other.mapped)


def files_open_for_writing(processes: Iterable[int], work_tree: Path) -> OpenFiles:
    """Return the files these processes have open; none for one that ended or is another user's."""
    root = os.fsencode(os.path.realpath(work_tree)).rstrip(b"/") + b"/"
    opened, mapped = set[bytes](), set[bytes]()
    for pid in processes:
        opened |= {path.removeprefix(root) for path in _descriptors(pid) if path.startswith(root)}
        mapped |= {path.removeprefix(root) for path in _mappings(pid) if path.startswith(root)}

    return OpenFiles(frozenset(opened | mapped), frozenset(mapped))


def _descriptors(pid: int) -> Iterator[bytes]:
    for number in _listed(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}".encode())
            if path.startswith(b"/") and _flags(pid, number) & _CAN_WRITE:
                yield path
        except OSError:
            continue


def _flags(pid: int, number: str) -> int:
    with open(f"/proc/{pid}/fdinfo/{number}", "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8)

    return 0


def _mappings(pid: int) -> Iterator[bytes]:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return

    for line in lines:
        # Fields: address, permissions, offset, device, inode, path. The path may contain spaces.
        match line.split(None, 5):
            case [_, permissions, _, _, _, path] if permissions[1:4:2] == b"ws":
                yield _unescaped(path)


def _unescaped(path: bytes) -> bytes:
    """Decode a newline in a path, which `maps` shows as an octal escape."""
    return path.replace(b"\\012", b"\n")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
