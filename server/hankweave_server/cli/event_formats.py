"""How events and rows are printed: as JSON lines, as CSV, or as a table for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from hankweave_server.cli.output.local_time import precise_moment
from hankweave_server.domain.query.parse import Query

EVENT_COLUMNS = ("seq", "timestamp", "type", "runId", "codonId", "causes", "data", "id")

CELL_LIMIT = 60
"""Characters of a cell of a table; JSON and CSV are never cut."""


class Format(Protocol):
    """Writes what an answer is made of."""

    def head(self) -> list[str]:
        """Lines above all others."""

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        """Lines of events or rows, given as JSON."""


def format_of(name: str, query: Query) -> Format:
    columns = _columns_of(query)
    match name:
        case "jsonl":
            return JsonLines()
        case "csv":
            return Csv(columns or EVENT_COLUMNS)
        case _:
            return EventTable() if columns is None else RowTable(columns)


def _columns_of(query: Query) -> Sequence[str] | None:
    """The columns of rows; None where the answer is events."""
    if query.reducing is not None:
        return query.reducing.columns

    return None if query.columns is None else [path.text for path in query.columns]


class JsonLines:
    """Each event or row as it is."""

    def head(self) -> list[str]:
        return []

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        return (item.decode(errors="backslashreplace") for item in items)


@dataclass(frozen=True, slots=True)
class Csv:
    """RFC 4180; what is no text is JSON, and null is empty."""

    columns: Sequence[str]

    def head(self) -> list[str]:
        return [_csv(self.columns)]

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        return (_csv(_cells(item, self.columns, _cell)) for item in items)


class EventTable:
    """An event a line: where it stands, when it was, what it is."""

    def head(self) -> list[str]:
        return []

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        for event in map(_head_of, items):
            yield f"{event.seq:>6}  {precise_moment(event.timestamp)}  {event.type}"


class _Head(msgspec.Struct):
    seq: int
    timestamp: str
    type: str


_head_of = msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class RowTable:
    """Columns of equal width, as wide as the widest cell of the first lot of rows."""

    columns: Sequence[str]
    _widths: list[int] = field(default_factory=list)

    def head(self) -> list[str]:
        return []

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        rows = [_cells(item, self.columns, _short) for item in items]
        if not self._widths:
            table = [self.columns, *rows]
            self._widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            yield self._line(self.columns)

        yield from map(self._line, rows)

    def _line(self, cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        return "  ".join(padded).rstrip()


def _cells(item: bytes, columns: Sequence[str], cell: Callable[[Any], str]) -> list[str]:
    values = msgspec.json.decode(item)
    return [cell(values.get(column)) for column in columns]


def _cell(value: Any) -> str:
    if value is None:
        return ""

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(value: Any) -> str:
    """A cell for a terminal: what an agent wrote must not steer it, so nothing unprintable."""
    cell = _cell(value)
    text = cell if len(cell) <= CELL_LIMIT else cell[: CELL_LIMIT - 1] + "…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _csv(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
