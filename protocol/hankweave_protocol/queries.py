"""The shapes of `events.query`: Codebolt's query language for the journal (seed 004).

Names of operators, aggregates, directions and fields are plain text here; the server checks them
and suggests the nearest valid one. Unlike elsewhere, unknown *keys* are refused: with a misspelt
filter, the answer would be that to a different query.
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
    """The operator."""
    operator: str | None = None
    """Codebolt's name for `op`; use one of the two."""
    value: Any = msgspec.UNSET
    """The value to compare with."""
    all_of: tuple[Condition, ...] | None = msgspec.field(name="and", default=None)
    """All of these hold."""
    any_of: tuple[Condition, ...] | None = msgspec.field(name="or", default=None)
    """At least one of these holds."""
    none_of: Condition | None = msgspec.field(name="not", default=None)
    """This does not hold."""


class Order(Value, forbid_unknown_fields=True):
    """A field by which rows are ordered."""

    field: str
    """A dotted path into the event."""
    direction: str = "asc"
    """`asc` or `desc`."""


class Reduction(Value, forbid_unknown_fields=True):
    """One aggregate over all matching events, or over each group of them."""

    type: str
    """The aggregate: `count`, `sum`, `avg`, `min`, `max` or `collect`."""
    field: str | None = None
    """Required by every aggregate except `count`."""
    group_by: tuple[str, ...] = ()
    """One row for each combination of these fields."""


Where: TypeAlias = Condition | tuple[Condition, ...]
"""All conditions in a list must hold."""

Moment: TypeAlias = int | str
"""A seq, or a timestamp."""


class EventsPage(Value):
    """The reply to `events.query`: `events`, or `rows` if it selects or reduces."""

    events: tuple[msgspec.Raw, ...] | None = None
    """Journal lines, unchanged."""
    rows: tuple[msgspec.Raw, ...] | None = None
    """Objects with one key for each selected path, or for each group's path and the aggregate."""
    cursor: str | None = None
    """Send it with the same query to get the next page; absent on the last one."""
