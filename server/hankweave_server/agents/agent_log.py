"""The agent's raw log: what it printed, one JSON object a line, for the owner alone (seed 001)."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from hankweave_server.files import (
    PRIVATE_FILE,
    append_whole,
    is_full,
    make_private_directory,
)


def wrapped(stream: Literal["stdout", "stderr"], text: str, timestamp: str) -> bytes:
    """Makes a log line of plain text, in the shape Hankweave gives to stderr."""
    entry = {"type": stream, "timestamp": timestamp, "message": text}
    return msgspec.json.encode(entry)


class AgentLog:
    """Appends lines until the log has its largest size; then one line says so, and no more follow.

    Nothing is synced: after a power cut the log may lack its end, and a torn last line is ended
    before anything is appended to it. What a full disk does not take is left out, and a line says
    so when it has room again. Every other OSError of the disk is raised.
    """

    def __init__(self, path: Path, *, limit: int) -> None:
        make_private_directory(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, PRIVATE_FILE)
        self._size = os.fstat(self._descriptor).st_size
        self._limit = limit
        self._is_full = False
        self._lost = 0
        """Lines that the disk had no room for."""
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            self._write(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def append(self, lines: list[bytes]) -> None:
        """Appends whole lines, given without their ends."""
        if self._is_full or not lines:
            return

        data = b"\n".join(lines) + b"\n"
        if self._size + len(data) > self._limit:
            self._is_full = True
            message = f"The log has reached its limit of {self._limit} bytes; the rest is left out."
            data = msgspec.json.encode({"type": "truncated", "message": message}) + b"\n"

        try:
            self._write(self._gap() + data)
        except OSError as error:
            if not is_full(error):
                raise

            self._lost += len(lines)
        else:
            self._lost = 0

    def _gap(self) -> bytes:
        if not self._lost:
            return b""

        message = f"The disk was full: {self._lost} lines are missing here."
        return msgspec.json.encode({"type": "gap", "message": message}) + b"\n"

    def _write(self, data: bytes) -> None:
        append_whole(self._descriptor, data)
        self._size += len(data)
