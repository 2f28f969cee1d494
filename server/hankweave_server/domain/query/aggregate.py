"""Aggregates (`reduce`) and sorting (`orderBy`) of a query's matches.

`Reducing` computes one aggregate over the matches, or over each group of them. A `Sorting` compares
events, or rows, by one field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.queries import Order
from hankweave_server.domain.query.fields import (
    Ordered,
    Path,
    Seen,
    invalid,
    nearest,
    ordered,
    path_of,
    shown,
)

GROUP_LIMIT = 10_000
COLLECT_LIMIT = 10_000
"""Values that `collect` may gather, over all groups."""

Row = dict[str, Any]


class Aggregate(Protocol):
    """The running result for one group."""

    def take(self, value: Any) -> None:
        """Add the field's value in one event; never null."""

    def result(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Reducing:
    """A requested aggregate."""

    name: str
    new: Callable[[], Aggregate]
    field: Path | None
    """None: every event counts."""
    group_by: tuple[Path, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(path.text for path in self.group_by), self.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.group_by if self.field is None else (*self.group_by, self.field)

    def rows(self, matches: Iterable[Seen]) -> list[Row]:
        """Reduce the matches to rows, in the order of their groups' values.

        Without `groupBy` there is one row, even without matches. Raises Refused if the answer would
        be too large.
        """
        groups: dict[tuple[Ordered, ...], tuple[list[Any], Aggregate]] = {}
        if not self.group_by:
            groups[()] = [], self.new()

        collected = 0
        for seen in matches:
            values = [path.get(seen) for path in self.group_by]
            key = tuple(map(ordered, values))
            if key not in groups:
                groups[key] = values, self.new()
                _require(len(groups) <= GROUP_LIMIT, f"{GROUP_LIMIT:,} groups", "groupBy")

            value = True if self.field is None else self.field.get(seen)
            if value is not None:
                groups[key][1].take(value)
                if self.name == "collect":
                    collected += 1
                    _require(collected <= COLLECT_LIMIT, f"{COLLECT_LIMIT:,} values", "type")

        return [
            dict(zip(self.columns, (*values, aggregate.result()), strict=True))
            for _, (values, aggregate) in sorted(groups.items(), key=itemgetter(0))
        ]


def _require(holds: bool, too_much: str, key: str) -> None:
    if not holds:
        raise Refused(
            ErrorCode.RESULT_TOO_LARGE,
            f"The result would have more than {too_much}.",
            path=f"$.data.reduce.{key}",
            hint="Narrow the query with where, since or until, or group by fewer fields.",
        )


# --- the aggregates -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Count:
    """The number of events that have the field; without a field, of all events."""

    count: int = 0

    def take(self, value: Any) -> None:
        self.count += 1

    def result(self) -> int:
        return self.count


@dataclass(slots=True)
class _Sum:
    """The sum of the numbers; other values are ignored."""

    whole: int = 0
    fraction: float = 0.0
    count: int = 0
    has_fraction: bool = False

    def take(self, value: Any) -> None:
        match value:
            case bool():
                return
            case int():
                self.whole += value
            case float():
                self.fraction += value
                self.has_fraction = True
            case _:
                return

        self.count += 1

    def result(self) -> float:
        if not self.has_fraction:
            return self.whole

        try:
            return self.whole + self.fraction
        except OverflowError:
            return self.whole


@dataclass(slots=True)
class _Average(_Sum):
    """The average of the numbers; null if there are none."""

    def result(self) -> Any:
        if self.count == 0:
            return None

        try:
            return _Sum.result(self) / self.count
        except OverflowError:
            return _Sum.result(self) // self.count


@dataclass(slots=True)
class _Extreme:
    """The first of the smallest or largest values; null if there are none."""

    is_beyond: Callable[[Ordered, Ordered], bool]
    best: Any = None
    place: Ordered | None = None

    def take(self, value: Any) -> None:
        place = ordered(value)
        if self.place is None or self.is_beyond(place, self.place):
            self.best, self.place = value, place

    def result(self) -> Any:
        return self.best


@dataclass(slots=True)
class _Collect:
    """All values, in journal order."""

    values: list[Any] = field(default_factory=list)

    def take(self, value: Any) -> None:
        self.values.append(value)

    def result(self) -> list[Any]:
        return self.values


AGGREGATES: Mapping[str, Callable[[], Aggregate]] = {
    "count": _Count,
    "sum": _Sum,
    "avg": _Average,
    "min": lambda: _Extreme(lambda one, other: one < other),
    "max": lambda: _Extreme(lambda one, other: one > other),
    "collect": _Collect,
}


ORDERS_LIMIT = 8

_DIRECTIONS = ("asc", "desc")


@dataclass(frozen=True, slots=True)
class Sorting:
    """One sort key: a field of events, or a column of rows."""

    name: str
    get: Callable[[Any], Any]
    is_descending: bool


def sortings_of(
    orders: Order | tuple[Order, ...] | None, reducing: Reducing | None, at: str
) -> tuple[Sorting, ...]:
    """Check the sort keys; raise Refused with the JSON path."""
    if orders is None:
        return ()

    if isinstance(orders, Order):
        return (_sorting(orders, reducing, at),)

    if len(orders) > ORDERS_LIMIT:
        raise invalid(f"Order by at most {ORDERS_LIMIT} fields.", at)

    return tuple(_sorting(each, reducing, f"{at}[{i}]") for i, each in enumerate(orders))


def _sorting(order: Order, reducing: Reducing | None, at: str) -> Sorting:
    if order.direction not in _DIRECTIONS:
        hint = nearest(order.direction, _DIRECTIONS)
        raise invalid(f"Unknown direction {shown(order.direction)}.", f"{at}.direction", hint)

    get: Callable[[Any], Any] = itemgetter(order.field)
    if reducing is None:
        get = path_of(order.field, f"{at}.field").get
    elif order.field not in reducing.columns:
        hint = nearest(order.field, reducing.columns)
        raise invalid(f"The rows have no column {shown(order.field)}.", f"{at}.field", hint)

    return Sorting(order.field, get, order.direction == "desc")


def is_by_seq(sortings: tuple[Sorting, ...], *, descending: bool) -> bool:
    """Return whether the order is the journal's own, or its reverse."""
    return sortings[0].name == "seq" and sortings[0].is_descending is descending


def place_of(sortings: tuple[Sorting, ...], subject: Any, number: int) -> tuple[Any, ...]:
    """Return the sort position of an event or row; equal ones are ordered by their number."""
    places = ((ordered(each.get(subject)), each.is_descending) for each in sortings)
    return *(_Descending(place) if descending else place for place, descending in places), number


@dataclass(frozen=True, slots=True)
class _Descending:
    """A sort position in descending order."""

    place: Ordered

    def __lt__(self, other: _Descending) -> bool:
        return other.place < self.place
