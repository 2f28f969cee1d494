"""`hankweave pickaxe`: the calls at which a text came or went."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hankweave_server.cli.output.text import encodable, moment
from hankweave_server.cli.remote import execution_option, json_option, print_json, root_of
from hankweave_server.cli.shared import completions
from hankweave_server.features.answers.blame_command import described
from hankweave_server.features.answers.local_past import reading_history
from hankweave_server.features.answers.stories import changes_of
from hankweave_server.plain_text import counted, one_line
from hankweave_server.worktree.data_source import layout_of


@click.command()
@click.argument("text")
@completions.checkpoint_option(
    "--at",
    help="Search up to this checkpoint, or to the end of this step. Default: the newest one.",
)
@click.option("--all", "everywhere", is_flag=True, help="Also search abandoned timelines.")
@execution_option
@json_option
def pickaxe(
    text: str, at: str | None, everywhere: bool, execution: Path | None, as_json: bool
) -> None:
    """List the tool calls that added or removed TEXT, newest first.

    Like `git log -S`, this lists each change of the number of times that a file contains TEXT. No
    server is needed.

    \b
    hankweave pickaxe "def parse_date"
    hankweave pickaxe TODO --all --json
    """
    if not text:
        raise click.UsageError("TEXT is empty. Name the text to search for.")

    if everywhere and at is not None:
        raise click.UsageError("--all and --at exclude each other.")

    with reading_history(layout_of(root_of(execution))) as past:
        files = past.files
        commits = files.every_commit() if everywhere else files.line(past.named(at))
        found = changes_of(past, commits, os.fsencode(text)).changes

    if as_json:
        print_json(found)
        return

    for each in found:
        sign = "+" if each.after > each.before else "-"
        change = f"{sign}{abs(each.after - each.before)}"
        path, who = one_line(each.path), encodable(described(each))
        sha, when = each.checkpoint_sha[:8], moment(each.timestamp)
        click.echo(f"{sha}  {when}  {change:>4}  {path}  {who}")

    if not found:
        where = "any timeline" if everywhere else "this timeline"
        click.echo(f"No checkpoint of {where} has added or removed this text.")
    else:
        click.echo(f"{counted(len(found), 'change')}; `hankweave show SHA` shows one.", err=True)


COMMANDS = (pickaxe,)
