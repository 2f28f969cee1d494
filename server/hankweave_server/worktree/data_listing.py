"""A hash over the data of an execution: names, sizes and times of all files in it.

What a codon leaves depends on the data, so its hash is taken whenever one begins. Listing 100,000
files takes a third of a second, so large data is watched: while no event says otherwise, it has the
hash that it had.

A watch is sound only where each change sends an event. None comes for a change behind a link, by
another name of the same file, or on a file system that is mounted or remote. Data with any of these
is listed each time, as is small data, and as is everything if the kernel grants no watches. A
program that writes through a mapping sends its event when it closes the file.

Links are followed, because whoever reads the data follows them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack

from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted
from hankweave_server.worktree.data_source import read_meta
from hankweave_server.worktree.inotify import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_MODIFY,
    IN_ONLYDIR,
    Inotify,
    WatchFailed,
)
from hankweave_server.worktree.watch import NAMES, Mounts, require_known_file_system

MOST_FILES = 100_000
"""Files and folders up to which data is listed."""

WATCHED_FROM = 1_000
"""Files and folders from which it is watched: fewer take a few milliseconds, and a user has few
instances of inotify."""

_MASK = NAMES | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_ONLYDIR
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TooManyFiles(Exception):
    """The data has more files than are listed; str: a clause."""


class DataListing:
    """The data of one execution. Use it in one thread at a time."""

    def __init__(
        self, layout: Layout, *, most: int = MOST_FILES, watched_from: int = WATCHED_FROM
    ) -> None:
        self._layout = layout
        self._most = most
        self._watched_from = watched_from
        self._may_watch = False
        self._known: tuple[_Watch, str] | None = None
        """The watch, and the hash since it began."""
        self.listings = 0
        """How often the files were listed."""

    def digest(self) -> str | None:
        """Return the hash; None if there is no data. Raises TooManyFiles and OSError."""
        source = self._layout.data_source
        if not os.path.lexists(source):
            self.close()
            return None

        top = os.fsencode(source.resolve(strict=True))
        meta = read_meta(self._layout)
        known = None if meta is None else meta.data_hash
        return hashlib.sha256(repr((known, top, self._listed(top))).encode()).hexdigest()

    def close(self) -> None:
        """Stop watching."""
        if self._known is not None:
            self._known[0].close()
            self._known = None

    def _listed(self, top: bytes) -> str:
        if self._known is not None and self._known[0].is_quiet(top):
            return self._known[1]

        self.close()
        self.listings += 1
        with ExitStack() as undo:
            watch = _begun(top) if self._may_watch else None
            if watch is not None:
                undo.callback(watch.close)

            walk = _Walk(self._most, None if watch is None else watch.add)
            found = walk.digest(top)
            if watch is not None and walk.is_watched and walk.is_plain:
                undo.pop_all()
                self._known = watch, found

        # If the kernel refuses, it is asked again at every other listing.
        is_refused = self._may_watch and self._known is None
        self._may_watch = walk.is_plain and walk.count >= self._watched_from and not is_refused
        return found


class _Walk:
    """One listing of the data."""

    def __init__(self, most: int, watch: Callable[[int], None] | None) -> None:
        """`watch` is called with each open folder before it is listed; it raises WatchFailed."""
        self._most = most
        self._watch = watch
        self._content = hashlib.sha256()
        self.count = 0
        self.is_plain = True
        """Whether each change in it sends an event to a folder that was listed."""

    @property
    def is_watched(self) -> bool:
        return self._watch is not None

    def digest(self, top: bytes) -> str:
        status = os.stat(top)
        self._note(b"", status)
        waiting = [(top, b"")] if stat.S_ISDIR(status.st_mode) else []
        device, seen = status.st_dev, set[tuple[int, int]]()
        while waiting:
            path, name = waiting.pop()
            descriptor = os.open(path, _FOLDER)
            try:
                status = os.fstat(descriptor)
                self.is_plain &= status.st_dev == device
                if _identity(status) not in seen:  # Links may lead in circles.
                    seen.add(_identity(status))
                    self._begin(descriptor)
                    below = self._list(descriptor, name)
                    waiting += [(path + b"/" + each, name + each + b"/") for each in below]
            finally:
                os.close(descriptor)

        return self._content.hexdigest()

    def _begin(self, descriptor: int) -> None:
        if self._watch is not None:
            try:
                self._watch(descriptor)
            except WatchFailed:
                self._watch = None

    def _list(self, descriptor: int, prefix: bytes) -> list[bytes]:
        """Note what is in a folder; return the names that lead to folders."""
        folders = []
        with os.scandir(descriptor) as entries:
            found = sorted(entries, key=lambda entry: entry.name)

        self.count += len(found)
        if self.count > self._most:
            raise TooManyFiles(f"the data has more than {counted(self._most, 'file')}")

        for entry in found:
            name = os.fsencode(entry.name)
            status = entry.stat(follow_symlinks=False)
            self._note(prefix + name, status)
            if stat.S_ISLNK(status.st_mode):
                self.is_plain = False
                try:
                    status = entry.stat()
                except OSError:
                    continue  # It leads nowhere.

                self._note(b"", status)

            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif status.st_nlink > 1:
                self.is_plain = False

        return folders

    def _note(self, name: bytes, status: os.stat_result) -> None:
        line = b"%b\0%o" % (name, status.st_mode)
        # The times of a folder change with its files, which are listed themselves.
        if not stat.S_ISDIR(status.st_mode):
            line += b" %d %d %d" % (status.st_size, status.st_mtime_ns, status.st_ctime_ns)

        self._content.update(line + b"\n")


def _begun(top: bytes) -> _Watch | None:
    try:
        return _Watch(top)
    except (OSError, WatchFailed):
        return None


class _Watch:
    """The watch of the folders of the data."""

    def __init__(self, top: bytes) -> None:
        """Raise WatchFailed if the data cannot be watched, and OSError."""
        with ExitStack() as undo:
            self._mounts = Mounts()
            undo.callback(self._mounts.close)
            descriptor = os.open(top, _FOLDER)
            undo.callback(os.close, descriptor)
            require_known_file_system(descriptor)
            self._mounts.require_none_below(descriptor)
            self._identity = _identity(os.fstat(descriptor))
            self._inotify = Inotify()
            undo.pop_all()
            os.close(descriptor)

    def add(self, descriptor: int) -> None:
        self._inotify.add(descriptor, _MASK)

    def is_quiet(self, top: bytes) -> bool:
        """Return whether nothing has changed since it began."""
        try:
            is_same = _identity(os.stat(top)) == self._identity
            return is_same and not self._mounts.have_changed() and not any(self._inotify.events())
        except (OSError, WatchFailed):
            return False

    def close(self) -> None:
        self._inotify.close()
        self._mounts.close()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
