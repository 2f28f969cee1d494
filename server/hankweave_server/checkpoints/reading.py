"""Reads many files of the work tree into a checkpoint, on two threads when they are many.

Opening, reading, hashing and deflating let the interpreter go, so that two threads are nearly
twice as quick and the rest of the daemon hardly notices. What is read comes out in the order it
was asked for, and only a few files' content is in memory at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import NamedTuple

from hankweave_server.checkpoints.file_reader import Capture, Observation
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.packs import PackedObject, packed
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.stat_index import TrackedFile

THREADS = 2
FEW = 32
"""Files that are read before threads could be started."""

CHUNK = 64  # Files in one batch, unless its content is large.
BATCH_LIMIT = 1 << 20  # Deflated bytes after which a batch is handed over as it is.

Seen = tuple[TrackedFile, Observation]


class Batch(NamedTuple):
    """What was read of some neighbouring files."""

    seen: list[Seen]
    objects: list[PackedObject]
    rest: Sequence[TrackedFile]
    """Not read, because the batch was full before."""


def read_all(
    files: Sequence[TrackedFile],
    descent: Descent,
    staging: ObjectStaging,
    size_limit: int | None,
) -> Iterator[Seen]:
    """Reads the files in turn, stores their content, and says what was at each path.

    Raises StoreFailed when content cannot be stored, OSError for faults of the work tree's disk.
    """
    if len(files) <= FEW:
        capture = Capture(descent, staging, size_limit)
        for file in files:
            yield file, capture.read(file.path)

        return

    with ExitStack() as ending:
        idle: SimpleQueue[_Reader] = SimpleQueue()
        # One more than there are threads: the rest of a full batch is read without waiting.
        for _ in range(THREADS + 1):
            reader = _Reader(descent.twin(), staging, size_limit)
            ending.callback(reader.close)
            idle.put(reader)

        pool = ThreadPoolExecutor(THREADS, "checkpoint")
        ending.callback(pool.shutdown, cancel_futures=True)
        for batch in _in_order(files, pool, idle):
            for item in batch.objects:
                staging.take(item)

            yield from batch.seen


def _in_order(
    files: Sequence[TrackedFile], pool: ThreadPoolExecutor, idle: SimpleQueue[_Reader]
) -> Iterator[Batch]:
    waiting: deque[Future[Batch]] = deque()
    for start in range(0, len(files), CHUNK):
        waiting.append(pool.submit(_read, files[start : start + CHUNK], idle))
        if len(waiting) > THREADS + 1:
            yield from _whole(waiting.popleft().result(), idle)

    while waiting:
        yield from _whole(waiting.popleft().result(), idle)


def _whole(batch: Batch, idle: SimpleQueue[_Reader]) -> Iterator[Batch]:
    yield batch
    while batch.rest:
        batch = _read(batch.rest, idle)
        yield batch


def _read(files: Sequence[TrackedFile], idle: SimpleQueue[_Reader]) -> Batch:
    reader = idle.get()
    try:
        return reader.batch(files)
    finally:
        idle.put(reader)


class _Reader:
    """What one thread reads with: its own way into the work tree, and what it has deflated."""

    def __init__(self, descent: Descent, staging: ObjectStaging, size_limit: int | None) -> None:
        self._descent = descent
        self._staging = staging
        self._capture = Capture(descent, self, size_limit)
        self._objects: list[PackedObject] = []
        self._held = 0

    def batch(self, files: Sequence[TrackedFile]) -> Batch:
        """Reads files until the batch is full."""
        seen: list[Seen] = []
        self._objects, self._held = [], 0
        for file in files:
            seen.append((file, self._capture.read(file.path)))
            if self._held > BATCH_LIMIT:
                break

        return Batch(seen, self._objects, files[len(seen) :])

    def close(self) -> None:
        self._descent.close()

    def blob(self, data: bytes) -> bytes:
        digest = digest_of("blob", data)
        if self._staging.claim(digest):
            item = packed(digest, "blob", data)
            self._objects.append(item)
            self._held += len(item.record)

        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        return self._staging.streamed_blob(descriptor, size)

    def withdraw(self, digest: bytes) -> None:
        self._staging.withdraw(digest)
