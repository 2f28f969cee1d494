"""Git's index as bytes: reads every version and preserves unrelated content when writing.

libgit2 reads neither split nor sparse indexes and returns names as text. Optional extensions are
caches of other programs and are dropped when writing; a sparse index stays sparse.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hankweave_server.user_git.errors import UnsupportedRepository

FOLDER = 0o040000
GITLINK = 0o160000
EMPTY_BLOB = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")

_HEADER = struct.Struct(">4sII")
_FIXED = struct.Struct(">40s20sH")
_STAT = struct.Struct(">10I")
_NO_STAT = bytes(_STAT.size)
_LOW = 0xFFFFFFFF

_ASSUME_UNCHANGED = 0x8000
_EXTENDED = 0x4000
_STAGE = 0x3000
_NAME_LENGTH = 0x0FFF
_SKIP_WORKTREE = 0x4000
_INTENT_TO_ADD = 0x2000


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One path of the index; `stat` is the file's stat data when it was last compared."""

    path: bytes
    mode: int
    digest: bytes
    stat: bytes = _NO_STAT
    flags: int = 0
    extended: int = 0

    @property
    def stage(self) -> int:
        return (self.flags & _STAGE) >> 12

    @property
    def is_assumed_unchanged(self) -> bool:
        return bool(self.flags & _ASSUME_UNCHANGED)

    @property
    def is_skipped(self) -> bool:
        """True for a path that a sparse checkout leaves out of the work tree."""
        return bool(self.extended & _SKIP_WORKTREE)

    @property
    def is_only_intended(self) -> bool:
        """True after `git add --intent-to-add`: the path has no content yet."""
        return bool(self.extended & _INTENT_TO_ADD)

    @property
    def is_sparse_folder(self) -> bool:
        return self.mode == FOLDER

    def describes(self, status: os.stat_result, index_written_ns: int) -> bool:
        """Return whether a file is unchanged since it was last compared, so it need not be read.

        A file changed in the same instant as the index may have changed again.
        """
        then, now = self.stat, _packed(status)
        if then[12:16] == bytes(4):  # An index without nanoseconds.
            now = now[:4] + then[4:8] + now[8:12] + bytes(4) + now[16:]

        is_same = (then[:16], then[20:24], then[28:]) == (now[:16], now[20:24], now[28:])
        is_empty = status.st_size == 0
        if not is_same or is_empty != (self.digest == EMPTY_BLOB):
            return False

        return self._compared_ns() < index_written_ns

    def _compared_ns(self) -> int:
        """Return the file's last modification time, with the resolution of the index."""
        _, _, mtime, mtime_ns, *_ = _STAT.unpack(self.stat)
        return int(mtime * 10**9 + (mtime_ns or 10**9 - 1))

    def seen_as(self, status: os.stat_result) -> IndexEntry:
        seen = _packed(status)
        return self if seen == self.stat else replace(self, stat=seen)

    def smudged_if_racy(self, index_written_ns: int) -> IndexEntry:
        """Return the entry, marked for comparison by git if it was racy under the old index."""
        if self.stat == _NO_STAT or self._compared_ns() < index_written_ns:
            return self

        return replace(self, stat=self.stat[:-4] + bytes(4))

    def in_work_tree(self) -> IndexEntry:
        return replace(self, extended=0)


