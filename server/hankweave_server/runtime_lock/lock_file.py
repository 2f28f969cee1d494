"""runtime.lock as it is read: whole, torn, or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TypeVar

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import RuntimeLock

MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""What the kernel says when a path does not lead to a file of ours."""

_LARGEST = 64 * 1024

T = TypeVar("T")


def read_record(path: Path) -> RuntimeLock | None:
    """Reads runtime.lock without following a link; null where there is none or it is no JSON."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in MISSING:
            return None

        raise

    try:
        return decoded(RuntimeLock, os.read(descriptor, _LARGEST))
    finally:
        os.close(descriptor)


def decoded(shape: type[T], data: bytes) -> T | None:
    """Reads a small file of ours that another writer may have torn; null for anything else."""
    try:
        return codec.decode_value(shape, data)
    except Refused:
        return None
