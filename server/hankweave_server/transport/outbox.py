"""The send queue of one client: backpressure, eviction and streaming.

One server sends the same journal to many clients. Some of them read slowly, and some stop reading
without closing the connection: a suspended laptop, a stopped browser tab, an attacker. The kernel
then fills its send buffer, and from that moment every call that waits for the socket blocks: send,
ping, even close. Only aborting the TCP connection ends it. If the ledger waited for such a socket,
one client would stop the execution for everyone. If the server buffered without a limit, one client
would take all of its memory. The outbox exists so that neither can happen.

Three rules hold:

1. Only the outbox's own task, `run`, waits for the socket. `put` never waits: it writes to the
   socket if the kernel takes the frame at once, appends it to the queue, or evicts the client.
2. The queue is bounded. A client is too slow when its queue would exceed `OutboxLimits.messages`
   frames or `OutboxLimits.bytes` bytes, or when one frame takes longer than `send_seconds`. The
   byte limit applies only to a queue that holds something, so that a single frame larger than the
   limit can still be sent.
3. A client receives an unbroken sequence of events, or it is disconnected. No journaled event is
   ever left out of the middle, where a client that ignores `seq` would not notice the gap.

So a client that is too slow is *evicted*: its queue is dropped, a send in progress is cancelled,
and it is closed with 1013 ("try again later"). It has `close_seconds` to answer the close frame,
after which the connection is aborted.

What is dropped, and how it is recovered:

- The queue of an evicted client. Its journaled events are in the journal, and a reconnecting client
  gets them by sending `sinceSeq`. If it sent `protocolVersion`, the reply to a command that
  changes something is kept by `idempotency`; it sends the same command again, with the same id.
- The rest of a stream when the connection is closing. The client asked for it and can ask again.
- Frames put into an outbox that is already closing.
- Progress reports to a client whose queue is not empty. `Hub` does not put these in at all, because
  the next report supersedes them; the final report of an operation is always put in.

Nothing is dropped for a client that keeps up, nor for one that is merely behind within the limits.
`finish` sends what is queued before it closes. The queue is discarded only by an eviction, by a
lost connection, or if the close comes in the middle of a message, as described below.

Data that one client alone requested, above all history, is not queued. It may be the whole journal,
which no queue should hold, so it is *streamed*: `stream` takes an iterator of fragments, and `run`
makes the next fragment only when the kernel has taken the last one. A client that stops reading in
the middle holds one fragment and is evicted after `send_seconds`. Two problems remain:

- Fairness. Making fragments costs CPU time. A thousand clients that catch up at once would keep the
  event loop busy, so all outboxes share the lock `turns`: one of them makes fragments at a time,
  and at most about `TURN_BYTES` of them before the loop runs again. An outbox whose next fragment
  must be read from the disk waits for that without the lock.
- Framing. WebSocket forbids a frame between two fragments of one message. Frames put in while a
  message is incomplete wait in the queue and go out before the next message of the stream. If the
  connection closes in the middle of a message, only a close frame may follow it.

Read `put`, then `_send_all`, then `_evict`. `sockets.SocketWire` implements `Wire`, and
`client_session` starts `run` for each connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio

from hankweave_server.transport.frames import Fragment, PageRead


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    messages: int = 1_000
    bytes: int = 4 * 1024 * 1024
    """A single larger frame is still sent, alone."""
    send_seconds: float = 5.0
    close_seconds: float = 5.0
    """Time limit for the closing handshake.

    A slow client has to read what the kernel holds for it before it sees the close frame.
    """


class PeerLost(Exception):
    """The socket is gone; raised by a wire when the peer has ended the connection."""


class ClientGone(Exception):
    """The outbox accepts nothing more: the client left, or was evicted."""


class Wire(Protocol):
    """The operations an outbox needs of a socket."""

    def write_now(self, frame: bytes) -> bool:
        """Write a frame if the kernel would take it at once; return whether it was written."""

    async def send(self, frame: bytes) -> None:
        """Send a frame, waiting until the kernel has it; raise ConnectionLost."""

    def write_fragment(self, fragment: Fragment) -> bool:
        """Write a fragment; return whether the kernel has all of it. Raise ConnectionLost."""

    async def drained(self) -> None:
        """Wait until the kernel has everything that was written; raise ConnectionLost."""

    def limit_buffering(self, wanted: bool) -> None:
        """Limit, or stop limiting, how much unsent data the kernel buffers for this client."""

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame and wait for the answer, without a time limit."""

    def abort(self) -> None:
        """Abort the connection at once."""


@dataclass(frozen=True, slots=True)
class _CloseFrame:
    code: int
    reason: str


TRY_AGAIN_LATER = 1013

TURN_BYTES = 16 * 1024
"""A turn of a stream ends with the fragment that reaches this size."""

PASSED_BYTES = 256
"""The share of a turn that an event not sent to this client counts for."""


Step: TypeAlias = Fragment | PageRead | None
"""A fragment to be sent, a read that the next one needs, or work that produced no fragment."""


