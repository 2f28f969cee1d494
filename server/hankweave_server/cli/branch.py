"""`hankweave branch`: a new execution from a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hankweave_protocol.commands import ExecutionBranch
from hankweave_server.cli.remote import ask, execution_option, json_option, print_json
from hankweave_server.cli.shared import completions
from hankweave_server.local.targeting import root_to_change, start_line


@click.command()
@click.argument("sha", shell_complete=completions.checkpoints)
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="Directory of the new execution. Default: next to the original.",
)
@execution_option
@json_option
def branch(sha: str, path: Path | None, execution: Path | None, as_json: bool) -> None:
    """Create a new execution from checkpoint SHA.

    SHA may be abbreviated. The original execution stays unchanged. No server is started for the new
    one.

    \b
    hankweave branch 6dc2daae
    hankweave branch 6dc2daae --path ~/another-try
    """
    root = root_to_change(execution)
    place = None if path is None else os.path.abspath(path.expanduser())
    sent = ExecutionBranch(checkpoint_sha=sha, path=place)
    what = None if as_json else "Making the branch"
    made = ask(root, lambda client: client.send(sent), what)
    if as_json:
        print_json(made)
        return

    click.echo(made.execution_path)
    click.echo(f"  run it: {start_line(Path(made.execution_path))}")


COMMANDS = (branch,)
