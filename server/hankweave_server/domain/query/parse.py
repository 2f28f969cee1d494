"""Parse and check a query: every name in it exists, every limit is kept.

`checked` is the only way to create a `Query`, so each one can be answered, whatever the journal
holds. A refusal names the JSON path, with the closest correct word if there is one.

`where` is checked once and compiled to a predicate that is applied to every event. There is no
regular expression among the operators, so no query can make a single event expensive: each operator
is linear in the value it looks at, and the number of conditions is bounded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.queries import Condition, Moment, Reduction, Where
from hankweave_server.domain.query.aggregate import AGGREGATES, Reducing, Sorting, sortings_of
from hankweave_server.domain.query.fields import (
    Get,
    Path,
    Seen,
    invalid,
    is_in_data,
    nearest,
    ordered,
    path_of,
    shown,
)

T = TypeVar("T")

DEPTH_LIMIT = 16
"""The deepest nesting of `and`, `or` and `not`."""

CONDITION_LIMIT = 100
VALUE_LIMIT = 1_000
"""Values that `in` may list."""

_NOT_OF_MOMENTS = ("contains", "containsIgnoringCase", "startsWith", "exists")

Test: TypeAlias = Callable[[Any], bool]
"""A test of the value that a path leads to."""

Predicate: TypeAlias = Callable[[Seen], bool]


@dataclass(slots=True)
class Conditions:
    """Compiles conditions to predicates, and collects the paths they use."""

    paths: list[Path] = field(default_factory=list)
    count: int = 0

    def predicate(self, where: Where, at: str) -> Predicate:
        """Check conditions and return their predicate; raise Refused with the JSON path."""
        if isinstance(where, tuple):
            return _all_of(self._each(where, at, 1))

        return self._one(where, at, 1)

    def _each(self, conditions: tuple[Condition, ...], at: str, depth: int) -> list[Predicate]:
        return [self._one(each, f"{at}[{i}]", depth) for i, each in enumerate(conditions)]

    def _one(self, condition: Condition, at: str, depth: int) -> Predicate:
        self._count(at, depth)
        if _forms_in(condition) != 1:
            raise invalid(
                "A condition has either field, op and value, or one of and, or, not.",
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
            raise invalid(f"A query can have at most {CONDITION_LIMIT} conditions.", at)

        if depth > DEPTH_LIMIT:
            raise invalid(f"Conditions can be nested at most {DEPTH_LIMIT} deep.", at)

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
        raise invalid(
            "A comparison needs exactly one op.", at, f"Use one of: {', '.join(OPERATORS)}."
        )

    key, name = ("op", condition.op) if condition.op else ("operator", condition.operator or "")
    if name not in OPERATORS:
        hint = nearest(name, OPERATORS)
        raise invalid(f"Unknown operator {shown(name)}.", f"{at}.{key}", hint)

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
    """Convert times to the journal's format, so that comparing texts compares times."""
    if isinstance(value, list):
        return [_moments(each, f"{at}[{i}]") for i, each in enumerate(value)]

    return moment_text(value, at)


def moment_text(value: Any, at: str) -> str:
    try:
        return instants.to_text(instants.from_text(value))
    except (ValueError, TypeError, OverflowError):
        hint = "Write it like 2025-01-04T12:00:00.000Z."
        raise invalid(f"{shown(str(value))} is not a timestamp.", at, hint) from None


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
    """Compare numbers with numbers and texts with texts; other values have no order."""

    def make(bound: Any, at: str) -> Test:
        rank = _rank_with_order(bound, at)

        def test(value: Any) -> bool:
            place = ordered(value)
            return place[0] == rank and holds(value, bound)

        return test

    return make


def _between(bounds: Any, at: str) -> Test:
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise invalid("between requires a list of two bounds.", at)

    at_least = OPERATORS["gte"](bounds[0], f"{at}[0]")
    at_most = OPERATORS["lte"](bounds[1], f"{at}[1]")
    return lambda value: at_least(value) and at_most(value)


