"""Watch the folders of the work tree, so that a scan compares only what may have changed.

The problem
-----------
A full scan compares the stat data of every known file. The kernel can name the files that changed
instead, but inotify was not made for proofs: its queue overflows, its watches run out, it merges
events, and some changes send none. This module turns its events into a sound answer to one
question: which files and folders may differ from what the stat index holds?

What is always compared
-----------------------
The index keeps `Unproven`: files and folders that a scan compares whether or not an event names
them. A file enters it when it is new, when an event names it, and when it has no signature. It
leaves only by the proof below. Everything outside of it is unchanged as long as no event says
otherwise.

`Inotify.events` returns all events of changes that were complete before the call, or fails.

The proof
---------
Writes through a shared mapping send no event until the file is closed, and neither do some kinds
of asynchronous I/O. But the writer must have opened the file before, and opening sends
IN_OPEN. It does not say for what, and the kernel merges identical events in a row, so opens and
closes cannot be counted. Therefore every opened file is unproven until `TreeWatch.prove` has shown
that no process can write to it:

1. Read all events. 2. Open the file for reading, and watch the file itself. 3. Read all events
again; give up if a name in any folder was added, removed or moved meanwhile, as the name may mean
another file now. 4. Compare the open file with its signature and require a single hard link. 5. Ask
for a read lease, which the kernel refuses while any process has the file open for writing or maps
it so, and return it at once.

A later writer must open the file after step 3 and so sends an event that the next scan reads. To
open it by another name, in a folder that is not watched, it must make that name first. `link` sends
nothing to the folder of the first name, but IN_ATTRIB to the watch of the file, because the number
of links is an attribute; and a file with two links is never proven. Watches of files are limited to
`FILE_SHARE` of what the kernel grants a user; files without one remain unproven. They are not for
other events: the kernel merges identical events in a row, and not those of two watches.

The lease exists for microseconds. A process that opens the file for writing meanwhile waits that
long, or fails with EWOULDBLOCK if it passed O_NONBLOCK; the signal for a broken lease is SIGURG,
which does nothing by default (the usual SIGIO would end the process).

Folders
-------
Watches belong to inodes, paths do not. Each folder is watched through its open descriptor before
it is listed, and `add` maps the watch to that folder from then on, so a moved folder is mapped to
its new place when that is listed. An event about a folder's name puts all that is known below that
name into `Unproven`. `forget` removes a watch only if it still belongs to the lost folder.

What no event shows
-------------------
- A write through a file handle (`open_by_handle_at`, for which a process needs
  CAP_DAC_READ_SEARCH, or the kernel's NFS server), and writes below an overlay file system whose
  upper layer is the work tree.
- A rollback of a mounted ZFS dataset.

Only a full scan finds these. `WorkTreeScan.verify` does one and reports what the watch missed.

When there is no watch
----------------------
`WatchFailed` names the reason: the scan falls back to comparing everything, which is always right.
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hankweave_protocol.replies import WatchReason
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent
from hankweave_server.worktree.inotify import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_ISDIR,
    IN_MODIFY,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_ONLYDIR,
    IN_OPEN,
    IN_UNMOUNT,
    LIBC,
    Inotify,
    WatchFailed,
    failure_of,
)
from hankweave_server.worktree.open_files import has_writer
from hankweave_server.worktree.stat_index import Folder, StatIndex, Unproven, signature_of

NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO
"""Events after which a name means something else."""
_MASK = NAMES | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_OPEN | IN_ONLYDIR
FILE_SHARE = 0.75
"""Part of a user's watches that the files of one work tree may take."""

_BATCH = 32  # Files open at the same time during a proof: descriptors are scarce.

# From linux/magic.h and zfs. Others (network, overlay, FUSE) change files without local events.
_FILE_SYSTEMS = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x01021994: "tmpfs",
    0x2FC12FC1: "zfs",
}
_CLOCK_TOLERANCE_NS = 500_000_000

_TEMPORARY = frozenset({"start", "overflow", "mount", "clock", "replaced"})
"""Reasons for one full scan, with which a new watch begins if nothing stands against it."""


@dataclass(slots=True)
class WatchState:
    """Whether scans are watched, and what they have cost."""

    reason: WatchReason | None
    """Why the next scan is full; None if it is watched."""
    full_scans: int = 0
    watched_scans: int = 0
    compared: int = 0
    """Number of files that the last watched scan compared."""

    @property
    def may_begin(self) -> bool:
        return self.reason in _TEMPORARY

    def stop(self, reason: WatchReason) -> None:
        self.reason = reason

    def follow(self, before: WatchState) -> None:
        """Continue the state of an earlier scan of the same work tree."""
        self.full_scans, self.watched_scans = before.full_scans, before.watched_scans
        if before.reason is not None and not before.may_begin:
            self.reason = before.reason


