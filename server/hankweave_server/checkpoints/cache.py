"""The scan cache: what was read of each file, kept over a restart.

Only ever a cache. It is believed if its checksum is right and the checkpoint it was made at is
in the repository; else it is as if there were none, and the next checkpoint reads every file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_server.files import replace
from hankweave_server.workspace.table import Signature, TrackedFile

VERSION = 1
_CHECKSUM_SIZE = 32


class CachedFile(msgspec.Struct, frozen=True, array_like=True):
    path: bytes
    signature: Signature
    digest: bytes
    git_mode: int
    permissions: int


class ScanCache(msgspec.Struct, frozen=True, array_like=True):
    version: int
    made_at: str
    """The checkpoint whose repository holds every digest of the cache."""
    files: list[CachedFile]


def save(path: Path, made_at: Sha, files: Iterable[TrackedFile]) -> None:
    """Writes the cache; racy files are left out, for their stat data proves nothing."""
    cached = [
        CachedFile(file.path, file.signature, file.digest, file.git_mode, file.permissions)
        for file in files
        if file.signature is not None and file.digest is not None
    ]
    body = msgspec.msgpack.encode(ScanCache(VERSION, made_at, cached))
    replace(path, hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() + body)


def load(path: Path) -> ScanCache | None:
    """Reads the cache; None when there is none that can be believed."""
    try:
        content = path.read_bytes()
        checksum, body = content[:_CHECKSUM_SIZE], content[_CHECKSUM_SIZE:]
        if hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() != checksum:
            return None

        cache = msgspec.msgpack.decode(body, type=ScanCache)
    except (OSError, msgspec.DecodeError):
        return None

    return cache if cache.version == VERSION else None


def apply(cache: ScanCache, files: dict[bytes, TrackedFile]) -> None:
    """Tells tracked files what was read of them before."""
    for cached in cache.files:
        file = files.get(cached.path)
        if file is not None:
            file.hold(cached.signature, cached.digest, cached.git_mode, cached.permissions)
