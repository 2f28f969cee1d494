"""`hankweave log`: print the journal as readable lines, or draw its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_server.cli.output.event_lines import SHOWN_TYPES, RunLines, event_line
from hankweave_server.cli.remote import execution_option, follow_from
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.moments import has_past
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.hints import command
from hankweave_server.local.journals import journal_lines, searching_journal
from hankweave_server.local.targeting import require_execution, root_of, start_line
from hankweave_server.paths import Layout

_LINES = 100
_REACH = 32 << 20
"""Bytes at the journal's end that `log` searches for its lines, unless their number is given."""


class _Head(msgspec.Struct):
    type: str


_decode_head = msgspec.json.Decoder(_Head).decode


@click.command()
@execution_option
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events.")
@click.option(
    *("-n", "--lines"),
    type=click.IntRange(min=0),
    help=f"Print the last lines, this many. Default: {_LINES}.",
)
@click.option("--all", "everything", is_flag=True, help="Print all lines.")
@click.option("--graph", is_flag=True, help="Draw the tree of runs and checkpoints instead.")
@click.option(
    "--calls", is_flag=True, help="With --graph: draw the checkpoints of tool calls, too."
)
def log(
    execution: Path | None,
    follow: bool,
    lines: int | None,
    everything: bool,
    graph: bool,
    calls: bool,
) -> None:
    """Print the end of the log of an execution, one line per important event.

    A line on stderr says if earlier ones were left out.

    With --graph, draw the checkpoints of steps, newest first, with a mark for each kind; --calls
    adds those of tool calls. The graph shows which run continued which, what a rollback abandoned,
    where other executions branched off, and the current position.

    \b
    hankweave log --follow
    hankweave log --all
    hankweave log --graph
    """
    if follow and graph:
        raise click.UsageError("--follow and --graph exclude each other.")

    if calls and not graph:
        raise click.UsageError("--calls requires --graph.")

    if sum((graph, everything, lines is not None)) > 1:
        raise click.UsageError("--lines, --all and --graph exclude one another.")

    root = root_of(execution)
    if graph:
        # Imported here because only the graph needs rich.
        from hankweave_server.cli.output import log_graph

        log_graph.draw(root, calls=calls)
        return

    require_execution(root)
    layout, story = Layout.of_execution(root), RunLines()

    def print_event(event: Event) -> None:
        for line in story.lines(event):
            click.echo(line)

    seq = (
        _print_all(layout, print_event) if everything else _print_newest(layout, print_event, lines)
    )

    if follow:
        follow_from(root, seq, print_event)


def _print_all(layout: Layout, print_event: Callable[[Event], None]) -> int:
    """Print all events, oldest first, and return the last seq; raise Stop at a line that is none.

    A last line that is still being written is skipped.
    """
    number = 0
    for number, line in enumerate(journal_lines(layout), start=1):
        try:
            if _decode_head(line).type in SHOWN_TYPES:
                print_event(codec.decode_event(line))
        except (Refused, msgspec.MsgspecError, UnicodeError, RecursionError) as fault:
            raise _no_event(layout, number, fault) from None

    return number


def _print_newest(layout: Layout, print_event: Callable[[Event], None], lines: int | None) -> int:
    """Print the newest events that have a line, oldest first, and return the journal's last seq.

    Unless it is asked for a number of lines, it searches the journal's end alone, and prints a note
    about what it leaves out. Raises Stop at a line that is no event, after those before it.
    """
    if not has_past(layout):
        return 0

    found: list[Event] = []
    damage: Stop | None = None
    with searching_journal(layout) as journal:
        since = 0 if lines is not None else max(0, journal.size - _REACH)
        for end, line in journal.backward(of_types(SHOWN_TYPES), since, with_damage=True):
            try:
                event = codec.decode_event(line)
            except Refused as fault:
                damage = _no_event(layout, journal.lines_before(end), fault)
                found = []
                continue

            if event_line(event.data) is None:
                continue

            if len(found) == (_LINES if lines is None else lines):
                since = end
                break

            found.append(event)

        if since > 0 and lines is None:
            note = f"Earlier lines are left out; {command('log --all', layout.root)} prints them."
            click.echo(note, err=True)

        for event in reversed(found):
            print_event(event)

        if damage is not None:
            raise damage

        return journal.last_seq


def _no_event(layout: Layout, number: int, fault: Exception) -> Stop:
    return Stop(
        f"{layout.journal}, line {number}, is not an event: {fault}",
        ExitCode.BAD_DATA,
        hint=f"`{start_line(layout.root)}` repairs or reports the damage.",
    )


COMMANDS = (log,)
