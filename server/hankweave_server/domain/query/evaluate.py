"""Answer a checked query from the journal, which is read in pages and never held as a whole.

The WebSocket command and the command line both use this module, so they give the same answers. A
cursor names the journal's end at the first page: later events change no page.

The queries for ancestors and descendants use the closure over `causes`. A cause is the seq of an
earlier event or the ID of a command. An effect always comes after its cause, so one pass in journal
order finds all descendants, and ancestors are found by going back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.queries import EventsPage
from hankweave_server.domain.query.aggregate import Row, Sorting, is_by_seq, place_of
from hankweave_server.domain.query.fields import Seen, SeenEnvelope, invalid
from hankweave_server.domain.query.parse import Cursor, Query

Read = Callable[[int, int], list[bytes]]
"""Returns at most that many lines of the journal after a seq, oldest first."""


_envelope_of = msgspec.json.Decoder(SeenEnvelope).decode


def ancestors(seq: int, read: Read) -> frozenset[int]:
    """Return the seqs of all events that led to one, itself not included."""
    found: set[int] = set()
    waiting = [seq]
    while waiting:
        child = waiting.pop()
        for line in read(child - 1, 1):
            earlier = {
                cause
                for cause in _envelope_of(line).causes
                if isinstance(cause, int) and 0 < cause < child
            }
            waiting += earlier - found
            found |= earlier

    return frozenset(found)


LINES_AT_ONCE = 256
"""Lines of the journal that are read at a time: some hundred kilobytes."""

PAGE_BYTES = 1024 * 1024
"""A page ends before it would grow beyond this; one event alone may be larger."""

ROW_BYTES = 4 * 1024 * 1024
"""A row that `collect` makes larger than this is refused."""

Item: TypeAlias = tuple[int, bytes]
"""One event or row of an answer as JSON, after the position for a cursor."""


def answer(query: Query, read: Read, last: int) -> EventsPage:
    """Answer one page of a query over the journal up to `last`; raise Refused."""
    until = last if query.cursor is None else query.cursor.until
    if until > last:
        raise invalid(
            f"The journal ends at {last}; the cursor is from another one.", "$.data.cursor"
        )

    items, after = _cut(_items(query, read, until, query.limit + 1), query.limit)
    cursor = None if after is None else query.cursor_text(Cursor(until, after))
    if query.columns is None and query.reducing is None:
        return EventsPage(events=items, cursor=cursor)

    return EventsPage(rows=items, cursor=cursor)


def everything(query: Query, read: Read, last: int) -> Iterator[bytes]:
    """Answer a query with all its events or rows, one by one; raise Refused."""
    return (text for _, text in _items(query, read, last, None))


def row_of(query: Query, line: bytes, seen: Seen) -> bytes:
    """Return what the query shows of one event: its line, or the selected columns."""
    if query.columns is None:
        return line

    return msgspec.json.encode({path.text: path.get(seen) for path in query.columns})


class Scan:
    """Tests the lines of the journal, one after the other, against a query.

    For a query of descendants, `take` needs every line after the root, in journal order.
    """

    def __init__(self, query: Query, read: Read, last: int) -> None:
        _require_known(query.caused_by, last, "$.data.causedBy")
        _require_known(query.descendants_of, last, "$.data.descendantsOf")
        _require_known(query.ancestors_of, last, "$.data.ancestorsOf")
        self._query = query
        shape = Seen if query.looks_into_data else SeenEnvelope
        self.decode: Callable[[bytes], Seen] = msgspec.json.Decoder(shape).decode
        root = query.descendants_of
        self._family: set[int | str] | None = None if root is None else {root}
        """The root and its descendants so far, for a query of descendants."""
        self._types = query.types if self._family is None else None
        self._ancestors: frozenset[int] | None = None
        if query.ancestors_of is not None:
            self._ancestors = ancestors(query.ancestors_of, read)

    @property
    def begins_after(self) -> int:
        """The seq after which the scan must begin."""
        root = self._query.descendants_of
        if root is None:
            return self._query.window.after_seq

        return root if isinstance(root, int) else 0

    @property
    def goes_forward_only(self) -> bool:
        return self._family is not None

    def take(self, line: bytes) -> Seen | None:
        """Return the decoded line if it matches the query; None otherwise."""
        if self._types is not None and self._types.search(line) is None:
            return None  # Most lines of a long journal; decoding takes ten times as long.

        seen = self.decode(line)
        return seen if self._means(seen) else None

    def _means(self, seen: Seen) -> bool:
        if self._family is not None:
            if self._family.isdisjoint(seen.causes):
                return False

            self._family.add(seen.seq)

        if self._ancestors is not None and seen.seq not in self._ancestors:
            return False

        cause = self._query.caused_by
        if cause is not None and cause not in seen.causes:
            return False

        predicate = self._query.predicate
        return self._query.window.holds(seen) and (predicate is None or predicate(seen))


def _require_known(cause: int | str | None, last: int, at: str) -> None:
    if isinstance(cause, int) and cause > last:
        raise invalid(f"The journal ends at {last}; {cause} is not in it.", at)


# --- what matches, in its order -------------------------------------------------------------------


def _items(query: Query, read: Read, until: int, at_most: int | None) -> Iterator[Item]:
    """Return the items after the cursor; if sorted, not more than `at_most`."""
    scan = Scan(query, read, until)
    if query.window.until_seq is not None:
        until = min(until, query.window.until_seq)

    after = None if query.cursor is None else query.cursor.after
    if query.reducing is not None:
        rows = query.reducing.rows(seen for _, seen in forward(scan, read, until))
        return _rows_in_order(rows, query.sortings, after or 0)

    if not query.sortings or is_by_seq(query.sortings, descending=False):
        return _oldest_first(query, scan, read, until, after or 0)

    if is_by_seq(query.sortings, descending=True) and not scan.goes_forward_only:
        until = until if after is None else min(until, after - 1)
        found = _backward(scan, read, until)
        return ((seen.seq, row_of(query, line, seen)) for line, seen in found)

    return _sorted(query, scan, read, until, at_most)


def forward(scan: Scan, read: Read, until: int, after: int = 0) -> Iterator[tuple[bytes, Seen]]:
    """Yield the lines that match a query, in journal order, up to a seq."""
    position = max(after, scan.begins_after)
    while position < until:
        lines = read(position, min(LINES_AT_ONCE, until - position))
        position += LINES_AT_ONCE  # Seqs have no gap, so counting lines is enough.
        for line in lines:
            seen = scan.take(line)
            if seen is not None:
                yield line, seen


def _backward(scan: Scan, read: Read, until: int) -> Iterator[tuple[bytes, Seen]]:
    while until > scan.begins_after:
        position = max(scan.begins_after, until - LINES_AT_ONCE)
        for line in reversed(read(position, until - position)):
            seen = scan.take(line)
            if seen is not None:
                yield line, seen

        until = position


def _oldest_first(query: Query, scan: Scan, read: Read, until: int, after: int) -> Iterator[Item]:
    begin = 0 if scan.goes_forward_only else after
    for line, seen in forward(scan, read, until, begin):
        if seen.seq > after:
            yield seen.seq, row_of(query, line, seen)


def _sorted(
    query: Query, scan: Scan, read: Read, until: int, at_most: int | None
) -> Iterator[Item]:
    """Sort by the query's fields; only the sort keys of the matches are held in memory."""
    places = (place_of(query.sortings, seen, seen.seq) for _, seen in forward(scan, read, until))
    if query.cursor is not None:
        seq = query.cursor.after
        passed = place_of(query.sortings, scan.decode(_line(read, seq)), seq)
        places = (place for place in places if passed < place)

    chosen = sorted(places) if at_most is None else heapq.nsmallest(at_most, places)
    for place in chosen:
        line = _line(read, place[-1])
        yield place[-1], row_of(query, line, scan.decode(line))


