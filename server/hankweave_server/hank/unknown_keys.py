"""Keys that a hank may hold and that mean nothing: Hankweave drops them, and so does this loader.

Hankweave validates a hank with zod. Where its schema is strict an unknown key is an error, which
`shape` reports. Everywhere else zod removes the key without a word. A hank that relies on that must
load, but a misspelt option must not vanish in silence either: each dropped key becomes a warning.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import inspect

from hankweave_protocol.hank import Hank
from hankweave_protocol.sentinels import SentinelConfig
from hankweave_server.hank import belonging
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.json_source import parse
from hankweave_server.hank.nodes import Node, codons_of, object_at, objects, steps_of, texts
from hankweave_server.hank.problems import Finding, JsonPath, path_text
from hankweave_server.hank.shape import DEFAULT_TAG
from hankweave_server.hank.syntax import NotJson


def dropped(raw: Any, files: HankFiles) -> Iterator[Finding]:
    """Find every unknown key of a valid hank that loading drops, in its sentinels as well."""
    yield from _in(raw, _type_of(Hank), ())
    root = Node(raw, ())
    for step in steps_of(root):
        for codon in codons_of(step):
            for entry in objects(codon, "sentinels"):
                yield from _in_sentinel(entry, files)


def dropped_in_sentinel(raw: Any) -> Iterator[Finding]:
    """Find the unknown keys that loading drops from one sentinel's configuration."""
    yield from _in(raw, _type_of(SentinelConfig), ())


def _in_sentinel(entry: Node, files: HankFiles) -> Iterator[Finding]:
    inline = object_at(entry, "sentinelConfig")
    if inline is not None:
        yield from _in(inline.raw, _type_of(SentinelConfig), inline.path)

    for reference, path in texts(entry, "sentinelConfig"):
        try:
            raw = parse(files.text(reference)).value
        except (NotJson, OSError, UnicodeDecodeError):
            continue  # An error of its own, reported elsewhere.

        for found in dropped_in_sentinel(raw):
            where = f"{posixpath.normpath(reference)}: {path_text(found.path)}"
            yield Finding(path, f"{where}: {found.message}", found.suggestion)


def _in(raw: Any, kind: inspect.Type, path: JsonPath) -> Iterator[Finding]:
    match kind:
        case inspect.StructType() if isinstance(raw, dict):
            yield from _in_struct(raw, kind, path)
        case inspect.VarTupleType() if isinstance(raw, list):
            for index, item in enumerate(raw):
                yield from _in(item, kind.item_type, (*path, index))
        case inspect.UnionType():
            member = _member(raw, kind)
            if member is not None:
                yield from _in(raw, member, path)
        case _:
            return


def _in_struct(raw: dict[str, Any], kind: inspect.StructType, path: JsonPath) -> Iterator[Finding]:
    fields = _fields_of(kind.cls)
    for name, value in raw.items():
        field = fields.get(name)
        if field is not None:
            if _can_drop(field):
                yield from _in(value, field, (*path, name))
        elif not kind.forbid_unknown_fields and name != kind.tag_field:
            hint = belonging.hint(name, kind.cls, fields)
            yield Finding((*path, name), f"The unknown field {name!r} is ignored.", hint)


def _member(raw: Any, kind: inspect.UnionType) -> inspect.Type | None:
    """Choose the member of a union that a value is."""
    if isinstance(raw, list):
        return next((each for each in kind.types if isinstance(each, inspect.VarTupleType)), None)

    if not isinstance(raw, dict):
        return None

    structs = [each for each in kind.types if isinstance(each, inspect.StructType)]
    for struct in structs:
        if struct.tag_field is None or raw.get(struct.tag_field, DEFAULT_TAG) == struct.tag:
            return struct

    return None


@cache
def _type_of(cls: type) -> inspect.Type:
    return inspect.type_info(cls)


@cache
def _fields_of(cls: type) -> Mapping[str, inspect.Type]:
    kind = _type_of(cls)
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field.type for field in kind.fields}


def _can_drop(kind: inspect.Type) -> bool:
    """Tell whether a value of this type can hold an open object: most fields need no look."""
    match kind:
        case inspect.StructType():
            return _struct_can_drop(kind.cls)
        case inspect.VarTupleType():
            return _can_drop(kind.item_type)
        case inspect.UnionType():
            return any(map(_can_drop, kind.types))
        case _:
            return False


@cache
def _struct_can_drop(cls: type) -> bool:
    kind = _type_of(cls)
    assert isinstance(kind, inspect.StructType)
    return not kind.forbid_unknown_fields or any(map(_can_drop, _fields_of(cls).values()))
