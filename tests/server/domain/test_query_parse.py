"""Checks of queries: each error has its path and suggests the right word."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from hankweave_protocol import codec
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_server.domain.query.evaluate import answer
from hankweave_server.domain.query.parse import OPERATORS, checked
from support.outcomes import outcome
from support.protocol_values import values_of

EVENT = {
    "id": "6c9b2a54",
    "seq": 1,
    "timestamp": "2025-01-04T12:00:00.000Z",
    "type": "codon.completed",
    "data": {
        "codonId": "observe",
        "cost": 0.25,
        "success": True,
        "number": 1,
        "nothing": None,
        "files": [{"path": "src/a.py"}, {"path": "b.md"}],
        "tags": ["x", 1, True],
    },
    "runId": "1736000000000-abc123-def456",
    "causes": ["c-1"],
}


def decoded(data: Any) -> EventsQuery:
    """Return the query as decoded from the wire."""
    frame = json.dumps({"id": "q", "type": "events.query", "data": data})
    command = codec.decode_command(frame).data
    assert isinstance(command, EventsQuery)
    return command


def finds(where: Any) -> bool:
    """Return True if the query finds the one event of a journal."""
    lines = [msgspec.json.encode(EVENT)]
    query = checked(decoded({"where": where}))
    return bool(answer(query, lambda since, limit: lines[since : since + limit], 1).events)


def a(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


@pytest.mark.parametrize(
    ("field", "op", "yes", "no"),
    [
        ("type", "eq", "codon.completed", "codon"),
        ("data.number", "eq", 1.0, True),
        ("data.success", "eq", True, 1),
        ("data.nothing", "eq", None, 0),
        ("data.absent", "eq", None, ""),
        ("codonId", "eq", None, "observe"),
        ("data.tags", "eq", ["x", 1, True], ["x", 1]),
        ("data.files.0", "eq", {"path": "src/a.py"}, {}),
        ("data.absent", "neq", 1, None),
        ("data.number", "neq", "1", 1),
        ("data.cost", "gt", 0.2, 0.25),
        ("data.cost", "gte", 0.25, "0"),
        ("data.cost", "lt", 1, 0.25),
        ("data.cost", "lte", 0.25, 0),
        ("type", "gt", "codon", "codon.completed"),
        ("type", "lt", "codon.d", 9),
        ("seq", "between", [1, 1], [2, 9]),
        ("type", "between", ["codon", "cp"], ["d", "e"]),
        ("type", "contains", "complet", "Complet"),
        ("causes", "contains", "c-1", "c-"),
        ("data.tags", "contains", 1.0, "1"),
        ("data.tags", "contains", True, False),
        ("data.files.1.path", "contains", ".md", ".py"),
        ("data.number", "in", ["1", 1], ["1", True]),
        ("data.absent", "in", [None], []),
        ("type", "containsIgnoringCase", "COMPLET", "complett"),
        ("type", "startsWith", "codon.", "completed"),
        ("data.nothing", "exists", False, True),
        ("data.files.2", "exists", False, True),
        ("data.files.one", "exists", False, True),
        ("data.files.0.path", "exists", True, False),
        ("data.cost.deeper", "exists", False, True),
        ("timestamp", "eq", "2025-01-04T13:00:00+01:00", "2025-01-04T12:00:01Z"),
        ("timestamp", "gte", "2025-01-04T12:00:00Z", "2025-01-04T12:00:00.001Z"),
        (
            "timestamp",
            "between",
            ["2025-01-04T11:00:00Z", "2025-01-04T12:00:00Z"],
            ["2025-01-04T12:00:01Z", "2025-01-05T00:00:00Z"],
        ),
        ("timestamp", "startsWith", "2025-01-04T12", "2025-01-05"),
    ],
)
def test_an_operator_means_what_the_page_says(field: str, op: str, yes: Any, no: Any) -> None:
    """Each operator is checked with a value that matches and one that does not."""
    assert finds(a(field, op, yes))
    assert not finds(a(field, op, no))
    assert finds({"not": a(field, op, no)})


@pytest.mark.parametrize("op", ["gt", "gte", "lt", "lte"])
@pytest.mark.parametrize("field", ["data.success", "data.tags", "data.nothing", "type"])
def test_what_has_no_order_with_the_value_is_never_beyond_it(field: str, op: str) -> None:
    """Numbers compare only with numbers; `true` is not a number, nor is a text."""
    assert not finds(a(field, op, 0))


def test_codebolts_name_of_op_is_understood() -> None:
    """Codebolt's queries use the key `operator`."""
    assert finds([{"field": "seq", "operator": "eq", "value": 1}])
    assert not finds([{"field": "seq", "operator": "eq", "value": 2}])


