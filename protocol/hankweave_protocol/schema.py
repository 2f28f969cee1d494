"""JSON Schemas, made from the shapes themselves: of hank.json for editors, of the wire for clients.

What a field means is read from the string below it in the source, so that there is one text for
readers of the source and for those who write a hank.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import msgspec

from hankweave_protocol import sentinels
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.events import EVENTS
from hankweave_protocol.hank import Codon, Hank, SentinelEntry
from hankweave_protocol.shapes import Typed

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/{name}"

Schema = dict[str, Any]


def hank_schema() -> Schema:
    """Returns a Draft 2020-12 schema that editors use for completion."""
    kinds = (Hank, sentinels.SentinelConfig)
    (root, config), defs = _components(kinds)
    # A step of the hank that does not say what it is, is a codon; the loader puts it in.
    defs[Codon.__name__]["required"].remove("type")
    entry = defs[SentinelEntry.__name__]["properties"]["sentinelConfig"]
    entry["anyOf"] = [{"type": "string"}, config]
    return {"$schema": DIALECT, "title": "hank.json", **root, "$defs": defs}


def events_schema() -> Schema:
    """Returns the schema of the events as they stand in the journal and on the wire."""
    return _messages("An event of Hankweave", EVENTS.members.values(), ("id", "timestamp"))


def commands_schema() -> Schema:
    """Returns the schema of the commands that a client sends."""
    return _messages("A command of Hankweave", COMMANDS.members.values(), ("id",))


SCHEMAS = {"hank": hank_schema, "events": events_schema, "commands": commands_schema}


def _messages(title: str, kinds: Iterable[type[Typed]], required: tuple[str, ...]) -> Schema:
    """Describes a union whose members say their `type` beside their `data`."""
    members = list(kinds)
    payloads, defs = _components(members)
    return {
        "$schema": DIALECT,
        "title": title,
        "type": "object",
        "required": [*required, "type"],
        "properties": {"id": {"type": "string"}, "timestamp": {"type": "string"}},
        "oneOf": [
            {"properties": {"type": {"const": member.TYPE}, "data": payload}}
            for member, payload in zip(members, payloads, strict=True)
        ],
        "$defs": defs,
    }


def _components(kinds: Iterable[type]) -> tuple[list[Schema], dict[str, Schema]]:
    schemas, defs = msgspec.json.schema_components(
        kinds, schema_hook=_anything, ref_template=_REFERENCE
    )
    described = _described_fields()
    for name, schema in defs.items():
        schema.pop("title", None)
        _without_noise(schema)
        for field, texts in schema.get("properties", {}).items():
            if text := described.get((name, field)):
                texts["description"] = text

    return list(schemas), defs


def _without_noise(schema: Any) -> None:
    """Takes out what editors do not read: that null is the default, and OpenAPI's words."""
    match schema:
        case dict():
            schema.pop("discriminator", None)
            if schema.get("default", ...) is None:
                del schema["default"]

            for part in schema.values():
                _without_noise(part)
        case list():
            for part in schema:
                _without_noise(part)
        case _:
            pass


def _anything(kind: type) -> Schema:
    """Describes what is not ours to describe: any JSON value."""
    return {"description": "Any JSON value."}


@cache
def _described_fields() -> dict[tuple[str, str], str]:
    """Collects what the source says below fields, by the names of class and field in JSON."""
    modules = {sys.modules[kind.__module__] for kind in _structs(msgspec.Struct)}
    return {
        (owner, names[field]): text
        for module in modules
        for owner, field, text in _texts_below_fields(module)
        if field in (names := _names_in_json(getattr(module, owner)))
    }


def _structs(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        if child.__module__.startswith(__package__ or ""):
            yield child

        yield from _structs(child)


def _names_in_json(kind: Any) -> dict[str, str]:
    return {field.name: field.encode_name for field in msgspec.structs.fields(kind)}


def _texts_below_fields(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(inspect.getsource(module))
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for above, below in zip(owner.body, owner.body[1:], strict=False):
            match above, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    yield owner.name, field, inspect.cleandoc(text).replace("\n", " ")
                case _:
                    pass


def main(arguments: list[str]) -> int:
    """Prints the schema that is named; without a name that of hank.json."""
    name = arguments[0] if arguments else "hank"
    if name not in SCHEMAS or len(arguments) > 1:
        sys.stderr.write(f"usage: export-schema [{'|'.join(SCHEMAS)}]\n")
        return 2

    encoded = msgspec.json.encode(SCHEMAS[name]())
    sys.stdout.buffer.write(msgspec.json.format(encoded) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
