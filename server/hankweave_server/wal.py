"""A write-ahead log of small files: one flush makes several of them durable.

A checkpoint without changes writes a commit and a branch; one with few changes writes a pack, its
index and a branch. Made durable one by one, as git does it, each file costs two flushes: one for
its content and one for the folder that names it. On a busy disk that is most of the time that a
client waits. With a log, the new content of all files is appended to one file and flushed once. The
files themselves get their names without a flush.

What must hold:

1. When `publish` returns, all its files survive a power cut. They survive together or not at all:
   a record has a checksum, and a torn one counts as not written.
2. A file gets its final name only after its record is durable. So whatever a power cut leaves
   under a final name, there is a record that repairs it.
3. A file that only grows, the journal, can have its next lines in a record too (`Tail`). They are
   as durable as the files of the record from then on, whoever writes them and when.
4. A replay never undoes what came later. For each name the newest record decides, and a file that
   somebody else has changed since (a git program that moved a ref, an older version of this server)
   stays as it is.
5. What is removed by other means stays removed: `settle` precedes each removal of such files.
   `remove` needs no flush: its record says that the file is gone. It may come back after a power
   cut, but not once a later record has been flushed.

The log is one preallocated file with two halves. Records go into one half until it is full. Then
the other half is used, while `syncfs` in a background thread makes the files of the first half
durable themselves. If that is not done when the second half is full, the writer waits. Each record
has a number, and names the oldest record that may still be needed (`base`); so a reader ignores
older ones that were not overwritten yet.

A start calls `open`, which replays the log and removes it. `close` settles and removes it as well:
a server that ended in an orderly way leaves nothing to replay.

Files of more than `LIMIT` bytes in all are flushed themselves, as without a log.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hankweave_server import fsutil

LIMIT = 1 << 20
"""Bytes of content and names in one record; more is flushed as files."""

HALF = LIMIT + (256 << 10)
"""Bytes of each half of the log."""

FLUSHED_ONE_BY_ONE = 16
"""Up to this many files are flushed one by one, which does not wait for unrelated writes."""

_MAGIC = b"HWAL"
_HEADER = struct.Struct("<4sIQQI")
"""Magic, bytes of the body, number, base, checksum of all but the magic and the size."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete file under a temporary name, and the name that it is to get."""

    temporary: Path
    final: Path


@dataclass(frozen=True, slots=True)
class Tail:
    """The next lines of a file that only grows; another thread may be writing them now."""

    path: Path
    offset: int
    """Size of the file before it."""
    content: bytes


class Image(msgspec.Struct, array_like=True):
    """The content of a file in a record."""

    root: str
    name: bytes
    """Path below that root."""
    content: bytes | None
    """None if the file was removed."""
    before: bytes | None
    """Content of a file that may change, before this record; None if there was none."""
    can_change: bool
    """False for content that its name determines: anything else under the name is damage."""
    offset: int | None = None
    """Where the content begins in a file that only grows; None if it is the whole file."""


@dataclass(frozen=True, slots=True)
class WalRecord:
    number: int
    base: int
    images: tuple[Image, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Image, ...]).decode


