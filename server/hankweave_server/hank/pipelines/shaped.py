"""What says in a pipeline what it says in a hank, read by the hank's own shape."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import inspect

from hankweave_server.domain.variables import text_of
from hankweave_server.hank import shape
from hankweave_server.hank.pipelines.fields import Fields, plain
from hankweave_server.hank.pipelines.yaml_text import Written


def shape_of(kind: type[msgspec.Struct]) -> inspect.StructType:
    """Gives the shape of a type of the protocol."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found


def keys_of(kind: inspect.StructType) -> dict[str, inspect.Field]:
    """The fields of a shape by their keys in YAML, such as `timeout` for `timeoutSeconds`."""
    return {field.name.removesuffix("_seconds"): field for field in kind.fields}


def as_in_a_hank(fields: Fields, kind: inspect.StructType) -> dict[str, Any] | None:
    """Gives what stands there as hank.json would have it; None where a finding tells why not.

    Which keys there must be and may be is for the caller: he has said it by now.
    """
    before, given = len(fields.findings), {}
    for key, field in keys_of(kind).items():
        if fields.has(key):
            value = _as_json(fields.raw[key], field.type)
            fields.findings += shape.findings(value, field.type, (*fields.path, key))
            given[field.encode_name] = value

    return given if len(fields.findings) == before else None


def _as_json(value: Any, wanted: inspect.Type) -> Any:
    """Scalars are texts, as they were written, but where the shape wants a number."""
    if isinstance(wanted, inspect.IntType | inspect.FloatType):
        with suppress(ValueError):
            return plain(value)

    match value:
        case Written(text):
            return text
        case list(items):
            return [item.text if isinstance(item, Written) else item for item in items]
        case dict(items):
            return {key: _as_text(item) for key, item in items.items()}
        case _:
            return value


def _as_text(item: Any) -> Any:
    match item:
        case Written(text):
            return text
        case bool():
            return text_of(item)
        case _:
            return item
