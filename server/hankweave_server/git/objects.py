"""Write new objects to the shadow repository, all of them or none.

Invariant: an object with a final name is complete and on the disk, in its file or in the
write-ahead log. New content is written under `tmp_` names, made durable, and only then renamed. A
crash therefore leaves nothing but `tmp_` files and what the log repairs, and an object that exists
never has to be checked or written again.

Many objects go into one pack, without deltas: a pack costs two files and two flushes, a thousand
loose objects cost a thousand. The format is git's pack version 2 and index version 2
(gitformat-pack).
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple, Self

from hankweave_server.fsutil import CHUNK, PRIVATE_FILE, opened, write_all
from hankweave_server.git.loose import StagedLoose, compress, crc32, loose_path, write_loose
from hankweave_server.wal import StagedFile, flush_and_rename

PACK_LIMIT = 1 << 30
"""Bytes after which a new pack is begun; every offset stays below 2 GiB."""

_PIECE = 1 << 20
_KIND_CODES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_REF_DELTA = 7
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PackedObject(NamedTuple):
    """One object as stored in a pack: header and deflated content."""

    digest: bytes
    crc: int
    record: bytes


@dataclass(frozen=True, slots=True)
class StagedPack:
    """A pack under temporary names, not yet part of the repository."""

    pack: Path
    index: Path
    name: str

    @property
    def temporaries(self) -> tuple[Path, ...]:
        return self.pack, self.index

    def files(self) -> Iterator[StagedFile]:
        """Yield pack and index with their final names, pack first: git looks for indexes."""
        folder = self.pack.parent
        yield StagedFile(self.pack, folder / f"{self.name}.pack")
        yield StagedFile(self.index, folder / f"{self.name}.idx")


def packed(digest: bytes, kind: str, data: bytes) -> PackedObject:
    record = _header(_KIND_CODES[kind], len(data)) + compress(data)
    return PackedObject(digest, crc32(record), record)


def packed_delta(digest: bytes, base: bytes, delta: bytes) -> PackedObject:
    """Return an object stored as a difference to `base`, which must be in the same pack."""
    # Deltas are small and stay: the best compression is worth its time.
    record = _header(_REF_DELTA, len(delta)) + base + zlib.compress(delta, 9)
    return PackedObject(digest, crc32(record), record)


class PackWriter:
    """A pack written incrementally under `tmp_` names; the caller flushes and adopts it.

    For each object it keeps only name, checksum and offset, about 70 bytes, and at most one
    mebibyte of records that are not yet written.
    """

    def __init__(self, folder: Path) -> None:
        self._pack = folder / f"tmp_pack_{os.urandom(8).hex()}"
        self._digests: list[bytes] = []
        self._crcs = array("I")
        self._offsets = array("I")
        self._waiting = [_start(0)]
        self._unwritten = self.size = len(self._waiting[0])
        self._descriptor = os.open(self._pack, _NEW_FILE, PRIVATE_FILE)

    def add(self, item: PackedObject) -> None:
        self._digests.append(item.digest)
        self._crcs.append(item.crc)
        self._offsets.append(self.size)
        self._waiting.append(item.record)
        self.size += len(item.record)
        self._unwritten += len(item.record)
        if self._unwritten > _PIECE:
            self._write_waiting()

    def finish(self) -> StagedPack:
        """Complete the pack and write its index."""
        self._write_waiting()
        # The header's object count is known only now, and is part of the checksummed bytes.
        os.pwrite(self._descriptor, _start(len(self._digests)), 0)
        checksum = self._checksum()
        write_all(self._descriptor, checksum)
        os.close(self._descriptor)
        self._descriptor = -1
        self._write_index(checksum)
        return StagedPack(self._pack, self._index, f"pack-{checksum.hex()}")

    def abandon(self) -> None:
        """Remove the temporary files; an adopted pack has other names and stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

        self._pack.unlink(missing_ok=True)
        self._index.unlink(missing_ok=True)

    @property
    def _index(self) -> Path:
        return self._pack.with_name(self._pack.name + "_idx")

    def _write_waiting(self) -> None:
        write_all(self._descriptor, b"".join(self._waiting))
        self._waiting = []
        self._unwritten = 0

    def _checksum(self) -> bytes:
        checksum = hashlib.sha1(usedforsecurity=False)
        for position in range(0, self.size, _PIECE):
            wanted = min(_PIECE, self.size - position)
            checksum.update(os.pread(self._descriptor, wanted, position))

        return checksum.digest()

    def _write_index(self, checksum: bytes) -> None:
        content = _index_content(self._digests, self._crcs, self._offsets, checksum)
        with opened(self._index, _NEW_FILE) as descriptor:
            write_all(descriptor, content)
            write_all(descriptor, hashlib.sha1(content, usedforsecurity=False).digest())


def _start(count: int) -> bytes:
    return b"PACK" + struct.pack(">II", 2, count)


def _index_content(
    digests: Sequence[bytes], crcs: Sequence[int], offsets: Sequence[int], checksum: bytes
) -> bytes:
    # Sorted bucket by bucket: a single sort of all names would hold the interpreter lock until it
    # ends.
    buckets: list[list[int]] = [[] for _ in range(256)]
    for position, digest in enumerate(digests):
        buckets[digest[0]].append(position)

    by_digest: Callable[[int], bytes] = digests.__getitem__
    for bucket in buckets:
        bucket.sort(key=by_digest)

    order = list(chain.from_iterable(buckets))
    return b"".join(
        [
            b"\xfftOc\x00\x00\x00\x02",
            _numbers(accumulate(map(len, buckets))),
            *map(by_digest, order),
            _numbers(crcs[position] for position in order),
            _numbers(offsets[position] for position in order),
            checksum,
        ]
    )


