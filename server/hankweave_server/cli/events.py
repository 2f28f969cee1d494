"""`hankweave events`: query the journal file as `events.query` does, without a server.

The options are turned into the same `EventsQuery` that a client sends, so both give the same
answer. The result is printed as JSON lines, as CSV or as a table.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol.commands import EventsQuery
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import Event
from hankweave_protocol.queries import Condition, Moment, Order, Reduction, Where
from hankweave_server.cli.output.event_lines import journal_line
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.text import Days, fitted
from hankweave_server.cli.remote import execution_option, follow_from, json_option, root_of
from hankweave_server.domain.query.evaluate import Read, Scan, everything, forward, row_of
from hankweave_server.domain.query.parse import Query, checked
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.journal import ReadableJournal
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.progress import ReportProgress
from hankweave_server.paths import Layout

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


def question_of(
    *,
    where: tuple[str, ...],
    select: tuple[str, ...],
    order_by: tuple[str, ...],
    reduce: str | None,
    group_by: tuple[str, ...],
    **others: Any,
) -> EventsQuery:
    """Build the query of some options; `others` are fields of the query as they are.

    Raises Refused for JSON that is not a condition, and UsageError.
    """
    if group_by and reduce is None:
        raise click.UsageError("--group-by needs --reduce, for instance --reduce count.")

    return EventsQuery(
        where=tuple(part for text in where for part in _conditions(text)) or None,
        select=select or None,
        order_by=tuple(map(_order, order_by)) or None,
        reduce=None if reduce is None else _reduction(reduce, group_by),
        **others,
    )


def _conditions(text: str) -> tuple[Condition, ...]:
    if text.lstrip()[:1] in ("{", "["):
        where: Where = codec.decode_value(Where, text)  # type: ignore[arg-type]
        return where if isinstance(where, tuple) else (where,)

    found = _SHORT.fullmatch(text)
    if found is None:
        raise click.UsageError(
            f"--where {text!r} is neither JSON nor of the form type=codon.started or data.cost>0.1."
        )

    return (_comparison(found["field"], found["sign"], found["value"]),)


def _comparison(field: str, sign: str, text: str) -> Condition:
    """Return the condition of a comparison in short form.

    Text that is valid JSON stands for the JSON value; `=` and `!=` also match the text itself.
    """
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
    """A sequence number, or another notation that `is_other` accepts."""

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
            self.fail(f"{text!r} is not a {self.name}.", param, ctx)

        return text


def _is_moment(text: str) -> bool:
    try:
        instants.from_text(text)
    except ValueError:
        return False

    return True


class _Fields(click.ParamType[tuple[str, ...]]):
    """Comma-separated fields."""

    name = "fields"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value

        fields = tuple(part.strip() for part in str(value).split(","))
        if not all(fields):
            self.fail(f"{value!r} is not a list of fields like seq,data.codonId.", param, ctx)

        return fields


MOMENT = _Seq("seq or moment like 2025-01-04T12:00:00Z", _is_moment)
CAUSE = _Seq("seq or command id", bool)
FIELDS = _Fields()


EVENT_COLUMNS = ("seq", "timestamp", "type", "runId", "codonId", "causes", "data", "id")

CELL_LIMIT = 60
"""Maximum characters of a table cell; JSON and CSV are never truncated."""


class Format(Protocol):
    """An output format for events or rows."""

    def head(self) -> list[str]:
        """Return the header lines."""

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        """Format events or rows, given as JSON."""


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
    """Return the columns of rows; None if the query returns events."""
    if query.reducing is not None:
        return query.reducing.columns

    return None if query.columns is None else [path.text for path in query.columns]


class JsonLines:
    """One JSON document per line, unchanged."""

    def head(self) -> list[str]:
        return []

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        return (item.decode(errors="backslashreplace") for item in items)


@dataclass(frozen=True, slots=True)
class Csv:
    """CSV as in RFC 4180; values other than text are written as JSON, null as an empty cell."""

    columns: Sequence[str]

    def head(self) -> list[str]:
        return [_csv(self.columns)]

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        return (_csv(_cells(item, self.columns, _cell)) for item in items)


class EventTable:
    """One event per line: sequence number, time, type, and what it says."""

    def __init__(self) -> None:
        self._days = Days()

    def head(self) -> list[str]:
        return []

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        for item in items:
            if (heading := self._days.heading(_head_of(item).timestamp)) is not None:
                yield heading

            yield fitted(journal_line(item, self._days.time))


class _Head(msgspec.Struct):
    timestamp: str


_head_of = msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class RowTable:
    """Aligned columns; the first batch of rows determines their widths."""

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
    """Format a table cell, with unprintable characters escaped.

    Text from an agent must not send control sequences to the terminal.
    """
    cell = _cell(value)
    text = cell if len(cell) <= CELL_LIMIT else cell[: CELL_LIMIT - 1] + "…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _csv(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


READING = "Reading the journal"


@click.command()
@execution_option
@click.option(
    "--where",
    multiple=True,
    help="Condition: JSON, or FIELD=VALUE. Operators: = != > >= < <=, ~ (contains), ~~ (contains, "
    "ignoring case). Repeatable.",
)
@click.option(
    "--since",
    type=MOMENT,
    metavar="SEQ|TIME",
    help="Only events after this seq, or from this time on, e.g. 2025-01-04T12:00:00Z.",
)
@click.option(
    "--until", type=MOMENT, metavar="SEQ|TIME", help="Only events up to this seq or time."
)
@click.option(
    "--caused-by",
    type=CAUSE,
    metavar="SEQ|COMMAND_ID",
    help="Only direct effects of this event or command.",
)
@click.option(
    "--descendants-of",
    type=CAUSE,
    metavar="SEQ|COMMAND_ID",
    help="Only direct and indirect effects of this event or command.",
)
@click.option(
    "--ancestors-of", type=click.IntRange(1), help="Only direct and indirect causes of this event."
)
@click.option("--select", type=FIELDS, default=(), help="Fields to print, separated by commas.")
@click.option(
    "--order-by",
    type=FIELDS,
    default=(),
    help="Fields to sort by, separated by commas; FIELD:desc reverses the order.",
)
@click.option("--reduce", help="Aggregate: count, or sum, avg, min, max, collect as in sum:FIELD.")
@click.option("--group-by", type=FIELDS, default=(), help="Fields to group by, with --reduce.")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many.")
@click.option(
    *("--format", "form"),
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    help="Output format. Default: table.",
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events.")
@json_option
def events(
    execution: Path | None,
    limit: int | None,
    form: str,
    follow: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Print the events of the journal, newest last, or the result of a query.

    \b
    hankweave events --where type=codon.completed --select seq,codonId,data.cost
    hankweave events --reduce sum:data.cost --group-by codonId --order-by sum:desc
    hankweave events --where '{"or": [{"field": "data.path", "op": "contains", "value": "src/"},
                                      {"field": "seq", "op": "between", "value": [5, 9]}]}'
    hankweave events --descendants-of 17 --format csv > what-came-of-it.csv
    """
    with _refusals():
        query = checked(question_of(**asked))
        if follow:
            _require_followable(query, limit)

        root = root_of(execution)
        with searching_journal(Layout.of_execution(root)) as journal:
            if not _is_of_a_part(query, limit):
                journal.check()

            printed = format_of("jsonl" if as_json else form, query)
            if follow:
                _follow(root, journal, query, printed)
            elif sys.stdout.isatty():
                _answer(query, journal, journal.read, printed, limit)
            else:
                with waiting(READING) as tell:
                    _answer(query, journal, counted(journal, tell), printed, limit)