class _Clocks(NamedTuple):
    """How far the clock has been set, and how long the machine has been suspended."""

    set_by: int
    suspended: int

    @classmethod
    def now(cls) -> _Clocks:
        monotonic = time.monotonic_ns()
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return cls(time.time_ns() - boot, boot - monotonic)

    def jumped_since(self, before: _Clocks) -> bool:
        return any(
            abs(now - then) > _CLOCK_TOLERANCE_NS for now, then in zip(self, before, strict=True)
        )


class TreeWatch:
    """The watches of all folders of a stat index, and what their events say about it."""

    def __init__(self, root: int, table: StatIndex) -> None:
        """Begin with everything unproven; raise WatchFailed if the tree cannot be watched.

        The caller calls `add` for each folder, and then scans everything.
        """
        require_known_file_system(root)
        self._mounts = Mounts()
        try:
            self._mounts.require_none_below(root)
            self._inotify = Inotify()
        except BaseException:
            self._mounts.close()
            raise

        self._table = table
        self._root = _identity(root)
        self._clocks = _Clocks.now()
        self._folder_of: dict[int, Folder] = {}
        self._watch_of: dict[Folder, int] = {}
        self._file_of: dict[int, tuple[Folder, bytes]] = {}
        """Watched files: each was proven at least once under this name."""
        self._most_files = int(_user_watches() * FILE_SHARE)
        table.unproven = Unproven.everything(table)

    def __len__(self) -> int:
        return len(self._watch_of)

    @property
    def _unproven(self) -> Unproven:
        assert self._table.unproven is not None, "the index belongs to this watch"
        return self._table.unproven

    def add(self, folder: Folder, descriptor: int) -> None:
        """Watch an open folder under its present path; raise WatchFailed if watches ran out.

        The caller lists it afterwards, or compares everything.
        """
        watch = self._inotify.add(descriptor, _MASK)
        before = self._watch_of.get(folder)
        self._folder_of[watch] = folder
        self._watch_of[folder] = watch
        self._unproven.folders.pop(folder, None)
        if before != watch:
            self._unproven.add_files(folder)
            if before is not None:
                self._release(before, folder)

    def forget(self, folder: Folder) -> None:
        """Stop watching a lost folder, unless its watch belongs to another path by now."""
        watch = self._watch_of.pop(folder, None)
        if watch is not None:
            self._release(watch, folder)

    def read(self, root: int) -> None:
        """Enter what happened up to now into the unproven files and folders.

        `root` is the work tree as it was opened from its path just now. Raises WatchFailed if the
        events are not complete.
        """
        if _identity(root) != self._root:
            raise WatchFailed("replaced")

        if self._mounts.have_changed():
            self._mounts.require_none_below(root)

        clocks, self._clocks = self._clocks, _Clocks.now()
        if self._clocks.jumped_since(clocks):
            raise WatchFailed("clock")

        self._take_in()

    def prove(self, descent: Descent, racy: Container[int], at_most: int) -> int:
        """Take files that cannot change unnoticed off the unproven ones; return how many.

        Files in the slots `racy` stay. Raises WatchFailed as `read`.
        """
        proven = 0
        batch: list[tuple[Folder, bytes, int]] = []
        for folder, name, slot in self._unproven.candidates(self._table.slots, racy, at_most):
            batch.append((folder, name, slot))
            if len(batch) == _BATCH:
                proven += self._prove(descent, batch)
                batch = []

        return proven + self._prove(descent, batch)

    def close(self) -> None:
        self._inotify.close()
        self._mounts.close()
        self._table.unproven = None

    def _release(self, watch: int, folder: Folder) -> None:
        if self._folder_of.get(watch) is folder:
            del self._folder_of[watch]
            self._inotify.remove(watch)

    def _take_in(self) -> bool:
        """Enter all events into the unproven; return whether any name changed."""
        is_renamed = False
        for watch, mask, name in self._inotify.events():
            folder = self._folder_of.get(watch)
            if folder is None:
                self._take_file_event(watch, mask)
                continue

            if mask & (IN_UNMOUNT | IN_IGNORED):
                is_renamed = True
                self._lost(watch, folder, mask)
            elif not name:
                if mask & IN_ATTRIB:
                    self._unproven.add_folder(folder)
            else:
                is_renamed |= bool(mask & NAMES)
                self._named(folder, name, mask)

        return is_renamed

    def _take_file_event(self, watch: int, mask: int) -> None:
        """Take in an event of a watched file: it may have got another name."""
        if mask & IN_IGNORED:
            self._file_of.pop(watch, None)
        elif watch in self._file_of:
            folder, name = self._file_of[watch]
            slot = folder.files.get(name)
            if slot is not None and self._table.folders.get(folder.path) is folder:
                self._unproven.add(folder, name, slot)

    def _lost(self, watch: int, folder: Folder, mask: int) -> None:
        if mask & IN_UNMOUNT:
            raise WatchFailed("mount")

        del self._folder_of[watch]
        if self._watch_of.get(folder) == watch:
            del self._watch_of[folder]
            self._unproven.add_folder(folder)

    def _named(self, folder: Folder, name: bytes, mask: int) -> None:
        slot = folder.files.get(name)
        if slot is not None:
            self._unproven.add(folder, name, slot)

        if mask & NAMES:
            self._unproven.add_folder(folder)
            if mask & (IN_CREATE | IN_MOVED_TO) and not mask & IN_ISDIR:
                self._unproven.new.append((folder, name))

            if name in folder.folders:
                self._unproven.add_below(folder.folders[name])

    def _prove(self, descent: Descent, batch: list[tuple[Folder, bytes, int]]) -> int:
        self._take_in()
        descent.close_cached()
        batch = [each for each in batch if self._is_provable(*each)]
        opened: list[tuple[int, int, Folder, bytes, int]] = []
        proven: list[tuple[Folder, bytes]] = []
        try:
            for folder, name, slot in batch:
                descriptor = self._open(descent, folder, name, slot)
                if descriptor is not None:
                    opened.append((descriptor, -1, folder, name, slot))
                    watch = self._watched(descriptor, folder, name)
                    opened[-1] = (descriptor, watch, folder, name, slot)

            if self._take_in():
                return 0

            for descriptor, watch, folder, name, slot in opened:
                signature = self._table.slots.signature(slot)
                status = os.fstat(descriptor)
                if (
                    watch >= 0
                    and signature == signature_of(status)
                    and stat.S_ISREG(status.st_mode)
                    and status.st_nlink == 1
                    and has_writer(descriptor) is False
                ):
                    proven.append((folder, name))
                elif self._file_of.pop(watch, None) is not None:
                    self._inotify.remove(watch)

            # What a link says never changes; its name is enough.
            proven += [
                (f, name) for f, name, slot in batch if self._is_same_link(descent, f, name, slot)
            ]
        finally:
            for descriptor, *_ in opened:
                os.close(descriptor)

        for folder, name in proven:
            self._unproven.discard(folder, name)

        self._unproven.move_to_end(batch)

        return len(proven)

    def _watched(self, descriptor: int, folder: Folder, name: bytes) -> int:
        """Watch an open file; return -1 if there are too many watches."""
        if len(self._file_of) >= self._most_files:
            return -1

        try:
            watch = self._inotify.add(descriptor, IN_ATTRIB)
        except WatchFailed:
            return -1

        self._file_of[watch] = folder, name
        return watch

    def _is_provable(self, folder: Folder, name: bytes, slot: int) -> bool:
        """Return whether a name is tracked and every folder above is watched at its path."""
        if folder.files.get(name) != slot:
            return False

        above: Folder | None = folder
        while above is not None:
            if above in self._unproven.folders or above not in self._watch_of:
                return False

            above = above.parent

        return True

    def _open(self, descent: Descent, folder: Folder, name: bytes, slot: int) -> int | None:
        signature = self._table.slots.signature(slot)
        if signature is None or not stat.S_ISREG(signature.mode):
            return None

        try:
            return os.open(name, FILE_FLAGS, dir_fd=descent.folder(folder.path))
        except OSError:
            return None  # It remains unproven: the next scan finds out more.

    def _is_same_link(self, descent: Descent, folder: Folder, name: bytes, slot: int) -> bool:
        signature = self._table.slots.signature(slot)
        if signature is None or not stat.S_ISLNK(signature.mode):
            return False

        try:
            status = os.lstat(name, dir_fd=descent.folder(folder.path))
        except OSError:
            return False

        return signature_of(status) == signature


