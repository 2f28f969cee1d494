"""Filter the events of a journal, which is read in chunks and never held as a whole.

The WebSocket command `events.query` and `hankweave events` both use this module, so they give the
same answers. A cursor names the journal's end at the first page: later events change no page.

The filters for ancestors and descendants use the closure over `causes`. A cause is the seq of an
earlier event or the ID of a command. An effect always comes after its cause, so one pass in journal
order finds all descendants, and ancestors are found by going back.

Anything beyond plain filters is left to programs that are made for it: jq or DuckDB, from
`hankweave events --json`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.commands import EventsQuery, Moment
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EVENTS
from hankweave_protocol.replies import EventsPage

Read = Callable[[int, int], list[bytes]]
"""Returns at most that many lines of the journal after a seq, oldest first."""

LINES_AT_ONCE = 256
"""Lines of the journal that are read at a time: some hundred kilobytes."""

PAGE = 1_000
"""Events on one page, unless the query asks for fewer."""

PAGE_BYTES = 1024 * 1024
"""A page ends before it would grow beyond this; one event alone may be larger."""

_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""A text without quotes and backslashes, and of ASCII: JSON holds it as it is."""

_CURSOR = re.compile(r"(?P<until>[0-9]{1,15})-(?P<after>[0-9]{1,15})")


class _Line(msgspec.Struct, rename="camel", gc=False):
    """One line of the journal, with the fields that a filter uses."""

    type: str
    seq: int = 0
    timestamp: str = ""
    data: msgspec.Raw = msgspec.Raw()
    run_id: str | None = None
    codon_id: str | None = None
    causes: list[int | str] = []


_line_of = msgspec.json.Decoder(_Line).decode


class EventFilter:
    """Tests lines of the journal, one after the other, against the filters of a query.

    With `descendants_of`, `take` needs every line after `begins_after`, in journal order.
    """

    def __init__(self, query: EventsQuery, read: Read, last: int) -> None:
        """Check a query against a journal that ends at `last`; raise Refused."""
        self._query = query
        self._since_seq, self._since_time = _bound(query.since, "$.data.since")
        self._until_seq, self._until_time = _bound(query.until, "$.data.until")
        _require_known(query.caused_by, last, "$.data.causedBy")
        _require_known(query.descendants_of, last, "$.data.descendantsOf")
        _require_known(query.ancestors_of, last, "$.data.ancestorsOf")

        root = query.descendants_of
        self.is_in_journal_order = root is not None
        """Whether the journal cannot be searched from its end."""
        self._family: set[int | str] = set() if root is None else {root}
        self._ancestors = (
            None if query.ancestors_of is None else _ancestors(query.ancestors_of, read)
        )
        self._text = None if query.text is None else query.text.casefold()
        is_plain = query.text is not None and _PLAIN.fullmatch(query.text) is not None
        self._word = query.text.lower().encode() if query.text and is_plain else None
        self._types = _pattern_of(query.types, "$.data.types") if query.types else None

    @property
    def begins_after(self) -> int:
        """The seq after which a search must begin."""
        root = self._query.descendants_of
        if root is None:
            return self._since_seq or 0

        return root if isinstance(root, int) else 0

    def ends_at(self, last: int) -> int:
        """Return the seq at which a search of a journal can end."""
        return last if self._until_seq is None else min(last, self._until_seq)

    def take(self, line: bytes) -> _Line | None:
        """Return the decoded line if all filters let it pass; None otherwise."""
        # Most lines of a long journal are of another type; decoding takes ten times as long.
        may_be_wanted = self._may_be_of_type(line) and self._may_have_text(line)
        if not self._family and not may_be_wanted:
            return None

        found = _line_of(line)
        return found if self._is_related(found) and self._is_wanted(found) else None

    def _may_be_of_type(self, line: bytes) -> bool:
        """Return False if a line is surely of another type; data may have types of its own."""
        return self._types is None or self._types.search(line) is not None

    def _may_have_text(self, line: bytes) -> bool:
        """Return False if the text is surely not in a line, which need not be decoded then."""
        if self._word is None or not line.isascii() or b"\\u" in line or b"\\/" in line:
            return True  # A letter may be written in another way, or fold to several.

        return self._word in line.lower()

    def _is_related(self, line: _Line) -> bool:
        if self._family:
            if self._family.isdisjoint(line.causes):
                return False

            self._family.add(line.seq)

        if self._ancestors is not None and line.seq not in self._ancestors:
            return False

        return self._query.caused_by is None or self._query.caused_by in line.causes

    def _is_wanted(self, line: _Line) -> bool:
        query = self._query
        return (
            (not query.types or line.type in query.types)
            and line.seq > (self._since_seq or 0)
            and (self._until_seq is None or line.seq <= self._until_seq)
            and (self._since_time is None or line.timestamp >= self._since_time)
            and (self._until_time is None or line.timestamp <= self._until_time)
            and (query.codon_id is None or line.codon_id == query.codon_id)
            and (query.run_id is None or line.run_id == query.run_id)
            and (self._text is None or _has_text(line, self._text))
        )


