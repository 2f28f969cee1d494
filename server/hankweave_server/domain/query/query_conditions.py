"""`where`: conditions on events, checked once and then asked of every event.

There is no regular expression among the operators, so no query can make one event expensive: each
operator is linear in the value it looks at, and the number of conditions is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from hankweave_protocol import instants
from hankweave_protocol.queries import Condition, Where
from hankweave_server.domain.query.fields import (
    Get,
    Path,
    Seen,
    invalid,
    nearest,
    ordered,
    path_of,
    shown,
)

DEPTH_LIMIT = 16
"""How deep `and`, `or` and `not` may nest."""

CONDITION_LIMIT = 100
VALUE_LIMIT = 1_000
"""Values that `in` may list."""

_NOT_OF_MOMENTS = ("contains", "containsIgnoringCase", "startsWith", "exists")

Test: TypeAlias = Callable[[Any], bool]
"""Asked of the value a path leads to."""

Predicate: TypeAlias = Callable[[Seen], bool]


@dataclass(slots=True)
class Conditions:
    """Makes predicates of conditions; keeps what it met on the way."""

    paths: list[Path] = field(default_factory=list)
    count: int = 0

    def predicate(self, where: Where, at: str) -> Predicate:
        """Checks conditions and returns what asks them; raises Refused with the JSON path."""
        if isinstance(where, tuple):
            return _all_of(self._each(where, at, 1))

        return self._one(where, at, 1)

    def _each(self, conditions: tuple[Condition, ...], at: str, depth: int) -> list[Predicate]:
        return [self._one(each, f"{at}[{i}]", depth) for i, each in enumerate(conditions)]

    def _one(self, condition: Condition, at: str, depth: int) -> Predicate:
        self._count(at, depth)
        if _forms_in(condition) != 1:
            raise invalid(
                "A condition is one of: field, op and value; and; or; not.",
                at,
                'For example {"field": "data.codonId", "op": "eq", "value": "observe"}.',
            )

        if condition.all_of is not None:
            return _all_of(self._each(condition.all_of, f"{at}.and", depth + 1))

        if condition.any_of is not None:
            return _any_of(self._each(condition.any_of, f"{at}.or", depth + 1))

        if condition.none_of is not None:
            return _none_of(self._one(condition.none_of, f"{at}.not", depth + 1))

        return self._comparison(condition, at)

    def _count(self, at: str, depth: int) -> None:
        self.count += 1
        if self.count > CONDITION_LIMIT:
            raise invalid(f"A query may have {CONDITION_LIMIT} conditions.", at)

        if depth > DEPTH_LIMIT:
            raise invalid(f"Conditions may nest {DEPTH_LIMIT} deep.", at)

    def _comparison(self, condition: Condition, at: str) -> Predicate:
        if condition.field is None:
            raise invalid("A comparison needs a field.", at)

        path = path_of(condition.field, f"{at}.field")
        self.paths.append(path)
        operator, value = _operator_of(condition, at), condition.value
        if path.text == "timestamp" and operator not in _NOT_OF_MOMENTS:
            value = _moments(value, f"{at}.value")

        return _asking(path.get, OPERATORS[operator](value, f"{at}.value"))


def _forms_in(condition: Condition) -> int:
    compared = (condition.field, condition.op, condition.operator)
    compares = compared != (None, None, None) or condition.value is not msgspec.UNSET
    others = (condition.all_of, condition.any_of, condition.none_of)
    return compares + sum(each is not None for each in others)


def _operator_of(condition: Condition, at: str) -> str:
    if (condition.op is None) == (condition.operator is None):
        raise invalid("A comparison has one op.", at, f"There are: {', '.join(OPERATORS)}.")

    key, name = ("op", condition.op) if condition.op else ("operator", condition.operator or "")
    if name not in OPERATORS:
        hint = nearest(name, OPERATORS)
        raise invalid(f"There is no operator {shown(name)}.", f"{at}.{key}", hint)

    if condition.value is msgspec.UNSET:
        raise invalid(f"{name} needs a value.", at)

    return name


def _asking(get: Get, test: Test) -> Predicate:
    return lambda seen: test(get(seen))


def _all_of(parts: list[Predicate]) -> Predicate:
    return parts[0] if len(parts) == 1 else lambda seen: all(part(seen) for part in parts)


def _any_of(parts: list[Predicate]) -> Predicate:
    return lambda seen: any(part(seen) for part in parts)


def _none_of(part: Predicate) -> Predicate:
    return lambda seen: not part(seen)


def _moments(value: Any, at: str) -> Any:
    """Writes moments as the journal does, so that texts compare as the moments they are."""
    if isinstance(value, list):
        return [_moments(each, f"{at}[{i}]") for i, each in enumerate(value)]

    return moment_text(value, at)


def moment_text(value: Any, at: str) -> str:
    try:
        return instants.to_text(instants.from_text(value))
    except (ValueError, TypeError, OverflowError):
        hint = "Write it like 2025-01-04T12:00:00.000Z."
        raise invalid(f"{shown(str(value))} is no moment.", at, hint) from None


# --- the operators --------------------------------------------------------------------------------


def _eq(wanted: Any, at: str) -> Test:
    if isinstance(wanted, str):
        return lambda value: value == wanted

    place = ordered(wanted)
    return lambda value: ordered(value) == place


def _neq(wanted: Any, at: str) -> Test:
    equal = _eq(wanted, at)
    return lambda value: not equal(value)


def _compares(holds: Callable[[Any, Any], bool]) -> Callable[[Any, str], Test]:
    """Compares numbers with numbers and text with text; nothing else has an order of its own."""

    def make(bound: Any, at: str) -> Test:
        rank = _rank_with_order(bound, at)

        def test(value: Any) -> bool:
            place = ordered(value)
            return place[0] == rank and holds(value, bound)

        return test

    return make


def _between(bounds: Any, at: str) -> Test:
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise invalid("between needs a list of two bounds.", at)

    at_least = OPERATORS["gte"](bounds[0], f"{at}[0]")
    at_most = OPERATORS["lte"](bounds[1], f"{at}[1]")
    return lambda value: at_least(value) and at_most(value)


def _in(wanted: Any, at: str) -> Test:
    if not isinstance(wanted, list) or len(wanted) > VALUE_LIMIT:
        raise invalid(f"in needs a list of at most {VALUE_LIMIT} values.", at)

    places = {ordered(each) for each in wanted}
    return lambda value: ordered(value) in places


def _contains(part: Any, at: str) -> Test:
    equal = _eq(part, at)

    def test(value: Any) -> bool:
        if isinstance(value, str):
            return isinstance(part, str) and part in value

        return isinstance(value, list) and any(map(equal, value))

    return test


def _contains_ignoring_case(part: Any, at: str) -> Test:
    if not isinstance(part, str):
        raise invalid("containsIgnoringCase needs a text.", at)

    folded = part.casefold()
    return lambda value: isinstance(value, str) and folded in value.casefold()


def _starts_with(beginning: Any, at: str) -> Test:
    if not isinstance(beginning, str):
        raise invalid("startsWith needs a text.", at)

    return lambda value: isinstance(value, str) and value.startswith(beginning)


def _exists(wanted: Any, at: str) -> Test:
    if not isinstance(wanted, bool):
        raise invalid("exists needs true or false.", at)

    return lambda value: (value is not None) is wanted


def _rank_with_order(bound: Any, at: str) -> int:
    rank, _ = ordered(bound)
    if isinstance(bound, bool) or not isinstance(bound, int | float | str):
        raise invalid("Only numbers and texts have an order to compare by.", at)

    return rank


OPERATORS: Mapping[str, Callable[[Any, str], Test]] = {
    "eq": _eq,
    "neq": _neq,
    "gt": _compares(lambda value, bound: value > bound),
    "gte": _compares(lambda value, bound: value >= bound),
    "lt": _compares(lambda value, bound: value < bound),
    "lte": _compares(lambda value, bound: value <= bound),
    "contains": _contains,
    "containsIgnoringCase": _contains_ignoring_case,
    "in": _in,
    "between": _between,
    "startsWith": _starts_with,
    "exists": _exists,
}
"""Codebolt's nine (seed 004's event log), two of its event view, and one for people who search."""
