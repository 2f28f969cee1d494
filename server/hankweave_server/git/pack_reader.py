"""Reads objects out of git's packs without libgit2: checked, in bounded pieces, off the lock.

libgit2 takes a packed object whole into memory and holds the interpreter meanwhile. Here small
objects take a third of its time, and one of any size comes in pieces. The format is git's pack
version 2 with index version 2 (gitformat-pack).

Packs come (one with each checkpoint) and go (a repack, a `git gc`), so they are listed anew when
an object is not found. What this reader cannot give, because it is loose, a delta or damaged,
libgit2 is asked for. Packs are read and not mapped: a file cut short under a mapping would kill
the process. One instance may be used by several threads.

Reads a pack's index: which objects the pack holds, where, and with which checksum.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from hankweave_server.git import loose

PIECE = 1 << 20
FIRST_READ = 8 << 10
"""Bytes read at once where an object begins: nearly always all of it."""

OPEN_PACKS = 32
"""Pack files kept open; of more than that, the others are opened for each reading."""

_KINDS = {1: "commit", 2: "tree", 3: "blob"}
_INDEX_START = b"\xfftOc\x00\x00\x00\x02"
_FAN_OUT = struct.Struct(">256I")
_NAMES_FROM = len(_INDEX_START) + _FAN_OUT.size
_NAME = 20
_TRAILER = 2 * _NAME
_FAR = 1 << 31
"""Set in an offset that is an index into the table of eight-byte offsets."""

_TICK_NS = 20_000_000


class PackDamaged(Exception):
    """A pack, its index or one object in it is not what it should be, or is no longer there."""


class PackReader:
    """All packs of one repository."""

    def __init__(self, objects: Path) -> None:
        self._folder = objects / "pack"
        self._order: list[_Pack] = []
        self._listed: tuple[int, int] = (0, 0)
        self._lock = Lock()

    def read(self, digest: bytes) -> tuple[str, bytes] | None:
        """Gives kind and content of an object, checked; None if libgit2 must be asked."""
        for pack, offset in self._places(digest):
            try:
                return pack.read(digest, offset)
            except PackDamaged:
                continue

        return None

    def forget(self) -> None:
        """Lets go of all packs: what they hold is looked up on the disk again."""
        with self._lock:
            self._order, self._listed = [], (0, 0)

    def size(self, digest: bytes) -> int | None:
        """Gives an object's size without reading its content; None if libgit2 must be asked."""
        for pack, offset in self._places(digest):
            try:
                return pack.header(offset)[1]
            except PackDamaged:
                continue

        return None

    def pieces(self, digest: bytes) -> Iterator[bytes] | None:
        """Gives a blob's content piece by piece; None if another way must be found.

        The iterator raises PackDamaged, at the latest at its end, when the bytes are not those
        that the name promises: a caller keeps what it got only after the last piece.
        """
        for pack, offset in self._places(digest):
            try:
                kind, _ = pack.header(offset)
            except PackDamaged:
                continue

            if kind == "blob":
                return pack.pieces(digest, offset)

        return None

    def _places(self, digest: bytes) -> Iterator[tuple[_Pack, int]]:
        """Finds the object in every pack that has it, beginning with the packs used last."""
        while True:
            order = self._order
            for pack in order:
                offset = pack.offset_of(digest)
                if offset is None:
                    continue

                if pack is not order[0]:
                    # Neighbours are asked for in turn, and lie in the same few packs.
                    self._order = [pack, *(other for other in order if other is not pack)]

                yield pack, offset

            # The caller goes on only where it could not use what it was given.
            if not self._list_again():
                return

    def _list_again(self) -> bool:
        """Lists the packs if there can be others than were seen; tells whether it did."""
        with self._lock:
            try:
                status = os.stat(self._folder)
                now = (status.st_mtime_ns, status.st_ino)
                if now == self._listed:
                    return False

                names = {name for name in os.listdir(self._folder) if name.endswith(".idx")}
            except OSError:
                names, now = set(), (0, 0)

            # In the same tick a pack may come unseen: then the next miss lists once more.
            settled = now[0] < time.time_ns() - _TICK_NS
            self._listed = now if settled else (0, 0)
            known = {pack.name: pack for pack in self._order if pack.name in names}
            new = enumerate(sorted(names - known.keys()), start=len(known))
            fresh = [self._opened(name, before) for before, name in new]
            self._order = [*known.values(), *(pack for pack in fresh if pack is not None)]
            return any(pack is not None for pack in fresh)

    def _opened(self, name: str, before: int) -> _Pack | None:
        try:
            return _Pack(self._folder / name, stays_open=before < OPEN_PACKS)
        except (PackDamaged, OSError):
            return None


