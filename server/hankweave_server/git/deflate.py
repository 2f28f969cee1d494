"""Deflate as git wants it (zlib format), with ISA-L where it is installed and zlib elsewhere.

ISA-L takes a fifth of zlib's time for the same size. Both write streams that either one, and every
git, reads: only the bytes on the disk differ, never an object's name. All calls let other threads
run while they work.
"""

from __future__ import annotations

import zlib
from typing import Protocol, cast

try:
    from isal import isal_zlib
except ImportError:  # No wheel for this platform.
    isal_zlib = None  # type: ignore[assignment]

LEVEL = 1  # Four times as quick as git's 6 for 10 % more bytes; a repack makes up for it.


class Deflating(Protocol):
    """Deflates a stream piece by piece."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Inflating(Protocol):
    """Inflates a stream piece by piece."""

    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


if isal_zlib is not None:
    DeflateError: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zlib.error)
    """What damaged input raises; for `except`."""

    def compress(data: bytes) -> bytes:
        return isal_zlib.compress(data, LEVEL)

    def compressobj() -> Deflating:
        return isal_zlib.compressobj(LEVEL)

    def decompress(data: bytes, size: int) -> bytes:
        """Inflates a whole stream; `size` is what is expected, and only a hint."""
        return isal_zlib.decompress(data, bufsize=max(size, 1))

    def decompressobj() -> Inflating:
        return isal_zlib.decompressobj()

    def crc32(data: bytes) -> int:
        return isal_zlib.crc32(data)

else:
    DeflateError = (zlib.error,)

    def compress(data: bytes) -> bytes:
        return zlib.compress(data, LEVEL)

    def compressobj() -> Deflating:
        return zlib.compressobj(LEVEL)

    def decompress(data: bytes, size: int) -> bytes:
        """Inflates a whole stream; `size` is what is expected, and only a hint."""
        return zlib.decompress(data, bufsize=max(size, 1))

    def decompressobj() -> Inflating:
        return zlib.decompressobj()

    def crc32(data: bytes) -> int:
        return zlib.crc32(data)