def _line(read: Read, seq: int) -> bytes:
    lines = read(seq - 1, 1) if seq > 0 else []
    if not lines:
        raise invalid(f"The journal has no event {seq}.", "$.data.cursor")

    return lines[0]


def _rows_in_order(rows: list[Row], sortings: tuple[Sorting, ...], passed: int) -> Iterator[Item]:
    if sortings:
        places = sorted(place_of(sortings, row, number) for number, row in enumerate(rows))
        rows = [rows[place[-1]] for place in places]

    for position, row in enumerate(rows[passed:], start=passed + 1):
        text = msgspec.json.encode(row)
        if len(text) > ROW_BYTES:
            raise Refused(
                ErrorCode.RESULT_TOO_LARGE,
                f"A row of the answer would have {len(text):,} bytes.",
                path="$.data.reduce",
                hint="Collect a smaller field, or group by more fields.",
            )

        yield position, text


# --- pages ----------------------------------------------------------------------------------------


def _cut(items: Iterable[Item], limit: int) -> tuple[tuple[msgspec.Raw, ...], int | None]:
    """Take the items that fit on a page; return also its end, if more items follow."""
    taken: list[msgspec.Raw] = []
    size = position = 0
    for at, text in items:
        size += len(text)
        if taken and (len(taken) == limit or size > PAGE_BYTES):
            return tuple(taken), position

        taken.append(msgspec.Raw(text))
        position = at

    return tuple(taken), None
