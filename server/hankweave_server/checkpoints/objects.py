"""Brings new objects into the shadow repository, all at once or not at all.

Invariant: an object with a final name is whole and on the disk. New content is written under
`tmp_` names, flushed with one syncfs, and only then renamed. So a crash leaves `tmp_` files and
nothing else, and an object that is found need never be doubted or written again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hankweave_server.checkpoints.loose import CHUNK, StagedLoose, write_loose
from hankweave_server.checkpoints.packs import PackedObject, StagedPack, packed, write_pack
from hankweave_server.files import sync_directory, sync_filesystem

STREAMED_FROM = 8 << 20
"""Bytes from which a blob is written in a stream of its own instead of into the pack."""

PACK_LIMIT = 32 << 20  # Bounds the memory of a first checkpoint, and keeps offsets below 2 GiB.


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
    """Collects the new objects of one checkpoint."""

    def __init__(self, objects: Path, holds: Callable[[bytes], bool]) -> None:
        self._objects = objects
        self._holds = holds
        self._new: set[bytes] = set()
        self._waiting: list[PackedObject] = []
        self._waiting_bytes = 0
        self._last: tuple[str, bytes] = ("", b"")
        self._packs: list[StagedPack] = []
        self._loose: list[StagedLoose] = []

    def blob(self, data: bytes) -> bytes:
        return self.add("blob", data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Stores `size` bytes of an open file; None if the file has fewer."""
        staged = write_loose(self._objects, "blob", size, pieces(descriptor, size))
        if staged is None:
            return None

        if self._is_known(staged.digest):
            staged.temporary.unlink()
        else:
            self._new.add(staged.digest)
            self._loose.append(staged)

        return staged.digest

    def withdraw(self, digest: bytes) -> None:
        """Takes back a streamed blob that turned out to be torn."""
        for staged in [staged for staged in self._loose if staged.digest == digest]:
            self._loose.remove(staged)
            self._new.discard(digest)
            staged.temporary.unlink()

    def add(self, kind: str, data: bytes) -> bytes:
        """Stores an object unless the repository has it, and gives its name."""
        digest = digest_of(kind, data)
        if self._is_known(digest):
            return digest

        item = packed(digest, kind, data)
        self._new.add(digest)
        self._waiting.append(item)
        self._waiting_bytes += len(item.record)
        self._last = (kind, data)
        if self._waiting_bytes > PACK_LIMIT:
            self._write_waiting()

        return digest

    def settle(self) -> None:
        """Makes everything added durable and then visible.

        Raises OSError with nothing visible, or with whole objects visible that no ref needs.
        """
        if len(self._waiting) == 1 and not self._packs:
            # A checkpoint without changes is one commit: one small file instead of two.
            kind, data = self._last
            self._loose.append(_required(write_loose(self._objects, kind, len(data), iter([data]))))
            self._waiting.clear()

        if self._waiting:
            self._write_waiting()

        sync_filesystem(self._objects)
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
        leftovers = [loose.temporary for loose in self._loose]
        leftovers += [path for pack in self._packs for path in (pack.pack, pack.index)]
        for path in leftovers:
            path.unlink(missing_ok=True)

    def _is_known(self, digest: bytes) -> bool:
        return digest in self._new or self._holds(digest)

    def _write_waiting(self) -> None:
        self._packs.append(write_pack(self._objects / "pack", self._waiting))
        self._waiting = []
        self._waiting_bytes = 0


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
