"""`hankweave status` and `log`: show the state of a server, and the journal as readable lines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from hankweave_client.client import Client
from hankweave_protocol import codec
from hankweave_protocol.attempts import Exploration
from hankweave_protocol.commands import GetServerStatus
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import Event
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import CodonWait, CompletedCodon, FailedCodon, State
from hankweave_server.cli.output.event_lines import TOLD, RunLines, call_text, event_line
from hankweave_server.cli.output.text import (
    confinement_text,
    costs_text,
    eta_text,
    forecast_text,
    moment,
    size_text,
    span,
)
from hankweave_server.cli.remote import (
    ask_running,
    execution_option,
    follow_from,
    json_option,
    print_json,
)
from hankweave_server.domain.budget.spending import Costs
from hankweave_server.domain.execution_thread import thread
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.moments import has_past
from hankweave_server.ledger.searched_journal import of_types
from hankweave_server.local.journals import journal_lines, searching_journal
from hankweave_server.local.page_address import page_in, page_of
from hankweave_server.local.server_session import command
from hankweave_server.local.targeting import attach_line, require_execution, root_of
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line

_LINES = 100
_REACH = 32 << 20
"""Bytes at the journal's end in which `log` looks for its lines, unless it is told how many."""


class _Head(msgspec.Struct):
    type: str


_decode_head = msgspec.json.Decoder(_Head).decode


async def _status_and_state(client: Client) -> tuple[object, State]:
    return await client.send(GetServerStatus()), await client.state()


@click.command()
@execution_option
@json_option
def status(execution: Path | None, as_json: bool) -> None:
    """Show what the server is doing.

    \b
    hankweave status
    hankweave status -e ~/runs/quakes --json
    """
    found, state = ask_running(execution, _status_and_state)
    if as_json:
        print_json(found)
        return

    answer = msgspec.convert(found, ServerStatus)
    _print_status(answer, state)
    _print_rest(answer, state)


def _print_status(answer: ServerStatus, state: State) -> None:
    click.echo(one_line(answer.execution_path))
    if (page := page_in(answer.lock)) is not None:
        click.echo(f"  page        {page_of(Path(answer.execution_path), page)}")

    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    click.echo(one_line(f"  live        {attach_line(Path(answer.execution_path))}"))
    for problem in answer.problems:
        since = moment(problem.since)
        click.echo(f"  degraded    {problem.message} ({problem.code}, since {since})")

    click.echo(f"  run         {answer.current_run_id or 'none'}")
    doing = answer.active_codon_id or ("rolling back" if answer.is_rolling_back else "idle")
    click.echo(f"  now         {doing}; next: {_following(answer, state) or 'nothing'}")
    if (failure := _failure(answer, state)) is not None:
        click.echo(one_line(f"  failed      {failure}"))

    packed = f"{answer.store_packs} packs, {answer.store_loose_objects} loose objects"
    click.echo(f"  checkpoints {answer.checkpoints}")
    click.echo(f"  store       {size_text(answer.store_bytes)} on disk: {packed}")
    paid = Costs(
        answer.total_cost, answer.rolled_back_cost, answer.budget_usd, answer.attempts_cost
    )
    click.echo(f"  cost        {costs_text(paid)}")
    if reused := _reused(state):
        click.echo(one_line(f"  reused      {', '.join(reused)}"))

    if answer.forecast is not None:
        click.echo(f"  forecast    {forecast_text(answer.forecast, answer.total_cost)}")

    if answer.data_path is not None:
        click.echo(f"  data        {answer.data_path}")

    click.echo(f"  agents      held by {answer.containment}")
    if answer.confinement is not None:
        click.echo(f"  confinement {confinement_text(answer.confinement)}")
        for sentence in answer.confinement.not_covered:
            click.echo(one_line(f"              {sentence}"))
    if answer.waiting is not None:
        click.echo(one_line(f"  waits       {_wait_text(answer.waiting, datetime.now(UTC))}"))

    for asked in answer.pending_permissions:
        what = call_text(asked.tool_name, asked.tool_input)
        click.echo(one_line(f"  asks        {asked.request_id}  {asked.codon_id}  {what}"))

    for exploration in state.explorations:
        if exploration.ended_at is None:
            click.echo(one_line(f"  explores    {_exploration_text(exploration)}"))

    heartbeat = moment(answer.lock.last_heartbeat)
    click.echo(f"  heartbeat   {heartbeat}, event {answer.last_event_seq}")


def _print_rest(answer: ServerStatus, state: State) -> None:
    """Print how long the plan still takes, while it is running."""
    if answer.active_codon_id is not None:
        # Imported here because only this reads hanks and earlier executions.
        from hankweave_server.local.reports import eta_of

        root = Path(answer.execution_path)
        left = eta_of(root, state, datetime.now(UTC), is_running=True)
        click.echo(one_line(f"  left        {eta_text(left)}"))


