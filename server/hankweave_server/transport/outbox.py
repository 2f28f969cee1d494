"""What one client has yet to be sent, and what happens when it does not take it.

A client that stops reading blocks every call that waits for its socket: send, ping, even close;
only aborting the TCP connection ends it (DESIGN 13). So nobody but the outbox's own task ever
waits for a socket. Others put frames in and go on. Three numbers say when a client is too slow:
so many messages, so many bytes, or so many seconds for one frame. Then it is told 1013 ("try again
later"; it can resume with `sinceSeq`) and, shortly after, cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    messages: int = 1_000
    bytes: int = 4 * 1024 * 1024
    """A single larger frame still goes out, alone."""
    send_seconds: float = 5.0
    close_seconds: float = 1.0
    """How long a client that was told to go may take to answer."""


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

    async def close(self, code: int, reason: str) -> None:
        """Says goodbye and waits for the answer, however long that takes."""

    def abort(self) -> None:
        """Ends the connection at once."""


@dataclass(frozen=True, slots=True)
class _Goodbye:
    code: int
    reason: str


TRY_AGAIN_LATER = 1013


class Outbox:
    """The way out to one client; `put` may be called from anywhere in the event loop."""

    def __init__(
        self, wire: Wire, limits: OutboxLimits, evicted: Callable[[str], None] | None = None
    ) -> None:
        """`evicted` is told why, once, when the client is cut off for being slow."""
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

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def put(self, frame: bytes) -> None:
        """Sends a frame, now or later; to a client that is leaving, never."""
        if self._goodbye is not None or self._gone:
            return

        if not self._queue and not self._sending and self._wire.write_now(frame):
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

        if self._gone or self._goodbye is not None:
            raise ClientGone

    def finish(self, code: int, reason: str) -> None:
        """Sends what waits, then closes; frames put in later are dropped."""
        if self._goodbye is None:
            self._goodbye = _Goodbye(code, reason)
            self._work.set()
            self._room.set()

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
            self._wire.abort()

    async def _send_all(self) -> None:
        while self._queue or self._goodbye is None:
            if not self._queue:
                self._work = anyio.Event()
                await self._work.wait()
                continue

            await self._send_next()

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

    def _has_room(self) -> bool:
        if self._gone or self._goodbye is not None:
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
