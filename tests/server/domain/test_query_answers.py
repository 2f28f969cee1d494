"""Answers to queries equal those of a naive scan of all events, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.queries import Condition, Order, Reduction
from hankweave_server.domain.query import aggregate, evaluate
from hankweave_server.domain.query.evaluate import answer, everything
from hankweave_server.domain.query.parse import checked
from support.naive_queries import Event, at, compare, journals, naively, queries, same

# --- The journal under test -----------------------------------------------------------------------


class Lines:
    """A journal in memory that is read like the ledger's."""

    def __init__(self, events: list[Event]) -> None:
        self.lines = [msgspec.json.encode(event) for event in events]
        self.most_at_once = 0

    def read(self, since: int, limit: int) -> list[bytes]:
        self.most_at_once = max(self.most_at_once, limit)
        return self.lines[since : since + limit]

    @property
    def last(self) -> int:
        return len(self.lines)

    def page(self, query: EventsQuery) -> tuple[list[Any], str | None]:
        page = answer(checked(query), self.read, self.last)
        items = page.rows if page.events is None else page.events
        assert items is not None
        return [msgspec.json.decode(item) for item in items], page.cursor

    def pages(self, query: EventsQuery) -> Iterator[list[Any]]:
        cursor: str | None = None
        while True:
            items, cursor = self.page(msgspec.structs.replace(query, cursor=cursor))
            yield items
            if cursor is None:
                return


@settings(max_examples=400)
@given(data=st.data())
def test_an_answer_is_what_a_naive_look_at_all_events_gives(data: st.DataObject) -> None:
    """Conditions, window, causes, order and columns select the same events in the same order."""
    events = data.draw(journals())
    query = data.draw(queries(len(events)))
    journal = Lines(events)
    found, cursor = journal.page(query)
    assert (found, cursor) == (naively(events, query), None)
    streamed = everything(checked(query), journal.read, journal.last)
    assert [msgspec.json.decode(item) for item in streamed] == found


def test_events_of_other_types_are_not_decoded() -> None:
    """A condition on the type is decided by the line, so a long journal is searched quickly."""
    lines = [b'{"type":"a","seq":1,"data":{}}', b"not decoded", b'{"type":"b.c","seq":3,"data":{}}']
    types = Condition(field="type", op="in", value=["a", "b.c"])
    is_in_data = Condition(field="data.x", op="exists", value=False)
    some = Condition(any_of=(types, Condition(field="type", op="eq", value="d")))
    for where in (types, (is_in_data, types), Condition(all_of=(some, is_in_data))):
        query = checked(EventsQuery(where=where))
        page = answer(query, lambda since, limit: lines[since : since + limit], len(lines))
        assert [bytes(event) for event in page.events or ()] == [lines[0], lines[2]]


@settings(max_examples=200)
@given(data=st.data(), limit=st.integers(1, 4))
def test_pages_together_are_the_whole_answer(data: st.DataObject, limit: int) -> None:
    """At any page size no event is lost or repeated, even if events are added in between."""
    events = data.draw(journals())
    query = data.draw(queries(len(events)))
    wanted = naively(events, query)
    journal = Lines(events)
    told: list[Any] = []
    for page in journal.pages(msgspec.structs.replace(query, limit=limit)):
        assert len(page) <= limit
        assert len(told) <= len(wanted)
        told += page
        later = {"seq": journal.last + 1, "id": "x", "timestamp": "2025-01-04T12:00:05.000Z"}
        journal.lines.append(msgspec.json.encode({**later, "type": "info", "data": {"a": 1}}))

    assert told == wanted


@settings(max_examples=100)
@given(data=st.data(), at_once=st.integers(1, 4))
def test_how_much_is_read_at_once_changes_no_answer(data: st.DataObject, at_once: int) -> None:
    """The journal is read in bounded chunks, in either direction, with the same answer."""
    events = data.draw(journals())
    query = data.draw(queries(len(events)))
    journal = Lines(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "LINES_AT_ONCE", at_once)
        found, _ = journal.page(query)

    assert found == naively(events, query)
    assert journal.most_at_once <= at_once


# --- Aggregates -----------------------------------------------------------------------------------

AGGREGATES = {
    "count": len,
    "sum": lambda values: sum(numbers(values)),
    "avg": lambda values: sum(numbers(values)) / len(numbers(values)) if numbers(values) else None,
    "min": lambda values: min(values, key=sort_key, default=None),
    "max": lambda values: max(values, key=sort_key, default=None),
    "collect": list,
}


