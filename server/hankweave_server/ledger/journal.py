"""events.jsonl: one event per line, numbered 1, 2, 3 ... without a gap.

A line whose append has returned survives a power cut. A batch is written by one call, but a power
cut may leave a prefix of it, so a writer must accept every prefix: the state is the fold of the
journal at each of them.

A file can be broken in two ways that must not be confused. A *torn tail* is what a crash leaves:
bytes after the last good line that hold no whole event. They were never published, so they move to
a quarantine file and the journal continues. *Damage* is a bad line with whole events after it:
those were published, so it raises JournalCorrupt and is never repaired here.

In between lies the hole: a power cut may persist later pages of an unsynced write and leave zeros
for the earlier ones. JSON never contains zero bytes. If they begin after the last event that is
known to be durable, they and everything after them are a torn tail as well.

`Bookmarks` finds lines in a file of millions without an offset for each of them. It keeps one
offset every few lines, or sooner if the lines are long; a reader scans forward from the bookmark
before its line. An event costs one byte of memory instead of eight, and a lookup reads some
kilobytes more.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hankweave_server import fsutil
from hankweave_server.ledger.snapshots import Whole
from hankweave_server.plain_text import counted

LINES_APART = 16
BYTES_APART = 16 << 10
"""Two bookmarks are at most this many bytes plus one line apart."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The byte range of the file that contains the requested lines."""

    begin: int
    end: int
    skipped: int
    """Lines in it that come before the requested ones."""
    count: int
    """The number of requested lines."""


class Bookmarks:
    """Offsets of some lines. One thread may `extend` while others `find`: the end is one value."""

    def __init__(self) -> None:
        self._numbers = array("Q", [0])
        self._offsets = array("Q", [0])
        self._top = (0, 0)

    @property
    def lines(self) -> int:
        return self._top[0]

    @property
    def size(self) -> int:
        """Bytes of all lines: the offset of the next one."""
        return self._top[1]

    def extend(self, sizes: Iterable[int]) -> None:
        """Add lines at the end, given by their sizes with newlines."""
        number, offset = self._top
        for size in sizes:
            number += 1
            offset += size
            is_far = offset - self._offsets[-1] >= BYTES_APART
            if is_far or number - self._numbers[-1] >= LINES_APART:
                self._offsets.append(offset)  # First, because readers find it by its number.
                self._numbers.append(number)

        self._top = (number, offset)

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return numbers and offsets, for `from_bytes`."""
        return self._numbers.tobytes(), self._offsets.tobytes()

    @classmethod
    def from_bytes(cls, numbers: bytes, offsets: bytes, top: tuple[int, int]) -> Bookmarks | None:
        """Return saved bookmarks; None if they make no sense."""
        found = cls()
        found._numbers, found._offsets, found._top = array("Q"), array("Q"), top
        try:
            found._numbers.frombytes(numbers)
            found._offsets.frombytes(offsets)
        except ValueError:
            return None

        is_sound = (
            len(found._numbers) == len(found._offsets) > 0
            and (found._numbers[0], found._offsets[0]) == (0, 0)
            and (found._numbers[-1], found._offsets[-1]) <= top
        )
        return found if is_sound else None

    def find(self, first: int, limit: int | None) -> Stretch:
        """Return the range of the lines after line `first`, up to a limit."""
        lines, size = self._top
        first = min(max(first, 0), lines)
        until = lines if limit is None else min(lines, first + max(limit, 0))
        before = bisect_right(self._numbers, first) - 1
        behind = bisect_left(self._numbers, until)
        begin = self._offsets[before]
        end = self._offsets[behind] if behind < len(self._numbers) else size
        return Stretch(begin, min(end, size), first - self._numbers[before], until - first)

    def page_after(self, first: int, most_bytes: int) -> int:
        """Return how many lines after line `first` fit into a read of about `most_bytes`.

        At least one, however long it is, unless there is none.
        """
        lines, size = self._top
        if first >= lines:
            return 0

        begin = self._offsets[bisect_right(self._numbers, first) - 1]
        if size - begin <= most_bytes:
            return lines - first

        # The last bookmark that is near enough, or the next one if a single line is too long.
        near = bisect_right(self._offsets, begin + most_bytes) - 1
        if near < len(self._numbers) and self._numbers[near] <= first:
            near += 1

        until = self._numbers[near] if near < len(self._numbers) else lines
        return min(until, lines) - first


class JournalCorrupt(Exception):
    """A journal that cannot be trusted; a person must decide what to do with it."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class JournalWriteFailed(Exception):
    """An append or flush that the disk refused; the file ends where it ended before.

    `__cause__` is the OSError. If the truncation failed as well, a note says so; then the next
    append refuses to write after the fragment, and the next open cuts it off.
    """


