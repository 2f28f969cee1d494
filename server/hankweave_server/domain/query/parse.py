"""A question to the journal, checked: every name in it exists, every limit is kept.

`checked` is the only door: what comes out of it can be answered, whatever the journal holds. What
it refuses it names by its JSON path, with the nearest right word where there is one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import msgspec

from hankweave_protocol import codec
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.queries import Moment, Reduction
from hankweave_server.domain.query.aggregate import AGGREGATES, Reducing
from hankweave_server.domain.query.fields import (
    Path,
    Seen,
    invalid,
    is_in_data,
    nearest,
    path_of,
    shown,
)
from hankweave_server.domain.query.query_conditions import Conditions, Predicate, moment_text
from hankweave_server.domain.query.query_order import Sorting, sortings_of

PAGE = 1_000
"""Events or rows in one answer, unless the query asks for fewer."""

PATHS_LIMIT = 64
"""Fields that a query may select or group by."""

_CURSOR = re.compile(r"(?P<until>[0-9]{1,15})-(?P<after>[0-9]{1,15})-(?P<digest>[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the journal, by seqs and by moments."""

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
class Causes:
    """What led to the events that are meant, or what they led to."""

    caused_by: int | str | None = None
    descendants_of: int | str | None = None
    ancestors_of: int | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the page before ended."""

    until: int
    """The journal's last seq when the first page was asked for: what came later is on no page."""
    after: int
    """The seq of the last event of the page before; of rows, how many there were."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be answered."""

    window: Window
    causes: Causes
    predicate: Predicate | None
    sortings: tuple[Sorting, ...]
    columns: tuple[Path, ...] | None
    reducing: Reducing | None
    looks_into_data: bool
    limit: int
    cursor: Cursor | None
    digest: str
    """Tells this query from others, so that a cursor is not taken for another query's."""

    def cursor_text(self, cursor: Cursor) -> str:
        return f"{cursor.until}-{cursor.after}-{self.digest}"


def checked(command: EventsQuery, at: str = "$.data") -> Query:
    """Checks a query; raises Refused with the JSON path of what is wrong, and a suggestion."""
    conditions = Conditions()
    where = command.where
    predicate = None if where is None else conditions.predicate(where, f"{at}.where")
    reducing = None if command.reduce is None else _reducing(command.reduce, f"{at}.reduce")
    columns = None if command.select is None else _paths(command.select, f"{at}.select")
    if reducing is not None and columns is not None:
        raise invalid("A query selects or reduces, not both.", f"{at}.select")

    sortings = sortings_of(command.order_by, reducing, f"{at}.orderBy")
    digest = _digest(command)
    paths = [*conditions.paths, *(columns or ()), *(reducing.paths if reducing else ())]
    names = [*(path.text for path in paths), *(each.name for each in sortings)]
    return Query(
        window=_window(command, at),
        causes=_causes(command, at),
        predicate=predicate,
        sortings=sortings,
        columns=columns,
        reducing=reducing,
        looks_into_data=any(map(is_in_data, names)),
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
    """Parts a bound into a seq and a moment: it is one of them, or neither."""
    match bound:
        case None:
            return None, None
        case int() if bound < 0:
            raise invalid(f"{bound} is no seq: they begin with 1.", at)
        case int():
            return bound, None
        case _:
            return None, moment_text(bound, at)


def _causes(command: EventsQuery, at: str) -> Causes:
    for name, cause in (
        ("causedBy", command.caused_by),
        ("descendantsOf", command.descendants_of),
        ("ancestorsOf", command.ancestors_of),
    ):
        if isinstance(cause, int) and cause < 1:
            raise invalid(f"{cause} is no seq: they begin with 1.", f"{at}.{name}")

    return Causes(command.caused_by, command.descendants_of, command.ancestors_of)


# --- columns and aggregates -----------------------------------------------------------------------


def _paths(names: tuple[str, ...], at: str) -> tuple[Path, ...]:
    if not 0 < len(names) <= PATHS_LIMIT:
        raise invalid(f"Name 1 to {PATHS_LIMIT} fields.", at)

    if len(set(names)) < len(names):
        raise invalid("A field is named twice.", at)

    return tuple(path_of(name, f"{at}[{i}]") for i, name in enumerate(names))


def _reducing(reduction: Reduction, at: str) -> Reducing:
    aggregate = AGGREGATES.get(reduction.type)
    if aggregate is None:
        hint = nearest(reduction.type, AGGREGATES)
        raise invalid(f"There is no aggregate {shown(reduction.type)}.", f"{at}.type", hint)

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
            "This cursor is none of this query.",
            at,
            "Send the same query again, with the cursor of its last page; limit may differ.",
        )

    return Cursor(int(found["until"]), int(found["after"]))


def _digest(command: EventsQuery) -> str:
    question = msgspec.structs.replace(command, cursor=None, limit=None)
    return hashlib.sha256(codec.encode(question)).hexdigest()[:12]
