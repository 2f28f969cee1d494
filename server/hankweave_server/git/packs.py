"""Writes git packs: many objects in one file, without deltas.

One pack costs two files and two flushes, a thousand loose objects cost a thousand; that is the
whole reason. The format is git's pack version 2 and its index version 2 (gitformat-pack).
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

from hankweave_server.fsutil import PRIVATE_FILE, write_all
from hankweave_server.git.deflate import compress, crc32

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