class JournalFull(JournalWriteFailed):
    """The disk was too full for an append, and nothing of it was left: it can be retried.

    This holds even if only the flush failed: all earlier lines had been flushed, and the new ones,
    which the kernel may have dropped, were truncated and are written again.
    """


@dataclass(frozen=True, slots=True)
class JournalRepair:
    """A torn tail that was cut off, and the file that keeps its bytes."""

    quarantine: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class LongJournalLine:
    """A line that is read in parts."""

    descriptor: int
    offset: int
    size: int

    def read(self, at: int, most: int) -> bytes:
        """Return at most `most` bytes of it, from position `at`."""
        return pread_all(self.descriptor, max(0, min(most, self.size - at)), self.offset + at)


class ReadableJournal(ABC):
    """An open journal of which any line can be read."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over an open file, which `close` closes."""
        self.path = path
        self._descriptor = descriptor
        self._whole = Whole(self.stored)

    @property
    @abstractmethod
    def last_seq(self) -> int: ...

    @abstractmethod
    def stored(self, since_seq: int, limit: int | None = None) -> list[bytes]:
        """Return lines as `read` does, with snapshots as they are in the file."""

    def read(self, since_seq: int, limit: int | None = None) -> list[bytes]:
        """Return the events after a seq as they were published, oldest first, without newlines.

        Raises JournalCorrupt, with the number of the line, for one that is not the event it
        should be, or that continues one that is not there.
        """
        lines = self.stored(since_seq, limit)
        return [self._published(seq, line) for seq, line in enumerate(lines, max(since_seq, 0) + 1)]

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _published(self, seq: int, line: bytes) -> bytes:
        try:
            return self._whole.line(seq, line)
        except ValueError as fault:
            raise JournalCorrupt(self.path, seq, str(fault)) from fault