class Mounts:
    """The mounts of this process, and whether they have changed."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise WatchFailed("unavailable") from problem

        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLPRI)

    def have_changed(self) -> bool:
        return bool(self._poll.poll(0))

    def require_none_below(self, root: int) -> None:
        """Raise WatchFailed if another file system is mounted inside of the work tree."""
        top = os.readlink(b"/proc/self/fd/%d" % root).rstrip(b"/") + b"/"
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        content = bytearray()
        while block := os.read(self._descriptor, 1 << 16):
            content += block

        for line in bytes(content).splitlines():
            if _unescaped(line.split(b" ")[4]).startswith(top):
                raise WatchFailed("mount")

    def close(self) -> None:
        os.close(self._descriptor)


def _unescaped(path: bytes) -> bytes:
    """Decode the octal escapes of `mountinfo`: space, tab, newline and backslash."""
    for code in (b"040", b"011", b"012", b"134"):
        path = path.replace(b"\\" + code, bytes([int(code, 8)]))

    return path


def _user_watches() -> int:
    """Return how many watches the kernel grants a user."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_bytes())
    except (OSError, ValueError):
        return 0


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class _Statfs(ctypes.Structure):
    """The beginning of `struct statfs`; the rest is not used."""

    _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_byte * 512))


def require_known_file_system(root: int) -> None:
    found = _Statfs()
    if LIBC.fstatfs(root, ctypes.byref(found)) != 0:
        raise failure_of(ctypes.get_errno())

    if found.f_type & 0xFFFFFFFF not in _FILE_SYSTEMS:
        raise WatchFailed("file-system")