def _in(wanted: Any, at: str) -> Test:
    if not isinstance(wanted, list) or len(wanted) > VALUE_LIMIT:
        raise invalid(f"in requires a list of at most {VALUE_LIMIT} values.", at)

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
        raise invalid("containsIgnoringCase requires a string.", at)

    folded = part.casefold()
    return lambda value: isinstance(value, str) and folded in value.casefold()


def _starts_with(beginning: Any, at: str) -> Test:
    if not isinstance(beginning, str):
        raise invalid("startsWith requires a string.", at)

    return lambda value: isinstance(value, str) and value.startswith(beginning)


def _exists(wanted: Any, at: str) -> Test:
    if not isinstance(wanted, bool):
        raise invalid("exists requires true or false.", at)

    return lambda value: (value is not None) is wanted


def _rank_with_order(bound: Any, at: str) -> int:
    rank, _ = ordered(bound)
    if isinstance(bound, bool) or not isinstance(bound, int | float | str):
        raise invalid("Only numbers and strings can be compared by order.", at)

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
"""Nine operators of Codebolt's event log, two of its event view, and one for text search."""


PAGE = 1_000
"""Events or rows in one answer, unless the query asks for fewer."""

PATHS_LIMIT = 64
"""Fields that a query may select or group by."""

_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
"""A type of which no letter is escaped in JSON."""

