"""`hankweave events`: the journal, asked as `events.query` asks it, without a server."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import Event
from hankweave_server.cli.event_formats import Format, format_of
from hankweave_server.cli.event_questions import CAUSE, FIELDS, MOMENT, Asked, question_of
from hankweave_server.cli.output.progress_bar import Tell, waiting
from hankweave_server.cli.remote import execution_option, follow_from, json_option, root_of
from hankweave_server.domain.query.evaluate import Scan, everything, forward, row_of
from hankweave_server.domain.query.parse import Query, checked
from hankweave_server.domain.query.query_causes import Read
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.reading import open_for_reading
from hankweave_server.paths import Layout

READING = "Reading the journal"


@click.command()
@execution_option
@click.option(
    "--where", multiple=True, help="JSON, or FIELD=VALUE; also != > >= < <= ~, and ~~ for any case."
)
@click.option("--since", type=MOMENT, help="Only after this seq, or from this moment on.")
@click.option("--until", type=MOMENT, help="Only up to this seq or moment.")
@click.option("--caused-by", type=CAUSE, help="Only what names this seq or command as a cause.")
@click.option("--descendants-of", type=CAUSE, help="Only what this seq or command led to.")
@click.option("--ancestors-of", type=click.IntRange(1), help="Only what led to this seq.")
@click.option("--select", type=FIELDS, default=(), help="Fields to show, with commas.")
@click.option("--order-by", type=FIELDS, default=(), help="Fields, each may end in :desc.")
@click.option("--reduce", help="count, or sum:FIELD; also avg min max collect.")
@click.option("--group-by", type=FIELDS, default=(), help="Fields to reduce by.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option(
    *("--format", "form"),
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    help="How to print them.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with the live ones.")
@json_option
def events(
    execution: Path | None,
    limit: int | None,
    form: str,
    follow: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Print the events of the journal, or what a query makes of them.

    \b
    hankweave events --where type=codon.completed --select seq,codonId,data.cost
    hankweave events --reduce sum:data.cost --group-by codonId --order-by sum:desc
    hankweave events --where '{"or": [{"field": "data.path", "op": "contains", "value": "src/"},
                                      {"field": "seq", "op": "between", "value": [5, 9]}]}'
    hankweave events --descendants-of 17 --format csv > what-came-of-it.csv
    """
    with _refusals():
        query = checked(question_of(Asked(**asked)))
        if follow:
            _require_followable(query, limit)

        root = root_of(execution)
        with _journal(root) as journal:
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


def _follow(root: Path, journal: Journal, query: Query, printed: Format) -> None:
    last = journal.last_seq
    scan = Scan(query, journal.read, last)
    _print(printed, (row_of(query, *found) for found in forward(scan, journal.read, last)))

    def tell(event: Event) -> None:
        line = codec.encode(event)
        seen = scan.take(line)
        if seen is not None:
            _say(printed.lines([row_of(query, line, seen)]))

    follow_from(root, last, tell)


def _answer(query: Query, journal: Journal, read: Read, printed: Format, limit: int | None) -> None:
    _print(printed, islice(everything(query, read, journal.last_seq), limit))


def counted(journal: Journal, tell: Tell) -> Read:
    """Reads as the journal does, and tells how far it is: who exports it may have to wait."""

    def read(since: int, limit: int) -> list[bytes]:
        tell(READING, since, journal.last_seq)
        return journal.read(since, limit)

    return read


def _print(printed: Format, items: Iterator[bytes]) -> None:
    _say(printed.head())
    _say(printed.lines(items))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        # With color=None, click would cut what looks like a colour out of an agent's text.
        click.echo(line, color=True)


@contextmanager
def _journal(root: Path) -> Iterator[Journal]:
    """Opens the journal only to read it; a damaged one answers nothing, not the half of it."""
    try:
        journal = open_for_reading(Layout.of_execution(root))
    except FileNotFoundError:
        raise Stop(f"There is no execution in {root}.", ExitCode.NO_INPUT) from None
    except JournalCorrupt as damage:
        raise Stop(
            str(damage),
            ExitCode.BAD_DATA,
            hint="`hankweave log` tells what stands before that line.",
        ) from None

    with closing(journal):
        yield journal


@contextmanager
def _refusals() -> Iterator[None]:
    """Says what a query is refused for as a client would be told it."""
    try:
        yield
    except Refused as refused:
        is_too_large = refused.code is ErrorCode.RESULT_TOO_LARGE
        code = ExitCode.FAILED if is_too_large else ExitCode.USAGE
        place = f" ({refused.path})" if refused.path else ""
        raise Stop(f"{refused.message}{place}", code, hint=refused.hint) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as damage:
        raise Stop(f"An event of the journal cannot be read: {damage}", ExitCode.BAD_DATA) from None


COMMANDS = (events,)