def numbers(values: list[Any]) -> list[Any]:
    return [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


sort_key = cmp_to_key(lambda one, two: compare({"data": one}, {"data": two}, "data"))


@settings(max_examples=300)
@given(
    events=journals(),
    kind=st.sampled_from(sorted(AGGREGATES)),
    field=st.sampled_from(["seq", "data.a", "data.b.c", "codonId"]),
    groups=st.lists(st.sampled_from(["type", "codonId", "data.a"]), max_size=2, unique=True),
)
def test_an_aggregate_is_that_of_each_groups_values(
    events: list[Event], kind: str, field: str, groups: list[str]
) -> None:
    """Every aggregate, with and without groups, equals a naive fold."""
    query = EventsQuery(reduce=Reduction(type=kind, field=field, group_by=tuple(groups)))
    rows, _ = Lines(events).page(query)
    naive: list[tuple[list[Any], list[Any]]] = [] if groups else [([], [])]
    for event in events:
        names = [at(event, group) for group in groups]
        group = next(
            (g for g in naive if all(same(a, b) for a, b in zip(g[0], names, strict=True))), None
        )
        if group is None:
            naive.append(group := (names, []))

        if at(event, field) is not None:
            group[1].append(at(event, field))

    naive.sort(key=lambda group: [sort_key(name) for name in group[0]])
    assert [list(row) for row in rows] == [[*groups, kind]] * len(naive)
    for row, (names, found) in zip(rows, naive, strict=True):
        assert [row[group] for group in groups] == names
        wanted = AGGREGATES[kind](found)
        # Floats may be added in any order.
        assert row[kind] == (pytest.approx(wanted) if kind in ("sum", "avg") else wanted)


def test_a_count_without_a_field_counts_all_events_even_none() -> None:
    """A count has one row without groups, and no row for groups of nothing."""
    counted = EventsQuery(reduce=Reduction(type="count"))
    assert Lines([]).page(counted) == ([{"count": 0}], None)
    grouped = EventsQuery(reduce=Reduction(type="count", group_by=("type",)))
    assert Lines([]).page(grouped) == ([], None)


def test_rows_are_ordered_and_paged_like_events() -> None:
    """`orderBy` names a column; equal rows keep the order of their groups."""
    journal = Lines([event(seq, f"t{seq % 3}") for seq in range(1, 9)])
    query = EventsQuery(
        reduce=Reduction(type="count", group_by=("type",)),
        order_by=Order(field="count", direction="desc"),
        limit=1,
    )
    assert [page[0] for page in journal.pages(query)] == [
        {"type": "t1", "count": 3},
        {"type": "t2", "count": 3},
        {"type": "t0", "count": 2},
    ]


@pytest.mark.parametrize("kind", ["sum", "avg"])
def test_numbers_beyond_all_floats_end_no_server(kind: str) -> None:
    """A number of 400 digits from an agent gives an answer, not an error."""
    journal = Lines([{**event(1), "data": {"a": 0.5}}])
    journal.lines.append(
        journal.lines[0].replace(b'"seq":1', b'"seq":2').replace(b"0.5", b"9" * 400)
    )
    ((row,), _) = journal.page(EventsQuery(reduce=Reduction(type=kind, field="data.a")))
    assert row[kind] > 10**300


# --- Limits ---------------------------------------------------------------------------------------


def event(seq: int, kind: str = "info", **data: Any) -> Event:
    moment = "2025-01-04T12:00:00.000Z"
    return {"id": f"id-{seq}", "seq": seq, "timestamp": moment, "type": kind, "data": data}


@pytest.mark.parametrize(
    ("limit", "reduction", "path"),
    [
        ("GROUP_LIMIT", Reduction(type="count", group_by=("seq",)), "$.data.reduce.groupBy"),
        ("COLLECT_LIMIT", Reduction(type="collect", field="seq"), "$.data.reduce.type"),
    ],
)
def test_an_answer_that_would_be_too_large_is_refused(
    limit: str, reduction: Reduction, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer at the limit is returned; one more is RESULT_TOO_LARGE with a hint."""
    monkeypatch.setattr(aggregate, limit, 5)
    journal = Lines([event(seq) for seq in range(1, 7)])
    with pytest.raises(Refused) as refused:
        journal.page(EventsQuery(reduce=reduction))

    assert (refused.value.code, refused.value.path) == (ErrorCode.RESULT_TOO_LARGE, path)
    assert refused.value.hint
    journal.page(EventsQuery(reduce=reduction, until=5))


def test_a_row_that_no_client_could_take_is_refused() -> None:
    """`collect` of large texts is RESULT_TOO_LARGE with a hint."""
    journal = Lines([event(seq, text="x" * 1_000_000) for seq in range(1, 6)])
    with pytest.raises(Refused) as refused:
        journal.page(EventsQuery(reduce=Reduction(type="collect", field="data.text")))

    assert refused.value.code is ErrorCode.RESULT_TOO_LARGE
    journal.page(EventsQuery(reduce=Reduction(type="collect", field="data.text"), until=4))


def test_a_page_ends_before_it_grows_too_large() -> None:
    """Pages are limited in bytes and in count; an event larger than a page is returned alone."""
    sizes = [400_000, 400_000, 400_000, 3_000_000, 10]
    journal = Lines([event(seq, text="x" * size) for seq, size in enumerate(sizes, start=1)])
    pages = [[item["seq"] for item in page] for page in journal.pages(EventsQuery())]
    assert pages == [[1, 2], [3], [4], [5]]


def test_the_newest_events_are_found_from_the_journals_end() -> None:
    """A query for the last ten events does not read a long journal from its start."""
    journal = Lines([event(seq) for seq in range(1, 2_001)])
    begins: list[int] = []

    def read(since: int, limit: int) -> list[bytes]:
        begins.append(since)
        return journal.read(since, limit)

    query = EventsQuery(order_by=Order(field="seq", direction="desc"), limit=10)
    page = answer(checked(query), read, journal.last)
    assert [msgspec.json.decode(e)["seq"] for e in page.events or ()] == list(range(2000, 1990, -1))
    assert min(begins) > 1_500


def a_chain() -> Lines:
    """Return events of which every third causes the next third; the others have no cause."""
    return Lines(
        [
            event(seq) | ({"causes": [seq - 3 or "c-1"]} if seq % 3 == 0 else {})
            for seq in range(1, 16)
        ]
    )


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("field", ["seq", "data"])
@pytest.mark.parametrize(("root", "seqs"), [(3, [6, 9, 12, 15]), ("c-1", [3, 6, 9, 12, 15])])
def test_descendants_of_any_depth_are_found_on_every_page(
    direction: str, field: str, root: int | str, seqs: list[int]
) -> None:
    """Causes are followed from their root, wherever a page starts, in either order."""
    query = EventsQuery(
        descendants_of=root, order_by=Order(field=field, direction=direction), limit=1
    )
    found = [page[0]["seq"] for page in a_chain().pages(query)]
    assert found == (seqs[::-1] if (field, direction) == ("seq", "desc") else seqs)


def test_ancestors_of_any_depth_are_found() -> None:
    """Causes are followed from a chain's last event to its first, whatever the page's window."""
    query = EventsQuery(ancestors_of=15, limit=1)
    assert [page[0]["seq"] for page in a_chain().pages(query)] == [3, 6, 9, 12]


@pytest.mark.parametrize("key", ["caused_by", "descendants_of", "ancestors_of"])
def test_a_cause_that_is_not_in_the_journal_is_refused(key: str) -> None:
    """A seq beyond the journal's end is refused with the path of the field."""
    with pytest.raises(Refused) as refused:
        Lines([event(1)]).page(EventsQuery(**{key: 2}))

    assert (
        refused.value.path
        == "$.data."
        + {
            "caused_by": "causedBy",
            "descendants_of": "descendantsOf",
            "ancestors_of": "ancestorsOf",
        }[key]
    )


def test_a_cursor_of_another_query_or_journal_is_refused() -> None:
    """A cursor belongs to one query, in which only the limit may differ."""
    journal = Lines([event(seq) for seq in range(1, 5)])
    _, cursor = journal.page(EventsQuery(limit=1))
    assert cursor is not None
    assert journal.page(EventsQuery(limit=3, cursor=cursor))[0][0]["seq"] == 2
    digest = cursor.rsplit("-", 1)[1]
    for query in (
        EventsQuery(since=1, cursor=cursor),
        EventsQuery(cursor="nonsense"),
        EventsQuery(cursor=f"99-1-{digest}"),
    ):
        with pytest.raises(Refused) as refused:
            journal.page(query)

        assert refused.value.path == "$.data.cursor"