class WriteAheadLog:
    """The log of the small files below some roots; its calls may come from any thread."""

    def __init__(self, path: Path, roots: Mapping[str, Path], number: int) -> None:
        self._path = path
        self._roots = roots
        self._lock = threading.Lock()
        self._number = self._base = number
        """The number of the next record, and of the oldest one that may be needed."""
        self._half = self._offset = 0
        """Where the next record begins."""
        self._descriptor = -1
        self._draining: threading.Thread | None = None
        self._failure: OSError | None = None
        self._tails: list[Image] = []

    @classmethod
    def open(cls, path: Path, roots: Mapping[str, Path]) -> tuple[WriteAheadLog, tuple[str, ...]]:
        """Replay what a crash left, and begin an empty log; return the names that were repaired.

        Only the holder of the runtime lock may call this. An interrupted call can be repeated.
        Raises OSError.
        """
        records = read_records(path)
        repaired = tuple(replay(roots, records))
        number = 1 + max((record.number for record in records), default=0)
        if path.exists():
            _sync(roots)
            fsutil.remove_durably(path)

        return cls(path, roots, number), repaired

    def publish(
        self,
        objects: Sequence[StagedFile],
        others: Sequence[StagedFile] = (),
        *,
        flush_also: Path | None = None,
        tail: Tail | None = None,
    ) -> None:
        """Give files their final names, in order; when this returns, all survive a power cut.

        `objects` have content that their names determine; `others` may change, such as refs and
        intents. With `flush_also`, everything on the file system of that path is durable before
        the files get their names; that takes no other flush if the log is on it too. `tail`
        survives a power cut with the files; the caller sees to it that it is written. Raises
        OSError: then `others` are as they were, and a start does not publish them either, unless
        the disk failed in the midst of it; the log then takes nothing more, and the next start
        completes it. The caller removes the temporary files that are left.
        """
        for each in (*objects, *others):
            fsutil.make_private_directory(each.final.parent)

        images = self._images(objects, others)
        if images is None:
            flush_and_rename(objects)
            objects = ()
            images = self._images((), others)

        following = () if tail is None else (self._image_of(tail),)
        if images is None:
            # A replay must not take an older version of them for the newest one.
            self.settle()
            if following:
                with self._lock:
                    self._append(following)

            flush_and_rename(others)
            images, others = (), ()
        else:
            images += following

        with self._lock:
            if images:
                self._append(images, flush_also)
            elif flush_also is not None:
                fsutil.sync_filesystem(flush_also)

            try:
                for each in (*objects, *others):
                    each.temporary.rename(each.final)
            except OSError:
                self._take_back(images)
                raise

    @contextmanager
    def quiesced(self) -> Iterator[None]:
        """Let nothing be published or removed while the block runs."""
        with self._lock:
            yield

    def remove(self, path: Path, content: bytes) -> None:
        """Remove a published file that may change, if it has this content; nothing is flushed.

        Until the next flush of the log, a power cut can bring the file back. Raises OSError.
        """
        with self._lock:
            if fsutil.content_of(path) != content:
                return

            if self._descriptor >= 0:
                root, name = self._name(path)
                self._append((Image(root, name, None, content, True),), is_flushed=False)

            path.unlink()

    def settle(self) -> None:
        """Make all published files durable themselves, so that nothing is replayed any more.

        Costs one `syncfs` unless there is nothing in the log. Raises OSError.
        """
        with self._lock:
            self._wait_for_draining()
            if self._base < self._number:
                unwritten = self._unwritten()
                _sync(self._roots)
                self._base = self._number
                self._append(unwritten)
                self._base = self._number - bool(unwritten)

    def close(self) -> None:
        """Settle and remove the log; if the disk fails, the log stays to be replayed."""
        try:
            self.settle()
            with self._lock:
                if self._descriptor >= 0:
                    fsutil.remove_durably(self._path)
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    # Appending

    def _images(
        self, objects: Sequence[StagedFile], others: Sequence[StagedFile]
    ) -> tuple[Image, ...] | None:
        """Read the staged files; None if they are too long for a record."""
        images: list[Image] = []
        size = 0
        for position, each in enumerate((*objects, *others)):
            size += each.temporary.stat().st_size + len(os.fsencode(each.final))
            if size > LIMIT:
                return None

            can_change = position >= len(objects)
            root, name = self._name(each.final)
            images.append(
                Image(
                    root,
                    name,
                    each.temporary.read_bytes(),
                    fsutil.content_of(each.final) if can_change else None,
                    can_change,
                )
            )

        return tuple(images)

    def _image_of(self, tail: Tail) -> Image:
        root, name = self._name(tail.path)
        image = Image(root, name, tail.content, None, True, tail.offset)
        self._tails = [*self._unwritten(), image]
        return image

    def _unwritten(self) -> tuple[Image, ...]:
        """Return the tails that their files do not have yet: a record must still hold them."""
        return tuple(each for each in self._tails if not self._is_written(each))

    def _is_written(self, tail: Image) -> bool:
        assert tail.offset is not None
        assert tail.content is not None
        size = (self._roots[tail.root] / os.fsdecode(tail.name)).stat().st_size
        return size >= tail.offset + len(tail.content)

    def _name(self, path: Path) -> tuple[str, bytes]:
        for name, root in self._roots.items():
            if path.is_relative_to(root):
                return name, os.fsencode(path.relative_to(root))

        raise ValueError(f"{path} is below no root of the log")

    def _append(
        self,
        images: tuple[Image, ...],
        flush_also: Path | None = None,
        *,
        is_flushed: bool = True,
    ) -> None:
        """Append a record and flush it, with a whole file system or not; the lock must be held.

        A record that is not flushed becomes durable with the next one.
        """
        self._require_working()
        body = _encode(images)
        if self._descriptor < 0:
            self._descriptor = _created(self._path)
        elif self._offset + _HEADER.size + len(body) > HALF:
            self._turn_over()

        record = _packed(self._number, self._base, body)
        position = self._half * HALF + self._offset
        try:
            _pwrite_all(self._descriptor, record, position)
            if is_flushed:
                self._flush(flush_also)
        except OSError as error:
            if not fsutil.is_full(error) or not self._is_erased(position):
                self._failure = error  # What is in the file is unknown: it cannot be continued.

            raise

        self._offset += len(record)
        self._number += 1

    def _is_erased(self, position: int) -> bool:
        """Make a record unreadable that nobody was told of; return whether that was possible."""
        try:
            _pwrite_all(self._descriptor, bytes(_HEADER.size), position)
        except OSError:
            return False

        return True

    def _take_back(self, images: tuple[Image, ...]) -> None:
        """Undo a record whose files did not all get their names: the caller says that it failed.

        The record of that needs no space. What the disk refuses, the next start does.
        """
        previous = tuple(
            Image(each.root, each.name, each.before, each.content, True)
            for each in images
            if each.can_change and each.offset is None
        )
        try:
            self._append(previous)
            for each in previous:
                path = self._roots[each.root] / os.fsdecode(each.name)
                if each.content is None:
                    path.unlink(missing_ok=True)
                elif fsutil.content_of(path) != each.content:
                    fsutil.replace_durably(path, each.content)
        except OSError as error:
            self._failure = error

    def _flush(self, also: Path | None) -> None:
        if also is not None:
            fsutil.sync_filesystem(also)

        if also is None or also.stat().st_dev != os.fstat(self._descriptor).st_dev:
            os.fdatasync(self._descriptor)

    def _turn_over(self) -> None:
        """Continue in the other half, and make what this one holds durable in the background."""
        self._wait_for_draining()
        self._require_working()
        self._half, self._offset = 1 - self._half, 0
        until, unwritten = self._number, self._unwritten()
        if unwritten:
            self._append(unwritten)

        self._draining = threading.Thread(
            target=self._drain, args=(until,), name="wal", daemon=True
        )
        self._draining.start()

    def _drain(self, until: int) -> None:
        try:
            _sync(self._roots)
            self._base = until
        except OSError as error:
            self._failure = error

    def _require_working(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"the write-ahead log failed: {self._failure}")

    def _wait_for_draining(self) -> None:
        if self._draining is not None:
            self._draining.join()
            self._draining = None


