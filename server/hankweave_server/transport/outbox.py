"""What one client has yet to be sent, and what happens when it does not take it.

A client that stops reading blocks every call that waits for its socket: send, ping, even close;
only aborting the TCP connection ends it (DESIGN 13). So nobody but the outbox's own task ever
waits for a socket. Others put frames in and go on. Three numbers say when a client is too slow:
so many messages, so many bytes, or so many seconds for one frame. Then it is told 1013 ("try again
later"; it can resume with `sinceSeq`) and, shortly after, cut off.

What one client alone asked for, history above all, is not queued but streamed: fragments are made
as the socket takes them, and a client that stops reading holds no more than one of them. Streams of
all clients take turns in making theirs, so that a thousand of them never keep the event loop longer
than one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import anyio

from hankweave_server.transport.frames import Fragment


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    messages: int = 1_000
    bytes: int = 4 * 1024 * 1024
    """A single larger frame still goes out, alone."""
    send_seconds: float = 5.0
    close_seconds: float = 5.0
    """How long a client that was told to go may take to answer: a slow one first has to read what
    the kernel holds for it, before it sees why it is cut off."""


class ConnectionLost(Exception):
    """The socket is gone; raised by a wire, the peer's doing."""


class ClientGone(Exception):
    """The outbox takes nothing more: the client left, or was cut off."""


class Wire(Protocol):
    """A socket, as far as an outbox knows."""

    def write_now(self, frame: bytes) -> bool:
        """Hands a frame to the kernel if it would take it at once; says whether it did."""

    async def send(self, frame: bytes) -> None:
        """Waits until the frame is out of our hands; raises ConnectionLost."""

    def write_fragment(self, fragment: Fragment) -> bool:
        """Write a fragment; return whether the kernel has all of it. Raise ConnectionLost."""

    async def drained(self) -> None:
        """Wait until the kernel has all that was written; raise ConnectionLost."""

    def buffer_little(self, wanted: bool) -> None:
        """Keep the kernel from buffering megabytes for this client, or let it again."""

    async def close(self, code: int, reason: str) -> None:
        """Says goodbye and waits for the answer, however long that takes."""

    def abort(self) -> None:
        """Ends the connection at once."""


@dataclass(frozen=True, slots=True)
class _Goodbye:
    code: int
    reason: str


TRY_AGAIN_LATER = 1013

TURN_BYTES = 16 * 1024
"""A turn of a stream ends with the fragment that reaches this size."""

PASSED_BYTES = 256
"""What an event that a client is not sent counts of a turn."""


