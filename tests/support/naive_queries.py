"""Random journals and queries, and a naive evaluation over all events in memory.

The evaluation shares no code with the server: plain dicts, plain lists, the meaning of each
operator as `docs/reference/wire.md` states it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from hypothesis import strategies as st

from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.queries import Condition, Order

Event = dict[str, Any]

# --- journals and queries -------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.0, 2**70])
    | st.sampled_from(["", "a", "ab", "b", "é", "1", "true"])
)
values = scalars | st.lists(scalars, max_size=2)
PATHS = ("type", "seq", "timestamp", "runId", "codonId", "causes", "data", "data.a", "data.b.c")
OPS = ("eq", "neq", "gt", "gte", "lt", "lte", "contains", "in", "between", "startsWith", "exists")


@st.composite
def journals(draw: st.DrawFn) -> list[Event]:
    """Return any journal: causes name earlier events and commands, times sometimes go back."""
    events: list[Event] = []
    for seq in range(1, draw(st.integers(0, 12)) + 1):
        event: Event = {
            "id": f"id-{seq}",
            "seq": seq,
            "timestamp": f"2025-01-04T12:00:0{draw(st.integers(0, 9))}.000Z",
            "type": draw(st.sampled_from(["codon.started", "info", "error"])),
            "data": draw(
                st.fixed_dictionaries(
                    {}, optional={"a": values, "b": st.fixed_dictionaries({"c": values})}
                )
            ),
        }
        if draw(st.booleans()):
            event["codonId"] = draw(st.sampled_from(["one", "two"]))

        causes = draw(st.lists(st.integers(1, max(1, seq - 1)) | st.just("c-1"), max_size=2))
        if causes and seq > 1:
            event["causes"] = causes

        events.append(event)

    return events


moments = st.integers(0, 9).map(lambda second: f"2025-01-04T13:00:0{second}+01:00")
bounds = st.none() | st.integers(0, 14) | moments


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    value: Any
    field, op = draw(st.sampled_from(PATHS)), draw(st.sampled_from(OPS))
    at_moment = field == "timestamp" and op not in ("contains", "startsWith", "exists")
    one: st.SearchStrategy[Any] = moments if at_moment else values
    orderly: st.SearchStrategy[Any] = (
        moments if at_moment else st.integers(-3, 9) | st.sampled_from(["", "a", "info"])
    )
    match op:
        case "in":
            value = draw(st.lists(one, max_size=3))
        case "between":
            value = draw(st.lists(orderly, min_size=2, max_size=2))
        case "gt" | "gte" | "lt" | "lte":
            value = draw(orderly)
        case "startsWith":
            value = draw(st.sampled_from(["", "a", "codon.", "2025-01-04T12:00:03"]))
        case "exists":
            value = draw(st.booleans())
        case _:
            value = draw(one)

    return Condition(field=field, op=op, value=value)


conditions = st.recursive(
    comparisons(),
    lambda inner: (
        st.builds(Condition, none_of=inner)
        | st.builds(Condition, all_of=st.lists(inner, max_size=3).map(tuple))
        | st.builds(Condition, any_of=st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=4,
)
orders = st.builds(Order, field=st.sampled_from(PATHS), direction=st.sampled_from(["asc", "desc"]))


def _rarely(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return None three times out of four: a query with every condition at once finds nothing."""
    return st.sampled_from([False, False, False, True]).flatmap(
        lambda is_there: values if is_there else st.none()
    )


@st.composite
def queries(draw: st.DrawFn, last: int) -> EventsQuery:
    seqs: st.SearchStrategy[Any] = st.integers(1, last) if last else st.none()
    wheres = conditions | st.lists(conditions, max_size=2).map(tuple)
    by_seq = st.builds(Order, field=st.just("seq"), direction=st.sampled_from(["asc", "desc"]))
    columns = st.lists(st.sampled_from(PATHS), min_size=1, unique=True).map(tuple)
    return EventsQuery(
        where=draw(st.none() | wheres),
        since=draw(_rarely(bounds)),
        until=draw(_rarely(bounds)),
        caused_by=draw(_rarely(seqs | st.sampled_from(["c-1", "c-2"]))),
        descendants_of=draw(_rarely(seqs | st.just("c-1"))),
        ancestors_of=draw(_rarely(seqs)),
        order_by=draw(
            st.none() | by_seq | orders | st.lists(orders, min_size=1, max_size=2).map(tuple)
        ),
        select=draw(_rarely(columns)),
    )


# --- naive evaluation -----------------------------------------------------------------------------