class _PackFile:
    """An open pack: closed when nobody reads it any more; its name may be gone by then."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as problem:
            self._descriptor = -1
            raise PackDamaged(str(path)) from problem

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Gives at most so many bytes; none behind the end."""
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as problem:
            raise PackDamaged(str(problem)) from problem


class _Pack:
    """One pack and its index, which is held in memory: 28 bytes an object."""

    def __init__(self, index: Path, *, stays_open: bool) -> None:
        self.name = index.name
        self._path = index.with_suffix(".pack")
        self._index = index.read_bytes()
        if self._index[: len(_INDEX_START)] != _INDEX_START or len(self._index) < _NAMES_FROM:
            raise PackDamaged(f"{index} is no index of version 2")

        self._upto = _FAN_OUT.unpack_from(self._index, len(_INDEX_START))
        self._count = self._upto[255]
        in_order = all(a <= b for a, b in zip(self._upto, self._upto[1:], strict=False))
        if not in_order or len(self._index) < _NAMES_FROM + 28 * self._count + _TRAILER:
            raise PackDamaged(f"{index} is not whole")

        self._file = _PackFile(self._path) if stays_open else None

    def offset_of(self, digest: bytes) -> int | None:
        """Says where an object begins; None when it is not in the pack."""
        first = digest[0]
        low, high = self._upto[first - 1] if first else 0, self._upto[first]
        end = _NAMES_FROM + _NAME * high
        at = self._index.find(digest, _NAMES_FROM + _NAME * low, end)
        while at >= 0 and (at - _NAMES_FROM) % _NAME:
            at = self._index.find(digest, at + 1, end)

        return None if at < 0 else self._offset((at - _NAMES_FROM) // _NAME)

    def _offset(self, row: int) -> int | None:
        offsets = _NAMES_FROM + (_NAME + 4) * self._count
        offset = int.from_bytes(self._index[offsets + 4 * row : offsets + 4 * row + 4], "big")
        if offset < _FAR:
            return offset

        place = offsets + 4 * self._count + 8 * (offset - _FAR)
        if place + 8 > len(self._index) - _TRAILER:
            return None

        return int.from_bytes(self._index[place : place + 8], "big")

    def header(self, offset: int) -> tuple[str, int]:
        kind, size, _ = _header(self._open().read(offset, 32))
        return kind, size

    def read(self, digest: bytes, offset: int) -> tuple[str, bytes]:
        """Gives kind and content of an object."""
        file = self._open()
        raw = file.read(offset, FIRST_READ)
        kind, size, begin = _header(raw)
        if size > PIECE:
            # Nobody has confirmed the size yet, so no memory is taken on its word.
            return kind, b"".join(self.pieces(digest, offset))

        if size > FIRST_READ // 2:
            # Content that cannot be deflated grows, but never by as much as this.
            raw += file.read(offset + len(raw), size + FIRST_READ)

        inflate = loose.decompressobj()
        try:
            # One byte more than promised shows content that is longer.
            data = inflate.decompress(raw[begin:], size + 1)
        except loose.DeflateError as problem:
            raise PackDamaged(digest.hex()) from problem

        checksum = hashlib.sha1(b"%s %d\0" % (kind.encode(), size), usedforsecurity=False)
        checksum.update(data)
        if len(data) != size or checksum.digest() != digest:
            raise PackDamaged(digest.hex())

        return kind, data

    def pieces(self, digest: bytes, offset: int) -> Iterator[bytes]:
        """Gives an object's content in pieces of at most PIECE bytes."""
        file = self._open()
        kind, size, begin = _header(file.read(offset, 32))
        checksum = hashlib.sha1(b"%s %d\0" % (kind.encode(), size), usedforsecurity=False)
        left = size
        for piece in _inflated(file, offset + begin):
            left -= len(piece)
            if left < 0:
                break

            checksum.update(piece)
            yield piece

        if left or checksum.digest() != digest:
            raise PackDamaged(digest.hex())

    def _open(self) -> _PackFile:
        return self._file or _PackFile(self._path)


def _header(raw: bytes) -> tuple[str, int, int]:
    """Gives kind, size and length of the header; a delta has no kind that is known here."""
    try:
        byte = raw[0]
        kind = _KINDS[byte >> 4 & 7]
        size, shift, length = byte & 0x0F, 4, 1
        while byte & 0x80:
            byte = raw[length]
            size |= (byte & 0x7F) << shift
            shift, length = shift + 7, length + 1
    except (IndexError, KeyError) as problem:
        raise PackDamaged("no plain object begins there") from problem

    return kind, size, length


def _inflated(file: _PackFile, position: int) -> Iterator[bytes]:
    inflate = loose.decompressobj()
    try:
        while not inflate.eof:
            raw = inflate.unconsumed_tail
            if not raw:
                raw = file.read(position, PIECE)
                position += len(raw)

            piece = inflate.decompress(raw, PIECE)
            if piece:
                yield piece
            elif not raw:
                raise PackDamaged("the pack ends within an object")
    except loose.DeflateError as problem:
        raise PackDamaged(str(problem)) from problem


_SIGNATURE = b"\xfftOc\x00\x00\x00\x02"
_HEADER_SIZE = 8 + 1024
_IN_LARGE_TABLE = 1 << 31
_CHECKSUM = 20


class Record(NamedTuple):
    """One object as its pack has it."""

    digest: bytes
    offset: int
    length: int
    """Bytes in the pack, header included."""
    crc: int


def count_in(index: Path) -> int:
    """Says how many objects an index lists, from its head alone; 0 where it is torn."""
    with index.open("rb") as content:
        head = content.read(_HEADER_SIZE)

    return int.from_bytes(head[-4:]) if len(head) == _HEADER_SIZE else 0


def read_index(index: Path) -> list[Record]:
    """Gives the records of a pack in the order of the pack; raises ValueError for a torn index."""
    content = index.read_bytes()
    body, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
    if body[:8] != _SIGNATURE or hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{index.name} is no pack index of version 2")

    (count,) = struct.unpack_from(">I", body, _HEADER_SIZE - 4)
    crcs = _HEADER_SIZE + 20 * count
    offsets = crcs + 4 * count
    large = offsets + 4 * count
    found = sorted(
        zip(
            _offsets(body, struct.unpack_from(f">{count}I", body, offsets), large),
            (body[at : at + 20] for at in range(_HEADER_SIZE, crcs, 20)),
            struct.unpack_from(f">{count}I", body, crcs),
            strict=True,
        )
    )
    end = index.with_suffix(".pack").stat().st_size - _CHECKSUM
    starts = [offset for offset, _, _ in found]
    lengths = [after - before for before, after in pairwise([*starts, end])]
    return [
        Record(digest, offset, length, crc)
        for (offset, digest, crc), length in zip(found, lengths, strict=True)
    ]


def _offsets(body: bytes, short: tuple[int, ...], large: int) -> list[int]:
    """Follows the offsets beyond 2 GiB into the table that has room for them."""
    return [
        struct.unpack_from(">Q", body, large + 8 * (offset - _IN_LARGE_TABLE))[0]
        if offset & _IN_LARGE_TABLE
        else offset
        for offset in short
    ]