def _numbers(values: Iterable[int]) -> bytes:
    """Encode 32-bit numbers in network order."""
    numbers = array("I", values)
    if sys.byteorder == "little":
        numbers.byteswap()

    return numbers.tobytes()


def _header(kind: int, size: int) -> bytes:
    """Encode type and size: four bits of the size first, then seven per byte, lowest first."""
    byte = kind << 4 | size & 0x0F
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7

    header.append(byte)
    return bytes(header)


STREAMED_FROM = 2 << 20
"""Size in bytes from which a blob is streamed to a loose object instead of packed.

Smaller blobs are held in memory, several at a time while threads deflate them.
"""


def digest_of(kind: str, data: bytes) -> bytes:
    """Return an object's name as git computes it."""
    checksum = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    checksum.update(data)
    return checksum.digest()


class HashOnly:
    """A sink that only hashes content: for comparisons, never for checkpoints."""

    def blob(self, data: bytes) -> bytes:
        return digest_of("blob", data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Hash `size` bytes of an open file; return None if the file has fewer."""
        checksum = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        read = 0
        for part in pieces(descriptor, size):
            read += len(part)
            checksum.update(part)

        return checksum.digest() if read == size else None

    def withdraw(self, digest: bytes) -> None:
        """Do nothing: no blob was stored."""


class ObjectStaging:
    """The new objects of one checkpoint, not yet part of the repository; for one thread.

    As a context manager it is abandoned at the end, which keeps what was settled or published.
    """

    def __init__(self, objects: Path, holds: Callable[[bytes], bool]) -> None:
        self._objects = objects
        self._holds = holds
        self._new: set[bytes] = set()
        self._only: tuple[str, bytes] | None = None
        """The first object, kept until a second one arrives: a single object needs no pack."""
        self._writer: PackWriter | None = None
        self._packs: list[StagedPack] = []
        self._loose: list[StagedLoose] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def blob(self, data: bytes) -> bytes:
        return self.add("blob", data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Store `size` bytes of an open file; return None if the file has fewer."""
        return self.blob_of_pieces(size, pieces(descriptor, size))

    def blob_of_pieces(self, size: int, parts: Iterator[bytes]) -> bytes | None:
        """Store a blob that comes in pieces; return None if they are not `size` bytes in all."""
        staged = write_loose(self._objects, "blob", size, parts)
        if staged is None:
            return None

        if self.claim(staged.digest):
            self._loose.append(staged)
        else:
            staged.temporary.unlink()

        return staged.digest

    def withdraw(self, digest: bytes) -> None:
        """Remove a streamed blob that turned out to be torn."""
        for staged in [staged for staged in self._loose if staged.digest == digest]:
            self._loose.remove(staged)
            self._new.discard(digest)
            staged.temporary.unlink()

    def add(self, kind: str, data: bytes) -> bytes:
        """Store an object unless the repository has it, and return its name."""
        digest = digest_of(kind, data)
        if not self.claim(digest):
            return digest

        if self._only is None and self._writer is None:
            self._only = (kind, data)
        else:
            self.take(packed(digest, kind, data))

        return digest

    def claim(self, digest: bytes) -> bool:
        """Return whether the repository lacks an object; the first caller to ask must store it."""
        if digest in self._new or self._holds(digest):
            return False

        self._new.add(digest)
        return True

    def take(self, item: PackedObject) -> None:
        """Store an object that was claimed and packed."""
        if self._writer is None:
            self._writer = PackWriter(self._objects / "pack")

        if self._only is not None:
            kind, data = self._only
            self._only = None
            self._writer.add(packed(digest_of(kind, data), kind, data))

        self._writer.add(item)
        if self._writer.size > PACK_LIMIT:
            self._finish_pack()

    def settle(self) -> None:
        """Make everything added durable and then visible, without a log.

        Raises OSError with nothing visible, or with complete objects visible that no ref needs.
        """
        flush_and_rename(self.finish())
        self.is_published()

    def finish(self) -> list[StagedFile]:
        """Complete the files of everything added, for the caller to make durable and to rename.

        Then `is_published`, or `abandon`, must be called. Raises OSError.
        """
        self._new.clear()
        if self._only is not None:
            # A checkpoint without changes is one commit: one small file instead of two.
            kind, data = self._only
            self._loose.append(_required(write_loose(self._objects, kind, len(data), iter([data]))))
            self._only = None

        if self._writer is not None:
            self._finish_pack()

        loose = (StagedFile(i.temporary, loose_path(self._objects, i.digest)) for i in self._loose)
        return [*loose, *chain.from_iterable(pack.files() for pack in self._packs)]

    def is_published(self) -> None:
        """Note that the files have their final names, and are not to be abandoned any more."""
        self._loose.clear()
        self._packs.clear()

    def abandon(self) -> None:
        """Remove everything written and not settled."""
        if self._writer is not None:
            self._writer.abandon()

        for path in self._temporaries():
            path.unlink(missing_ok=True)

    def _temporaries(self) -> list[Path]:
        staged = [loose.temporary for loose in self._loose]
        return staged + [path for pack in self._packs for path in pack.temporaries]

    def _finish_pack(self) -> None:
        assert self._writer is not None, "only a pack that was begun is finished"
        self._packs.append(self._writer.finish())
        self._writer = None


def pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes of an open file in bounded pieces."""
    while size > 0:
        part = os.read(descriptor, min(CHUNK, size))
        if not part:
            return

        size -= len(part)
        yield part


def _required(staged: StagedLoose | None) -> StagedLoose:
    assert staged is not None, "content in memory has the length it has"
    return staged
