"""Brings new objects into the shadow repository, all at once or not at all.

Invariant: an object with a final name is whole and on the disk. New content is written under
`tmp_` names, flushed, and only then renamed. So a crash leaves `tmp_` files and nothing else, and
an object that is found need never be doubted or written again.

Writes git packs: many objects in one file, without deltas.

One pack costs two files and two flushes, a thousand loose objects cost a thousand; that is the
whole reason. The format is git's pack version 2 and its index version 2 (gitformat-pack).
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from hankweave_server.fsutil import CHUNK, PRIVATE_FILE, sync_directory, sync_filesystem, write_all
from hankweave_server.git.loose import StagedLoose, compress, crc32, write_loose

PACK_LIMIT = 1 << 30
"""Bytes after which another pack is begun; every offset stays below 2 GiB."""

_PIECE = 1 << 20
_KIND_CODES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PackedObject(NamedTuple):
    """One object as it stands in a pack: header and deflated content."""

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

    def adopt(self) -> None:
        """Gives pack and index their final names; git looks for indexes, so the pack goes first."""
        folder = self.pack.parent
        self.pack.rename(folder / f"{self.name}.pack")
        self.index.rename(folder / f"{self.name}.idx")


def packed(digest: bytes, kind: str, data: bytes) -> PackedObject:
    record = _header(_KIND_CODES[kind], len(data)) + compress(data)
    return PackedObject(digest, crc32(record), record)


class PackWriter:
    """Writes one pack as its objects come, under `tmp_` names; the caller flushes and adopts it.

    Of each object it keeps name, checksum and place alone, about 70 bytes, and of their records at
    most a mebibyte.
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
        """Ends the pack and writes its index."""
        self._write_waiting()
        # How many objects there are is known only now, and stands in the bytes that are summed.
        os.pwrite(self._descriptor, _start(len(self._digests)), 0)
        checksum = self._checksum()
        write_all(self._descriptor, checksum)
        os.close(self._descriptor)
        self._descriptor = -1
        self._write_index(checksum)
        return StagedPack(self._pack, self._index, f"pack-{checksum.hex()}")

    def abandon(self) -> None:
        """Removes what was written; an adopted pack has other names and stays."""
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
        descriptor = os.open(self._index, _NEW_FILE, PRIVATE_FILE)
        try:
            write_all(descriptor, content)
            write_all(descriptor, hashlib.sha1(content, usedforsecurity=False).digest())
        finally:
            os.close(descriptor)


def _start(count: int) -> bytes:
    return b"PACK" + struct.pack(">II", 2, count)


def _index_content(
    digests: Sequence[bytes], crcs: Sequence[int], offsets: Sequence[int], checksum: bytes
) -> bytes:
    # Sorted bucket by bucket: one sort of all the names would hold the interpreter until its end.
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
    """Writes 32-bit numbers in network order."""
    numbers = array("I", values)
    if sys.byteorder == "little":
        numbers.byteswap()

    return numbers.tobytes()


def _header(kind: int, size: int) -> bytes:
    """Writes type and size: four bits of the size first, then seven a byte, lowest first."""
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
"""Bytes from which a blob is written in a stream of its own instead of into the pack.

Whatever is smaller is held in memory, several at a time while threads read.
"""

FLUSHED_ONE_BY_ONE = 16
"""Files up to which each is flushed alone: that does not wait for what others have written."""


def digest_of(kind: str, data: bytes) -> bytes:
    """Names an object as git does."""
    checksum = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    checksum.update(data)
    return checksum.digest()


class HashOnly:
    """Names content without storing it: for comparing, never for checkpoints."""

    def blob(self, data: bytes) -> bytes:
        return digest_of("blob", data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Reads `size` bytes; None if the file has fewer."""
        checksum = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        read = 0
        for part in pieces(descriptor, size):
            read += len(part)
            checksum.update(part)

        return checksum.digest() if read == size else None

    def withdraw(self, digest: bytes) -> None:
        """Has nothing to take back."""


class ObjectStaging:
    """Collects the new objects of one checkpoint.

    Threads may claim and stream at the same time; everything else is for one of them.
    """

    def __init__(self, objects: Path, holds: Callable[[bytes], bool]) -> None:
        self._objects = objects
        self._holds = holds
        self._lock = Lock()
        self._new: set[bytes] = set()
        self._only: tuple[str, bytes] | None = None
        """The first object waits for a second one: alone it needs no pack."""
        self._writer: PackWriter | None = None
        self._packs: list[StagedPack] = []
        self._loose: list[StagedLoose] = []

    def blob(self, data: bytes) -> bytes:
        return self.add("blob", data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Stores `size` bytes of an open file; None if the file has fewer."""
        staged = write_loose(self._objects, "blob", size, pieces(descriptor, size))
        if staged is None:
            return None

        if self.claim(staged.digest):
            self._loose.append(staged)
        else:
            staged.temporary.unlink()

        return staged.digest

    def withdraw(self, digest: bytes) -> None:
        """Takes back a streamed blob that turned out to be torn."""
        with self._lock:
            for staged in [staged for staged in self._loose if staged.digest == digest]:
                self._loose.remove(staged)
                self._new.discard(digest)
                staged.temporary.unlink()

    def add(self, kind: str, data: bytes) -> bytes:
        """Stores an object unless the repository has it, and gives its name."""
        digest = digest_of(kind, data)
        if not self.claim(digest):
            return digest

        if self._only is None and self._writer is None:
            self._only = (kind, data)
        else:
            self.take(packed(digest, kind, data))

        return digest

    def claim(self, digest: bytes) -> bool:
        """Tells whether the repository lacks an object; the first who asks has to bring it."""
        with self._lock:
            if digest in self._new or self._holds(digest):
                return False

            self._new.add(digest)
            return True

    def take(self, item: PackedObject) -> None:
        """Stores an object that was claimed and packed."""
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
        """Makes everything added durable and then visible.

        Raises OSError with nothing visible, or with whole objects visible that no ref needs.
        """
        self._new.clear()
        if self._only is not None:
            # A checkpoint without changes is one commit: one small file instead of two.
            kind, data = self._only
            self._loose.append(_required(write_loose(self._objects, kind, len(data), iter([data]))))
            self._only = None

        if self._writer is not None:
            self._finish_pack()

        flush(self._objects, self._temporaries())
        for loose in self._loose:
            loose.adopt(self._objects)

        for pack in self._packs:
            pack.adopt()

        if self._packs:
            sync_directory(self._objects / "pack")

        self._loose.clear()
        self._packs.clear()

    def abandon(self) -> None:
        """Removes what was written and not settled."""
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


def flush(objects: Path, written: Sequence[Path]) -> None:
    """Makes the content of new files durable, with one call for all when they are many."""
    if len(written) > FLUSHED_ONE_BY_ONE:
        sync_filesystem(objects)
        return

    for path in written:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Reads at most `size` bytes, a bounded piece at a time."""
    while size > 0:
        part = os.read(descriptor, min(CHUNK, size))
        if not part:
            return

        size -= len(part)
        yield part


def _required(staged: StagedLoose | None) -> StagedLoose:
    assert staged is not None, "content in memory has the length it has"
    return staged