class Journal(ReadableJournal):
    """An open journal: appends at the end, reads anywhere.

    One thread may append while another reads: a reader sees whole lines only, because the
    bookmarks grow after the write.
    """

    def __init__(self, path: Path, descriptor: int, marks: Bookmarks) -> None:
        super().__init__(path, descriptor)
        self._marks = marks

    @property
    def marks(self) -> Bookmarks:
        return self._marks

    def status(self) -> os.stat_result:
        """Return the stat data of the file."""
        return os.fstat(self._descriptor)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        known_durable: int | None = None,
        marks: Bookmarks | None = None,
        on_line: Callable[[bytes], object] | None = None,
    ) -> tuple[Journal, JournalRepair | None]:
        """Open or create the journal, and cut off a torn tail.

        `known_durable` is the last seq that is known to be on the disk; with None, a hole counts
        as damage. The lines of `marks` are known already, and not read; `on_line` is called with
        each of the others. Raises OSError, and JournalCorrupt, with the file unchanged.
        """
        fsutil.make_private_directory(path.parent)
        descriptor = _open_private(path)
        try:
            with _mapped(descriptor) as content:
                marks = _accepted(content, marks, on_line)
                tail = bytes(content[marks.size :])

            repair = None
            if tail:
                _require_torn(path, tail, marks.lines + 1, known_durable)
                repair = _cut(path, descriptor, marks.size, tail)
        except BaseException:
            os.close(descriptor)
            raise

        return cls(path, descriptor, marks), repair

    @classmethod
    def for_reading(cls, path: Path) -> Journal:
        """Open a journal that may belong to a running server, and change nothing.

        Bytes after the last whole event are left out: an unfinished line, or a torn tail. Raises
        OSError, and JournalCorrupt if whole events follow them.
        """
        return cls.reading(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))

    @classmethod
    def reading(cls, path: Path, descriptor: int) -> Journal:
        """Do the same as `for_reading` with an open file, which the journal closes."""
        try:
            with _mapped(descriptor) as content:
                marks = _accepted(content)
                _require_torn(path, bytes(content[marks.size :]), marks.lines + 1, None)
        except BaseException:
            os.close(descriptor)
            raise

        return cls(path, descriptor, marks)

    @property
    def last_seq(self) -> int:
        return self._marks.lines

    @property
    def size(self) -> int:
        """Bytes of all lines whose append has returned."""
        return self._marks.size

    def stored(self, since_seq: int, limit: int | None = None) -> list[bytes]:
        """Return the lines after a seq, oldest first, without their newlines.

        Those of snapshots may be short; see `snapshots`.
        """
        found = self._marks.find(since_seq, limit)
        if found.count == 0:
            return []

        content = pread_all(self._descriptor, found.end - found.begin, found.begin)
        return content.split(b"\n", found.skipped + found.count)[found.skipped : -1]

    def page(
        self, since_seq: int, until_seq: int, most_bytes: int
    ) -> list[bytes | LongJournalLine]:
        """Return events after a seq, about `most_bytes` of them, at least one if there is any.

        One that is much longer is returned unread, as a LongLine. Raises as `read`.
        """
        page: list[bytes | LongJournalLine] = []
        added = 0
        for seq, line in enumerate(
            self._stored_page(since_seq, until_seq, most_bytes), max(since_seq, 0) + 1
        ):
            whole = self._published(seq, line) if isinstance(line, bytes) else line
            if isinstance(whole, bytes) and whole is not line:
                added += len(whole)
                if page and added > most_bytes:
                    break

            page.append(whole)

        return page

    def _stored_page(
        self, since_seq: int, until_seq: int, most_bytes: int
    ) -> list[bytes | LongJournalLine]:
        since = max(since_seq, 0)
        count = min(self._marks.page_after(since, most_bytes), max(until_seq - since, 0))
        found = self._marks.find(since, count)
        if found.end - found.begin <= most_bytes + BYTES_APART:
            return list(self.stored(since, count))

        # Bookmarks are so close that only the last line of such a stretch can be a long one.
        head = pread_all(self._descriptor, BYTES_APART, found.begin)
        before = head.split(b"\n")[:-1]
        short = before[found.skipped : found.skipped + count]
        if len(short) == count:
            return list(short)

        begin = found.begin + sum(len(line) + 1 for line in before)
        return [*short, LongJournalLine(self._descriptor, begin, found.end - 1 - begin)]

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, given without newlines, by one call, and make them durable.

        Raises JournalFull and JournalWriteFailed.

        On a failure the file is truncated to its previous size before anything else happens, so
        that the next line can never fuse with a fragment of this one.
        """
        self._require_untouched()
        try:
            fsutil.write_all(self._descriptor, b"".join(line + b"\n" for line in lines))
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._taken_back(error) from error

        self._marks.extend(len(line) + 1 for line in lines)

    def _taken_back(self, error: OSError) -> JournalWriteFailed:
        text = f"Cannot append to the journal: {error}"
        try:
            os.ftruncate(self._descriptor, self._marks.size)
        except OSError as second:
            failure = JournalWriteFailed(text)
            failure.add_note(f"The fragment could not be truncated: {second}")
            return failure

        return JournalFull(text) if fsutil.is_full(error) else JournalWriteFailed(text)

    def _require_untouched(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size != self._marks.size:
            raise JournalWriteFailed(
                f"The journal has {size} bytes, not {self._marks.size}: another program wrote to "
                "it, or a failed append could not be taken back."
            )


class _Line(msgspec.Struct):
    """The fields by which the journal recognizes an event; the rest is for its readers."""

    type: str
    seq: int = 0
    """0 in a journal that Hankweave wrote: an event without a number."""


_decode_line = msgspec.json.Decoder(_Line).decode


def seq_in(line: bytes) -> int | None:
    """Return the seq of a line that holds a whole event; None for anything else."""
    try:
        return _decode_line(line).seq
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return None


def _accepted(
    content: bytes | mmap.mmap,
    marks: Bookmarks | None = None,
    on_line: Callable[[bytes], object] | None = None,
) -> Bookmarks:
    """Return bookmarks for the lines with seqs 1, 2, 3 ... up to the first other line."""
    marks = Bookmarks() if marks is None else marks
    marks.extend(len(line) + 1 for line in _accepted_lines(content, marks, on_line))
    return marks


def _accepted_lines(
    content: bytes | mmap.mmap, marks: Bookmarks, on_line: Callable[[bytes], object] | None
) -> Iterator[bytes]:
    begin, seq = marks.size, marks.lines + 1
    while (newline := content.find(b"\n", begin)) >= 0:
        line = content[begin:newline]
        if seq_in(line) != seq:
            return

        if on_line is not None:
            on_line(line)

        yield line
        begin, seq = newline + 1, seq + 1


def _require_torn(path: Path, tail: bytes, number: int, known_durable: int | None) -> None:
    """Raise JournalCorrupt unless a crash can have left the tail."""
    lines = tail.split(b"\n")[:-1]
    seqs = [seq for seq in map(seq_in, lines) if seq is not None]
    is_hole = bool(lines) and b"\0" in lines[0]
    if not seqs or (is_hole and known_durable is not None and number > known_durable):
        return

    first = seq_in(lines[0])
    found = "is not an event" if first is None else f"has seq {first}"
    intact = counted(len(seqs), "intact event remains", "intact events remain")
    raise JournalCorrupt(
        path,
        number,
        f"the line {found} where seq {number} was expected, and {intact} from there on",
    )


def _cut(path: Path, descriptor: int, end: int, tail: bytes) -> JournalRepair:
    """Copy the tail to a file of its own, durably, and only then truncate the journal."""
    quarantine = _free_name(path.with_name(f"{path.stem}.quarantine"))
    fsutil.write_private(quarantine, tail, durable=True)
    fsutil.sync_directory(path.parent)
    os.ftruncate(descriptor, end)
    os.fsync(descriptor)
    return JournalRepair(quarantine, len(tail))


def _free_name(base: Path) -> Path:
    number = 1
    while (candidate := base.with_name(f"{base.name}-{number}")).exists():
        number += 1

    return candidate


def _open_private(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)

    descriptor = os.open(path, flags | os.O_CREAT, fsutil.PRIVATE_FILE)
    fsutil.sync_directory(path.parent)
    fsutil.sync_directory(path.parent.parent)
    return descriptor


@contextlib.contextmanager
def _mapped(descriptor: int) -> Iterator[bytes | mmap.mmap]:
    """Map the file, so that a long journal is scanned without reading it into memory."""
    if os.fstat(descriptor).st_size == 0:
        yield b""
        return

    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        yield content


def pread_all(descriptor: int, count: int, offset: int) -> bytes:
    """Return exactly `count` bytes; pread(2) may return fewer."""
    parts: list[bytes] = []
    while count > 0:
        part = os.pread(descriptor, count, offset)
        if not part:
            raise OSError(f"the journal is {counted(count, 'byte')} shorter than it was")

        parts.append(part)
        count -= len(part)
        offset += len(part)

    return b"".join(parts)
