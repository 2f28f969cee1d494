"""Read objects from git's packs without libgit2: verified, and in bounded pieces.

The problem
-----------
A rollback, a diff or a clone reads many objects, some of them huge, while the same process answers
clients. libgit2 reads a packed object completely into memory and holds the interpreter lock
meanwhile, so one large blob stops every other task. This module reads the same files in plain
Python: small objects take a third of libgit2's time, objects of any size come in pieces of at most
`PIECE` bytes, and inflating and hashing release the lock.

The format
----------
A pack is a header, then records, then a checksum (gitformat-pack, version 2). A record is a
variable-length header with kind and size, followed by a zlib stream; nothing says how long the
stream is. The index beside the pack (version 2) has a fan-out table of 256 cumulative counts, the
object names in order, their CRC-32s, and their offsets as 32-bit numbers. An offset with the high
bit set is a row number in a last table of 64-bit offsets, for packs beyond 2 GiB.
`_Pack.offset_of` searches the names of one fan-out bucket; a match that does not start at a
multiple of 20 bytes straddles two names and is skipped.

What can go wrong
-----------------
- *Damage.* Neither a size in a header nor the content is trusted. The inflated bytes must have
  exactly the promised length and the SHA-1 that is the object's name. For large objects the check
  ends with the last piece, so callers of `pieces` must discard what they received if the iterator
  raises PackDamaged. No memory is reserved on the strength of an unverified size.
- *Files that shrink.* Packs are read with `pread`, not mapped: access to a mapping beyond the end
  of a truncated file kills the process with SIGBUS.
- *Packs that appear and vanish.* Each checkpoint can add a pack; a repack or `git gc` replaces
  packs. Known packs are searched without a check; code that removes objects calls `forget`. On a
  miss, `_list_again` lists the folder again if its modification time or inode differs from the
  last listing. A time within `_TICK_NS` of the present proves nothing, because a second pack could
  arrive within the same clock tick: such a listing is not remembered. A pack file that vanished
  raises PackDamaged like any other fault, and the search continues with the next pack that has the
  object.
- *Many packs.* At most `OPEN_PACKS` files stay open. One of them is the file that served the last
  object: a walk through history reads many objects of one pack, then many of the next. A
  `_PackFile` closes its descriptor when its last user drops it, so an iterator can finish reading
  a pack that was removed meanwhile. The pack that served the last object is tried first.

Deltas
------
An old version of a path is usually a short difference to another object, which it names
(`pack_merge`). A walk through history reads these one after the other, so `_bases` has what was
read last: each version then costs its own difference. Every result is verified against its name.

What it does not do
-------------------
It resolves no deltas that are long or that name their base by its offset, knows no tags, reads no
loose objects and repairs nothing. In those cases it returns None, and the caller
(`ShadowRepo.read`) tries the loose object and libgit2. The methods may be called from several
threads: the list of packs is replaced as a whole, never modified in place, and only listing takes
the lock.

Read `PackReader.read` and `_places` first, then `_Pack.read` and `_Pack.pieces`. The second half
of the module, from `Record` on, reads whole indexes with lengths and checksums, for `repack` and
`store_files`.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from hankweave_server.git import delta, loose

PIECE = 1 << 20
FIRST_READ = 8 << 10
"""Bytes read at once where an object begins: nearly always the whole object."""

OPEN_PACKS = 32
"""Number of pack files kept open, that of the last object among them."""

BYTES_OF_BASES = 2 << 20
"""Bytes of objects that are kept because the next ones may be differences to them."""

_MOST_DELTAS = 64
"""Deltas in a row; a damaged pack may have a circle of them."""

_REF_DELTA = 7
_KINDS = {1: "commit", 2: "tree", 3: "blob"}
_INDEX_START = b"\xfftOc\x00\x00\x00\x02"
_FAN_OUT = struct.Struct(">256I")
_NAMES_FROM = len(_INDEX_START) + _FAN_OUT.size
_NAME = 20
"""Bytes of a name, and of a checksum."""

_TRAILER = 2 * _NAME
_FAR = 1 << 31
"""Flag in an offset that is a row number in the table of eight-byte offsets."""

_TICK_NS = 20_000_000


class PackDamaged(Exception):
    """A pack, its index or an object in it is damaged or has vanished."""


class _Delta(NamedTuple):
    """An object as a difference to another."""

    base: bytes
    changes: bytes


class PackReader:
    """All packs of one repository."""

    def __init__(self, objects: Path) -> None:
        self._folder = objects / "pack"
        self._order: list[_Pack] = []
        self._listed: tuple[int, int] = (0, 0)
        self._lock = Lock()
        self._located: dict[bytes, _Pack] = {}
        """The pack of each object, after `locate_all`; a hint, as packs may be replaced."""
        self._bases: dict[bytes, tuple[str, bytes]] = {}
        self._bytes_of_bases = 0

    def read(self, digest: bytes) -> tuple[str, bytes] | None:
        """Return kind and content of an object, verified; None if libgit2 must be asked."""
        return self._read(digest, _MOST_DELTAS)

    def _read(self, digest: bytes, most_deltas: int) -> tuple[str, bytes] | None:
        for pack, offset in self._places(digest):
            try:
                found = pack.read(digest, offset)
                if not isinstance(found, _Delta):
                    return found

                return self._resolved(digest, found, most_deltas)
            except PackDamaged:
                continue

        return None

    def _resolved(self, digest: bytes, found: _Delta, most_deltas: int) -> tuple[str, bytes]:
        """Return the object that a delta describes; raise PackDamaged."""
        name = found.base
        base = self._bases.get(name) or (self._read(name, most_deltas - 1) if most_deltas else None)
        if base is None:
            raise PackDamaged(f"{digest.hex()} has no base")

        kind, content = base
        try:
            data = delta.applied(found.changes, content)
        except (IndexError, ValueError) as problem:
            raise PackDamaged(digest.hex()) from problem

        _verify(digest, kind, data)
        self._keep(name, base)
        self._keep(digest, (kind, data))
        return kind, data

    def _keep(self, digest: bytes, found: tuple[str, bytes]) -> None:
        if digest not in self._bases and len(found[1]) <= PIECE:
            if self._bytes_of_bases > BYTES_OF_BASES:
                self._bases, self._bytes_of_bases = {}, 0

            self._bases[digest] = found
            self._bytes_of_bases += len(found[1])

    def locate_all(self) -> None:
        """Remember the pack of every object, for a caller that reads all of them.

        It takes some 100 bytes of memory for each object. Otherwise, each read that continues in
        another pack asks all packs in turn.
        """
        self._list_again()
        self._located = {digest: pack for pack in self._order for digest in pack.digests()}

    def forget(self) -> None:
        """Close all packs; later reads look them up on disk again."""
        with self._lock:
            self._order, self._listed, self._located = [], (0, 0), {}
            self._bases, self._bytes_of_bases = {}, 0

    def drop(self, names: Collection[str]) -> None:
        """Close packs, named without a suffix, whose objects another pack has."""
        with self._lock:
            self._order = [pack for pack in self._order if pack.name not in names]
            self._located = {}

    def size(self, digest: bytes) -> int | None:
        """Return an object's size without reading its content; None if libgit2 must be asked."""
        for pack, offset in self._places(digest):
            try:
                return pack.header(offset)[1]
            except PackDamaged:
                continue

        return None

    def pieces(self, digest: bytes) -> Iterator[bytes] | None:
        """Return an iterator over a blob's content; None if the caller must read it another way.

        The iterator raises PackDamaged, at its end at the latest, when the content does not match
        the name: a caller must discard everything unless it ends normally.
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
        """Yield every pack that has the object, and its offset; the pack used last comes first."""
        if (pack := self._located.get(digest)) is not None:
            offset = pack.offset_of(digest)
            if offset is not None:
                yield pack, offset

        while True:
            order = self._order
            for pack in order:
                offset = pack.offset_of(digest)
                if offset is None:
                    continue

                if pack is not order[0]:
                    # Objects read together usually lie in the same few packs.
                    order[0].leave()
                    self._order = [pack, *(other for other in order if other is not pack)]

                pack.is_first = True
                yield pack, offset

            # The caller continues the iteration only if it could not use the previous place.
            if not self._list_again():
                return

    def _list_again(self) -> bool:
        """List the packs if the folder may have changed; return whether a new pack was found."""
        with self._lock:
            settled_before = time.time_ns() - _TICK_NS
            try:
                status = os.stat(self._folder)
                now = (status.st_mtime_ns, status.st_ino)
                if now == self._listed:
                    return False

                listed = os.listdir(self._folder)
                names = {name[:-4] for name in listed if name.endswith(".idx")}
            except OSError:
                names, now = set(), (0, 0)

            # Another pack may arrive within the same clock tick without changing the folder's
            # time. Forgetting the time makes the next miss list again.
            self._listed = now if now[0] < settled_before else (0, 0)
            known = {pack.name: pack for pack in self._order if pack.name in names}
            new = enumerate(sorted(names - known.keys()), start=len(known))
            fresh = [self._opened(name, before) for before, name in new]
            self._order = [*known.values(), *(pack for pack in fresh if pack is not None)]
            return any(pack is not None for pack in fresh)

    def _opened(self, name: str, before: int) -> _Pack | None:
        try:
            return _Pack(f"{self._folder}/{name}", stays_open=before < OPEN_PACKS - 1)
        except (PackDamaged, OSError):
            return None


class _PackFile:
    """An open pack file, closed with its last reference; its name may be gone by then."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as problem:
            self._descriptor = -1
            raise PackDamaged(path) from problem

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Return at most `size` bytes; none beyond the end of the file."""
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as problem:
            raise PackDamaged(str(problem)) from problem


class _Pack:
    """One pack and its index, which is held in memory: 28 bytes per object."""

    def __init__(self, path: str, *, stays_open: bool) -> None:
        """`path` is that of both files, without a suffix."""
        self.name = os.path.basename(path)
        self._path = f"{path}.pack"
        with open(f"{path}.idx", "rb", buffering=0) as index:
            self._index = index.read()

        if self._index[: len(_INDEX_START)] != _INDEX_START or len(self._index) < _NAMES_FROM:
            raise PackDamaged(f"{path}.idx is not a version 2 index")

        self._upto = _FAN_OUT.unpack_from(self._index, len(_INDEX_START))
        self._count = self._upto[255]
        is_ordered = list(self._upto) == sorted(self._upto)
        if not is_ordered or len(self._index) < _NAMES_FROM + 28 * self._count + _TRAILER:
            raise PackDamaged(f"{path}.idx is incomplete")

        self.is_first = False
        """Whether the next objects are probably here as well, so that the file stays open."""
        self._stays_open = stays_open
        self._file = _PackFile(self._path) if stays_open else None

    def leave(self) -> None:
        """Close the file, unless it is one of those that stay open: another pack is the first."""
        self.is_first = False
        if not self._stays_open:
            self._file = None

    def digests(self) -> Iterator[bytes]:
        """Yield the names of all objects."""
        for at in range(_NAMES_FROM, _NAMES_FROM + _NAME * self._count, _NAME):
            yield self._index[at : at + _NAME]

    def offset_of(self, digest: bytes) -> int | None:
        """Return where an object begins; None when it is not in the pack."""
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
        kind, size, _ = header_of(self._open().read(offset, 32))
        return kind, size

    def read(self, digest: bytes, offset: int) -> tuple[str, bytes] | _Delta:
        """Return kind and content of an object, verified; or the delta that describes it."""
        file = self._open()
        raw = file.read(offset, FIRST_READ)
        if raw and raw[0] >> 4 & 7 == _REF_DELTA:
            return _delta_in(raw)

        kind, size, begin = header_of(raw)
        if size > PIECE:
            # The size is unverified, so no memory is reserved for it.
            return kind, b"".join(self.pieces(digest, offset))

        if size > FIRST_READ // 2:
            # Incompressible content grows when deflated, but never by this much.
            raw += file.read(offset + len(raw), size + FIRST_READ)

        data = _inflated_whole(raw[begin:], size)
        _verify(digest, kind, data)
        return kind, data

    def pieces(self, digest: bytes, offset: int) -> Iterator[bytes]:
        """Yield an object's content in pieces of at most PIECE bytes."""
        file = self._open()
        kind, size, begin = header_of(file.read(offset, 32))
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
        file = self._file or _PackFile(self._path)
        if self.is_first:
            self._file = file

        return file


