"""`hankweave events`: filter the journal file as `events.query` does, without a server.

The options are turned into the same `EventsQuery` that a client sends, so both give the same
answer. The result is printed as JSON lines, as CSV or as a table.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import click
import msgspec

from hankweave_protocol import codec, instants
from hankweave_protocol import events as event_types
from hankweave_protocol.commands import EventsQuery, Moment
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_server.cli.output.event_lines import journal_line
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.text import Days, Parsed, fitted
from hankweave_server.cli.remote import execution_option, follow_from, json_option, root_of
from hankweave_server.domain.event_filter import EventFilter, Read, search
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.journal import ReadableJournal
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.progress import ReportProgress
from hankweave_server.local.targeting import start_line
from hankweave_server.paths import Layout


def _seq_or(name: str, is_other: Callable[[str], bool]) -> Parsed[Moment]:
    """Return the type of a sequence number, or of another notation that `is_other` accepts."""

    def parse(text: str) -> Moment:
        if text.isascii() and text.isdecimal() and len(text) < 16:
            return int(text)

        if not is_other(text):
            raise ValueError(f"{text!r} is not a {name}.")

        return text

    return Parsed(name, parse)


def _is_moment(text: str) -> bool:
    try:
        instants.from_text(text)
    except ValueError:
        return False

    return True


MOMENT = _seq_or("seq or moment like 2025-01-04T12:00:00Z", _is_moment)
CAUSE = _seq_or("seq or command id", bool)

EVENT_COLUMNS = ("seq", "timestamp", "type", "runId", "codonId", "causes", "data", "id")


Format: TypeAlias = Callable[[Iterable[bytes]], Iterator[str]]
"""Formats events, given as JSON."""


def format_of(name: str) -> Format:
    match name:
        case "jsonl":
            return json_lines
        case "csv":
            return csv_lines
        case _:
            return EventTable().lines


def json_lines(items: Iterable[bytes]) -> Iterator[str]:
    """Return one JSON document per line, unchanged."""
    return (item.decode(errors="backslashreplace") for item in items)


def csv_lines(items: Iterable[bytes]) -> Iterator[str]:
    """Yield rows as in RFC 4180; other values than text are JSON, and null is an empty cell."""
    for item in items:
        values = msgspec.json.decode(item)
        yield _csv(_cell(values.get(column)) for column in EVENT_COLUMNS)


def _cell(value: Any) -> str:
    if value is None:
        return ""

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _csv(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


class EventTable:
    """One event per line: sequence number, time, type, and what it says."""

    def __init__(self) -> None:
        self._days = Days()

    def lines(self, items: Iterable[bytes]) -> Iterator[str]:
        for item in items:
            if (heading := self._days.heading(_head_of(item).timestamp)) is not None:
                yield heading

            yield fitted(journal_line(item, self._days.time))


class _Head(msgspec.Struct):
    timestamp: str
    type: str


_head_of = msgspec.json.Decoder(_Head).decode

FOR_PROGRAMS = frozenset(
    kind.TYPE
    for kind in (
        event_types.StateTransition,
        event_types.StateSnapshot,
        event_types.TokenUsage,
        event_types.FiletreeUpdated,
        event_types.RollbackTold,
    )
)
"""Types of events that say in fields what another event says in words; the table omits them."""


def _is_for_people(line: bytes) -> bool:
    return _head_of(line).type not in FOR_PROGRAMS


def _is_any(_: bytes) -> bool:
    return True


READING = "Reading the journal"


@click.command()
@execution_option
@click.option(
    *("--type", "types"),
    multiple=True,
    metavar="TYPE",
    help="Only events of this type. Repeatable.",
)
@click.option(*("--codon", "codon_id"), metavar="CODON", help="Only events of this codon.")
@click.option(*("--run", "run_id"), metavar="RUN", help="Only events of this run.")
@click.option("--text", help="Only events that contain this text, ignoring case.")
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
    types: tuple[str, ...],
    **filters: Any,
) -> None:
    """Print the events of the journal, newest last.

    The table omits events for programs, such as state.transition, unless --type names them. The
    other formats have all events.

    \b
    hankweave events --type codon.completed --since 2025-01-04
    hankweave events --codon observe --text 'no such file'
    hankweave events --json | jq 'select(.data.cost > 0.1)'
    hankweave events --descendants-of 17 --format csv > what-came-of-it.csv
    """
    query = EventsQuery(types=types or None, **filters)
    if follow and (query.until is not None or limit is not None):
        raise click.UsageError("--follow excludes --until and --limit.")

    root = root_of(execution)
    with _refusals(root), searching_journal(Layout.of_execution(root)) as journal:
        last = journal.last_seq
        matching = EventFilter(query, journal.read, last)
        if limit is None and not matching.begins_after and matching.ends_at(last) == last:
            journal.check()

        form = "jsonl" if as_json else form
        lines_of = format_of(form)
        is_shown = _is_any if types or form != "table" else _is_for_people

        def print_past(read: Read) -> None:
            if form == "csv":
                _print([_csv(EVENT_COLUMNS)])

            found = (line for line, _ in search(matching, read, last) if is_shown(line))
            _print(lines_of(islice(found, limit)))

        if follow:
            print_past(journal.read)
            _follow(root, matching, last, lines_of, is_shown)
        elif sys.stdout.isatty():
            print_past(journal.read)
        else:
            with waiting(READING) as report_progress:
                print_past(counted(journal, report_progress))


def _follow(
    root: Path,
    matching: EventFilter,
    last: int,
    lines_of: Format,
    is_shown: Callable[[bytes], bool],
) -> None:
    def print_event(event: Event) -> None:
        line = codec.encode(event)
        if matching.take(line) is not None and is_shown(line):
            _print(lines_of([line]))

    follow_from(root, last, print_event)


def counted(journal: ReadableJournal, report_progress: ReportProgress) -> Read:
    """Return a reader of the journal that reports its progress: an export may take long."""

    def read(since: int, limit: int) -> list[bytes]:
        report_progress(READING, since, journal.last_seq)
        return journal.read(since, limit)

    return read


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        # With color=None, click would strip what looks like a colour sequence from an agent's text.
        click.echo(line, color=True)


@contextmanager
def _refusals(root: Path) -> Iterator[None]:
    """Turn a refused query into a Stop with the message that a client would get."""
    try:
        yield
    except Refused as refused:
        place = f" ({refused.path})" if refused.path else ""
        raise Stop(
            f"{refused.message}{place}", ExitCode.USAGE, hint=refused.hint, code=refused.code
        ) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as damage:
        raise Stop(
            f"The journal has an event that cannot be read: {damage}",
            ExitCode.BAD_DATA,
            hint=f"`{start_line(root)}` repairs or reports the damage.",
        ) from None


COMMANDS = (events,)
