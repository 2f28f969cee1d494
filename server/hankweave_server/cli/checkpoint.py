"""`hankweave checkpoint`: take a checkpoint of the work tree now."""

from __future__ import annotations

from pathlib import Path

import click

from hankweave_protocol.commands import CheckpointCreate
from hankweave_server.cli.checkpoints import line_of_checkpoint
from hankweave_server.cli.remote import (
    ask,
    execution_option,
    json_option,
    print_json,
)
from hankweave_server.local.targeting import root_to_change
from hankweave_server.plain_text import one_line


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
    record = ask(root, lambda client: client.ask(command), what)
    if as_json:
        print_json(record)
        return

    click.echo(line_of_checkpoint(record))
    for each in record.skipped:
        click.echo(one_line(f"  not captured: {each.path}: {each.reason}"))

    if record.skipped_total is not None:
        click.echo(f"  not captured: {record.skipped_total - len(record.skipped)} more files")


COMMANDS = (checkpoint,)
