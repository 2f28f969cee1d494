"""JSON Schemas generated from the shapes: that of hank.json, and components for other schemas.

The description of a field is the string below it in the source, so that readers of the source and
authors of a hank read the same text.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import ModuleType
from typing import Any

import msgspec

from hankweave_protocol import sentinels
from hankweave_protocol.hank import Codon, Hank, SentinelEntry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{name}"

Schema = dict[str, Any]


def hank_schema() -> Schema:
    """Return the Draft 2020-12 schema of hank.json, for completion in editors."""
    kinds = (Hank, sentinels.SentinelConfig)
    (root, config), defs = components(kinds)
    # A step of the hank without a `type` is a codon; the loader adds it.
    defs[Codon.__name__]["required"].remove("type")
    entry = defs[SentinelEntry.__name__]["properties"]["sentinelConfig"]
    entry["anyOf"] = [{"type": "string"}, config]
    return {"$schema": DIALECT, "title": "hank.json", **root, "$defs": defs}


def components(
    kinds: Iterable[Any], reference: str = REFERENCE
) -> tuple[list[Schema], dict[str, Schema]]:
    """Return a schema of each kind, and by name those of the shapes they refer to."""
    schemas, defs = msgspec.json.schema_components(
        kinds, schema_hook=_anything, ref_template=reference
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
    """Remove what editors ignore: null defaults and OpenAPI's discriminators."""
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
    """Return the schema of encoded JSON: any value."""
    return {"description": "Any JSON value."}


@cache
def _described_fields() -> dict[tuple[str, str], str]:
    """Return the strings below fields, by class name and the field's name in JSON."""
    kinds = list(_structs(msgspec.Struct))
    own = {
        (owner, field): text
        for module in {sys.modules[kind.__module__] for kind in kinds}
        for owner, field, text in _texts_below_fields(module)
    }
    return {
        (kind.__name__, name): text
        for kind in kinds
        for field, name in _names_in_json(kind).items()
        for text in _nearest_text(kind, field, own)
    }


def _nearest_text(kind: type, field: str, own: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield the description from the class itself, or from the base class that has the field."""
    owners = (base.__name__ for base in kind.__mro__)
    yield from islice((own[owner, field] for owner in owners if (owner, field) in own), 1)


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
