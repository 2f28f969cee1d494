"""Frames, journal pages and message fragments.

The frames of one client are replies, failures and events without a seq.

Clients that catch up read the same journal, often the same part at the same time. They keep no
lines of their own: each remembers a position and asks `JournalPages` for the line there. Reading a
line reads the page around it, and the lines read last stay in memory up to a limit that does not
depend on the number of clients. A line that is no longer in memory is read again. Of a long line,
such as the end of a rollback of many files, only the block to be sent next is read.

The event loop does not wait for the disk. A generator that needs a line from there yields a
`PageRead`; the caller awaits it, and other clients are served meanwhile.

Long answers are sent as messages in fragments. A message is a tuple of parts; a part is either
bytes or the seq of a journal line, which is looked up each time a fragment of it is cut. So a
client that stops reading in the middle of the journal, or of one long line, holds no copy of
either, only the fragment that its socket did not take.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol.codec import encode
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ErrorEvent, EventData, HistoryBatch
from hankweave_protocol.ids import CommandId
from hankweave_protocol.instants import to_text
from hankweave_protocol.replies import CommandFailed, CommandSucceeded, Failure, HandshakeResponse
from hankweave_protocol.shapes import Value
from hankweave_server.clock import Clock
from hankweave_server.transport.server_api import LongLine


class _TargetedEvent(Value):
    """An event that is not journaled: Hankweave's four fields, without a seq."""

    id: str
    timestamp: str
    type: str
    data: EventData


def event_frame(data: EventData, clock: Clock) -> bytes:
    """Encode an event that is not journaled."""
    return encode(
        _TargetedEvent(
            id=str(uuid.uuid4()), timestamp=to_text(clock.now()), type=data.TYPE, data=data
        )
    )


def success_frame(command_id: CommandId, data: object | None, clock: Clock) -> bytes:
    return encode(
        CommandSucceeded(
            in_reply_to=command_id,
            timestamp=to_text(clock.now()),
            data=msgspec.Raw(encode(data)),
        )
    )


def failure_frame(refusal: Refused, command_id: CommandId | None, clock: Clock) -> bytes:
    """Return the refusal of a frame, for a client that sent `protocolVersion`."""
    return encode(
        CommandFailed(
            in_reply_to=command_id,
            timestamp=to_text(clock.now()),
            data=Failure(
                code=refusal.code, message=refusal.message, path=refusal.path, hint=refusal.hint
            ),
        )
    )


def error_frame(refusal: Refused, context: str | None, clock: Clock) -> bytes:
    """Return the refusal of a frame, as an `error` event, for a client of Hankweave."""
    hint = f" {refusal.hint}" if refusal.hint else ""
    return event_frame(
        ErrorEvent(
            message=refusal.message + hint,
            fatal=False,
            severity="operation",
            code=refusal.code.value,
            context=context,
        ),
        clock,
    )


KEPT_BYTES = 4 * 1024 * 1024
LINE_BYTES = 200
"""Estimated memory overhead of a cached line, beside its bytes."""

BLOCK_BYTES = 64 * 1024
"""Bytes of a long line that are read at a time."""

T = TypeVar("T")
_Key: TypeAlias = tuple[int, int]
"""A seq and 0 for the line, or the number of a block of it, from 1."""
_Kept: TypeAlias = bytes | LongLine


class PageRead:
    """A read that a generator needs: it goes on when `finish` has been awaited."""

    def __init__(self, pages: JournalPages, key: _Key, read: Callable[[], _Found]) -> None:
        self._pages = pages
        self._key = key
        self._read = read
        self.found: _Kept = b""

    async def finish(self) -> None:
        """Read in a worker thread, unless another client has done so meanwhile."""
        self.found = await self._pages.load(self._key, self._read)


_Found: TypeAlias = Sequence[tuple[_Key, _Kept]]
"""What was read; the last entry is the one that was asked for."""
Reading: TypeAlias = Generator[PageRead, None, T]
"""A generator that yields reads and returns a result."""