def _failure(answer: ServerStatus, state: State) -> str | None:
    """Return the step at which the plan stands because it failed, and why."""
    newest = next(reversed(thread(state)), None)
    if answer.active_codon_id is not None or newest is None:
        return None

    match newest.codon:
        case FailedCodon(codon_id=name, failure_reason=reason):
            sentence = (reason.message or "").strip().partition("\n")[0]
            return f"{name}: {sentence or reason.type}"
        case _:
            return None


def _exploration_text(exploration: Exploration) -> str:
    statuses = [attempt.status for attempt in exploration.attempts]
    open_ones = statuses.count("waiting") + statuses.count("running")
    ended = len(statuses) - open_ones
    return f"{exploration.codon_id}: {ended} of {counted(len(statuses), 'attempt')} ended"


def _wait_text(wait: CodonWait, now: datetime) -> str:
    left = span((from_text(wait.until) - now).total_seconds())
    return (
        f"for the end of a {wait.kind} limit, until {moment(wait.until)} (in {left}); "
        "`hankweave next` continues now"
    )


def _reused(state: State) -> list[CodonId]:
    """Return the codons of the thread whose results were taken over."""
    codons = (entry.codon for entry in thread(state))
    return [each.codon_id for each in codons if isinstance(each, CompletedCodon) and each.reused]


def _following(answer: ServerStatus, state: State) -> CodonId | None:
    """Return the codon after the one that runs, as far as the plan is known."""
    if answer.next_codon_id != answer.active_codon_id:
        return answer.next_codon_id

    plan = [entry.codon_id for entry in state.execution_plan]
    later = plan[plan.index(answer.next_codon_id) + 1 :] if answer.next_codon_id in plan else []
    return later[0] if later else None


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
def log(
    execution: Path | None, follow: bool, lines: int | None, everything: bool, graph: bool
) -> None:
    """Print the end of the log of an execution, one line per important event.

    A line on stderr says if earlier ones were left out.

    With --graph, draw every checkpoint, newest first, with a mark for its kind. The graph shows
    which run continued which, what a rollback abandoned, where other executions branched off, and
    the current position.

    \b
    hankweave log --follow
    hankweave log --all
    hankweave log --graph
    """
    if follow and graph:
        raise click.UsageError("--follow and --graph exclude each other.")

    if sum((graph, everything, lines is not None)) > 1:
        raise click.UsageError("--lines, --all and --graph exclude one another.")

    root = root_of(execution)
    if graph:
        # Imported here because only the graph needs rich.
        from hankweave_server.cli.output import log_graph

        log_graph.draw(root)
        return

    require_execution(root)
    layout, story = Layout.of_execution(root), RunLines()

    def tell(event: Event) -> None:
        for line in story.lines(event):
            click.echo(line)

    seq = _tell_all(layout, tell) if everything else _tell_newest(layout, tell, lines)

    if follow:
        follow_from(root, seq, tell)


def _tell_all(layout: Layout, tell: Callable[[Event], None]) -> int:
    """Tell all events, oldest first, and return the last seq; raise Stop at a line that is none.

    A last line that is still being written is skipped.
    """
    number = 0
    for number, line in enumerate(journal_lines(layout), start=1):
        try:
            if _decode_head(line).type in TOLD:
                tell(codec.decode_event(line))
        except (Refused, msgspec.MsgspecError, UnicodeError, RecursionError) as fault:
            raise _no_event(layout.journal, number, fault) from None

    return number


def _tell_newest(layout: Layout, tell: Callable[[Event], None], lines: int | None) -> int:
    """Tell the newest events that have a line, oldest first, and return the journal's last seq.

    Unless it is asked for a number of lines, it looks for some at the journal's end alone, and says
    what it leaves out. Raises Stop at a line that is no event, after telling those before it.
    """
    if not has_past(layout):
        return 0

    found: list[Event] = []
    damage: Stop | None = None
    with searching_journal(layout) as journal:
        since = 0 if lines is not None else max(0, journal.size - _REACH)
        for end, line in journal.backward(of_types(TOLD), since, with_damage=True):
            try:
                event = codec.decode_event(line)
            except Refused as fault:
                damage = _no_event(layout.journal, journal.lines_before(end), fault)
                found = []
                continue

            if event_line(event.data) is None:
                continue

            if len(found) == (_LINES if lines is None else lines):
                since = end
                break

            found.append(event)

        if since > 0 and lines is None:
            said = f"Earlier lines are left out; {command('log --all', layout.root)} prints them."
            click.echo(said, err=True)

        for event in reversed(found):
            tell(event)

        if damage is not None:
            raise damage

        return journal.last_seq


def _no_event(path: Path, number: int, fault: Exception) -> Stop:
    return Stop(
        f"{path}, line {number}, is not an event: {fault}",
        ExitCode.BAD_DATA,
        hint="Start the server on this execution; it repairs or reports the damage.",
    )


COMMANDS = (status, log)
