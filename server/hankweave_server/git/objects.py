"""Brings new objects into the shadow repository, all at once or not at all.

Invariant: an object with a final name is whole and on the disk. New content is written under
`tmp_` names, flushed, and only then renamed. So a crash leaves `tmp_` files and nothing else, and
an object that is found need never be doubted or written again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from hankweave_server.fsutil import sync_directory, sync_filesystem
from hankweave_server.git.loose import CHUNK, StagedLoose, write_loose
from hankweave_server.git.packs import PACK_LIMIT, PackedObject, PackWriter, StagedPack, packed

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