async def settled(steps: Reading[T]) -> T:
    """Drive a generator to its result."""
    while True:
        try:
            read = next(steps)
        except StopIteration as end:
            found: T = end.value
            return found

        await read.finish()


class JournalPages:
    """A cache of the journal lines read last, by seq."""

    def __init__(
        self,
        read: Callable[[int], Sequence[bytes | LongLine]],
        project: Callable[[bytes], bytes | None] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """Create a cache.

        `read` returns one page: some lines after a seq, at least one if there is one. `project`
        turns a line into what clients are sent: other bytes, or None, which is cached as an empty
        line. It needs whole lines, also of long ones. Both are called in a worker thread.
        """
        self._read = read
        self._project = project
        self._kept_bytes = kept_bytes
        self._lines: OrderedDict[_Key, _Kept] = OrderedDict()
        self._bytes = 0
        self._loading = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)

    def size(self, seq: int) -> Reading[int]:
        """Return the length of a line; raise LookupError if the journal has no such event."""
        line = yield from self._line(seq)
        return len(line) if isinstance(line, bytes) else line.size

    def part(self, seq: int, at: int, most: int) -> Reading[bytes]:
        """Return bytes of a line, starting at `at`: at most `most`, and none only at its end."""
        line = yield from self._line(seq)
        if isinstance(line, bytes):
            return line[at : at + most]

        block, begin = divmod(at, BLOCK_BYTES)
        key = (seq, block + 1)

        def read() -> _Found:
            return [(key, line.read(block * BLOCK_BYTES, BLOCK_BYTES))]

        found = yield from self._get(key, read)
        assert isinstance(found, bytes)
        return found[begin : begin + most]

    def batch(self, since: int, until: int, most: int, most_bytes: int) -> Reading[range]:
        """Return the seqs after `since` that fit together in one batch, at least one."""
        seq, size = since, 0
        while seq < until and seq - since < most:
            size += yield from self.size(seq + 1)
            if size > most_bytes and seq > since:
                break

            seq += 1

        return range(since + 1, seq + 1)

    async def load(self, key: _Key, read: Callable[[], _Found]) -> _Kept:
        """Return what is kept under a key; read it first if it is not there."""
        async with self._loading:
            kept = self._cached(key)
            if kept is None:
                found = await anyio.to_thread.run_sync(read, limiter=self._thread)
                for each, content in found:
                    self._keep(each, content)

                kept = found[-1][1]

        return kept

    def _line(self, seq: int) -> Reading[_Kept]:
        return self._get((seq, 0), lambda: self._page_at(seq))

    def _get(self, key: _Key, read: Callable[[], _Found]) -> Reading[_Kept]:
        kept = self._cached(key)
        if kept is not None:
            return kept

        reading = PageRead(self, key, read)
        yield reading
        return reading.found

    def _cached(self, key: _Key) -> _Kept | None:
        kept = self._lines.get(key)
        if kept is not None:
            self._lines.move_to_end(key)

        return kept

    def _page_at(self, seq: int) -> _Found:
        page = self._projected(self._read(seq - 1))
        if not page:
            raise LookupError(f"the journal has no event {seq}")

        # The last line of the page is added first, so that the next one needed is evicted last.
        return [((number, 0), line) for number, line in reversed(tuple(enumerate(page, seq)))]

    def _projected(self, page: Sequence[bytes | LongLine]) -> Sequence[bytes | LongLine]:
        if self._project is None:
            return page

        whole = (line if isinstance(line, bytes) else line.read(0, line.size) for line in page)
        return [self._project(line) or b"" for line in whole]

    def _keep(self, key: _Key, content: _Kept) -> None:
        if key not in self._lines:
            self._bytes += _weight(content)

        self._lines[key] = content
        self._lines.move_to_end(key)
        for oldest in self._evictable():
            self._bytes -= _weight(self._lines.pop(oldest))

    def _evictable(self) -> Iterator[_Key]:
        while self._bytes > self._kept_bytes and len(self._lines) > 1:
            yield next(iter(self._lines))


def _weight(content: _Kept) -> int:
    return LINE_BYTES + (len(content) if isinstance(content, bytes) else 0)


