"""What is known of each path, in one block of memory.

A work tree has a hundred thousand files, and an object for each would cost two kilobytes. Here a
path costs sixty bytes, and the block can be compared with the disk outside the interpreter.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple


class Signature(NamedTuple):
    """Stat data that cannot all stay the same when content changes; ctime nobody can put back."""

    ctime_ns: int
    mtime_ns: int
    size: int
    inode: int
    mode: int


def signature_of(status: os.stat_result) -> Signature:
    return Signature(
        status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
    )


SIGNATURE = struct.Struct("=qqqQI")
_CAPTURED = struct.Struct("=HH20s")
STRIDE = SIGNATURE.size + _CAPTURED.size
_NOTHING = bytes(STRIDE)
_MODE = struct.Struct("=I")
_MODE_AT = SIGNATURE.size - _MODE.size


class Slots:
    """Signature, git mode, permissions and digest of many paths, by number.

    Without a signature a path must be read again; with git mode 0 nothing of it was captured.
    """

    def __init__(self) -> None:
        self.block = bytearray()
        """`STRIDE` bytes a slot; no mode in the signature stands for no signature."""
        self._free: list[int] = []

    def take(self) -> int:
        """Gives an empty slot."""
        if self._free:
            return self._free.pop()

        self.block += _NOTHING
        return len(self.block) // STRIDE - 1

    def give_back(self, slot: int) -> None:
        self.block[slot * STRIDE : (slot + 1) * STRIDE] = _NOTHING
        self._free.append(slot)

    def signature(self, slot: int) -> Signature | None:
        found = Signature(*SIGNATURE.unpack_from(self.block, slot * STRIDE))
        return found if found.mode else None

    def sign(self, slot: int, signature: Signature | None) -> None:
        if signature is None:
            _MODE.pack_into(self.block, slot * STRIDE + _MODE_AT, 0)
        else:
            SIGNATURE.pack_into(self.block, slot * STRIDE, *signature)

    def captured(self, slot: int) -> tuple[int, int, bytes]:
        """Gives git mode, permissions and digest; the mode is 0 where nothing was captured."""
        found: tuple[int, int, bytes] = _CAPTURED.unpack_from(
            self.block, slot * STRIDE + SIGNATURE.size
        )
        return found

    def capture(self, slot: int, git_mode: int, permissions: int, digest: bytes) -> None:
        _CAPTURED.pack_into(
            self.block, slot * STRIDE + SIGNATURE.size, git_mode, permissions, digest
        )
