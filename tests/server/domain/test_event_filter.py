"""Filters of the journal's events, compared with a check of every event in memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.replies import EventsPage
from hankweave_server.domain import event_filter
from hankweave_server.domain.event_filter import events_page

Event = dict[str, Any]

TYPES = ("info", "codon.started", "tool.result")
TEXTS = ("needle", 'a "Needle" in hay', "hay", "tool.result", '"type":"info"', "Ä", "")


def event(seq: int, **fields: Any) -> Event:
    moment = f"2025-01-04T12:00:{seq % 60:02}.000Z"
    base = {"id": f"id-{seq}", "seq": seq, "timestamp": moment, "type": "info", "data": {}}
    return {**base, **fields}


class Lines:
    """A journal in memory, which counts what is read of it."""

    def __init__(self, events: list[Event]) -> None:
        self._lines = [msgspec.json.encode(each) for each in events]
        self.count_read = 0

    def read(self, since: int, limit: int) -> list[bytes]:
        found = self._lines[since : since + limit]
        self.count_read += len(found)
        return found

    def page(self, query: EventsQuery) -> EventsPage:
        return events_page(query, self.read, len(self._lines))

    def pages(self, query: EventsQuery) -> Iterator[list[int]]:
        """Yield the seqs of each page."""
        while True:
            page = self.page(query)
            yield seqs_of(page)
            if page.cursor is None:
                return

            query = msgspec.structs.replace(query, cursor=page.cursor)


def seqs_of(page: EventsPage) -> list[int]:
    return [json.loads(bytes(line))["seq"] for line in page.events or ()]


@st.composite
def journals(draw: st.DrawFn) -> list[Event]:
    count = draw(st.integers(1, 12))
    return [
        event(
            seq,
            type=draw(st.sampled_from(TYPES)),
            data=draw(
                st.recursive(
                    st.sampled_from(TEXTS) | st.none() | st.integers(),
                    lambda inner: (
                        st.lists(inner, max_size=2)
                        | st.dictionaries(st.sampled_from(TEXTS), inner, max_size=2)
                    ),
                    max_leaves=4,
                )
            ),
            codonId=draw(st.sampled_from([None, "one", "two"])),
            runId=draw(st.sampled_from([None, "r-1", "r-2"])),
            causes=draw(st.lists(st.integers(1, max(1, seq - 1)) | st.just("c-1"), max_size=2))
            if seq > 1
            else [],
        )
        for seq in range(1, count + 1)
    ]


@st.composite
def queries(draw: st.DrawFn, last: int) -> EventsQuery:
    def seldom(values: st.SearchStrategy[Any]) -> Any:
        return draw(values) if draw(st.integers(0, 3)) == 0 else None

    seqs = st.integers(1, last)
    moments = seqs.map(lambda seq: event(seq)["timestamp"])
    return EventsQuery(
        types=seldom(st.lists(st.sampled_from(TYPES), min_size=1).map(tuple)),
        codon_id=seldom(st.sampled_from(["one", "three"])),
        run_id=seldom(st.just("r-1")),
        text=seldom(st.sampled_from(["needle", "NEEDLE", "ä", "one", ""])),
        since=seldom(seqs | moments),
        until=seldom(seqs | moments),
        caused_by=seldom(seqs | st.just("c-1")),
        descendants_of=seldom(seqs | st.just("c-1")),
        ancestors_of=seldom(seqs),
        newest_first=draw(st.booleans()),
    )


def naively(events: list[Event], query: EventsQuery) -> list[int]:
    """Return the seqs of the events that match, by looking at each of them."""
    family = {query.descendants_of}
    for each in events:
        if family & set(each["causes"]) - {None}:
            family.add(each["seq"])

    ancestors: set[Any] = set()
    waiting = [query.ancestors_of] if query.ancestors_of else []
    while waiting:
        causes = {each for each in events[waiting.pop() - 1]["causes"] if each != "c-1"}
        waiting += causes - ancestors
        ancestors |= causes

    def matches(each: Event) -> bool:
        place = each["seq"], each["timestamp"]
        since, until = (
            None if bound is None else (isinstance(bound, str), bound)
            for bound in (query.since, query.until)
        )
        return (
            (query.types is None or each["type"] in query.types)
            and (query.codon_id is None or each["codonId"] == query.codon_id)
            and (query.run_id is None or each["runId"] == query.run_id)
            and (query.text is None or contains(each, query.text.casefold()))
            and (since is None or (place[1] >= since[1] if since[0] else place[0] > since[1]))
            and (until is None or place[until[0]] <= until[1])
            and (query.caused_by is None or query.caused_by in each["causes"])
            and (query.descendants_of is None or each["seq"] in family - {query.descendants_of})
            and (query.ancestors_of is None or each["seq"] in ancestors)
        )

    found = [each["seq"] for each in events if matches(each)]
    return found[::-1] if query.newest_first else found


def contains(value: Any, text: str) -> bool:
    match value:
        case {"seq": _}:
            return any(contains(value[name], text) for name in ("type", "codonId", "data"))
        case dict():
            return any(contains(each, text) for each in value.values())
        case list():
            return any(contains(each, text) for each in value)
        case str():
            return text in value.casefold()
        case _:
            return False


@given(data=st.data(), events=journals(), limit=st.integers(1, 4))
def test_every_event_that_matches_all_filters_is_on_one_page(
    data: st.DataObject, events: list[Event], limit: int
) -> None:
    """Pages of any size have the events that a check of each one finds, in order."""
    query = data.draw(queries(len(events)))
    pages = list(Lines(events).pages(msgspec.structs.replace(query, limit=limit)))
    assert all(len(page) <= limit for page in pages)
    assert [seq for page in pages for seq in page] == naively(events, query)


@given(data=st.data(), events=journals())
def test_counts_are_those_of_the_events_by_type(data: st.DataObject, events: list[Event]) -> None:
    """`count` returns a number for each type that occurs, and no events."""
    query = data.draw(queries(len(events)))
    page = Lines(events).page(msgspec.structs.replace(query, count=True))
    found = Counter(events[seq - 1]["type"] for seq in naively(events, query))
    assert (page.events, page.counts) == (None, found)


def test_chunks_of_the_journal_meet_without_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """In either order, the events are found across the ends of chunks."""
    monkeypatch.setattr(event_filter, "LINES_AT_ONCE", 3)
    journal = Lines([event(seq) for seq in range(1, 11)])
    assert seqs_of(journal.page(EventsQuery(since=1, until=8))) == [2, 3, 4, 5, 6, 7, 8]
    newest = EventsQuery(since=1, until=8, newest_first=True)
    assert seqs_of(journal.page(newest)) == [8, 7, 6, 5, 4, 3, 2]


def test_the_newest_events_are_read_from_the_end() -> None:
    """A query for the last ten events does not read a long journal from its start."""
    journal = Lines([event(seq) for seq in range(1, 2_001)])
    page = journal.page(EventsQuery(newest_first=True, limit=10))
    assert seqs_of(page) == list(range(2_000, 1_990, -1))
    assert journal.count_read <= event_filter.LINES_AT_ONCE


def test_a_page_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large event is alone on its page; no event is lost."""
    monkeypatch.setattr(event_filter, "PAGE_BYTES", 500)
    sizes = (100, 100, 900, 100)
    journal = Lines([event(seq, data={"text": "x" * size}) for seq, size in enumerate(sizes, 1)])
    assert list(journal.pages(EventsQuery())) == [[1, 2], [3], [4]]