FRAGMENT_BYTES = 4 * 1024
BATCH_BYTES = 256 * 1024
"""Limit on the journal lines in one `history.batch`; a longer line is sent alone."""

Message = tuple[bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a message, sent as one WebSocket frame."""

    payload: bytes
    begins: bool
    ends: bool


def fragments(message: Message, pages: JournalPages) -> Iterator[Fragment | PageRead]:
    """Cut a message into fragments, each made only when it is requested."""
    waiting = bytearray()
    begins = True
    for part in message:
        at, size = 0, (yield from _size(part, pages))
        while True:
            # Looked up again for each fragment, so that a client that does not read holds no line.
            taken = yield from _slice(part, pages, at, FRAGMENT_BYTES - len(waiting))
            waiting += taken
            at += len(taken)
            if at >= size:
                break

            yield Fragment(bytes(waiting), begins, ends=False)
            waiting.clear()
            begins = False

    yield Fragment(bytes(waiting), begins, ends=True)


def size_of(message: Message, pages: JournalPages) -> Reading[int]:
    """Return the size of a message in bytes."""
    size = 0
    for part in message:
        size += yield from _size(part, pages)

    return size


def whole(message: Message, pages: JournalPages) -> Reading[bytes]:
    """Return a message in one piece, for the traffic log."""
    parts = []
    for part in message:
        left = yield from _size(part, pages)
        at = 0
        while at < left:
            parts.append((yield from _slice(part, pages, at, left - at)))
            at += len(parts[-1])

    return b"".join(parts)


def _size(part: bytes | int, pages: JournalPages) -> Reading[int]:
    return (yield from pages.size(part)) if isinstance(part, int) else len(part)


def _slice(part: bytes | int, pages: JournalPages, at: int, most: int) -> Reading[bytes]:
    if isinstance(part, int):
        return (yield from pages.part(part, at, most))

    return part[at : at + most]


def journal_events(pages: JournalPages, since: int, until: int) -> Iterator[Message | PageRead]:
    """Yield the events after `since`, one message each; empty for an event that is not sent."""
    for seq in range(since + 1, until + 1):
        size = yield from pages.size(seq)
        yield (seq,) if size else ()


def history_batches(
    pages: JournalPages, since: int, until: int, most: int, clock: Clock
) -> Iterator[Message | PageRead]:
    """Yield the events after `since` as `history.batch` messages, at least one."""
    while True:
        seqs = yield from pages.batch(since, until, most, BATCH_BYTES)
        since += len(seqs)
        frame = event_frame(HistoryBatch(events=(), has_more=since < until), clock)
        yield _filled(frame, b'"events":[', seqs)
        if since >= until:
            return


def single_batches(
    pages: JournalPages, since: int, until: int, clock: Clock
) -> Iterator[Message | PageRead]:
    """Yield one `history.batch` per event, as clients of Hankweave expect; an empty one if none.

    A message is empty where an event is not sent.
    """

    def batch(seqs: Iterable[int], *, more: bool) -> Message:
        frame = event_frame(HistoryBatch(events=(), has_more=more), clock)
        return _filled(frame, b'"events":[', seqs)

    found: int | None = None
    for seq in range(since + 1, until + 1):
        size = yield from pages.size(seq)
        if not size:
            yield ()
            continue

        if found is not None:
            yield batch([found], more=True)

        found = seq

    yield batch([] if found is None else [found], more=False)


def handshake_response(response: HandshakeResponse, seqs: Iterable[int]) -> Message:
    """Return a handshake response with the given journal events in its empty list."""
    return _filled(encode(response), b'"eventHistory":[', seqs)


def _filled(frame: bytes, opening: bytes, seqs: Iterable[int]) -> Message:
    """Insert journal lines into the empty list that starts with `opening`."""
    head, found, tail = frame.partition(opening)
    assert found, frame
    parts: list[bytes | int] = [head + found]
    for seq in seqs:
        if len(parts) > 1:
            parts.append(b",")

        parts.append(seq)

    return (*parts, tail)
