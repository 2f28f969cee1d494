"""`hankweave status`: ask the server or read the files, and print the summary."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from hankweave_client.client import Client
from hankweave_client.errors import NotRunning
from hankweave_protocol.commands import GetServerStatus, GetState
from hankweave_protocol.ids import CodonId
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_server.cli.output.text import (
    confinement_text,
    costs_text,
    encodable,
    eta_text,
    fitted,
    forecast_text,
    moment,
    print_line,
    size_text,
)
from hankweave_server.cli.remote import ask_running, execution_option, json_option, print_json
from hankweave_server.cli.status.changes import NO_CHANGES, FileChanges, changes_of
from hankweave_server.cli.status.standing import StatusFacts
from hankweave_server.cli.status.steps import was_reused
from hankweave_server.cli.status.summary import summary_of
from hankweave_server.domain.budget.spending import Costs
from hankweave_server.domain.execution_thread import thread
from hankweave_server.errors import Stop
from hankweave_server.ledger.moments import has_past, saved_state, state_at_end
from hankweave_server.local.catalog import listed
from hankweave_server.local.journals import searching_journal
from hankweave_server.local.page_address import page_in, page_of
from hankweave_server.local.server_session import at_server
from hankweave_server.local.targeting import require_execution, root_of
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line


@click.command()
@execution_option
@click.option("--verbose", "-v", is_flag=True, help="Show details of the server and the machine.")
@json_option
def status(execution: Path | None, verbose: bool, as_json: bool) -> None:
    """Show where the plan stands, and what to do next.

    The files that the step has changed are listed, and those that you have edited. Without a
    server, this is the last state. With --json, the output is the server's own report,
    and needs one.

    \b
    hankweave status
    hankweave status -v
    hankweave status -e ~/runs/quakes --json
    """
    if as_json:
        print_json(ask_running(execution, lambda client: client.send(GetServerStatus())))
        return

    root = root_of(execution)
    require_execution(root)
    answer, state, changes = _read_status(root)
    print_summary(_facts(root, state, answer, changes))

    if verbose and answer is not None:
        click.echo()
        _print_details(answer, state)


def print_summary(facts: StatusFacts) -> None:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    for line in summary_of(facts, columns):
        text = encodable(line.text)
        print_line(text if line.is_whole else fitted(text), line.style)


def _read_status(root: Path) -> tuple[ServerStatus | None, State, FileChanges]:
    """Return what the server reports, or what the files contain."""
    try:
        found, state, changes = at_server(root, _asked)
    except (NotRunning, ConnectionRefusedError):
        return None, *_on_files(root)

    return found, state, changes


async def _asked(client: Client) -> tuple[ServerStatus, State, FileChanges]:
    found, state = await client.send(GetServerStatus()), await client.send(GetState())
    return found, state, await changes_of(client, state)


def _on_files(root: Path) -> tuple[State, FileChanges]:
    if not has_past(layout := Layout.of_execution(root)):
        return EMPTY_STATE, NO_CHANGES

    saved = saved_state(layout)
    with searching_journal(layout) as journal:
        state = state_at_end(journal, saved)

    # Imported here because only this needs the libraries that read checkpoints.
    from hankweave_server.local.reader import on_files

    try:
        return state, on_files(layout, lambda calls: changes_of(calls, state))
    except Stop:
        return state, NO_CHANGES  # Damaged checkpoints hide the changes, not the state.


def _facts(
    root: Path, state: State, answer: ServerStatus | None, changes: FileChanges
) -> StatusFacts:
    page = None if answer is None else page_in(answer.lock)
    address = None if page is None else page_of(root, page)
    now = datetime.now(UTC)
    return StatusFacts(root, state, listed(root), now, answer, address, changes)


def _print_details(answer: ServerStatus, state: State) -> None:
    click.echo(f"  server      pid {answer.pid}, up {answer.uptime_ms / 1000:.0f} s")
    for problem in answer.problems:
        since = moment(problem.since)
        click.echo(f"  degraded    {problem.message} ({problem.code}, since {since})")

    click.echo(f"  run         {answer.current_run_id or 'none'}")
    packed = f"{answer.store_packs} packs, {answer.store_loose_objects} loose objects"
    click.echo(f"  checkpoints {answer.checkpoints}")
    click.echo(f"  store       {size_text(answer.store_bytes)} on disk: {packed}")
    paid = Costs(
        answer.total_cost, answer.rolled_back_cost, answer.budget_usd, answer.attempts_cost
    )
    click.echo(f"  cost        {costs_text(paid)}")
    if reused := _reused(state):
        click.echo(one_line(f"  reused      {', '.join(reused)}"))

    if answer.data_path is not None:
        click.echo(one_line(f"  data        {answer.data_path}"))

    click.echo(f"  agents      held by {answer.containment}")
    if answer.confinement is not None:
        click.echo(f"  confinement {confinement_text(answer.confinement)}")
        for sentence in answer.confinement.not_covered:
            click.echo(one_line(f"              {sentence}"))

    heartbeat = moment(answer.lock.last_heartbeat)
    click.echo(f"  heartbeat   {heartbeat}, event {answer.last_event_seq}")
    for line in _left_lines(answer, state):
        click.echo(one_line(f"  {line}"))


def _left_lines(answer: ServerStatus, state: State) -> Iterator[str]:
    """Yield one line about what is left: the forecast, or what other executions suggest.

    The forecast, which the summary uses as well, knows only this execution.
    """
    seen = answer.forecast
    if seen is not None and (seen.remaining_ms is not None or answer.active_codon_id is None):
        yield f"forecast    {forecast_text(seen, answer.total_cost)}"
    elif answer.active_codon_id is not None:
        # Imported here because only this reads hanks and earlier executions.
        from hankweave_server.local.eta import eta_of

        root = Path(answer.execution_path)
        left = eta_of(root, state, datetime.now(UTC), is_running=True)
        yield f"left        {eta_text(left)}"


def _reused(state: State) -> list[CodonId]:
    """Return the codons of the thread whose results were taken over."""
    return [entry.codon.codon_id for entry in thread(state) if was_reused(entry.codon)]


COMMANDS = (status,)
