"""Fields of events that a query can name, and the order of JSON values.

A path begins with a field of the event itself; only `data` and `causes` have parts of their own.
A missing field is null: a query cannot tell the two apart, and need not.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused

PATH_LIMIT = 200
"""The most characters of a path: the longest path in this server's events has 60."""

ECHO_LIMIT = 80
"""The most characters of a client's text that an error repeats."""


class Seen(msgspec.Struct, rename="camel", gc=False):
    """One line of the journal, with the fields that a query uses."""

    type: str
    seq: int = 0
    id: str = ""
    timestamp: str = ""
    data: Any = None
    run_id: str | None = None
    codon_id: str | None = None
    causes: list[int | str] = []


class SeenEnvelope(Seen, rename="camel", gc=False):
    """The same for queries that do not use `data`, which is not decoded then."""

    data: msgspec.Raw = msgspec.Raw()


Get: TypeAlias = Callable[[Seen], Any]
Ordered: TypeAlias = tuple[int, Any]

_OWN = {
    "id": "id",
    "seq": "seq",
    "timestamp": "timestamp",
    "type": "type",
    "data": "data",
    "runId": "run_id",
    "codonId": "codon_id",
    "causes": "causes",
}
_WITH_PARTS = ("data", "causes")


@dataclass(frozen=True, slots=True)
class Path:
    """A field of events, as a query names it."""

    text: str
    get: Get


def is_in_data(path: str) -> bool:
    return path == "data" or path.startswith("data.")


def path_of(text: str, at: str) -> Path:
    """Parse a dotted path; raise Refused, with the JSON path `at`, for a field no event has."""
    own, *parts = text.split(".")
    if len(text) > PATH_LIMIT or not all([own, *parts]):
        raise invalid(f"{shown(text)} is not a path of at most {PATH_LIMIT} characters.", at)

    if own not in _OWN:
        hint = nearest(own, _OWN)
        if own in ("payload", "metadata"):
            hint = "Fields of an event's `data` are written like data.codonId."

        raise invalid(f"Events have no field {shown(own)}.", at, hint)

    if parts and own not in _WITH_PARTS:
        raise invalid(f"{own} has no subfields, so {shown(text)} does not exist.", at)

    base: Get = attrgetter(_OWN[own])
    return Path(text, _walk(base, parts) if parts else base)


def _walk(base: Get, parts: list[str]) -> Get:
    steps = [(part, _index(part)) for part in parts]

    def get(seen: Seen) -> Any:
        value = base(seen)
        for name, index in steps:
            if type(value) is dict:
                value = value.get(name)
            elif type(value) is list and index is not None and index < len(value):
                value = value[index]
            else:
                return None

        return value

    return get


def _index(part: str) -> int | None:
    is_number = part.isascii() and part.isdecimal() and len(part) < 10
    return int(part) if is_number else None


def ordered(value: Any) -> Ordered:
    """Return a value's position in the order of all JSON values; equal values have equal ones.

    null < false < true < numbers < texts < lists < objects; the last two by their JSON text, with
    sorted keys. `true` is not a number here, though it is one in Python.
    """
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | float():
            return 2, value
        case str():
            return 3, value
        case list():
            return 4, msgspec.json.encode(value, order="sorted")
        case _:
            return 5, msgspec.json.encode(value, order="sorted")


# --- refusing -------------------------------------------------------------------------------------


def invalid(message: str, at: str, hint: str | None = None) -> Refused:
    return Refused(ErrorCode.INVALID_COMMAND, message, path=at, hint=hint)


def nearest(name: str, names: Iterable[str]) -> str:
    known = list(names)
    close = difflib.get_close_matches(name[:ECHO_LIMIT], known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(known)}."


def shown(text: str) -> str:
    return repr(text if len(text) <= ECHO_LIMIT else text[:ECHO_LIMIT] + "…")
