"""The three pipes of an agent, read and written without ever waiting on a blocked call.

Signals on their way from an agent's pipes to the one who reads them, in bounded memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from hankweave_server.agents.base import AgentSignal

CHUNK = 16 * 1024  # Even if every byte of it is a line, the event loop waits for milliseconds.


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `dropped` bytes of it were beyond the limit and are gone."""

    content: bytes
    dropped: int

    @property
    def is_blank(self) -> bool:
        return not self.content.strip()

    def marked_text(self) -> str:
        text = self.content.decode(errors="replace")
        return f"{text} … [{self.dropped} bytes dropped]" if self.dropped else text


class LineSplitter:
    """Cuts chunks into lines and never holds more than one line's limit."""

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
        """Returns what came after the last line end, if anything did."""
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
    """One end of a pipe, owned by this object."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.is_closed = False

    def close(self) -> None:
        """May be called more than once, but not while a task reads or writes."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self._descriptor)


class PipeReader(_PipeEnd):
    """Reads a pipe to its end, or for a pipe that somebody keeps open, until it is abandoned."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._waiting = anyio.CancelScope()
        self._is_abandoned = False

    def abandon(self) -> None:
        """Lets the reader end as soon as there is nothing to read, without an end of file."""
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
    """The write end of a pipe; closing it is how its reader learns that nothing more comes."""

    async def write(self, data: bytes) -> None:
        """Writes everything, waiting for the reader; one that has gone away is no error."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError:
                return


ROOM = 16
"""Batches; one is at most what a single read of a pipe brought (16 KiB)."""

ROOM_IN_A_HURRY = 256
"""Batches kept for a reader that is itself waiting for the agent to end."""


class Mailbox:
    """Makes a fast agent wait for a slow reader, until it is being stopped.

    Then nobody may wait for the reader any more, who may be the very one that stops the agent:
    what finds no room is dropped, and stands in the agent's log only.
    """

    def __init__(self) -> None:
        self._batches: deque[Sequence[AgentSignal]] = deque()
        self._changed = anyio.Event()
        self._is_hurried = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        return not self._is_hurried and len(self._batches) >= ROOM

    async def put(self, batch: Sequence[AgentSignal]) -> None:
        while self.is_full:
            await self._changed.wait()

        if batch and len(self._batches) < ROOM_IN_A_HURRY:
            self._batches.append(batch)
            self._stir()

        # A pipe that is never empty must not keep the others from running.
        await anyio.lowlevel.checkpoint()

    async def take(self) -> Sequence[AgentSignal] | None:
        """Returns the next batch, or None when it is closed and empty."""
        while not self._batches:
            if self._is_closed:
                return None

            await self._changed.wait()

        batch = self._batches.popleft()
        self._stir()
        return batch

    def hurry(self) -> None:
        self._is_hurried = True
        self._stir()

    def close(self) -> None:
        self._is_closed = True
        self._stir()

    def _stir(self) -> None:
        stirred, self._changed = self._changed, anyio.Event()
        stirred.set()
