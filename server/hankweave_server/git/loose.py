"""Loose objects of any size, written and read as a stream.

libgit2 holds a whole blob in memory and keeps the interpreter lock while it deflates it; a
gigabyte would stop the heartbeat. Here memory use is constant, and hashing and deflating release
the interpreter lock.

Compression uses zlib's format, as git requires: ISA-L where it is installed, zlib elsewhere. ISA-L
takes a fifth of zlib's time for the same size. Each of them, and every git, reads streams of the
other: only the bytes on disk differ, never an object's name.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from hankweave_server.fsutil import CHUNK, PRIVATE_FILE, write_all

try:
    from isal import isal_zlib
except ImportError:  # No wheel for this platform.
    isal_zlib = None  # type: ignore[assignment]

LEVEL = 1  # Four times as fast as git's 6 for 10 % more bytes; a repack makes up for it.


class Deflating(Protocol):
    """A compressor that takes its input piece by piece."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Inflating(Protocol):
    """A decompressor that takes its input piece by piece."""

    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


if isal_zlib is not None:
    DeflateError: tuple[type[Exception], ...] = (cast(type[Exception], isal_zlib.error), zlib.error)
    """Exceptions raised for damaged input; for use in `except`."""

    def compress(data: bytes) -> bytes:
        return isal_zlib.compress(data, LEVEL)

    def compressobj() -> Deflating:
        return isal_zlib.compressobj(LEVEL)

    def decompress(data: bytes, size: int) -> bytes:
        """Inflate a whole stream; `size` is the expected size, and only a hint."""
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
        """Inflate a whole stream; `size` is the expected size, and only a hint."""
        return zlib.decompress(data, bufsize=max(size, 1))

    def decompressobj() -> Inflating:
        return zlib.decompressobj()

    def crc32(data: bytes) -> int:
        return zlib.crc32(data)


HEADER_READ = 256
HEADER_LENGTH = 64
"""Bytes of a deflated object that suffice for its header, and bytes of the header itself."""


@dataclass(frozen=True, slots=True)
class StagedLoose:
    """A loose object under a temporary name."""

    temporary: Path
    digest: bytes


def loose_path(objects: Path, digest: bytes) -> Path:
    name = digest.hex()
    return objects / name[:2] / name[2:]


def write_loose(objects: Path, kind: str, size: int, parts: Iterator[bytes]) -> StagedLoose | None:
    """Write one object under a temporary name; None if `parts` are not `size` bytes in all."""
    temporary = objects / f"tmp_obj_{os.urandom(8).hex()}"
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE
    )
    try:
        digest, written = _deflate_into(descriptor, b"%s %d\0" % (kind.encode(), size), parts)
    except BaseException:
        temporary.unlink()
        raise
    finally:
        os.close(descriptor)

    if written != size:
        temporary.unlink()
        return None

    return StagedLoose(temporary, digest)


def _deflate_into(descriptor: int, header: bytes, parts: Iterator[bytes]) -> tuple[bytes, int]:
    checksum = hashlib.sha1(header, usedforsecurity=False)
    deflate = compressobj()
    write_all(descriptor, deflate.compress(header))
    written = 0
    for part in parts:
        written += len(part)
        checksum.update(part)
        write_all(descriptor, deflate.compress(part))

    write_all(descriptor, deflate.flush())
    return checksum.digest(), written


def read_loose(objects: Path, digest: bytes) -> Iterator[bytes]:
    """Yield the content of a loose object in pieces.

    Raises FileNotFoundError when the object does not exist, and ValueError, at the end, when the
    content does not match the name: a caller must discard everything unless the iterator ends
    normally.
    """
    with loose_path(objects, digest).open("rb", buffering=0) as stream:
        checksum = hashlib.sha1(usedforsecurity=False)
        header_seen = False
        for piece in _inflated(stream.read):
            checksum.update(piece)
            if header_seen:
                yield piece
                continue

            # A header is some thirty bytes; the first inflated piece always contains all of it.
            header_seen = True
            content = piece[piece.index(b"\0") + 1 :]
            if content:
                yield content

    if checksum.digest() != digest:
        raise ValueError(f"object {digest.hex()} is damaged")


def _inflated(read: Callable[[int], bytes]) -> Iterator[bytes]:
    inflate = decompressobj()
    try:
        while not inflate.eof:
            raw = inflate.unconsumed_tail or read(CHUNK)
            piece = inflate.decompress(raw, CHUNK)
            if piece:
                yield piece
            elif not raw:
                raise ValueError("object ends early")
    except DeflateError as problem:
        raise ValueError(str(problem)) from problem


def whole_loose(objects: Path, digest: bytes) -> tuple[str, bytes]:
    """Return kind and content of a loose object; raise FileNotFoundError, or ValueError if damaged.

    Use this instead of libgit2, which never returns from reading a truncated loose object.
    """
    name = digest.hex()
    with open(f"{objects}/{name[:2]}/{name[2:]}", "rb", buffering=0) as stream:
        raw = b"".join(_inflated(stream.read))

    if hashlib.sha1(raw, usedforsecurity=False).digest() != digest:
        raise ValueError(f"object {digest.hex()} is damaged")

    header, _, content = raw.partition(b"\0")
    kind = header.partition(b" ")[0].decode("latin-1")
    return kind, content


def loose_header(objects: Path, digest: bytes) -> tuple[str, int]:
    """Return kind and size that a loose object claims to have; raise as `whole_loose`."""
    descriptor = os.open(loose_path(objects, digest), os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = decompressobj().decompress(os.read(descriptor, HEADER_READ), HEADER_LENGTH)
    except DeflateError as problem:
        raise ValueError(str(problem)) from problem
    finally:
        os.close(descriptor)

    header, end, _ = start.partition(b"\0")
    kind, _, size = header.partition(b" ")
    if not end or not size.isdigit():
        raise ValueError(f"object {digest.hex()} is damaged")

    return kind.decode("latin-1"), int(size)