def test_lists_of_conditions_nest() -> None:
    """A list is an `and`; an empty list matches everything, an empty `or` nothing."""
    yes, no = a("seq", "eq", 1), a("seq", "eq", 2)
    assert finds([])
    assert finds([yes, {"or": [no, yes]}])
    assert not finds([yes, no])
    assert not finds({"and": [yes, {"or": []}]})
    assert finds({"and": []})
    assert finds({"not": {"and": [yes, {"not": yes}]}})


DEEP: Any = a("seq", "eq", 1)
for _ in range(16):
    DEEP = {"not": DEEP}

BAD: dict[str, tuple[dict[str, Any], str, str | None]] = {
    # Data, path, and a word of the hint.
    "an unknown operator": ({"where": [a("seq", "gte.", 1)]}, "where[0].op", "'gte'"),
    "an unknown operator, deep down": (
        {"where": {"or": [a("seq", "eq", 1), {"not": a("seq", "contians", 1)}]}},
        "where.or[1].not.op",
        "'contains'",
    ),
    "an unknown operator of Codebolt": (
        {"where": {"field": "seq", "operator": "equals", "value": 1}},
        "where.operator",
        "eq",
    ),
    "an unknown field": ({"where": a("tpye", "eq", 1)}, "where.field", "'type'"),
    "another's field": ({"where": a("payload.x", "eq", 1)}, "where.field", "data.codonId"),
    "a field with no name": ({"where": a("data..x", "eq", 1)}, "where.field", None),
    "an endless field": ({"where": a("data." + "x" * 200, "eq", 1)}, "where.field", None),
    "a part of a text": ({"where": a("type.x", "eq", 1)}, "where.field", None),
    "an unknown key": ({"where": [{"feild": "seq"}]}, "where[0]", "'field'"),
    "a field of events as a key": ({"where": {"type": "info"}}, "where", '"field": "type"'),
    "a field of the data as a key": (
        {"where": [{"and": [{"data.path": "a"}]}]},
        "where[0].and[0]",
        '"field": "data.path"',
    ),
    "a key that is no field either": ({"where": {"colour": 1}}, "where", '"field": "data.codonId"'),
    "an unknown key of the query": ({"wehre": []}, "", "'where'"),
    "no operator": ({"where": {"field": "seq", "value": 1}}, "where", "eq"),
    "two operators": (
        {"where": {"field": "seq", "op": "eq", "operator": "eq", "value": 1}},
        "where",
        "eq",
    ),
    "no value": ({"where": {"field": "seq", "op": "eq"}}, "where", None),
    "no field": ({"where": {"op": "eq", "value": 1}}, "where", None),
    "nothing": ({"where": {}}, "where", "field"),
    "two forms in one": ({"where": {"and": [], "or": []}}, "where", "field"),
    "a value beside not": ({"where": {"not": {"and": []}, "value": 1}}, "where", "field"),
    "a condition that is a text": ({"where": "seq=1"}, "where", None),
    "too deep": ({"where": DEEP}, "where" + ".not" * 16, None),
    "too many": ({"where": [a("seq", "eq", 1)] * 101}, "where[100]", None),
    "an order of lists": ({"where": a("seq", "gt", [1])}, "where.value", None),
    "an order of truth": ({"where": a("seq", "lte", True)}, "where.value", None),
    "one bound": ({"where": a("seq", "between", [1])}, "where.value", None),
    "a bound that is none": ({"where": a("seq", "between", [1, {}])}, "where.value[1]", None),
    "in a text": ({"where": a("seq", "in", "abc")}, "where.value", None),
    "in too many": ({"where": a("seq", "in", [1] * 1001)}, "where.value", None),
    "a part that is a number": (
        {"where": a("type", "containsIgnoringCase", 1)},
        "where.value",
        None,
    ),
    "a beginning that is a number": ({"where": a("type", "startsWith", 1)}, "where.value", None),
    "an exists of a text": ({"where": a("type", "exists", "yes")}, "where.value", None),
    "a moment that is none": ({"where": a("timestamp", "gt", "noon")}, "where.value", "2025"),
    "a moment in a list": (
        {"where": a("timestamp", "in", ["2025-01-04T12:00:00Z", 5])},
        "where.value[1]",
        "2025",
    ),
    "since that is no moment": ({"since": "yesterday"}, "since", "2025"),
    "until without a zone": ({"until": "2025-01-04T12:00:00"}, "until", "2025"),
    "a seq below zero": ({"since": -1}, "since", None),
    "a cause below one": ({"causedBy": 0}, "causedBy", None),
    "ancestors of a command": ({"ancestorsOf": "c-1"}, "ancestorsOf", None),
    "an unknown column": ({"select": ["seq", "dataa"]}, "select[1]", "'data'"),
    "no column": ({"select": []}, "select", None),
    "a column twice": ({"select": ["seq", "seq"]}, "select", None),
    "an unknown direction": (
        {"orderBy": [{"field": "seq"}, {"field": "type", "direction": "down"}]},
        "orderBy[1].direction",
        "desc",
    ),
    "an order by nothing": ({"orderBy": {"field": "cost"}}, "orderBy.field", "type"),
    "an order with an unknown key": ({"orderBy": {"field": "seq", "dir": "asc"}}, "orderBy", None),
    "an unknown aggregate": (
        {"reduce": {"type": "average", "field": "seq"}},
        "reduce.type",
        "avg",
    ),
    "an aggregate of nothing": ({"reduce": {"type": "sum"}}, "reduce", None),
    "an aggregate of an unknown field": (
        {"reduce": {"type": "sum", "field": "cost"}},
        "reduce.field",
        "Use one of",
    ),
    "a group by an unknown field": (
        {"reduce": {"type": "count", "groupBy": ["runID"]}},
        "reduce.groupBy[0]",
        "'runId'",
    ),
    "an order by no column": (
        {"reduce": {"type": "count", "groupBy": ["type"]}, "orderBy": {"field": "seq"}},
        "orderBy.field",
        "count",
    ),
    "both columns and aggregates": (
        {"reduce": {"type": "count"}, "select": ["seq"]},
        "select",
        None,
    ),
    "no limit at all": ({"limit": 0}, "limit", None),
    "too large a limit": ({"limit": 1001}, "limit", None),
    "a cursor of nobody": ({"cursor": "5"}, "cursor", "same query"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_query_is_refused_with_its_path_and_the_right_word(what: str) -> None:
    """The error is INVALID_COMMAND with a JSON path, and a hint if a similar word exists."""
    data, path, word = BAD[what]
    with pytest.raises(Refused) as refused:
        checked(decoded(data))

    error = refused.value
    where = "$.data" + (f".{path}" if path else "")
    assert (error.code, error.path) == (ErrorCode.INVALID_COMMAND, where)
    assert error.message
    assert word is None or word in (error.hint or "")


def test_a_long_text_of_a_client_is_not_repeated_to_it() -> None:
    """An operator of one mebibyte is refused with a short message."""
    with pytest.raises(Refused) as refused:
        checked(decoded({"where": a("seq", "x" * 1_000_000, 1)}))

    assert len(refused.value.message) < 200


@settings(max_examples=300)
@given(command=values_of(EventsQuery))
def test_any_query_of_the_right_shape_is_checked_or_refused(command: EventsQuery) -> None:
    """Any content of the right shape is accepted or raises Refused."""
    found = outcome(Refused, checked, command)
    assert not isinstance(found, Refused) or (found.path or "").startswith("$.data")


def test_the_operators_are_codebolts_nine_and_two() -> None:
    """All of Codebolt's nine operators are there and two more; none has a cost that depends on its
    text, as a regular expression has."""
    nine = {"eq", "neq", "gt", "gte", "lt", "lte", "contains", "in", "between"}
    assert set(OPERATORS) == nine | {"startsWith", "exists", "containsIgnoringCase"}
