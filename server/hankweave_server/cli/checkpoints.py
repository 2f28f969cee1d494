"""`hankweave checkpoints` and `checkpoint`: list the checkpoints, and take one now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import get_args

import click

from hankweave_client.calls import Calls
from hankweave_protocol.commands import CheckpointCreate, ListCheckpoints
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.replies import CheckpointPage
from hankweave_server.cli.output.text import Days, fitted, precise_moment, title_text
from hankweave_server.cli.remote import (
    ask,
    execution_option,
    json_option,
    print_json,
    root_of,
)
from hankweave_server.cli.shared import completions
from hankweave_server.local.server_session import run_read_only
from hankweave_server.local.targeting import root_to_change
from hankweave_server.plain_text import counted, one_line

KINDS = get_args(CheckpointKind)


@click.command()
@execution_option
@click.option(
    "--run", "run_id", shell_complete=completions.runs, help="Only checkpoints of this run."
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Only checkpoints of this kind. Repeatable.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Print at most this many.")
@json_option
def checkpoints(
    execution: Path | None,
    run_id: str | None,
    kinds: tuple[CheckpointKind, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """List checkpoints, newest first.

    \b
    hankweave checkpoints -n 20
    hankweave checkpoints --run 1795284950552-c58b44-69602b --kind completed
    """

    async def work(calls: Calls) -> CheckpointPage:
        found: list[CheckpointRecord] = []
        branch: str | None = None
        async for page in pages_of_checkpoints(calls, run_id=run_id, kinds=kinds, limit=limit):
            found += page.checkpoints
            branch = page.current_branch

        return CheckpointPage(checkpoints=tuple(found), current_branch=branch)

    page = run_read_only(root_of(execution), work)
    if as_json:
        print_json(page)
        return

    print_checkpoints(page.checkpoints)


def print_checkpoints(records: Iterable[CheckpointRecord]) -> None:
    days = Days()
    for record in records:
        if (heading := days.heading(record.timestamp)) is not None:
            click.echo(heading)

        click.echo(fitted(line_of_checkpoint(record, days.time(record.timestamp))))


async def pages_of_checkpoints(
    calls: Calls,
    *,
    run_id: str | None = None,
    kinds: tuple[CheckpointKind, ...] = (),
    limit: int | None = None,
) -> AsyncIterator[CheckpointPage]:
    """Request page after page, newest first, to the end or up to `limit` checkpoints."""
    cursor: str | None = None
    while True:
        page = await calls.send(
            ListCheckpoints(
                run_id=None if run_id is None else RunId(run_id),
                kinds=kinds or None,
                limit=limit,
                cursor=cursor,
            )
        )
        yield page
        cursor = page.cursor
        if limit is not None:
            limit -= len(page.checkpoints)

        if cursor is None or limit == 0:
            return


def line_of_checkpoint(record: CheckpointRecord, when: str | None = None) -> str:
    """Return a checkpoint in a line; `when` is its time, by default with the date."""
    codon = record.coordinate.codon_id or "-"
    when = when or precise_moment(record.timestamp)
    what = f"{record.sha[:12]}  {record.kind:<10} {codon:<16} {when}"
    pin = "  [pinned]" if record.pinned else ""
    return f"{one_line(what)}  {title_text(record)}{pin}"


@click.command()
@click.argument("label", required=False)
@execution_option
@json_option
def checkpoint(label: str | None, execution: Path | None, as_json: bool) -> None:
    """Take a checkpoint of the work tree, with an optional LABEL.

    Files that could not be captured are listed. `hankweave pin` protects a checkpoint from pruning.

    \b
    hankweave checkpoint
    hankweave checkpoint "before I edit the notes"
    """
    root = root_to_change(execution)
    command = CheckpointCreate(label=label)
    what = None if as_json else "Taking the checkpoint"
    record = ask(root, lambda client: client.send(command), what)
    if as_json:
        print_json(record)
        return

    click.echo(line_of_checkpoint(record))
    for each in record.skipped:
        click.echo(one_line(f"  not captured: {each.path}: {each.reason}"))

    if record.skipped_total is not None:
        left = record.skipped_total - len(record.skipped)
        click.echo(f"  not captured: {counted(left, 'more file')}")


COMMANDS = (checkpoints, checkpoint)
