"""The shapes of `events.query`: Codebolt's query language over our journal (seed 004).

Names of operators, aggregates, directions and fields are plain text here: the server knows them,
and answers a wrong one with the nearest right one. Unknown *keys* are refused, unlike elsewhere: a
misspelt filter would answer another question than the one that was asked.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from hankweave_protocol.shapes import Value


class Condition(Value, forbid_unknown_fields=True):
    """One of four forms: `field`, `op`, `value`; or `and`; or `or`; or `not`."""

    field: str | None = None
    """A dotted path: `type`, `seq`, `data.codonId`, `data.files.0.path`."""
    op: str | None = None
    operator: str | None = None
    """Codebolt's name of `op`; one of the two."""
    value: Any = msgspec.UNSET
    all_of: tuple[Condition, ...] | None = msgspec.field(name="and", default=None)
    any_of: tuple[Condition, ...] | None = msgspec.field(name="or", default=None)
    none_of: Condition | None = msgspec.field(name="not", default=None)


class Order(Value, forbid_unknown_fields=True):
    field: str
    direction: str = "asc"


class Reduction(Value, forbid_unknown_fields=True):
    """One aggregate over all that matches, or over each group of it."""

    type: str
    field: str | None = None
    """Needed by every aggregate but `count`."""
    group_by: tuple[str, ...] = ()


Where: TypeAlias = Condition | tuple[Condition, ...]
"""Conditions in a list must all hold."""

Moment: TypeAlias = int | str
"""A seq, or a moment as the wire writes it."""


class EventsPage(Value):
    """The answer to `events.query`: `events`, or `rows` where it selects or reduces."""

    events: tuple[msgspec.Raw, ...] | None = None
    """Journal lines as they are."""
    rows: tuple[msgspec.Raw, ...] | None = None
    """Objects with one key for each selected path, or for each group's path and the aggregate."""
    cursor: str | None = None
    """Give it back, with the same query, to get the next page; absent on the last one."""