class Outbox:
    """The way out to one client; `put` may be called from anywhere in the event loop."""

    def __init__(
        self,
        wire: Wire,
        limits: OutboxLimits,
        evicted: Callable[[str], None] | None = None,
        turns: anyio.Lock | None = None,
    ) -> None:
        """`evicted` is told why, once, when the client is cut off for being slow.

        `turns` is shared by all outboxes of a server: its holder makes fragments of a stream.
        """
        self._wire = wire
        self._limits = limits
        self._evicted = evicted
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._sending = False
        self._goodbye: _Goodbye | None = None
        self._gone = False
        self._work = anyio.Event()
        self._room = anyio.Event()
        self._send_scope = anyio.CancelScope()
        self._turns = turns or anyio.Lock()
        self._stream: Iterator[Fragment | None] | None = None
        self._is_inside_message = False
        """The client has a part of a message: nothing else may come before the rest."""
        self._streamed = anyio.Event()
        self.ended = anyio.Event()
        """Set when nothing more goes out."""

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def put(self, frame: bytes) -> None:
        """Sends a frame, now or later; to a client that is leaving, never."""
        if self._goodbye is not None or self._gone:
            return

        is_free = not (self._queue or self._sending or self._is_inside_message)
        if is_free and self._wire.write_now(frame):
            return

        size = self._bytes + len(frame)
        if self._queue and (size > self._limits.bytes or len(self._queue) >= self._limits.messages):
            self._evict("its outbox is full")
            return

        self._queue.append(frame)
        self._bytes = size
        self._work.set()

    async def room(self) -> None:
        """Waits until the queue is at most half full; raises ClientGone.

        For whoever has much to send to this client alone, history above all.
        """
        while not self._has_room():
            self._room = anyio.Event()
            await self._room.wait()

        if self._is_leaving():
            raise ClientGone

    async def stream(self, fragments: Iterator[Fragment | None]) -> None:
        """Send fragments as the socket takes them; raise ClientGone.

        None stands for work that led to no fragment, so that much of it is divided into turns.
        To be used by one task at a time. Frames that are put in meanwhile go out between messages.
        """
        assert self._stream is None
        self._streamed = anyio.Event()
        self._stream = fragments
        self._work.set()
        try:
            while self._stream is not None and not self._is_leaving():
                await self._streamed.wait()
        finally:
            self._stream = None

        if self._is_leaving():
            raise ClientGone

    def finish(self, code: int, reason: str) -> None:
        """Sends what waits, then closes; frames put in later are dropped.

        A stream ends where it is: its client has asked for it and can ask again.
        """
        if self._goodbye is None:
            self._goodbye = _Goodbye(code, reason)
            self._work.set()
            self._room.set()
            self._streamed.set()

    async def run(self) -> None:
        """Sends until the connection ends; the only task that waits for this socket."""
        try:
            with self._send_scope:
                await self._send_all()

            if self._goodbye is not None and not self._gone:
                with anyio.move_on_after(self._limits.close_seconds):
                    await self._wire.close(self._goodbye.code, self._goodbye.reason)

        except ConnectionLost:
            pass  # The reader of this connection sees it too and ends the conversation.
        finally:
            self._gone = True
            self._queue.clear()
            self._bytes = 0
            self._room.set()
            self._streamed.set()
            self.ended.set()
            self._wire.abort()

    async def _send_all(self) -> None:
        while self._queue or self._goodbye is None:
            if self._stream is not None and (self._is_inside_message or not self._queue):
                if self._goodbye is not None:
                    return  # In the midst of a message, where only a close may follow.

                await self._send_fragments(self._stream)
            elif self._queue:
                await self._send_next()
            else:
                self._work = anyio.Event()
                await self._work.wait()

    async def _send_fragments(self, stream: Iterator[Fragment | None]) -> None:
        self._wire.buffer_little(True)
        async with self._turns:
            is_over = self._write_some(stream)

        if is_over:
            self._stream = None
            self._wire.buffer_little(False)
            self._streamed.set()

        self._sending = True
        try:
            with anyio.fail_after(self._limits.send_seconds):
                await self._wire.drained()
        except TimeoutError:
            self._evict("it took no frame in time")
        finally:
            self._sending = False

    def _write_some(self, stream: Iterator[Fragment | None]) -> bool:
        """Write until the socket takes no more, or the turn is over; return whether all is said."""
        size = 0
        while size < TURN_BYTES:
            try:
                fragment = next(stream)
            except StopIteration:
                return True

            if fragment is None:
                size += PASSED_BYTES
                continue

            self._is_inside_message = not fragment.ends
            size += len(fragment.payload)
            if not self._wire.write_fragment(fragment):
                return False

        return False

    async def _send_next(self) -> None:
        frame = self._queue.popleft()
        self._sending = True
        try:
            with anyio.fail_after(self._limits.send_seconds):
                await self._wire.send(frame)
        except TimeoutError:
            self._evict("it took no frame in time")
        finally:
            self._sending = False
            self._bytes -= len(frame)

        if self._has_room():
            self._room.set()

    def _is_leaving(self) -> bool:
        return self._gone or self._goodbye is not None

    def _has_room(self) -> bool:
        if self._is_leaving():
            return True

        half_full = len(self._queue) * 2 > self._limits.messages
        return not half_full and self._bytes * 2 <= self._limits.bytes

    def _evict(self, why: str) -> None:
        if self._goodbye is not None:
            return

        self.finish(TRY_AGAIN_LATER, "too slow: resume with sinceSeq")
        self._bytes -= sum(map(len, self._queue))
        self._queue.clear()
        self._send_scope.cancel()
        if self._evicted is not None:
            self._evicted(why)
