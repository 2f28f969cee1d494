"""Read and write an agent's pipes without blocking calls and in bounded memory.

`PipeReader` and `PipeWriter` wrap one end of a pipe, `LineSplitter` cuts what was read into lines,
and `SignalQueue` is the bounded queue between the tasks that read the pipes and the reader of
`AgentSession.signals`.
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
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
        self._bytes_read = 0

    def abandon(self) -> None:
        """End the reading as soon as there is nothing left to read, without an end of file."""
        self._is_abandoned = True
        self._waiting.cancel()

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._read():
            yield chunk

    def bytes_written(self) -> int:
        """Return how many bytes other processes have written until now."""
        if self.is_closed:
            return self._bytes_read

        in_pipe = bytearray(4)
        fcntl.ioctl(self._descriptor, termios.FIONREAD, in_pipe)
        return self._bytes_read + int.from_bytes(in_pipe, sys.byteorder)

    async def _read(self) -> bytes:
        while True:
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except BlockingIOError:
                if self._is_abandoned:
                    return b""
            else:
                self._bytes_read += len(chunk)
                return chunk

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

LARGE_CAPACITY = 256
"""Batches kept while the reader waits: for what the agent has printed, or for its end."""


class SignalQueue:
    """A bounded queue of signals: a fast agent waits for a slow reader, until it is being stopped.

    From then on (`stop_blocking`) nothing waits for the reader, because the reader may be the task
    that is stopping the agent. Batches that do not fit are dropped; the agent's log still has them.
    """

    def __init__(self) -> None:
        self._batches: deque[Sequence[AgentSignal]] = deque()
        self._changed = anyio.Event()
        self._waiting_readers = 0
        self._is_nonblocking = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        capacity = LARGE_CAPACITY if self._waiting_readers else CAPACITY
        return not self._is_nonblocking and len(self._batches) >= capacity

    async def put(self, batch: Sequence[AgentSignal]) -> None:
        while self.is_full:
            await self._changed.wait()

        if batch and len(self._batches) < LARGE_CAPACITY:
            self._batches.append(batch)
            self.notify()

        # A pipe that is never empty must not starve other tasks.
        await anyio.lowlevel.checkpoint()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true after a change, or no more can be put.

        Whoever changes what the condition reads calls `notify`.
        """
        self._waiting_readers += 1
        self.notify()
        try:
            while not (condition() or self.is_full or self._is_closed):
                await self._changed.wait()
        finally:
            self._waiting_readers -= 1

    @property
    def waiting(self) -> Sequence[AgentSignal]:
        """The signals that have not been taken, in order."""
        return tuple(signal for batch in self._batches for signal in batch)

    async def take(self) -> Sequence[AgentSignal] | None:
        """Return the next batch, or None when the queue is closed and empty."""
        while not self._batches:
            if self._is_closed:
                return None

            await self._changed.wait()

        batch = self._batches.popleft()
        self.notify()
        return batch

    def stop_blocking(self) -> None:
        self._is_nonblocking = True
        self.notify()

    def close(self) -> None:
        self._is_closed = True
        self.notify()

    def notify(self) -> None:
        """Wake whoever waits."""
        former, self._changed = self._changed, anyio.Event()
        former.set()