def flush_and_rename(staged: Sequence[StagedFile]) -> None:
    """Make files durable, then rename them, durably; the way without a log."""
    if len(staged) > FLUSHED_ONE_BY_ONE:
        fsutil.sync_filesystem(staged[0].temporary.parent)
    else:
        for each in staged:
            fsutil.sync_file(each.temporary)

    folders: dict[Path, None] = {}
    for each in staged:
        folder = each.final.parent
        if not folder.is_dir():
            fsutil.make_private_directory(folder)
            fsutil.sync_directory(folder.parent)

        each.temporary.rename(each.final)
        folders[folder] = None

    for folder in folders:
        fsutil.sync_directory(folder)


def read_records(path: Path) -> list[WalRecord]:
    """Read the records that may be needed, oldest first; none if there is no log."""
    content = fsutil.content_of(path) or b""
    halves = (content[:HALF], content[HALF:])
    found = sorted((each for half in halves for each in _records_in(half)), key=_number_of)
    base = max((record.base for record in found), default=0)
    return [record for record in found if record.number >= base]


def replay(roots: Mapping[str, Path], records: Sequence[WalRecord]) -> Iterator[str]:
    """Write again what a crash kept from the disk; yield the names of the files written."""
    newest: dict[tuple[str, bytes], Image] = {}
    earlier: dict[tuple[str, bytes], set[bytes | None]] = {}
    for record in records:
        for image in record.images:
            key = image.root, image.name
            if image.offset is not None:
                if _continued(roots[image.root] / os.fsdecode(image.name), image):
                    yield os.fsdecode(image.name)

                continue

            newest[key] = image
            earlier.setdefault(key, set()).update((image.before, image.content))

    for key, image in newest.items():
        path = roots[image.root] / os.fsdecode(image.name)
        present = fsutil.content_of(path)
        is_ours = not image.can_change or present in earlier[key] or _is_torn(present)
        if present == image.content or not is_ours:
            continue

        if image.content is None:
            fsutil.remove_durably(path)
        else:
            fsutil.make_private_directory(path.parent)
            fsutil.replace_durably(path, image.content)

        yield path.name


