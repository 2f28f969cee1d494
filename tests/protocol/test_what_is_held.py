"""Claims about protocol/README.md, "What is held by which test": complete, with real tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import msgspec.inspect
import pytest

from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.hank import Hank
from hankweave_protocol.sentinels import SentinelConfig
from support.named_tests import TOP, faults_of

PAGE = (TOP / "protocol" / "README.md").read_text()
SECTION = "## What is held by which test"

_ROW = re.compile(r"^\| (?!-|of \||event \||command \||where \|)(?P<cells>.+) \|$", re.MULTILINE)


def faults(page: str) -> list[str]:
    """Return the faults in the section of a page, one sentence each."""
    section = page.partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    tables = {
        "Fields": {f"{shape} | `{field}`" for shape, field in fields()},
        "Events": {f"`{name}`" for name in EVENTS.names},
        "Commands": {f"`{name}`" for name in COMMANDS.names},
    }
    found = []
    for title, wanted in tables.items():
        named = [what for what, _ in rows(section, title)]
        found += [f"{title}: {what} is missing" for what in wanted.difference(named)]
        found += [f"{title}: there is no {what}" for what in set(named) - wanted]
        found += [f"{title}: {what} is there twice" for what in set(named) if named.count(what) > 1]

    for title in (*tables, "Defects of Hankweave that are not repeated"):
        found += [f"{title}: no test" for _ in range(not rows(section, title))]
        found += [
            f"{what}: {fault}" for what, test in rows(section, title) for fault in faults_of(test)
        ]

    return found


def rows(section: str, title: str) -> list[tuple[str, str]]:
    """Return the rows of a table: the subject, and the cell with the test."""
    table = section.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
    cells = [row["cells"].rpartition(" | ") for row in _ROW.finditer(table)]
    return [(what, test) for what, _, test in cells]


def fields() -> Iterator[tuple[str, str]]:
    """Return every field of a hank or a sentinel, with the shape that it belongs to."""
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


def test_every_field_event_and_command_has_its_test() -> None:
    """Each has exactly one row, there are no other rows, and each names an existing test."""
    assert faults(PAGE) == []


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


def test_what_is_reserved_is_sent_by_nobody_and_all_else_by_somebody() -> None:
    """*reserved* marks exactly those events that the server's code never creates."""
    section = PAGE.partition("\n## Events\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([\w.]+)` \|.*\*reserved\*.*\|$", section, re.MULTILINE)
    made = made_by_the_server()
    unsent = {name for name, member in EVENTS.members.items() if member.__name__ not in made}
    assert set(told) == unsent


@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        (r"\| `codon\.next` \| `tests.*\n", "", "Commands: `codon.next` is missing"),
        (r"\| `codon\.next` \| (`tests.*\n)", r"| `codon.nxt` | \1", "there is no `codon.nxt`"),
        (r"(\| `pong` \| `tests.*\n)", r"\1\1", "Events: `pong` is there twice"),
        (r"\| Codon \| `env` \| .*\n", "", "Fields: Codon | `env` is missing"),
        (r"(\| Codon \| `env` \| ).*\n", r"\1by hand |\n", "by hand names no test"),
        (r"(\| `pong` \| `tests/\w+/)", r"\1test_none.py::test_x` |\n", "there is no tests/"),
        (r"(\| `pong` \| `tests.*::test_)", r"\1not_", "there is no tests/"),
    ],
)
def test_a_wrong_table_is_found(line: str, instead: str, fault: str) -> None:
    """These tests can fail: each wrong row is reported."""
    before, title, section = PAGE.partition(f"\n{SECTION}\n")
    wrong, count = re.subn(line, instead, section, count=1)
    assert count == 1
    assert any(fault in each for each in faults(before + title + wrong))