class Outbox:
    """The send queue of one client; `put` may be called from anywhere in the event loop."""

    def __init__(
        self,
        wire: Wire,
        limits: OutboxLimits,
        evicted: Callable[[str], None] | None = None,
        turns: anyio.Lock | None = None,
    ) -> None:
        """Create the outbox of one client.

        `evicted` is called once, with the reason, if the client is evicted for being slow. `turns`
        is shared by all outboxes of a server; its holder makes fragments of a stream.
        """
        self._wire = wire
        self._limits = limits
        self._evicted = evicted
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._sending = False
        self._close_frame: _CloseFrame | None = None
        self._gone = False
        self._work = anyio.Event()
        self._room = anyio.Event()
        self._send_scope = anyio.CancelScope()
        self._turns = turns or anyio.Lock()
        self._stream: Iterator[Step] | None = None
        self._is_inside_message = False
        """True after part of a message was sent: only its next fragment or a close may follow."""
        self._streamed = anyio.Event()
        self.ended = anyio.Event()
        """Set when nothing more will be sent."""

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def put(self, frame: bytes) -> None:
        """Send a frame now or queue it; drop it if the client is leaving. Never waits."""
        if self._close_frame is not None or self._gone:
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
        """Wait until the queue is at most half full; raise ClientGone.

        Callers with much to send to this client alone call this before each frame.
        """
        while not self._has_room():
            self._room = anyio.Event()
            await self._room.wait()

        if self._is_leaving():
            raise ClientGone

    async def stream(self, fragments: Iterator[Step]) -> None:
        """Send fragments as the socket takes them; raise ClientGone.

        None stands for work that produced no fragment, so that long stretches of such work also end
        a turn. Only one task may stream at a time. Frames put in meanwhile are sent between
        messages.
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
        """Send what is queued, then close; frames put in later are dropped.

        A stream ends where it is: its client requested it and can request it again.
        """
        if self._close_frame is None:
            self._close_frame = _CloseFrame(code, reason)
            self._work.set()
            self._room.set()
            self._streamed.set()

    async def run(self) -> None:
        """Send until the connection ends; the only task that waits for this socket."""
        try:
            with self._send_scope:
                await self._send_all()

            if self._close_frame is not None and not self._gone:
                with anyio.move_on_after(self._limits.close_seconds):
                    await self._wire.close(self._close_frame.code, self._close_frame.reason)

        except PeerLost:
            pass  # The connection's reader sees it as well and ends the session.
        finally:
            self._gone = True
            self._queue.clear()
            self._bytes = 0
            self._room.set()
            self._streamed.set()
            self.ended.set()
            self._wire.abort()

    async def _send_all(self) -> None:
        while self._queue or self._close_frame is None:
            if self._stream is not None and (self._is_inside_message or not self._queue):
                if self._close_frame is not None:
                    return  # In the middle of a message, only a close frame may follow.

                await self._send_fragments(self._stream)
            elif self._queue:
                await self._send_next()
            else:
                self._work = anyio.Event()
                await self._work.wait()

    async def _send_fragments(self, stream: Iterator[Step]) -> None:
        self._wire.limit_buffering(True)
        async with self._turns:
            read = self._write_some(stream)

        self._sending = True
        try:
            with anyio.fail_after(self._limits.send_seconds):
                await self._wire.drained()
        except TimeoutError:
            self._evict("it did not receive a frame in time")
        finally:
            self._sending = False

        if read is not None:
            await read.finish()

    def _write_some(self, stream: Iterator[Step]) -> PageRead | None:
        """Write until the socket is full, or the turn or the stream ends.

        Return the read that the next fragment needs, if it needs one.
        """
        size = 0
        while size < TURN_BYTES:
            try:
                step = next(stream)
            except StopIteration:
                self._stream = None
                self._wire.limit_buffering(False)
                self._streamed.set()
                return None

            if isinstance(step, PageRead):
                return step

            if step is None:
                size += PASSED_BYTES
                continue

            self._is_inside_message = not step.ends
            size += len(step.payload)
            if not self._wire.write_fragment(step):
                return None

        return None

    async def _send_next(self) -> None:
        frame = self._queue.popleft()
        self._sending = True
        try:
            with anyio.fail_after(self._limits.send_seconds):
                await self._wire.send(frame)
        except TimeoutError:
            self._evict("it did not receive a frame in time")
        finally:
            self._sending = False
            self._bytes -= len(frame)

        if self._has_room():
            self._room.set()

    def _is_leaving(self) -> bool:
        return self._gone or self._close_frame is not None

    def _has_room(self) -> bool:
        if self._is_leaving():
            return True

        half_full = len(self._queue) * 2 > self._limits.messages
        return not half_full and self._bytes * 2 <= self._limits.bytes

    def _evict(self, why: str) -> None:
        if self._close_frame is not None:
            return

        self.finish(TRY_AGAIN_LATER, "too slow: resume with sinceSeq")
        self._bytes -= sum(map(len, self._queue))
        self._queue.clear()
        self._send_scope.cancel()
        if self._evicted is not None:
            self._evicted(why)