def _continued(path: Path, tail: Image) -> bool:
    """Write a tail that a crash kept from its file, durably; return whether it was missing."""
    assert tail.offset is not None
    assert tail.content is not None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False

    try:
        present = os.pread(descriptor, len(tail.content), tail.offset)
        is_short = os.fstat(descriptor).st_size >= tail.offset and tail.content.startswith(present)
        is_ours = is_short or b"\0" in present
        if present == tail.content or not is_ours:
            return False

        _pwrite_all(descriptor, tail.content, tail.offset)
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def _is_torn(content: bytes | None) -> bool:
    """Return whether a power cut can have left this of a file that was renamed unflushed."""
    return content is None or not content.strip(b"\0")


def _records_in(half: bytes) -> Iterator[WalRecord]:
    """Yield the records from the start of a half, up to the first that is torn or older."""
    offset, last = 0, None
    while offset + _HEADER.size <= len(half):
        magic, size, number, base, checksum = _HEADER.unpack_from(half, offset)
        offset += _HEADER.size
        body = half[offset : offset + size]
        offset += size
        is_next = last is None or number == last + 1
        if magic != _MAGIC or len(body) != size or not is_next:
            return

        if checksum != _checksum(number, base, body):
            return

        yield WalRecord(number, base, _decode(body))
        last = number


def _number_of(record: WalRecord) -> int:
    return record.number


def _packed(number: int, base: int, body: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(body), number, base, _checksum(number, base, body)) + body


def _checksum(number: int, base: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<QQ", number, base)))


def _created(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, fsutil.PRIVATE_FILE)
    try:
        os.posix_fallocate(descriptor, 0, 2 * HALF)
        os.fsync(descriptor)
        fsutil.sync_directory(path.parent)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()

        raise

    return descriptor


def _pwrite_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written


def _sync(roots: Mapping[str, Path]) -> None:
    """Make all files of the roots durable: with one call for each file system."""
    devices: set[int] = set()
    for root in roots.values():
        device = root.stat().st_dev
        if device not in devices:
            devices.add(device)
            fsutil.sync_filesystem(root)
