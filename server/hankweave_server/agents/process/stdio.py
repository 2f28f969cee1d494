"""Read and write an agent's pipes without blocking calls and in bounded memory.

`PipeReader` and `PipeWriter` wrap one end of a pipe, `LineSplitter` cuts what was read into lines,
and `SignalQueue` is the bounded queue between the tasks that read the pipes and the reader of
`AgentSession.signals`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from hankweave_server.agents.base import AgentSignal

CHUNK = 16 * 1024  # Bytes; even if each is a line, the event loop is busy for milliseconds only.


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end; `dropped` bytes beyond the limit are lost."""

    content: bytes
    dropped: int

    @property
    def is_blank(self) -> bool:
        return not self.content.strip()

    def marked_text(self) -> str:
        text = self.content.decode(errors="replace")
        return f"{text} … [{self.dropped} bytes dropped]" if self.dropped else text


class LineSplitter:
    """A splitter of chunks into lines that holds at most one line of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._content = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> list[Line]:
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._take(piece)
            lines.append(self._cut())

        self._take(rest)
        return lines

    def finish(self) -> list[Line]:
        """Return the text after the last line end, if there is any."""
        return [self._cut()] if self._content else []

    def _take(self, piece: bytes) -> None:
        room = self._limit - len(self._content)
        self._content += piece[:room]
        self._dropped += max(0, len(piece) - room)

    def _cut(self) -> Line:
        line = Line(bytes(self._content).removesuffix(b"\r"), self._dropped)
        self._content.clear()
        self._dropped = 0
        return line


class _PipeEnd:
    """One end of a pipe; this object owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.is_closed = False

    def close(self) -> None:
        """Close the descriptor. Idempotent, but not allowed while a task reads or writes."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self._descriptor)


class PipeReader(_PipeEnd):
    """The read end of a pipe; `abandon` ends the reading where another process keeps it open."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._waiting = anyio.CancelScope()
        self._is_abandoned = False

    def abandon(self) -> None:
        """End the reading as soon as there is nothing left to read, without an end of file."""
        self._is_abandoned = True
        self._waiting.cancel()

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._read():
            yield chunk

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, CHUNK)
            except BlockingIOError:
                if self._is_abandoned:
                    return b""

            with anyio.CancelScope() as self._waiting:
                await anyio.wait_readable(self._descriptor)


class PipeWriter(_PipeEnd):
    """The write end of a pipe; closing it signals the end of the input."""

    async def write(self, data: bytes) -> None:
        """Write all data, waiting for the reader; a reader that is gone is not an error."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError:
                return


CAPACITY = 16
"""Batches; one holds at most the result of a single read of a pipe (16 KiB)."""

NONBLOCKING_CAPACITY = 256
"""Batches kept while the agent is being stopped and the reader may be waiting for its end."""


class SignalQueue:
    """A bounded queue of signals: a fast agent waits for a slow reader, until it is being stopped.

    From then on (`stop_blocking`) nothing waits for the reader, because the reader may be the task
    that is stopping the agent. Batches that do not fit are dropped; the agent's log still has them.
    """

    def __init__(self) -> None:
        self._batches: deque[Sequence[AgentSignal]] = deque()
        self._changed = anyio.Event()
        self._is_nonblocking = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        return not self._is_nonblocking and len(self._batches) >= CAPACITY

    async def put(self, batch: Sequence[AgentSignal]) -> None:
        while self.is_full:
            await self._changed.wait()

        if batch and len(self._batches) < NONBLOCKING_CAPACITY:
            self._batches.append(batch)
            self._notify()

        # A pipe that is never empty must not starve other tasks.
        await anyio.lowlevel.checkpoint()

    async def take(self) -> Sequence[AgentSignal] | None:
        """Return the next batch, or None when the queue is closed and empty."""
        while not self._batches:
            if self._is_closed:
                return None

            await self._changed.wait()

        batch = self._batches.popleft()
        self._notify()
        return batch

    def stop_blocking(self) -> None:
        self._is_nonblocking = True
        self._notify()

    def close(self) -> None:
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        former, self._changed = self._changed, anyio.Event()
        former.set()