def naively(events: list[Event], query: EventsQuery) -> list[Event]:
    """Evaluate a query by checking every event in memory."""
    where = query.where if isinstance(query.where, tuple) else tuple(filter(None, [query.where]))
    led_to = related(events, query.descendants_of)
    leading = ancestry(events, query.ancestors_of)
    found = [
        event
        for event in events
        if all(holds(each, event) for each in where)
        and begins(event, query.since)
        and ends(event, query.until)
        and (query.caused_by is None or query.caused_by in event.get("causes", []))
        and (query.descendants_of is None or event["seq"] in led_to)
        and (query.ancestors_of is None or event["seq"] in leading)
    ]
    for order in reversed(listed(query.order_by)):
        found.sort(key=sort_key(order.field), reverse=order.direction == "desc")

    if query.select is None:
        return found

    return [{path: at(event, path) for path in query.select} for event in found]


def listed(orders: Order | tuple[Order, ...] | None) -> tuple[Order, ...]:
    return orders if isinstance(orders, tuple) else tuple(filter(None, [orders]))


def at(event: Any, path: str) -> Any:
    value = event
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None

    return [] if path == "causes" and value is None else value


def utc(moment: str) -> str:
    return moment.replace("T13", "T12").replace("+01:00", ".000Z")


def begins(event: Event, since: int | str | None) -> bool:
    if isinstance(since, int):
        return bool(event["seq"] > since)

    return since is None or event["timestamp"] >= utc(since)


def ends(event: Event, until: int | str | None) -> bool:
    if isinstance(until, int):
        return bool(event["seq"] <= until)

    return until is None or event["timestamp"] <= utc(until)


def related(events: list[Event], root: int | str | None) -> set[int]:
    """Add events to the set of the root's descendants until it is complete."""
    found: set[Any] = {root}
    while True:
        more = {e["seq"] for e in events if found & set(e.get("causes", []))} - found
        if not more:
            return found - {root}

        found |= more


def ancestry(events: list[Event], seq: int | None) -> set[int]:
    found: set[int] = set()
    waiting = {seq} if seq is not None else set()
    while waiting:
        child = waiting.pop()
        parents = {
            cause
            for event in events
            if event["seq"] == child
            for cause in event.get("causes", [])
            if isinstance(cause, int) and cause < event["seq"]
        }
        waiting |= parents - found
        found |= parents

    return found


def same(one: Any, two: Any) -> bool:
    """Compare as JSON, where true is not 1; lists are compared as their text."""
    if isinstance(one, list | dict) or isinstance(two, list | dict):
        return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)

    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)


def rank(value: Any) -> int:
    for number, kind in enumerate((type(None), bool, int | float, str, list, dict)):
        if isinstance(value, kind):
            return number

    raise AssertionError(f"{value!r} is no JSON")


def sort_key(field: str) -> Callable[[Event], Any]:
    return cmp_to_key(lambda one, two: compare(one, two, field))


def compare(one: Event, two: Event, field: str) -> int:
    a, b = at(one, field), at(two, field)
    if rank(a) != rank(b):
        return rank(a) - rank(b)

    if isinstance(a, list | dict):
        a, b = (
            json.dumps(x, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            for x in (a, b)
        )

    return 0 if a is None or same(a, b) or a == b else (-1 if a < b else 1)


def holds(condition: Condition, event: Event) -> bool:
    if condition.all_of is not None:
        return all(holds(each, event) for each in condition.all_of)

    if condition.any_of is not None:
        return any(holds(each, event) for each in condition.any_of)

    if condition.none_of is not None:
        return not holds(condition.none_of, event)

    assert condition.field is not None
    wanted = condition.value
    if condition.field == "timestamp" and condition.op not in ("contains", "startsWith", "exists"):
        wanted = [utc(w) for w in wanted] if isinstance(wanted, list) else utc(wanted)

    return compared(at(event, condition.field), condition.op, wanted)


def compared(value: Any, op: str | None, wanted: Any) -> bool:
    comparable = rank(value) in (2, 3)
    match op:
        case "eq":
            return same(value, wanted)
        case "neq":
            return not same(value, wanted)
        case "gt":
            return comparable and rank(value) == rank(wanted) and value > wanted
        case "gte":
            return comparable and rank(value) == rank(wanted) and value >= wanted
        case "lt":
            return comparable and rank(value) == rank(wanted) and value < wanted
        case "lte":
            return comparable and rank(value) == rank(wanted) and value <= wanted
        case "between":
            return compared(value, "gte", wanted[0]) and compared(value, "lte", wanted[1])
        case "in":
            return any(same(value, each) for each in wanted)
        case "contains" if isinstance(value, str):
            return isinstance(wanted, str) and wanted in value
        case "contains":
            return isinstance(value, list) and any(same(each, wanted) for each in value)
        case "startsWith":
            return isinstance(value, str) and value.startswith(wanted)
        case _:
            return (value is not None) is wanted
