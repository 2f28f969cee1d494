"""The scan cache: what was read of each file, kept over a restart.

Only ever a cache. It is believed if its checksum is right and the checkpoint it was made at is
in the repository; else it is as if there were none, and the next checkpoint reads every file.

A checksum, then blocks of msgpack, each after its length: first the head, then the files.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_server.fsutil import replace
from hankweave_server.worktree.slots import Signature
from hankweave_server.worktree.stat_index import StatIndex, TrackedFile

VERSION = 3
FILES_IN_A_BLOCK = 1000  # So that no process ever holds all of them as objects.
_CHECKSUM_SIZE = 32
_LENGTH = struct.Struct(">I")


class CachedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    signature: Signature
    digest: bytes
    git_mode: int
    permissions: int


class _Head(msgspec.Struct, frozen=True, array_like=True):
    version: int
    made_at: str
    store: dict[str, tuple[int, int, int]]


_DECODE_HEAD = msgspec.msgpack.Decoder(_Head).decode
_DECODE_FILES = msgspec.msgpack.Decoder(list[CachedFile]).decode
_FAULTS = (OSError, struct.error, msgspec.DecodeError)


@dataclass(frozen=True, slots=True)
class ScanCache:
    """A saved cache whose checksum was right."""

    made_at: Sha
    """The checkpoint whose repository holds every digest of the cache."""
    store: dict[str, tuple[int, int, int]]
    """The files that the repository's objects were in, with size, time and inode."""
    _files: bytes

    def apply(self, table: StatIndex) -> None:
        """Tells the tracked files what was read of them before."""
        for block in _blocks(self._files):
            for cached in _DECODE_FILES(block):
                file = table.files.get(cached.path)
                if file is not None:
                    table.hold(
                        file, cached.signature, cached.digest, cached.git_mode, cached.permissions
                    )


def save(
    path: Path,
    made_at: Sha,
    files: Iterable[TrackedFile],
    store: dict[str, tuple[int, int, int]],
) -> None:
    """Writes the cache; racy files are left out, for their stat data proves nothing."""
    body = bytearray(_block(_Head(VERSION, made_at, store)))
    remembered = _remembered(files)
    while chunk := list(islice(remembered, FILES_IN_A_BLOCK)):
        body += _block(chunk)

    replace(path, hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() + body)


def load(path: Path) -> ScanCache | None:
    """Reads the cache; None when there is none that can be believed."""
    try:
        content = path.read_bytes()
        checksum, body = content[:_CHECKSUM_SIZE], content[_CHECKSUM_SIZE:]
        if hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() != checksum:
            return None

        first = next(_blocks(body), b"")
        head = _DECODE_HEAD(first)
    except _FAULTS:
        return None

    if head.version != VERSION:
        return None

    return ScanCache(Sha(head.made_at), head.store, body[_LENGTH.size + len(first) :])


def _remembered(files: Iterable[TrackedFile]) -> Iterator[CachedFile]:
    for file in files:
        signature = file.signature
        git_mode, permissions, digest = file.captured
        if signature is not None and git_mode:
            yield CachedFile(file.path, signature, digest, git_mode, permissions)


def _block(value: object) -> bytes:
    encoded = msgspec.msgpack.encode(value)
    return _LENGTH.pack(len(encoded)) + encoded


def _blocks(body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        yield body[position : position + length]
        position += length