def _bound(bound: Moment | None, at: str) -> tuple[int | None, str | None]:
    """Split a bound into a seq and a time in the journal's format: one of them, or neither."""
    match bound:
        case None:
            return None, None
        case int() if bound < 0:
            raise _invalid(f"{bound} is not a seq: they begin at 1.", at)
        case int():
            return bound, None
        case _:
            try:
                return None, instants.to_text(instants.from_text(bound))
            except (ValueError, TypeError, OverflowError):
                hint = "Write it like 2025-01-04T12:00:00.000Z."
                raise _invalid(f"{bound[:80]!r} is not a timestamp.", at, hint) from None


def _require_known(cause: int | str | None, last: int, at: str) -> None:
    if isinstance(cause, int) and cause < 1:
        raise _invalid(f"{cause} is not a seq: they begin at 1.", at)

    if isinstance(cause, int) and cause > last:
        raise _invalid(f"The journal ends at {last}; {cause} is not in it.", at)


def _pattern_of(types: tuple[str, ...], at: str) -> re.Pattern[bytes]:
    """Return what is found in the line of each event of these types; raise Refused."""
    for number, name in enumerate(types):
        if name not in EVENTS.members:
            close = difflib.get_close_matches(name[:80], EVENTS.members, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "The page of events lists all types."
            raise _invalid(f"There is no event type {name[:80]!r}.", f"{at}[{number}]", hint)

    names = b"|".join(re.escape(name.encode()) for name in sorted(types))
    return re.compile(rb'"type":"(?:' + names + rb')"')


def _ancestors(seq: int, read: Read) -> frozenset[int]:
    """Return the seqs of all events that led to one, itself not included."""
    found: set[int] = set()
    waiting = [seq]
    while waiting:
        child = waiting.pop()
        for line in read(child - 1, 1):
            earlier = {
                cause
                for cause in _line_of(line).causes
                if isinstance(cause, int) and 0 < cause < child
            }
            waiting += earlier - found
            found |= earlier

    return frozenset(found)


def _has_text(line: _Line, text: str) -> bool:
    """Search the type, the codon and every text in the data, ignoring case."""
    # Without recursion: an agent's data may be nested as deep as JSON allows.
    waiting: list[Any] = [line.type, line.codon_id, msgspec.json.decode(line.data or b"null")]
    while waiting:
        match waiting.pop():
            case str(value):
                if text in value.casefold():
                    return True
            case list(values):
                waiting += values
            case dict(values):
                waiting += values.values()

    return False


def _invalid(message: str, at: str, hint: str | None = None) -> Refused:
    return Refused(ErrorCode.INVALID_COMMAND, message, path=at, hint=hint)


# --- the answer -----------------------------------------------------------------------------------


def events_page(query: EventsQuery, read: Read, last: int) -> EventsPage:
    """Return one page of the events that match, or their count; raise Refused."""
    until, after = last, None
    if query.cursor is not None:
        cursor = _CURSOR.fullmatch(query.cursor)
        if cursor is None or int(cursor["until"]) > last:
            hint = "Send the same query again with the cursor of its previous page."
            raise _invalid("This cursor is not one of this journal.", "$.data.cursor", hint)

        until, after = int(cursor["until"]), int(cursor["after"])

    matching = EventFilter(query, read, until)
    if query.count:
        found = search(matching, read, until)
        return EventsPage(counts=dict(Counter(line.type for _, line in found)))

    taken: list[msgspec.Raw] = []
    size = position = 0
    limit = query.limit or PAGE
    for raw, line in _in_order(matching, read, until, after, newest_first=query.newest_first):
        size += len(raw)
        if taken and (len(taken) == limit or size > PAGE_BYTES):
            return EventsPage(events=tuple(taken), cursor=f"{until}-{position}")

        taken.append(msgspec.Raw(raw))
        position = line.seq

    return EventsPage(events=tuple(taken))


def search(
    matching: EventFilter, read: Read, until: int, after: int = 0
) -> Iterator[tuple[bytes, _Line]]:
    """Yield the lines that match, in journal order, up to a seq."""
    until = matching.ends_at(until)
    position = max(after, matching.begins_after)
    while position < until:
        lines = read(position, min(LINES_AT_ONCE, until - position))
        position += LINES_AT_ONCE  # Seqs have no gap, so counting lines is enough.
        for raw in lines:
            if (line := matching.take(raw)) is not None:
                yield raw, line


def _in_order(
    matching: EventFilter, read: Read, until: int, after: int | None, *, newest_first: bool
) -> Iterator[tuple[bytes, _Line]]:
    """Yield the lines that match after those of the previous page."""
    if newest_first:
        until = until if after is None else min(until, after - 1)
        if not matching.is_in_journal_order:
            return _search_back(matching, read, until)

        return reversed(list(search(matching, read, until)))

    if not matching.is_in_journal_order:
        return search(matching, read, until, after or 0)

    return (found for found in search(matching, read, until) if found[1].seq > (after or 0))


def _search_back(matching: EventFilter, read: Read, until: int) -> Iterator[tuple[bytes, _Line]]:
    until = matching.ends_at(until)
    while until > matching.begins_after:
        position = max(matching.begins_after, until - LINES_AT_ONCE)
        for raw in reversed(read(position, until - position)):
            if (line := matching.take(raw)) is not None:
                yield raw, line

        until = position