def _require_followable(query: Query, limit: int | None) -> None:
    ends = query.window.until_seq or query.window.until_moment or limit
    if ends or query.sortings or query.reducing:
        raise click.UsageError("--follow excludes --until, --limit, --order-by and --reduce.")


def _is_of_a_part(query: Query, limit: int | None) -> bool:
    window = query.window
    return limit is not None or bool(window.after_seq or window.until_seq)


def _follow(root: Path, journal: ReadableJournal, query: Query, printed: Format) -> None:
    last = journal.last_seq
    scan = Scan(query, journal.read, last)
    _print(printed, (row_of(query, *found) for found in forward(scan, journal.read, last)))

    def tell(event: Event) -> None:
        line = codec.encode(event)
        seen = scan.take(line)
        if seen is not None:
            _say(printed.lines([row_of(query, line, seen)]))

    follow_from(root, last, tell)


def _answer(
    query: Query, journal: ReadableJournal, read: Read, printed: Format, limit: int | None
) -> None:
    _print(printed, islice(everything(query, read, journal.last_seq), limit))


def counted(journal: ReadableJournal, tell: ReportProgress) -> Read:
    """Return a reader of the journal that reports its progress: an export may take long."""

    def read(since: int, limit: int) -> list[bytes]:
        tell(READING, since, journal.last_seq)
        return journal.read(since, limit)

    return read


def _print(printed: Format, items: Iterator[bytes]) -> None:
    _say(printed.head())
    _say(printed.lines(items))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        # With color=None, click would strip what looks like a colour sequence from an agent's text.
        click.echo(line, color=True)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn a refused query into a Stop with the message that a client would get."""
    try:
        yield
    except Refused as refused:
        is_too_large = refused.code is ErrorCode.RESULT_TOO_LARGE
        code = ExitCode.FAILED if is_too_large else ExitCode.USAGE
        place = f" ({refused.path})" if refused.path else ""
        raise Stop(
            f"{refused.message}{place}", code, hint=refused.hint, code=refused.code
        ) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as damage:
        raise Stop(
            f"The journal has an event that cannot be read: {damage}",
            ExitCode.BAD_DATA,
            hint="Start the server on this execution; it repairs or reports the damage.",
        ) from None


COMMANDS = (events,)
