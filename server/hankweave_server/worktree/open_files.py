"""Which files of a work tree some processes have open for writing at this moment.

Stat data tells that a file has changed, but not that its writer is in the midst of it, and of a
file that is written through a shared mapping not even the former: the kernel moves the times with
the first write to a clean page only (Linux 6, ext4; on tmpfs, once for each mapping). /proc tells
both: an open descriptor that can write, a shared mapping that can.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CAN_WRITE = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Paths relative to the work tree."""

    open: frozenset[bytes] = frozenset()
    """Open for writing, by a descriptor or by a mapping."""

    mapped: frozenset[bytes] = frozenset()
    """Mapped, shared and writable: their times say nothing of what is written."""

    def __or__(self, other: OpenFiles) -> OpenFiles:
        return OpenFiles(self.open | other.open, self.mapped | other.mapped)


def files_open_for_writing(processes: Iterable[int], work_tree: Path) -> OpenFiles:
    """Look at what these processes have open; one that ends meanwhile, or is not ours, has none."""
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
        # address, permissions, offset, device, inode, path: the last may hold spaces.
        match line.split(None, 5):
            case [_, permissions, _, _, _, path] if permissions[1:4:2] == b"ws":
                yield _unescaped(path)


def _unescaped(path: bytes) -> bytes:
    """A line end in a path stands as an octal escape in `maps`."""
    return path.replace(b"\\012", b"\n")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
