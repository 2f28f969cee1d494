"""What the options of `hankweave events` mean, as the query that a client would send."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.queries import Condition, Moment, Order, Reduction, Where

_SHORT = re.compile(r"(?P<field>[\w.]+) ?(?P<sign>!=|>=|<=|=|>|<|~~|~) ?(?P<value>.*)", re.DOTALL)
_SIGNS = {
    "=": "eq",
    "!=": "neq",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "~": "contains",
    "~~": "containsIgnoringCase",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that make a query."""

    where: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None
    caused_by: Moment | None = None
    descendants_of: Moment | None = None
    ancestors_of: int | None = None
    select: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    reduce: str | None = None
    group_by: tuple[str, ...] = ()


def question_of(asked: Asked) -> EventsQuery:
    """Puts options into a query; raises Refused for JSON that is no condition, and UsageError."""
    if asked.group_by and asked.reduce is None:
        raise click.UsageError("--group-by needs --reduce, for instance --reduce count.")

    return EventsQuery(
        where=tuple(part for text in asked.where for part in _conditions(text)) or None,
        since=asked.since,
        until=asked.until,
        caused_by=asked.caused_by,
        descendants_of=asked.descendants_of,
        ancestors_of=asked.ancestors_of,
        select=asked.select or None,
        order_by=tuple(map(_order, asked.order_by)) or None,
        reduce=None if asked.reduce is None else _reduction(asked.reduce, asked.group_by),
    )


def _conditions(text: str) -> tuple[Condition, ...]:
    if text.lstrip()[:1] in ("{", "["):
        where: Where = codec.decode_value(Where, text)  # type: ignore[arg-type]
        return where if isinstance(where, tuple) else (where,)

    found = _SHORT.fullmatch(text)
    if found is None:
        raise click.UsageError(
            f"--where {text!r} is neither JSON nor like type=codon.started or data.cost>0.1."
        )

    return (_comparison(found["field"], found["sign"], found["value"]),)


def _comparison(field: str, sign: str, text: str) -> Condition:
    """A value that is JSON is that value; where it is compared for equality, also its text."""
    value = _value_of(text)
    if isinstance(value, str) or sign not in ("=", "!="):
        return Condition(field=field, op=_SIGNS[sign], value=value)

    either = Condition(field=field, op="in", value=[value, text])
    return either if sign == "=" else Condition(none_of=either)


def _value_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return text


def _order(text: str) -> Order:
    field, _, direction = text.partition(":")
    return Order(field=field, direction=direction or "asc")


def _reduction(text: str, group_by: tuple[str, ...]) -> Reduction:
    kind, _, field = text.partition(":")
    return Reduction(type=kind, field=field or None, group_by=group_by)


# --- types of options -----------------------------------------------------------------------------


class _Seq(click.ParamType[Moment]):
    """A seq, or what may stand for one."""

    def __init__(self, name: str, is_other: Callable[[str], bool]) -> None:
        self.name = name
        self._is_other = is_other

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) < 16:
            return int(text)

        if not self._is_other(text):
            self.fail(f"{text!r} is no {self.name}.", param, ctx)

        return text


def _is_moment(text: str) -> bool:
    try:
        instants.from_text(text)
    except ValueError:
        return False

    return True


class _Fields(click.ParamType[tuple[str, ...]]):
    """Fields with commas between them."""

    name = "fields"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value

        fields = tuple(part.strip() for part in str(value).split(","))
        if not all(fields):
            self.fail(f"{value!r} names no fields; write them like seq,data.codonId.", param, ctx)

        return fields


MOMENT = _Seq("seq or moment like 2025-01-04T12:00:00Z", _is_moment)
CAUSE = _Seq("seq or command id", bool)
FIELDS = _Fields()
