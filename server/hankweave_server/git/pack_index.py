"""Reads a pack's index: which objects the pack holds, where, and with which checksum."""

from __future__ import annotations

import hashlib
import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

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