def test_a_later_event_is_on_no_page() -> None:
    """A cursor keeps the end that the journal had at the first page."""
    events = [event(seq) for seq in range(1, 5)]
    first = Lines(events).page(EventsQuery(limit=3))
    grown = Lines([*events, event(5)])
    assert list(grown.pages(EventsQuery(limit=3, cursor=first.cursor))) == [[4]]


def test_a_type_within_the_data_is_not_that_of_the_event() -> None:
    """The input of a tool may have any fields."""
    lines = Lines([event(1, data={"toolInput": {"type": "codon.started"}})])
    assert seqs_of(lines.page(EventsQuery(types=("codon.started",)))) == []


def test_text_is_found_however_deep_it_lies() -> None:
    """Data that is nested as deep as JSON allows is searched."""
    line = b'{"id":"i","seq":1,"timestamp":"t","type":"info","data":%s"x"%s}'
    deep = line % (b"[" * 900, b"]" * 900)
    page = events_page(EventsQuery(text="X"), lambda since, limit: [deep][since:], 1)
    assert len(page.events or ()) == 1


@pytest.mark.parametrize("written", [b"ne\\u0065dle", b"a\\/needle", "ﬀ needle".encode()])
def test_text_is_found_however_it_is_written(written: bytes) -> None:
    """Escapes of JSON stand for the letters that they mean."""
    line = b'{"id":"i","seq":1,"timestamp":"t","type":"info","data":{"message":"%s"}}' % written
    page = events_page(EventsQuery(text="NEEDLE"), lambda since, limit: [line][since:], 1)
    assert len(page.events or ()) == 1


@pytest.mark.parametrize(
    ("query", "path", "word"),
    [
        (EventsQuery(types=("info", "codon.complete")), "types[1]", "'codon.completed'"),
        (EventsQuery(types=("x",)), "types[0]", "events"),
        (EventsQuery(since=-1), "since", None),
        (EventsQuery(until="noon"), "until", "2025-01-04T12:00:00.000Z"),
        (EventsQuery(caused_by=3), "causedBy", None),
        (EventsQuery(descendants_of=0), "descendantsOf", None),
        (EventsQuery(ancestors_of=3), "ancestorsOf", None),
        (EventsQuery(cursor="nonsense"), "cursor", "same query"),
        (EventsQuery(cursor="99-1"), "cursor", "same query"),
    ],
)
def test_what_cannot_match_is_refused_with_its_place(
    query: EventsQuery, path: str, word: str | None
) -> None:
    """The error has the JSON path, and a hint if there is a word that was meant."""
    with pytest.raises(Refused) as refused:
        Lines([event(1), event(2)]).page(query)

    assert refused.value.code is ErrorCode.INVALID_COMMAND
    assert refused.value.path == f"$.data.{path}"
    assert word is None or (refused.value.hint is not None and word in refused.value.hint)
