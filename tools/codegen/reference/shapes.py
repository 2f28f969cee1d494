"""Tables of the fields of shapes, and the page on which each shape is described."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from codegen import catalogue
from codegen.reference.declared import required
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.schema import Schema, hank_schema
from hankweave_protocol.transitions import TRANSITIONS

_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A row of a table."""

    name: str
    kind: str
    default: str
    text: str
    example: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape, with its fields or, if it is a union, its alternatives."""

    name: str
    text: str
    fields: list[Field]
    alternatives: str


class Shapes:
    """The shapes of one page, of which each is described on one page only."""

    def __init__(self, page: str, schemas: Mapping[str, Schema], homes: Mapping[str, str]) -> None:
        self._page = page
        self._schemas = schemas
        self._homes = homes

    def fields(self, name: str) -> list[Field]:
        """Return the fields of a shape, required ones first as in the source."""
        schema = self._schemas[name]
        needed = schema.get("required", [])
        return [
            self._field(f"{name}.{field}", field, part, is_required=field in needed)
            for field, part in schema.get("properties", {}).items()
        ]

    def link(self, shape: type | None) -> str:
        """Return the name of a shape as a link; `null` for None."""
        return "null" if shape is None else self._named(shape.__name__)

    def own(self, *roots: str) -> list[Shape]:
        """Return the shapes that are described on this page: by name, or by the roots."""
        names = _reachable(roots, self._schemas) if roots else sorted(self._homes)
        return [self._shape(name) for name in names if self._homes.get(name) == self._page]

    def _shape(self, name: str) -> Shape:
        schema = self._schemas[name]
        if schema.keys() & {"anyOf", "oneOf", "enum"}:
            return Shape(name, schema.get("description", ""), [], self._kind(schema))

        return Shape(name, required(schema.get("description"), name), self.fields(name), "")

    def _field(self, place: str, name: str, schema: Schema, *, is_required: bool) -> Field:
        default = "required" if is_required else ""
        if "default" in schema and schema["default"] not in ({}, []):
            default = _code(schema["default"])

        return Field(
            name=name,
            kind=self._kind(schema, may_be_null=is_required),
            default=default,
            text=required(schema.get("description"), place),
            example="".join(map(_code, schema.get("examples", [])[:1])),
        )

    def _kind(self, schema: Schema, *, may_be_null: bool = True) -> str:
        match schema:
            case {"$ref": _}:
                return self._named(catalogue.shape_name(schema))
            case {"allOf": [part]}:
                return self._kind(part)
            case {"properties": {"type": {"const": value}, "data": dict(data)}}:
                return f"`{value}`: {self._kind(data)}"
            case {"const": value}:
                return f"`{value}`"
            case {"enum": list(words)}:
                return ", ".join(f"`{word}`" for word in words if word is not None)
            case {"anyOf": list(options)} | {"oneOf": list(options)}:
                kinds = [self._kind(option) for option in options]
                return " or ".join(kind for kind in kinds if may_be_null or kind != "null")
            case {"type": "array", "prefixItems": _}:
                return "list"
            case {"type": "array", "items": dict(item)}:
                return f"list of {self._kind(item)}"
            case {"type": "array"}:
                return "list"
            case {"type": "object", "additionalProperties": dict(value)} if value:
                return f"object of {self._kind(value)}"
            case {"type": str(word)}:
                return f"{_WORDS[word]}{_bounds(schema)}"
            case _:
                return "any value"

    def _named(self, name: str) -> str:
        """Return the name of a shape as a link, or the words of an enumeration."""
        if name == "AnyEvent":
            return "[event](events.md)"

        schema = self._schemas[name]
        if "enum" in schema:
            return self._kind(schema)

        page = self._homes[name]
        return f"[{name}]({'' if page == self._page else f'{page}.md'}#shape-{name.lower()})"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if (more := schema.get("exclusiveMinimum")) is not None:
        return f" > {more}" + ("" if high is None else f", at most {high}")

    if low is not None and high is not None:
        return f" {low}-{high}"

    return "".join(
        f" {sign} {bound}" for sign, bound in (("≥", low), ("≤", high)) if bound is not None
    )


def _code(value: object) -> str:
    """Return a JSON value for a cell of a table."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


@cache
def of_page(page: str) -> Shapes:
    """Return the shapes that a page may show."""
    if page == "hank":
        schemas = hank_schema()["$defs"]
        return Shapes(page, schemas, dict.fromkeys(schemas, page))

    return Shapes(page, catalogue.shapes(), _homes())


@cache
def _homes() -> Mapping[str, str]:
    """Return the page of every shape of the wire and of files."""
    schemas = catalogue.shapes()
    hank = hank_schema()["$defs"]
    homes = {
        name: "hank"
        for name, schema in schemas.items()
        if name in hank and schema.get("properties", {}).keys() == hank[name]["properties"].keys()
    }
    commands, events, transitions = (
        _names(union.members.values()) for union in (COMMANDS, EVENTS, TRANSITIONS)
    )
    replies = _names(filter(None, (each.REPLY for each in COMMANDS.members.values())))
    for page, roots in (
        ("events", ["Event"]),
        ("wire", ["CheckpointRecord", "Exploration", *_names(catalogue.FRAMES)]),
        ("files", ["State", *transitions]),
        ("wire", [*commands, *replies]),
        ("events", events),
        ("files", [*_names(catalogue.FILES.values()), *schemas]),
    ):
        for name in _reachable(roots, schemas):
            homes.setdefault(name, page)

    # Commands and events have sections, and tables show the words of an enumeration in place.
    for name in ("AnyEvent", *commands, *events, *(n for n in schemas if "enum" in schemas[n])):
        homes.pop(name, None)

    return homes


def _names(types: Iterable[type]) -> list[str]:
    return [each.__name__ for each in types]


def _reachable(roots: Iterable[str], schemas: Mapping[str, Schema]) -> Iterator[str]:
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in schemas:
            continue

        seen.add(name)
        yield name
        targets = catalogue.references(schemas[name])
        waiting[:0] = (target.rpartition("/")[2] for target in targets)
