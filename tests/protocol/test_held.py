"""Claims about held.toml: it names an existing test for each part of the protocol."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec.inspect
import pytest

from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.hank import Hank
from hankweave_protocol.sentinels import SentinelConfig
from support.features import whole_wire
from support.named_tests import TOP, faults_of, marks_of_tests

HELD = tomllib.loads(Path(__file__).with_name("held.toml").read_text())


def faults(held: Mapping[str, Any]) -> list[str]:
    """Return the faults in the tables, one sentence each."""
    named = {shape: set(tests) for shape, tests in held["fields"].items()}
    tables: dict[str, tuple[set[str], set[str]]] = {
        "fields": (
            {f"{shape}.{field}" for shape, field in fields()},
            {f"{shape}.{field}" for shape, found in named.items() for field in found},
        ),
        "events": (set(EVENTS.names), set(held["events"])),
    }
    found = []
    for title, (wanted, there) in tables.items():
        found += [f"{title}: {what} is missing" for what in wanted - there]
        found += [f"{title}: there is no {what}" for what in there - wanted]

    for table in (*held["fields"].values(), held["events"], held["defects"]):
        found += [
            f"{what}: {fault}" for what, test in table.items() for fault in faults_of(f"`{test}`")
        ]

    return found


def fields() -> Iterator[tuple[str, str]]:
    """Yield every field of a hank or a sentinel, with the shape that it belongs to."""
    shapes: dict[str, msgspec.inspect.StructType] = {}
    for root in (Hank, SentinelConfig):
        _collect(msgspec.inspect.type_info(root), shapes)

    for name, shape in shapes.items():
        if shape.tag_field is not None:
            yield name, shape.tag_field

        for field in shape.fields:
            yield name, field.encode_name


def _collect(kind: object, shapes: dict[str, msgspec.inspect.StructType]) -> None:
    match kind:
        case msgspec.inspect.StructType(cls=cls):
            if cls.__name__ not in shapes:
                shapes[cls.__name__] = kind
                for field in kind.fields:
                    _collect(field.type, shapes)
        case msgspec.inspect.UnionType(types=members):
            for member in members:
                _collect(member, shapes)
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.Metadata(type=item):
            _collect(item, shapes)
        case _:
            pass


@cache
def made_by_the_server() -> frozenset[str]:
    """Return the names of all classes and functions that the server calls."""
    names = set()
    for file in (TOP / "server" / "hankweave_server").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                    names.add(name)

    return frozenset(names)


@whole_wire
def test_every_field_and_event_has_its_test() -> None:
    """Each has exactly one entry, there are no other entries, and each names an existing test."""
    assert faults(HELD) == []
    assert HELD["defects"]


@whole_wire
def test_every_command_has_its_test() -> None:
    """A test is marked with each command, and with nothing else."""
    marked = [name for marks in marks_of_tests("pytest.mark.command") for name in marks]
    assert sorted(set(marked)) == sorted(COMMANDS.names)


def test_the_fields_are_those_of_hanks_and_sentinels() -> None:
    """The walk reaches rigs, budgets, loops, settings of sentinels, and sentinels themselves."""
    reached = set(fields())
    assert {
        ("Hank", "$schema"),
        ("CopySpec", "from"),
        ("RetryConfig", "delayMs"),
        ("ContainerBudget", "shares"),
        ("IterationLimit", "limit"),
        ("ImmediateExecution", "strategy"),
        ("SentinelReports", "errors"),
        ("Condition", "value"),
        ("MaxTokens", "maxTokens"),
    } <= reached
    assert len(reached) > 150


@whole_wire
def test_the_server_sends_all_events_but_reserved_ones() -> None:
    """`Reserved:` marks exactly those events that the server's code never creates."""
    reserved = {
        name for name, member in EVENTS.members.items() if "Reserved:" in str(member.__doc__)
    }
    made = made_by_the_server()
    unsent = {name for name, member in EVENTS.members.items() if member.__name__ not in made}
    assert reserved == unsent


@pytest.mark.parametrize(
    ("table", "entry", "instead", "fault"),
    [
        ("events", "pong", {}, "events: pong is missing"),
        ("events", "pong", {"pogn": "x"}, "events: there is no pogn"),
        ("events", "pong", {"pong": "by hand"}, "by hand` names no test"),
        ("events", "pong", {"pong": "tests/protocol/none.py::test_x"}, "there is no tests/"),
        ("events", "pong", {"pong": f"{HELD['events']['pong']}_not"}, "there is no tests/"),
    ],
)
def test_a_wrong_table_is_found(
    table: str, entry: str, instead: Mapping[str, str], fault: str
) -> None:
    """These tests can fail: each wrong entry is reported."""
    rest = {what: test for what, test in HELD[table].items() if what != entry}
    assert any(fault in each for each in faults({**HELD, table: {**rest, **instead}}))


@whole_wire
def test_a_field_without_its_test_is_found() -> None:
    """These tests can fail: a field that has no entry is reported."""
    codon = {field: test for field, test in HELD["fields"]["Codon"].items() if field != "env"}
    held = {**HELD, "fields": {**HELD["fields"], "Codon": codon}}
    assert faults(held) == ["fields: Codon.env is missing"]
