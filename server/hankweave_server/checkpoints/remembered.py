"""Reads the files that agents and sentinels remember by, as they are stored in an epoch."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.git.objects import digest_of, pieces
from hankweave_server.git.trees import FOLDER, REGULAR, Entry, encoded
from hankweave_server.worktree.scan import RACY_WINDOW_NS
from hankweave_server.worktree.slots import Signature, signature_of

PIECE = 128 << 10
"""Bytes of a file that are one blob; a longer file is a folder of blobs."""

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Add = Callable[[str, bytes], bytes]
"""Stores an object, and gives its name."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """One file as it was read last; without a signature it has to be read again."""

    signature: Signature | None
    entry: Entry


def look_at(path: Path) -> Signature | None:
    try:
        return signature_of(path.lstat())
    except OSError:
        return None


def remembered(path: Path, add: Add) -> Remembered | None:
    """Stores a file; None for what is none, or not for us to read.

    Of a file of lines that is being written, the whole lines are the file.
    """
    try:
        descriptor = os.open(path, _OPENING)
    except OSError:
        return None

    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None

        size = status.st_size
        end = _end_of_lines(descriptor, size) if path.suffix == ".jsonl" else size
        entry = _stored(descriptor, end, add)
        # One that changed just now may change again under the same times.
        is_steady = status.st_ctime_ns < time.time_ns() - RACY_WINDOW_NS
        return Remembered(signature_of(status) if is_steady else None, entry)
    finally:
        os.close(descriptor)


def content_of(path: Path) -> Entry | None:
    """Names the content of a file without storing it."""
    try:
        descriptor = os.open(path, _OPENING)
    except OSError:
        return None

    try:
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode)
        return _stored(descriptor, status.st_size, digest_of) if is_file else None
    finally:
        os.close(descriptor)


def _stored(descriptor: int, size: int, add: Add) -> Entry:
    if size <= PIECE:
        return Entry(REGULAR, add("blob", b"".join(pieces(descriptor, size))))

    below: dict[bytes, Entry] = {}
    for number, start in enumerate(range(0, size, PIECE)):
        piece = b"".join(pieces(descriptor, min(PIECE, size - start)))
        below[b"%08d" % number] = Entry(REGULAR, add("blob", piece))

    return Entry(FOLDER, add("tree", encoded(below)))


def _end_of_lines(descriptor: int, size: int) -> int:
    """Gives where the last whole line ends."""
    end = size
    while end > 0:
        start = max(0, end - PIECE)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1

        end = start

    return 0
