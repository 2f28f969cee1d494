"""Conditions on what an event says: checked when a sentinel loads, then asked of every event."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, assert_never

import msgspec
import regex
from msgspec import inspect

from hankweave_protocol.events import EVENTS, EventData
from hankweave_protocol.sentinels import Condition

Test: TypeAlias = Callable[[EventData], bool]

SLOWEST_MATCH: Final = 0.01
"""Seconds that one `matches` may take: the events of a codon wait for it."""

MISSING: Final = object()
"""What a path leads to where there is nothing; no condition holds of it."""


class TooSlow(Exception):
    """A regular expression takes too long on what it is asked of."""


def all_of(conditions: Sequence[Condition]) -> Test:
    """Makes one test of conditions that are known to be sound; it raises TooSlow."""
    tests = [(each.path.split("."), _test_of(each)) for each in conditions]

    def holds(data: EventData) -> bool:
        return all(
            (value := _value_at(data, steps)) is not MISSING and test(value)
            for steps, test in tests
        )

    return holds


def fault_of_value(condition: Condition) -> str | None:
    """Says what is wrong with the value of a condition, given its operator."""
    value = condition.value
    match condition.operator:
        case "equals" | "notEquals":
            return None if _is_scalar(value) else "Expected a text, a number, true, false or null."
        case "in" | "notIn":
            fits = isinstance(value, list) and value and all(map(_is_text_or_number, value))
            return None if fits else "Expected a list of texts or numbers with at least one."
        case "contains":
            return None if isinstance(value, str) else "Expected a text."
        case "matches":
            return _fault_of_pattern(value)
        case "greaterThan" | "lessThan":
            return None if _is_number(value) else "Expected a number."
        case other:
            assert_never(other)


def has_path(event_type: str, path: str) -> bool:
    """Tells whether events of a type can have such a field."""
    member = EVENTS.get(event_type)
    return member is not None and _leads(inspect.type_info(member), path.split("."))


# --- asking -----------------------------------------------------------------------------------


def _test_of(condition: Condition) -> Callable[[Any], bool]:
    wanted: Any = condition.value
    match condition.operator:
        case "equals":
            return lambda value: _same(value, wanted)
        case "notEquals":
            return lambda value: not _same(value, wanted)
        case "in":
            return lambda value: any(_same(value, each) for each in wanted)
        case "notIn":
            return lambda value: not any(_same(value, each) for each in wanted)
        case "contains":
            return lambda value: _contains(value, wanted)
        case "matches":
            return functools.partial(_matches, regex.compile(wanted))
        case "greaterThan":
            return lambda value: _is_number(value) and value > wanted
        case "lessThan":
            return lambda value: _is_number(value) and value < wanted
        case other:
            assert_never(other)


def _same(value: object, wanted: object) -> bool:
    """As `===` has it: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _contains(value: object, wanted: str) -> bool:
    return wanted in value if isinstance(value, str | list | tuple) else False


def _matches(pattern: regex.Pattern[str], value: object) -> bool:
    if not isinstance(value, str):
        return False

    try:
        return pattern.search(value, timeout=SLOWEST_MATCH) is not None
    except TimeoutError:
        raise TooSlow(
            f"The pattern {pattern.pattern!r} takes too long on a text of {len(value)} characters."
        ) from None


def _value_at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = _member(value, step)
        if value is MISSING:
            break

    return value


def _member(value: Any, step: str) -> Any:
    match value:
        case msgspec.Raw():
            return _member(msgspec.json.decode(value), step)
        case msgspec.Struct():
            return _field(value, step)
        case dict():
            return value.get(step, MISSING)
        case list() | tuple() if step.isdecimal() and int(step) < len(value):
            return value[int(step)]
        case _:
            return MISSING


def _field(value: msgspec.Struct, step: str) -> Any:
    """A field by its name on the wire; one that is null because nobody said it is not there."""
    known = _fields(type(value)).get(step)
    if known is None:
        return MISSING

    name, may_be_absent = known
    found = getattr(value, name)
    return MISSING if found is None and may_be_absent else found


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, bool]]:
    return {
        field.encode_name: (field.name, field.default is None)
        for field in msgspec.structs.fields(kind)
    }


# --- checking ---------------------------------------------------------------------------------


def _leads(kind: inspect.Type, steps: Sequence[str]) -> bool:
    if not steps:
        return True

    match kind:
        case inspect.StructType():
            fields = {field.encode_name: field.type for field in kind.fields}
            if kind.tag_field is not None:
                fields.setdefault(kind.tag_field, inspect.StrType())

            return steps[0] in fields and _leads(fields[steps[0]], steps[1:])
        case inspect.UnionType():
            return any(_leads(each, steps) for each in kind.types)
        case inspect.VarTupleType() | inspect.ListType():
            return steps[0].isdecimal() and _leads(kind.item_type, steps[1:])
        case inspect.DictType():
            return _leads(kind.value_type, steps[1:])
        case inspect.AnyType() | inspect.CustomType() | inspect.RawType():
            return True
        case _:
            return False


def _fault_of_pattern(value: object) -> str | None:
    if not isinstance(value, str):
        return "Expected a text: a regular expression."

    try:
        regex.compile(value)
    except regex.error as error:
        return f"This is no regular expression: {error}."

    return None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text_or_number(value: object) -> bool:
    return isinstance(value, str) or _is_number(value)
