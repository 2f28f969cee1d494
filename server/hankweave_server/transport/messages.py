"""Long answers as messages that are sent fragment by fragment.

A message is a tuple of parts. A part is either bytes or the seq of a journal line, which is looked
up each time a fragment of it is cut. So a client that stops reading in the middle of the journal,
or of one long line, keeps no copy of either: only the fragment that its socket did not take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hankweave_protocol.codec import encode
from hankweave_protocol.events import HistoryBatch
from hankweave_protocol.replies import HandshakeResponse
from hankweave_server.clock import Clock
from hankweave_server.transport.frames import event_frame
from hankweave_server.transport.journal_pages import JournalPages

FRAGMENT_BYTES = 4 * 1024
BATCH_BYTES = 256 * 1024
"""Journal lines in one `history.batch`; a single longer line still goes out, alone."""

Message = tuple[bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a message that is one WebSocket frame."""

    payload: bytes
    begins: bool
    ends: bool


def fragments(message: Message, pages: JournalPages) -> Iterator[Fragment]:
    """Cut a message into fragments, each made only when it is asked for."""
    waiting = bytearray()
    begins = True
    for part in message:
        at, size = 0, _size(part, pages)
        while True:
            # Looked up again for each fragment: a client that does not read keeps no line.
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
    """Return the bytes of a message."""
    return sum(_size(part, pages) for part in message)


def whole(message: Message, pages: JournalPages) -> bytes:
    """Return a message in one piece, for the traffic log."""
    return b"".join(_slice(part, pages, 0, _size(part, pages)) for part in message)


def _size(part: bytes | int, pages: JournalPages) -> int:
    return pages.size(part) if isinstance(part, int) else len(part)


def _slice(part: bytes | int, pages: JournalPages, at: int, most: int) -> bytes:
    return pages.part(part, at, most) if isinstance(part, int) else part[at : at + most]


def journal_events(pages: JournalPages, since: int, until: int) -> Iterator[Message]:
    """Return the journal's events after `since`, one message each; empty where none is sent."""
    for seq in range(since + 1, until + 1):
        yield (seq,) if pages.size(seq) else ()


def history_batches(
    pages: JournalPages, since: int, until: int, most: int, clock: Clock
) -> Iterator[Message]:
    """Return the journal's events after `since` as `history.batch` messages; at least one."""
    while True:
        seqs = pages.batch(since, until, most, BATCH_BYTES)
        since += len(seqs)
        frame = event_frame(HistoryBatch(events=(), has_more=since < until), clock)
        yield _filled(frame, b'"events":[', seqs)
        if since >= until:
            return


def single_batches(pages: JournalPages, since: int, until: int, clock: Clock) -> Iterator[Message]:
    """Do the same as Hankweave's clients expect: a batch for each event, one empty one for none.

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
    """Return a handshake response, which has no events yet, with these events of the journal."""
    return _filled(encode(response), b'"eventHistory":[', seqs)


def _filled(frame: bytes, opening: bytes, seqs: Iterable[int]) -> Message:
    """Put journal lines into the empty list that `opening` begins."""
    head, found, tail = frame.partition(opening)
    assert found, frame
    parts: list[bytes | int] = [head + found]
    for seq in seqs:
        if len(parts) > 1:
            parts.append(b",")

        parts.append(seq)

    return (*parts, tail)