_CURSOR = re.compile(r"(?P<until>[0-9]{1,15})-(?P<after>[0-9]{1,15})-(?P<digest>[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the journal, by seqs and by times."""

    after_seq: int = 0
    until_seq: int | None = None
    from_moment: str | None = None
    until_moment: str | None = None

    def holds(self, seen: Seen) -> bool:
        return (
            seen.seq > self.after_seq
            and (self.until_seq is None or seen.seq <= self.until_seq)
            and (self.from_moment is None or seen.timestamp >= self.from_moment)
            and (self.until_moment is None or seen.timestamp <= self.until_moment)
        )


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position at which the previous page ended."""

    until: int
    """The journal's last seq at the first page: later events appear on no page."""
    after: int
    """The seq of the last event of the previous page; for rows, how many there were."""


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query."""

    window: Window
    caused_by: int | str | None
    descendants_of: int | str | None
    ancestors_of: int | None
    predicate: Predicate | None
    sortings: tuple[Sorting, ...]
    columns: tuple[Path, ...] | None
    reducing: Reducing | None
    looks_into_data: bool
    types: re.Pattern[bytes] | None
    """Found in the line of each event that matches; None if its type does not decide."""
    limit: int
    cursor: Cursor | None
    digest: str
    """Identifies this query, so that a cursor of another query is rejected."""

    def cursor_text(self, cursor: Cursor) -> str:
        return f"{cursor.until}-{cursor.after}-{self.digest}"


def checked(command: EventsQuery, at: str = "$.data") -> Query:
    """Check a query; raise Refused with the JSON path of the fault, and a suggestion."""
    conditions = Conditions()
    where = command.where
    predicate = None if where is None else conditions.predicate(where, f"{at}.where")
    reducing = None if command.reduce is None else _reducing(command.reduce, f"{at}.reduce")
    columns = None if command.select is None else _paths(command.select, f"{at}.select")
    if reducing is not None and columns is not None:
        raise invalid("A query can either select or reduce, not both.", f"{at}.select")

    sortings = sortings_of(command.order_by, reducing, f"{at}.orderBy")
    digest = _digest(command)
    paths = [*conditions.paths, *(columns or ()), *(reducing.paths if reducing else ())]
    names = [*(path.text for path in paths), *(each.name for each in sortings)]
    return Query(
        window=_window(command, at),
        caused_by=_cause(command.caused_by, f"{at}.causedBy"),
        descendants_of=_cause(command.descendants_of, f"{at}.descendantsOf"),
        ancestors_of=_cause(command.ancestors_of, f"{at}.ancestorsOf"),
        predicate=predicate,
        sortings=sortings,
        columns=columns,
        reducing=reducing,
        looks_into_data=any(map(is_in_data, names)),
        types=None if where is None else _words_of_types(where),
        limit=command.limit or PAGE,
        cursor=_cursor(command.cursor, digest, f"{at}.cursor"),
        digest=digest,
    )


# --- window and causes ----------------------------------------------------------------------------


def _window(command: EventsQuery, at: str) -> Window:
    after_seq, from_moment = _bound(command.since, f"{at}.since")
    until_seq, until_moment = _bound(command.until, f"{at}.until")
    return Window(after_seq or 0, until_seq, from_moment, until_moment)


def _bound(bound: Moment | None, at: str) -> tuple[int | None, str | None]:
    """Split a bound into a seq and a time: it is one of them, or neither."""
    match bound:
        case None:
            return None, None
        case int() if bound < 0:
            raise invalid(f"{bound} is not a seq: they begin at 1.", at)
        case int():
            return bound, None
        case _:
            return None, moment_text(bound, at)


def _cause(cause: T, at: str) -> T:
    if isinstance(cause, int) and cause < 1:
        raise invalid(f"{cause} is not a seq: they begin at 1.", at)

    return cause


# --- types ----------------------------------------------------------------------------------------


def _words_of_types(where: Where) -> re.Pattern[bytes] | None:
    types = _types(where)
    # In the text of an event, quotes are escaped: there is nothing like a type in it.
    if types is None or not all(map(_PLAIN.fullmatch, types)):
        return None

    names = b"|".join(re.escape(name.encode()) for name in sorted(types))
    return re.compile(rb'"type":"(?:' + names + rb')"')


def _types(where: Where) -> frozenset[str] | None:
    """Return types of which every event that matches has one; None if there is no such limit."""
    if isinstance(where, tuple):
        return next((types for each in where if (types := _types(each)) is not None), None)

    if where.all_of is not None:
        return _types(where.all_of)

    if where.any_of is not None:
        each = [_types(part) for part in where.any_of]
        known = [types for types in each if types is not None]
        return frozenset().union(*known) if len(known) == len(each) else None

    if where.field != "type":
        return None

    match where.op or where.operator, where.value:
        case "eq", str(name):
            return frozenset({name})
        case "in", list(names) if all(isinstance(each, str) for each in names):
            return frozenset(names)
        case _:
            return None


# --- columns and aggregates -----------------------------------------------------------------------


def _paths(names: tuple[str, ...], at: str) -> tuple[Path, ...]:
    if not 0 < len(names) <= PATHS_LIMIT:
        raise invalid(f"Name 1 to {PATHS_LIMIT} fields.", at)

    if len(set(names)) < len(names):
        raise invalid("A field is listed twice.", at)

    return tuple(path_of(name, f"{at}[{i}]") for i, name in enumerate(names))


def _reducing(reduction: Reduction, at: str) -> Reducing:
    aggregate = AGGREGATES.get(reduction.type)
    if aggregate is None:
        hint = nearest(reduction.type, AGGREGATES)
        raise invalid(f"Unknown aggregate {shown(reduction.type)}.", f"{at}.type", hint)

    if reduction.field is None and reduction.type != "count":
        raise invalid(f"{reduction.type} needs a field.", at)

    field = None if reduction.field is None else path_of(reduction.field, f"{at}.field")
    groups = _paths(reduction.group_by, f"{at}.groupBy") if reduction.group_by else ()
    return Reducing(reduction.type, aggregate, field, groups)


# --- pages ----------------------------------------------------------------------------------------


def _cursor(text: str | None, digest: str, at: str) -> Cursor | None:
    if text is None:
        return None

    found = _CURSOR.fullmatch(text)
    if found is None or found["digest"] != digest:
        raise invalid(
            "This cursor belongs to another query.",
            at,
            "Send the same query again with the cursor of its previous page; limit may differ.",
        )

    return Cursor(int(found["until"]), int(found["after"]))


def _digest(command: EventsQuery) -> str:
    question = msgspec.structs.replace(command, cursor=None, limit=None)
    return hashlib.sha256(codec.encode(question)).hexdigest()[:12]
