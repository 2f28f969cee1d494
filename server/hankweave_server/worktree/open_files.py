"""Find the files of a work tree that processes have open for writing right now.

Stat data shows that a file has changed, but not that a writer is still at work. For a file written
through a shared mapping it does not even show the change: the kernel updates the times only with
the first write to a clean page (Linux 6, ext4; on tmpfs, once per mapping). /proc shows both:
descriptors open for writing and writable shared mappings.

`files_open_for_writing` asks a few processes about all files; `writers_of` asks every process that
may be inspected about a few files. The latter reads the descriptors and mappings of the whole
machine, which takes about 0.1 ms for each process: it is for restores, not for each checkpoint.
`has_writer` asks the kernel about one file, in a few microseconds, and learns no names.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_CAN_WRITE = os.O_WRONLY | os.O_RDWR

# Fields: address, permissions, offset, device, inode, path. The path may contain spaces.
_SHARED_AND_WRITABLE = re.compile(rb"^\S+ .w.s \S+ \S+ (\d+) +(/.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Open files, as paths relative to the work tree."""

    open: frozenset[bytes] = frozenset()
    """Open for writing, by a descriptor or by a mapping."""

    mapped: frozenset[bytes] = frozenset()
    """Mapped, shared and writable: their times do not show what was written."""

    def __or__(self, other: OpenFiles) -> OpenFiles:
        return OpenFiles(self.open | other.open, self.mapped | other.mapped)


class Writer(NamedTuple):
    """A process that can write to a file without opening it again."""

    path: bytes
    """Relative to the work tree."""
    pid: int
    program: str
    """The name of the process: up to 15 bytes, without control characters."""
    is_mapping: bool
    """Whether the file is mapped: its times do not show what is written."""


def has_writer(descriptor: int) -> bool | None:
    """Return whether a process has a file open for writing, by a descriptor or a mapping.

    The descriptor must be open for reading alone. None means that it cannot be known: leases are
    for the owner of a file, and for file systems that have them.
    """
    try:
        # While the lease is held, the kernel signals this process when another one opens the file.
        # The default signal would end this process, so one without effect is chosen.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as problem:
        return True if problem.errno == errno.EAGAIN else None

    try:  # noqa: SIM105  # `suppress` takes longer than the call.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # It was broken; closing the file ends it as well.
        pass

    return False


def files_open_for_writing(processes: Iterable[int], work_tree: Path) -> OpenFiles:
    """Return the files these processes have open; none for one that ended or is another user's."""
    root = os.fsencode(os.path.realpath(work_tree)).rstrip(b"/") + b"/"
    opened, mapped = set[bytes](), set[bytes]()
    for pid in processes:
        opened |= {
            path.removeprefix(root) for _, path in _descriptors(pid) if path.startswith(root)
        }
        mapped |= {path.removeprefix(root) for _, path in _mapped(pid) if path.startswith(root)}

    return OpenFiles(frozenset(opened | mapped), frozenset(mapped))


def writers_of(paths: Iterable[bytes], work_tree: Path) -> tuple[Writer, ...]:
    """Return the writers of these files among all processes that this one may inspect, sorted.

    `paths` are relative to the work tree. Files are recognized by inode and name, because a process
    in a container sees the work tree under another path. A file that is mapped is listed once.
    """
    root = os.fsencode(work_tree)
    wanted: dict[tuple[int, bytes], bytes] = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            inode = os.lstat(os.path.join(root, path)).st_ino
            wanted[inode, os.path.basename(path)] = path

    names = frozenset(name for _, name in wanted)
    found: list[Writer] = []
    for pid in map(int, filter(str.isdigit, _listed("/proc"))) if wanted else ():
        mapped = {wanted.get((inode, os.path.basename(path))) for inode, path in _mapped(pid)}
        opened = {wanted.get(key) for key in _open_inodes(pid, names)} - mapped
        for is_mapping, held in ((True, mapped), (False, opened)):
            found += [Writer(path, pid, _program(pid), is_mapping) for path in held if path]

    return tuple(sorted(found))


def _descriptors(pid: int, names: Container[bytes] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield number and path of what is open for writing, and has one of the names."""
    for number in _listed(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}".encode())
            if names is not None and os.path.basename(path) not in names:
                continue

            if path.startswith(b"/") and _flags(pid, number) & _CAN_WRITE:
                yield number, path
        except OSError:
            continue


def _open_inodes(pid: int, names: Container[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, path in _descriptors(pid, names):
        with contextlib.suppress(OSError):
            yield os.stat(f"/proc/{pid}/fd/{number}").st_ino, os.path.basename(path)


def _flags(pid: int, number: str) -> int:
    with open(f"/proc/{pid}/fdinfo/{number}", "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8)

    return 0


def _mapped(pid: int) -> Iterator[tuple[int, bytes]]:
    """Yield inode and path of each file that is mapped, shared and writable."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            content = file.read()
    except OSError:
        return

    for inode, path in _SHARED_AND_WRITABLE.findall(content):
        # `maps` shows a newline in a path as an octal escape.
        yield int(inode), path.replace(b"\\012", b"\n")


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return ""

    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
