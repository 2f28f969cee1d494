"""`orderBy`: what a query sorts by, and where an event or a row stands by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from hankweave_protocol.queries import Order
from hankweave_server.domain.query.aggregate import Reducing
from hankweave_server.domain.query.fields import Ordered, invalid, nearest, ordered, path_of, shown

ORDERS_LIMIT = 8

_DIRECTIONS = ("asc", "desc")


@dataclass(frozen=True, slots=True)
class Sorting:
    """One thing to sort by: a field of events, or a column of rows."""

    name: str
    get: Callable[[Any], Any]
    is_descending: bool


def sortings_of(
    orders: Order | tuple[Order, ...] | None, reducing: Reducing | None, at: str
) -> tuple[Sorting, ...]:
    """Checks what is to be sorted by; raises Refused with the JSON path."""
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
        raise invalid(f"There is no direction {shown(order.direction)}.", f"{at}.direction", hint)

    return Sorting(order.field, _getter(order, reducing, at), order.direction == "desc")


def _getter(order: Order, reducing: Reducing | None, at: str) -> Callable[[Any], Any]:
    if reducing is None:
        return path_of(order.field, f"{at}.field").get

    if order.field not in reducing.columns:
        hint = nearest(order.field, reducing.columns)
        raise invalid(f"The rows have no column {shown(order.field)}.", f"{at}.field", hint)

    return itemgetter(order.field)


def is_by_seq(sortings: tuple[Sorting, ...], *, descending: bool) -> bool:
    """Tells whether the order is the journal's own, or its reverse."""
    return sortings[0].name == "seq" and sortings[0].is_descending is descending


def place_of(sortings: tuple[Sorting, ...], subject: Any, number: int) -> tuple[Any, ...]:
    """Says where an event or row stands among all others; equal ones stand by their number."""
    return *_keys(sortings, subject), number


def _keys(sortings: tuple[Sorting, ...], subject: Any) -> Iterator[Any]:
    for sorting in sortings:
        place = ordered(sorting.get(subject))
        yield _Descending(place) if sorting.is_descending else place


@dataclass(frozen=True, slots=True)
class _Descending:
    """A place in the order of values, counted from the other end."""

    place: Ordered

    def __lt__(self, other: _Descending) -> bool:
        return other.place < self.place
