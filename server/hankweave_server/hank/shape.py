"""Comparison of a raw value with a protocol type, reporting every mismatch.

msgspec's own decoder stops at the first error. So the raw value is walked along msgspec's type
information, and the protocol's classes remain the only definition of a hank. Errors of a JSON
schema would have to be translated: for a union, jsonschema reports each member that does not fit.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, get_args

from msgspec import inspect

from hankweave_protocol.hank import CodonName, KeyName, VariableName
from hankweave_server.hank import rules
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean

LOOP_TAG = "loop"
DEFAULT_TAG = "codon"
"""The type of a step without a type (Hankweave, hank.json)."""

FILLED = r"\S"
"""The pattern of a text that is not blank."""

_EMPTY = "The value must not be empty."
_ID = (
    "{} cannot be an id.",
    "It cannot contain whitespace, slashes, backslashes or '#', and cannot be '.' or '..'.",
)
_VARIABLE = (
    "{} cannot be the name of a variable.",
    "Use letters, digits and '_', and do not begin with a digit.",
)
_KEY = (
    "{} cannot be the name of a key.",
    "Use an environment variable's name or a prefix ending in '_', except HANKWEAVE_ ones.",
)
_BY_PATTERN: Mapping[str | None, tuple[str, str | None]] = {
    FILLED: (_EMPTY, None),
    **{
        get_args(name)[1].pattern: messages
        for name, messages in ((CodonName, _ID), (VariableName, _VARIABLE), (KeyName, _KEY))
    },
}
"""For each pattern of a text: a message, and a hint on how to write it."""

_KINDS: Mapping[type[inspect.Type], tuple[str, type | tuple[type, ...]]] = {
    inspect.StrType: ("a string", str),
    inspect.LiteralType: ("a string", str),
    inspect.VarTupleType: ("a list", list),
    inspect.StructType: ("", dict),
    inspect.DictType: ("", dict),
    inspect.BoolType: ("true or false", bool),
    inspect.IntType: ("a whole number", int),
    inspect.FloatType: ("a number", (int, float)),
    inspect.NoneType: ("null", type(None)),
}
"""The name of each type, and the types of its raw values."""

_BOUNDS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "greater than"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "less than"),
}
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")

HintMaker: TypeAlias = Callable[[str, type, Iterable[str]], str]
"""A function that returns a hint for an unknown field, a class, and the fields of its objects."""


class ShapeCheck:
    """A comparison in the words of a file format.

    `mapping` is what the format calls an object. With `only_dropped`, the value must be valid, and
    the findings are the unknown fields of open shapes, which are not an error otherwise.
    """

    def __init__(
        self,
        hint: HintMaker = rules.hint,
        mapping: str = "an object",
        *,
        only_dropped: bool = False,
    ) -> None:
        self._hint = hint
        self._mapping = mapping
        self._only_dropped = only_dropped

    def findings(self, raw: Any, kind: inspect.Type, path: JsonPath = ()) -> Iterator[Finding]:
        """Yield every difference between a value and its type."""
        match kind:
            case inspect.CustomType() | inspect.AnyType():
                return
            case inspect.UnionType():
                yield from self._of_union(raw, kind, path)
            case inspect.LiteralType():
                if raw not in kind.values or isinstance(raw, bool):
                    known = [str(value) for value in kind.values]
                    message = f"Expected one of {', '.join(known)}; found {self._shown(raw)}."
                    yield Finding(path, message, did_you_mean(raw, known))
            case _ if not _fits(raw, kind):
                message = f"Expected {self._named(kind)}; found {self._shown(raw)}."
                yield Finding(path, message, _quotes(raw, kind))
            case inspect.StructType():
                yield from self._of_struct(raw, kind, path)
            case inspect.VarTupleType():
                if kind.min_length is not None and len(raw) < kind.min_length:
                    yield Finding(path, "The list must not be empty.", _example(path, kind))

                for index, item in enumerate(raw):
                    yield from self.findings(item, kind.item_type, (*path, index))
            case inspect.DictType():
                for name, value in raw.items():
                    yield from self.findings(name, kind.key_type, (*path, name))
                    yield from self.findings(value, kind.value_type, (*path, name))
            case inspect.StrType():
                if kind.min_length is not None and len(raw) < kind.min_length:
                    yield Finding(path, _EMPTY)
                elif kind.pattern is not None and re.search(kind.pattern, raw) is None:
                    message, hint = _BY_PATTERN[kind.pattern]
                    yield Finding(path, message.format(self._shown(raw)), hint)
            case inspect.IntType() | inspect.FloatType():
                yield from self._of_number(raw, kind, path)

    def _of_struct(
        self, raw: dict[str, Any], kind: inspect.StructType, path: JsonPath
    ) -> Iterator[Finding]:
        tag = None if kind.tag_field is None else raw.get(kind.tag_field, kind.tag)
        if kind.tag_field is not None and tag != kind.tag:
            # An object of another type; its content is not checked.
            message, hint = f"Expected {kind.tag!r}; found {self._shown(tag)}.", None
            if kind.tag == DEFAULT_TAG and tag == LOOP_TAG:
                message = "A loop is nested in a loop; a loop can contain only codons."
                hint = "Put both loops directly into 'hank'."

            yield Finding((*path, kind.tag_field), message, hint)
            return

        fields = {field.encode_name: field for field in kind.fields}
        for name, value in raw.items():
            if name in fields:
                if not self._only_dropped or isinstance(value, dict | list):
                    yield from self.findings(value, fields[name].type, (*path, name))
            elif name != kind.tag_field and (kind.forbid_unknown_fields or self._only_dropped):
                message = f"There is no field {name!r} here."
                if not kind.forbid_unknown_fields:
                    message = f"The unknown field {name!r} is ignored."

                yield Finding((*path, name), message, self._hint(name, kind.cls, fields))

        for name, field in () if self._only_dropped else fields.items():
            if field.required and name not in raw:
                place, message = (*path, name), f"The field {name!r} is missing."
                yield Finding(place, message, _example(place, field.type))

    def _of_union(self, raw: Any, kind: inspect.UnionType, path: JsonPath) -> Iterator[Finding]:
        if raw is None and kind.includes_none:
            return

        members = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        tagged = {
            str(each.tag): each
            for each in members
            if isinstance(each, inspect.StructType) and each.tag_field
        }
        if len(tagged) > 1 and isinstance(raw, dict):
            yield from self._of_tagged(raw, tagged, path)
            return

        fitting = [each for each in members if _fits(raw, each)]
        if fitting or len(members) == 1:
            yield from self.findings(raw, (fitting or members)[0], path)
        else:
            wanted = " or ".join(dict.fromkeys(map(self._named, members)))
            yield Finding(path, f"Expected {wanted}; found {self._shown(raw)}.")

    def _of_tagged(
        self, raw: dict[str, Any], tagged: Mapping[str, inspect.StructType], path: JsonPath
    ) -> Iterator[Finding]:
        tag_field = next(iter(tagged.values())).tag_field or ""
        tag = raw.get(tag_field, DEFAULT_TAG if DEFAULT_TAG in tagged else None)
        if LOOP_TAG in tagged and tag_field not in raw and "codons" in raw:
            message = "The field 'type' is missing: a step with 'codons' is a loop."
            yield Finding((*path, tag_field), message, "Add 'type': 'loop'.")
            tag = LOOP_TAG

        known = ", ".join(tagged)
        if isinstance(tag, str) and tag in tagged:
            yield from self.findings(raw, tagged[tag], path)
        elif tag is None:
            message = f"The field {tag_field!r} is missing: use one of {known}."
            yield Finding((*path, tag_field), message)
        else:
            message = f"Expected one of {known}; found {self._shown(tag)}."
            yield Finding((*path, tag_field), message, did_you_mean(tag, tagged))

    def _of_number(
        self, raw: Any, kind: inspect.IntType | inspect.FloatType, path: JsonPath
    ) -> Iterator[Finding]:
        for name, (holds, words) in _BOUNDS.items():
            bound = getattr(kind, name)
            if bound is not None and not holds(raw, bound):
                yield Finding(path, f"Must be {words} {bound:g}; found {self._shown(raw)}.")

    def _named(self, kind: inspect.Type) -> str:
        return _KINDS[type(kind)][0] or self._mapping

    def _shown(self, raw: Any) -> str:
        """Return a short description: the kind of a container, the beginning of a long text."""
        match raw:
            case dict():
                return self._mapping
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


findings = ShapeCheck().findings
dropped = ShapeCheck(only_dropped=True).findings


def _fits(raw: Any, kind: inspect.Type) -> bool:
    wanted = _KINDS[type(kind)][1]
    if isinstance(raw, bool):
        return wanted is bool

    if isinstance(raw, int | float) and isinstance(kind, inspect.FloatType):
        return is_finite(raw)

    return isinstance(raw, wanted)


def _example(path: JsonPath, kind: inspect.Type) -> str | None:
    is_command = path[-1:] == ("command",) and isinstance(kind, inspect.VarTupleType)
    return 'For example ["my-agent", "--quiet"].' if is_command else None


def _quotes(raw: Any, kind: inspect.Type) -> str | None:
    match raw, kind:
        case bool() | int() | float(), inspect.StrType():
            return "Put it in quotes if it is meant to be a string."
        case "true" | "false", inspect.BoolType():
            return "Remove the quotes."
        case str(), inspect.IntType() | inspect.FloatType() if _NUMBER.fullmatch(raw):
            return "Remove the quotes."
        case _:
            return None


def is_finite(number: int | float) -> bool:
    """Return whether a number fits a float; an integer of 400 digits does not."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