def _inflated_whole(raw: bytes, size: int) -> bytes:
    """Return the content of a stream that begins there; raise PackDamaged for another size."""
    try:
        if size <= FIRST_READ // 2:
            # Without an object for its state, that takes a third of the time. So little input
            # cannot become much more than was promised.
            data = loose.decompress(raw, size)
        else:
            # One byte more than promised reveals content that is too long.
            data = loose.decompressobj().decompress(raw, size + 1)
    except loose.DeflateError as problem:
        raise PackDamaged("an object is damaged") from problem

    if len(data) != size:
        raise PackDamaged("an object has another size")

    return data


def _verify(digest: bytes, kind: str, data: bytes) -> None:
    """Raise PackDamaged unless that is the name of the object."""
    checksum = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    checksum.update(data)
    if checksum.digest() != digest:
        raise PackDamaged(digest.hex())


def header_of(raw: bytes) -> tuple[str, int, int]:
    """Return kind, size and length of the header; raise PackDamaged for a delta."""
    number, size, length = _numbers_of(raw)
    if number not in _KINDS:
        raise PackDamaged("no plain object begins there")

    return _KINDS[number], size, length


def _numbers_of(raw: bytes) -> tuple[int, int, int]:
    """Return the number of the kind, size and length of the header; raise PackDamaged."""
    try:
        byte = raw[0]
        kind, size, shift, length = byte >> 4 & 7, byte & 0x0F, 4, 1
        while byte & 0x80:
            byte = raw[length]
            size |= (byte & 0x7F) << shift
            shift, length = shift + 7, length + 1
    except IndexError as problem:
        raise PackDamaged("no object begins there") from problem

    return kind, size, length


