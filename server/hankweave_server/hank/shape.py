"""Comparison of raw JSON with a protocol type, reporting every mismatch.

msgspec's own decoder stops at the first error. So the raw value is walked along msgspec's type
information, and the protocol's classes remain the only definition of a hank. Unknown keys of open
shapes are not an error; `load.dropped` finds them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec import inspect

from hankweave_protocol.hank import CodonName, KeyName, VariableName
from hankweave_server.hank import rules
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean

LOOP_TAG = "loop"
DEFAULT_TAG = "codon"
"""The type of a step without a type (Hankweave, hank.json)."""

_ID = (
    "an id",
    "It cannot contain whitespace, slashes, backslashes or '#', and cannot be '.' or '..'.",
)
_VARIABLE = (
    "the name of a variable",
    "Use letters, digits and '_', and do not begin with a digit.",
)
_KEY = (
    "the name of a key",
    "Use an environment variable's name or a prefix ending in '_', except HANKWEAVE_ ones.",
)
_BY_PATTERN = {
    get_args(name)[1].pattern: told
    for name, told in ((CodonName, _ID), (VariableName, _VARIABLE), (KeyName, _KEY))
}
"""For each pattern of a text: its description, and a hint on how to write it."""


def findings(raw: Any, kind: inspect.Type, path: JsonPath = ()) -> Iterator[Finding]:
    """Yield every difference between a value and its type."""
    match kind:
        case inspect.StructType():
            yield from _of_struct(raw, kind, path)
        case inspect.UnionType():
            yield from _of_union(raw, kind, path)
        case inspect.VarTupleType():
            yield from _of_list(raw, kind, path)
        case inspect.DictType():
            yield from _of_map(raw, kind, path)
        case inspect.StrType():
            yield from _of_text(raw, kind, path)
        case inspect.LiteralType():
            if raw not in kind.values or isinstance(raw, bool):
                known = [str(value) for value in kind.values]
                message = f"Expected one of {', '.join(known)}; found {_shown(raw)}."
                yield Finding(path, message, did_you_mean(raw, known))
        case inspect.IntType() | inspect.FloatType():
            yield from _of_number(raw, kind, path)
        case inspect.BoolType():
            if not isinstance(raw, bool):
                yield _mismatch(raw, kind, path)
        case inspect.CustomType() | inspect.AnyType():
            return
        case _:
            raise TypeError(f"there is no rule for {kind} in a hank")


def _of_struct(raw: Any, kind: inspect.StructType, path: JsonPath) -> Iterator[Finding]:
    if not isinstance(raw, dict):
        yield _mismatch(raw, kind, path)
        return

    tag = None if kind.tag_field is None else raw.get(kind.tag_field, kind.tag)
    if kind.tag_field is not None and tag != kind.tag:
        yield _of_another_kind(tag, kind, (*path, kind.tag_field))
        return

    fields = {field.encode_name: field for field in kind.fields}
    for name, value in raw.items():
        if name in fields:
            yield from findings(value, fields[name].type, (*path, name))
        elif kind.forbid_unknown_fields and name != kind.tag_field:
            suggestion = rules.hint(name, kind.cls, fields)
            yield Finding((*path, name), f"There is no field {name!r} here.", suggestion)

    for name, field in fields.items():
        if field.required and name not in raw:
            yield Finding((*path, name), f"The field {name!r} is missing.")


def _of_another_kind(tag: Any, kind: inspect.StructType, path: JsonPath) -> Finding:
    """Return the finding for an object of another type; its content is not checked."""
    if kind.tag == DEFAULT_TAG and tag == LOOP_TAG:
        message = "A loop is nested in a loop; a loop can contain only codons."
        return Finding(path, message, "Put both loops directly into 'hank'.")

    return Finding(path, f"Expected {kind.tag!r}; found {_shown(tag)}.")


def _of_union(raw: Any, kind: inspect.UnionType, path: JsonPath) -> Iterator[Finding]:
    if raw is None and kind.includes_none:
        return

    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    tagged = {str(m.tag): m for m in members if isinstance(m, inspect.StructType) and m.tag_field}
    if len(tagged) > 1 and isinstance(raw, dict):
        yield from _of_tagged(raw, tagged, path)
        return

    fitting = next((member for member in members if _fits(raw, member)), None)
    if fitting is not None:
        yield from findings(raw, fitting, path)
    elif len(members) == 1:
        yield from findings(raw, members[0], path)
    else:
        wanted = " or ".join(dict.fromkeys(_named(member) for member in members))
        yield Finding(path, f"Expected {wanted}; found {_shown(raw)}.")


def _of_tagged(
    raw: dict[str, Any], tagged: Mapping[str, inspect.StructType], path: JsonPath
) -> Iterator[Finding]:
    tag_field = next(iter(tagged.values())).tag_field or ""
    tag = raw.get(tag_field, DEFAULT_TAG if DEFAULT_TAG in tagged else None)
    if LOOP_TAG in tagged and tag_field not in raw and "codons" in raw:
        message = "The field 'type' is missing: a step with 'codons' is a loop."
        yield Finding((*path, tag_field), message, "Add 'type': 'loop'.")
        tag = LOOP_TAG

    if isinstance(tag, str) and tag in tagged:
        yield from findings(raw, tagged[tag], path)
        return

    known = ", ".join(tagged)
    if tag is None:
        yield Finding(
            (*path, tag_field), f"The field {tag_field!r} is missing: use one of {known}."
        )
    else:
        message = f"Expected one of {known}; found {_shown(tag)}."
        yield Finding((*path, tag_field), message, did_you_mean(tag, tagged))


def _of_list(raw: Any, kind: inspect.VarTupleType, path: JsonPath) -> Iterator[Finding]:
    if not isinstance(raw, list):
        yield _mismatch(raw, kind, path)
        return

    if kind.min_length is not None and len(raw) < kind.min_length:
        yield Finding(path, "The list must not be empty.")

    for index, item in enumerate(raw):
        yield from findings(item, kind.item_type, (*path, index))


def _of_map(raw: Any, kind: inspect.DictType, path: JsonPath) -> Iterator[Finding]:
    if not isinstance(raw, dict):
        yield _mismatch(raw, kind, path)
        return

    for name, value in raw.items():
        yield from findings(name, kind.key_type, (*path, name))
        yield from findings(value, kind.value_type, (*path, name))


def _of_text(raw: Any, kind: inspect.StrType, path: JsonPath) -> Iterator[Finding]:
    if not isinstance(raw, str):
        yield _mismatch(raw, kind, path)
    elif kind.min_length is not None and len(raw) < kind.min_length:
        yield Finding(path, "The value must not be empty.")
    elif kind.pattern is not None and re.search(kind.pattern, raw) is None:
        what, hint = _BY_PATTERN[kind.pattern]
        yield Finding(path, f"{_shown(raw)} cannot be {what}.", hint)


def _of_number(
    raw: Any, kind: inspect.IntType | inspect.FloatType, path: JsonPath
) -> Iterator[Finding]:
    if not _fits(raw, kind):
        yield _mismatch(raw, kind, path)
        return

    bounds = (
        (kind.ge, raw.__ge__, "at least"),
        (kind.gt, raw.__gt__, "greater than"),
        (kind.le, raw.__le__, "at most"),
        (kind.lt, raw.__lt__, "less than"),
    )
    for bound, holds, words in bounds:
        if bound is not None and not holds(type(raw)(bound)):
            yield Finding(path, f"Must be {words} {bound:g}; found {_shown(raw)}.")


def _fits(raw: Any, kind: inspect.Type) -> bool:
    match kind:
        case inspect.StrType() | inspect.LiteralType():
            return isinstance(raw, str)
        case inspect.VarTupleType():
            return isinstance(raw, list)
        case inspect.StructType() | inspect.DictType():
            return isinstance(raw, dict)
        case inspect.BoolType():
            return isinstance(raw, bool)
        case inspect.IntType():
            return isinstance(raw, int) and not isinstance(raw, bool)
        case inspect.FloatType():
            return isinstance(raw, int | float) and not isinstance(raw, bool) and is_finite(raw)
        case _:
            return True


def is_finite(number: int | float) -> bool:
    """Return whether a number fits a float; an integer of 400 digits does not."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _mismatch(raw: Any, kind: inspect.Type, path: JsonPath) -> Finding:
    return Finding(path, f"Expected {_named(kind)}; found {_shown(raw)}.")


def _named(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType() | inspect.LiteralType():
            return "a string"
        case inspect.VarTupleType():
            return "a list"
        case inspect.StructType() | inspect.DictType():
            return "an object"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case _:
            return "something else"


def _shown(raw: Any) -> str:
    """Return a short description: the kind of a container, the beginning of a long text."""
    match raw:
        case dict():
            return "an object"
        case list():
            return "a list"
        case None:
            return "null"
        case bool():
            return "true" if raw else "false"
        case str():
            return repr(raw if len(raw) <= 40 else f"{raw[:40]}…")
        case _:
            return str(raw)
