"""The checks that generated code uses. This module is copied beside it and needs only Python.

A check takes a value and its location, and yields all problems: a row with errors in three fields
has three problems. The rules and their names are those of JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Check = Callable[[object, str], Iterator["Problem"]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a value violates; `pointer` is the value's JSON Pointer."""

    pointer: str
    rule: str
    found: Any


class Invalid(ValueError):
    """A value does not match the schema; holds all its problems."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.rule}" for p in problems))


def scalar(
    *types: str,
    minimum: float | None = None,
    maximum: float | None = None,
    enum: tuple[object, ...] | None = None,
) -> Check:
    def check(value: object, at: str) -> Iterator[Problem]:
        if not any(_is(name, value) for name in types):
            yield Problem(at, "type", value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if minimum is not None and value < minimum:
                yield Problem(at, "minimum", value)
            if maximum is not None and value > maximum:
                yield Problem(at, "maximum", value)
        if enum is not None and value not in enum:
            yield Problem(at, "enum", value)

    return check


def record(members: dict[str, Check], *, optional: frozenset[str] = frozenset()) -> Check:
    def check(value: object, at: str) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem(at, "type", value)
            return

        for name, member in members.items():
            if name in value:
                yield from member(value[name], f"{at}/{name}")
            elif name not in optional:
                yield Problem(f"{at}/{name}", "required", None)
        for name in sorted(value.keys() - members.keys()):
            yield Problem(f"{at}/{name}", "additionalProperties", value[name])

    return check


def positions(*items: Check) -> Check:
    def check(value: object, at: str) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield Problem(at, "type", value)
            return

        if len(value) < len(items):
            yield Problem(at, "minItems", value)
        if len(value) > len(items):
            yield Problem(at, "items", value)
        for index, (item, member) in enumerate(zip(items, value, strict=False)):
            yield from item(member, f"{at}/{index}")

    return check


def _is(name: str, value: object) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "integer" if isinstance(value, float):
            return value.is_integer()
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return False
