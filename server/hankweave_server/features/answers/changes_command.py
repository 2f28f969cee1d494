"""`hankweave changes`: the changes of one file, with who made each."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hankweave_protocol.commands import MAX_CHANGES, ListFileChanges
from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.features.answers.blame_command import described, path_in
from hankweave_server.local.server_session import run_read_only
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.data_source import layout_of


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@completions.checkpoint_option(
    "--at",
    help="The newest checkpoint, or the step with whose end to begin. Default: the newest one.",
)
@click.option(
    "-n",
    "limit",
    type=click.IntRange(1, MAX_CHANGES),
    default=MAX_CHANGES,
    help="Show at most this many changes.",
    show_default=True,
)
@execution_option
@json_option
def changes(path: Path, at: str | None, limit: int, execution: Path | None, as_json: bool) -> None:
    """List the changes of the file PATH, newest first, with who made each.

    A file is followed through new names, rollbacks and restores. No server is needed.

    \b
    hankweave changes src/main.py
    hankweave changes src/main.py -n 5 --at build
    """
    root = root_of(execution)
    name = os.fsdecode(path_in(layout_of(root), path))
    command = ListFileChanges(path=name, at=at, limit=limit)
    found = run_read_only(root, lambda calls: calls.send(command))
    if as_json:
        print_json(found.changes)
        return

    for each in found.changes:
        lines = f"+{each.lines_added} -{each.lines_removed}"
        shown = one_line(each.path)
        sha, when = each.checkpoint_sha[:8], moment(each.timestamp)
        click.echo(f"{sha}  {when}  {lines:>11}  {shown}  {encodable(described(each))}")

    more = ", and older ones; -n shows more" if found.has_more else ""
    note = f"{counted(len(found.changes), 'change')}{more}; `hankweave show SHA` shows one."
    click.echo(note, err=True)


COMMANDS = (changes,)