def _packed(status: os.stat_result) -> bytes:
    return _STAT.pack(
        status.st_ctime_ns // 10**9 & _LOW,
        status.st_ctime_ns % 10**9,
        status.st_mtime_ns // 10**9 & _LOW,
        status.st_mtime_ns % 10**9,
        status.st_dev & _LOW,
        status.st_ino & _LOW,
        stat.S_IFMT(status.st_mode) | 0o644,
        status.st_uid & _LOW,
        status.st_gid & _LOW,
        status.st_size & _LOW,
    )


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The content of an index; entries are sorted by path and stage."""

    entries: tuple[IndexEntry, ...] = ()
    written_ns: int = 0
    is_sparse: bool = False


def read_index(git_dir: Path) -> IndexFile:
    """Read the index of a work tree; a missing one is empty."""
    path = git_dir / "index"
    try:
        with path.open("rb") as file:
            written_ns = os.fstat(file.fileno()).st_mtime_ns
            data = file.read()
    except FileNotFoundError:
        return IndexFile()

    entries, extensions = _parsed(data)
    whole = _joined(git_dir, entries, extensions[b"link"]) if b"link" in extensions else entries

    in_order = sorted(whole, key=lambda entry: (entry.path, entry.stage))
    return IndexFile(tuple(in_order), written_ns, b"sdir" in extensions)


def encoded(index: IndexFile) -> bytes:
    """Encode an index: version 2, or 3 if an entry needs it."""
    version = 3 if any(entry.extended for entry in index.entries) else 2
    pieces = [_HEADER.pack(b"DIRC", version, len(index.entries))]
    for entry in index.entries:
        length = min(len(entry.path), _NAME_LENGTH)
        flags = entry.flags & ~(_NAME_LENGTH | _EXTENDED) | length
        fixed = entry.stat[:24] + struct.pack(">I", entry.mode) + entry.stat[28:]
        piece = _FIXED.pack(fixed, entry.digest, flags | (_EXTENDED if entry.extended else 0))
        if entry.extended:
            piece += struct.pack(">H", entry.extended)

        piece += entry.path
        pieces.append(piece + bytes(8 - len(piece) % 8))

    if index.is_sparse:
        pieces.append(b"sdir" + bytes(4))

    content = b"".join(pieces)
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def _parsed(data: bytes) -> tuple[list[IndexEntry], dict[bytes, bytes]]:
    try:
        magic, version, count = _HEADER.unpack_from(data)
        if magic != b"DIRC" or version not in (2, 3, 4):
            raise _unreadable(f"version {version}")

        entries, position = _entries(data, version, count)
        return entries, dict(_extensions(data, position))
    except (struct.error, IndexError, ValueError) as problem:
        raise _unreadable("it is damaged") from problem


def _entries(data: bytes, version: int, count: int) -> tuple[list[IndexEntry], int]:
    entries: list[IndexEntry] = []
    position, name = _HEADER.size, b""
    for _ in range(count):
        start = position
        fixed, digest, flags = _FIXED.unpack_from(data, position)
        position += _FIXED.size
        extended = 0
        if flags & _EXTENDED:
            extended = int.from_bytes(data[position : position + 2])
            position += 2

        if version == 4:
            dropped, position = _number(data, position)
            end = data.index(b"\0", position)
            name = name[: len(name) - dropped] + data[position:end]
            position = end + 1
        else:
            end = data.index(b"\0", position + min(flags & _NAME_LENGTH, _NAME_LENGTH))
            name = data[position:end]
            position = start + ((end - start + 8) & ~7)

        mode = int.from_bytes(fixed[24:28])
        entries.append(IndexEntry(name, mode, digest, fixed, flags, extended))

    return entries, position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Decode a number of variable length, encoded like the offsets in packs."""
    byte = data[position]
    value = byte & 127
    while byte & 128:
        position += 1
        byte = data[position]
        value = (value + 1 << 7) + (byte & 127)

    return value, position + 1


def _extensions(data: bytes, position: int) -> Iterator[tuple[bytes, bytes]]:
    while position < len(data) - 20:
        signature, length = struct.unpack_from(">4sI", data, position)
        if signature not in (b"link", b"sdir") and not signature[:1].isupper():
            raise _unreadable(f"it has the unsupported extension {signature.decode('latin-1')!r}")

        yield signature, data[position + 8 : position + 8 + length]
        position += 8 + length


def _joined(git_dir: Path, entries: list[IndexEntry], link: bytes) -> list[IndexEntry]:
    """Assemble a split index: the shared one, minus deletions, with replacements."""
    if link[:20] == bytes(20):
        return entries

    base, _ = _parsed((git_dir / f"sharedindex.{link[:20].hex()}").read_bytes())
    if len(link) == 20:
        return base + entries

    deleted, end = _bitmap(link, 20)
    replaced, _ = _bitmap(link, end)
    nameless = [entry for entry in entries if not entry.path]
    for position, entry in zip(sorted(replaced), nameless, strict=True):
        base[position] = replace(entry, path=base[position].path)

    kept = [entry for number, entry in enumerate(base) if number not in deleted]
    return kept + [entry for entry in entries if entry.path]


def _bitmap(data: bytes, position: int) -> tuple[set[int], int]:
    """Decode a compressed bitmap (EWAH) and return the bits that are set."""
    _, count = struct.unpack_from(">II", data, position)
    words = struct.unpack_from(f">{count}Q", data, position + 8)
    found: set[int] = set()
    bit, number = 0, 0
    while number < count:
        marker = words[number]
        run, literals = (marker >> 1 & _LOW) * 64, marker >> 33
        if marker & 1:
            found.update(range(bit, bit + run))

        bit += run
        for word in words[number + 1 : number + 1 + literals]:
            found.update(bit + place for place in range(64) if word >> place & 1)
            bit += 64

        number += 1 + literals

    return found, position + 8 + count * 8 + 4


def _unreadable(why: str) -> UnsupportedRepository:
    return UnsupportedRepository(
        f"The index of the repository cannot be read: {why}.",
        "Check whether `git status` works there.",
    )
