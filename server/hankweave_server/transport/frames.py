"""Frames, journal pages and message fragments.

The frames of one client are replies, failures and events without a seq.

Clients that catch up read the same journal, often the same part at the same time. They keep no
lines of their own: each remembers a position and asks `JournalPages` for the line there. Reading a
line reads the page around it, and the lines read last stay in memory up to a limit that does not
depend on the number of clients. A line that is no longer in memory is read again. Of a long line,
such as the end of a rollback of many files, only the part to be sent next is ever read.

Long answers are sent as messages in fragments. A message is a tuple of parts; a part is either
bytes or the seq of a journal line, which is looked up each time a fragment of it is cut. So a
client that stops reading in the middle of the journal, or of one long line, holds no copy of
either, only the fragment that its socket did not take.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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
        line. It needs whole lines, also of long ones.
        """
        self._read = read
        self._project = project
        self._kept_bytes = kept_bytes
        self._lines: OrderedDict[int, bytes | LongLine] = OrderedDict()
        self._bytes = 0

    def size(self, seq: int) -> int:
        """Return the length of a line; raise LookupError if the journal has no such event."""
        line = self._line(seq)
        return len(line) if isinstance(line, bytes) else line.size

    def part(self, seq: int, at: int, most: int) -> bytes:
        """Return at most `most` bytes of a line, starting at `at`."""
        line = self._line(seq)
        return line[at : at + most] if isinstance(line, bytes) else line.read(at, most)

    def batch(self, since: int, until: int, most: int, most_bytes: int) -> range:
        """Return the seqs after `since` that fit together in one batch, at least one."""
        seq, size = since, 0
        while seq < until and seq - since < most:
            size += self.size(seq + 1)
            if size > most_bytes and seq > since:
                break

            seq += 1

        return range(since + 1, seq + 1)

    def _line(self, seq: int) -> bytes | LongLine:
        line = self._lines.get(seq)
        if line is not None:
            self._lines.move_to_end(seq)
            return line

        page = self._projected(self._read(seq - 1))
        if not page:
            raise LookupError(f"the journal has no event {seq}")

        # The last line of the page is added first, so that the next one needed is evicted last.
        for number, line in reversed(tuple(enumerate(page, seq))):
            self._keep(number, line)

        return page[0]

    def _projected(self, page: Sequence[bytes | LongLine]) -> Sequence[bytes | LongLine]:
        if self._project is None:
            return page

        whole = (line if isinstance(line, bytes) else line.read(0, line.size) for line in page)
        return [self._project(line) or b"" for line in whole]

    def _keep(self, seq: int, line: bytes | LongLine) -> None:
        if seq not in self._lines:
            self._bytes += _weight(line)

        self._lines[seq] = line
        self._lines.move_to_end(seq)
        for oldest in self._superfluous():
            self._bytes -= _weight(self._lines.pop(oldest))

    def _superfluous(self) -> Iterator[int]:
        while self._bytes > self._kept_bytes and len(self._lines) > 1:
            yield next(iter(self._lines))


def _weight(line: bytes | LongLine) -> int:
    return LINE_BYTES + (len(line) if isinstance(line, bytes) else 0)


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


def fragments(message: Message, pages: JournalPages) -> Iterator[Fragment]:
    """Cut a message into fragments, each made only when it is requested."""
    waiting = bytearray()
    begins = True
    for part in message:
        at, size = 0, _size(part, pages)
        while True:
            # Looked up again for each fragment, so that a client that does not read holds no line.
            taken = _slice(part, pages, at, FRAGMENT_BYTES - len(waiting))
            waiting += taken
            at += len(taken)
            if at >= size:
                break

            yield Fragment(bytes(waiting), begins, ends=False)
            waiting.clear()
            begins = False

    yield Fragment(bytes(waiting), begins, ends=True)


def size_of(message: Message, pages: JournalPages) -> int:
    """Return the size of a message in bytes."""
    return sum(_size(part, pages) for part in message)


def whole(message: Message, pages: JournalPages) -> bytes:
    """Return a message in one piece, for the traffic log."""
    return b"".join(_slice(part, pages, 0, _size(part, pages)) for part in message)


def _size(part: bytes | int, pages: JournalPages) -> int:
    return pages.size(part) if isinstance(part, int) else len(part)


def _slice(part: bytes | int, pages: JournalPages, at: int, most: int) -> bytes:
    return pages.part(part, at, most) if isinstance(part, int) else part[at : at + most]


def journal_events(pages: JournalPages, since: int, until: int) -> Iterator[Message]:
    """Yield the events after `since`, one message each; empty for an event that is not sent."""
    for seq in range(since + 1, until + 1):
        yield (seq,) if pages.size(seq) else ()


def history_batches(
    pages: JournalPages, since: int, until: int, most: int, clock: Clock
) -> Iterator[Message]:
    """Yield the events after `since` as `history.batch` messages, at least one."""
    while True:
        seqs = pages.batch(since, until, most, BATCH_BYTES)
        since += len(seqs)
        frame = event_frame(HistoryBatch(events=(), has_more=since < until), clock)
        yield _filled(frame, b'"events":[', seqs)
        if since >= until:
            return


def single_batches(pages: JournalPages, since: int, until: int, clock: Clock) -> Iterator[Message]:
    """Yield one `history.batch` per event, as clients of Hankweave expect; an empty one if none.

    A message is empty where an event is not sent.
    """

    def batch(seqs: Iterable[int], *, more: bool) -> Message:
        frame = event_frame(HistoryBatch(events=(), has_more=more), clock)
        return _filled(frame, b'"events":[', seqs)

    found: int | None = None
    for seq in range(since + 1, until + 1):
        if not pages.size(seq):
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
