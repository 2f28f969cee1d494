"""JSON of strangers, a line each: nothing in it is believed to have the type it should have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

Object: TypeAlias = Mapping[str, object]

MOST = 10**12
"""More tokens or dollars than that are no count: sums of them could be written down no more."""

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def object_in(line: bytes) -> Object:
    """The object that a line is, with no number in it that could not be written again; or none."""
    try:
        value = msgspec.json.decode(line)
        if _LONG_NUMBER.search(line):
            value = _encodable(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}

    return as_object(value)


def as_object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Object]:
    return [as_object(each) for each in value] if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    match value:
        case bool():
            return 0
        case int() if 0 < value <= MOST:
            return value
        case _:
            return 0


def _encodable(value: object) -> object:
    """The value with a text for each integer beyond 64 bits: those can be read, but not written."""
    match value:
        case dict():
            return {name: _encodable(each) for name, each in value.items()}
        case list():
            return [_encodable(each) for each in value]
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
        case _:
            return value