def _delta_in(raw: bytes) -> _Delta:
    """Read a delta; raise PackDamaged if it is long."""
    _, size, length = _numbers_of(raw)
    begin = length + _NAME
    if size > FIRST_READ // 2:
        raise PackDamaged("that delta is for libgit2")

    return _Delta(raw[length:begin], _inflated_whole(raw[begin:], size))


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


class Record(NamedTuple):
    """One object as its pack stores it."""

    digest: bytes
    offset: int
    length: int
    """Bytes in the pack, header included."""
    crc: int


def count_in(index: Path) -> int:
    """Return how many objects an index lists, from its head alone; 0 if it is truncated."""
    with index.open("rb") as content:
        head = content.read(_NAMES_FROM)

    return int.from_bytes(head[-4:]) if len(head) == _NAMES_FROM else 0


def read_index(index: Path) -> list[Record]:
    """Return the records of a pack in pack order; raise ValueError for a torn index."""
    content = index.read_bytes()
    body, checksum = content[:-_NAME], content[-_NAME:]
    if body[:8] != _INDEX_START or hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{index.name} is not a version 2 pack index")

    (count,) = struct.unpack_from(">I", body, _NAMES_FROM - 4)
    crcs = _NAMES_FROM + 20 * count
    offsets = crcs + 4 * count
    large = offsets + 4 * count
    found = sorted(
        zip(
            _offsets(body, struct.unpack_from(f">{count}I", body, offsets), large),
            (body[at : at + 20] for at in range(_NAMES_FROM, crcs, 20)),
            struct.unpack_from(f">{count}I", body, crcs),
            strict=True,
        )
    )
    end = index.with_suffix(".pack").stat().st_size - _NAME
    starts = [offset for offset, _, _ in found]
    lengths = [after - before for before, after in pairwise([*starts, end])]
    return [
        Record(digest, offset, length, crc)
        for (offset, digest, crc), length in zip(found, lengths, strict=True)
    ]


def _offsets(body: bytes, short: tuple[int, ...], large: int) -> list[int]:
    """Replace the row numbers of offsets beyond 2 GiB by the offsets themselves."""
    return [
        struct.unpack_from(">Q", body, large + 8 * (offset - _FAR))[0] if offset & _FAR else offset
        for offset in short
    ]
