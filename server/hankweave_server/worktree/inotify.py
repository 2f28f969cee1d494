"""An inotify instance: its watches, and a reader that loses no event without saying so.

The queue of an instance overflows if nobody reads it, so a thread does. A *cookie* orders events
and their reader: changing the mode of a memory file that the same instance watches queues an event
behind all earlier ones, so a reader that has seen it has seen every change that was complete
before. A memory file needs no name, no writable folder and no cleanup.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from hankweave_protocol.replies import WatchReason

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_OPEN = 0x20
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x01000000
IN_ISDIR = 0x40000000

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16
_BACKLOG = 8 << 20  # About 250,000 events: a full scan is faster than so many names.

LIBC = ctypes.CDLL(None, use_errno=True)


class WatchFailed(Exception):
    """The watch cannot tell what changed; `reason` is one of the words in `server.status`."""

    def __init__(self, reason: WatchReason) -> None:
        super().__init__(reason)
        self.reason = reason


class RawEvent(NamedTuple):
    """One event as the kernel reports it."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """An inotify instance whose queue a thread empties, so that it rarely overflows."""

    def __init__(self) -> None:
        """Raise WatchFailed if the kernel grants no instance."""
        self._descriptor = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise failure_of(ctypes.get_errno())

        try:
            self._cookie = os.memfd_create("hankweave-watch")
        except OSError as problem:
            os.close(self._descriptor)
            raise failure_of(problem.errno) from problem

        self._lock = threading.Lock()
        self._blocks: list[bytes] = []
        self._size = 0
        self._mode = 0o600
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._empty, name="watch", daemon=True)
        self._thread.start()
        try:
            self._cookie_watch = self.add(self._cookie, IN_ATTRIB)
        except WatchFailed:
            self.close()
            raise

    def add(self, descriptor: int, mask: int) -> int:
        """Watch an open file or folder; return the number of the watch, the same for each inode."""
        path = b"/proc/self/fd/%d" % descriptor
        watch: int = LIBC.inotify_add_watch(self._descriptor, path, ctypes.c_uint32(mask))
        if watch < 0:
            raise failure_of(ctypes.get_errno())

        return watch

    def remove(self, watch: int) -> None:
        """Remove a watch that the kernel may have removed already."""
        LIBC.inotify_rm_watch(self._descriptor, watch)

    def events(self) -> Iterator[RawEvent]:
        """Return every event up to now, in order.

        Raises WatchFailed if some were lost. Events are complete only if all of them are consumed.
        """
        self._mode ^= 0o200
        os.fchmod(self._cookie, self._mode)
        with self._lock:
            while self._read():
                pass

            blocks, self._blocks, size, self._size = self._blocks, [], self._size, 0

        if size > _BACKLOG:
            raise WatchFailed("overflow")

        return self._decoded(blocks)

    def close(self) -> None:
        os.write(self._stop_write, b"x")
        self._thread.join()
        for descriptor in (self._descriptor, self._cookie, self._stop_read, self._stop_write):
            os.close(descriptor)

    def _decoded(self, blocks: list[bytes]) -> Iterator[RawEvent]:
        is_complete = False
        for block in blocks:
            position = 0
            while position < len(block):
                watch, mask, _, length = _EVENT.unpack_from(block, position)
                position += _EVENT.size
                if mask & IN_Q_OVERFLOW:
                    raise WatchFailed("overflow")

                if watch == self._cookie_watch:
                    is_complete = True
                else:
                    yield RawEvent(watch, mask, block[position : position + length].rstrip(b"\0"))

                position += length

        if not is_complete:
            raise WatchFailed("overflow")

    def _empty(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while all(descriptor != self._stop_read for descriptor, _ in poll.poll()):
            with self._lock:
                self._read()

            # Events come in bursts: fewer and larger reads leave more time to others.
            time.sleep(0.005)

    def _read(self) -> bool:
        try:
            block = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return False

        self._size += len(block)
        if self._size <= _BACKLOG:
            self._blocks.append(block)

        return True


def failure_of(number: int | None) -> WatchFailed:
    """Return the reason for which a system call of the watch failed, as an exception."""
    is_exhausted = number in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    return WatchFailed("exhausted" if is_exhausted else "unavailable")
