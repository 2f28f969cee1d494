"""`hankweave next`, `skip`, `stop` and `retry`: control the plan of a running server."""

from __future__ import annotations

from pathlib import Path

import click

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    CommandData,
    ServerShutdown,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.cli.remote import ask_running, execution_option, json_option, print_json
from hankweave_server.cli.shared import completions
from hankweave_server.local.targeting import confirm, require_consent, root_to_change

_yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask for confirmation. Required without a terminal."
)


@click.command(name="next")
@click.argument("codon", required=False, shell_complete=completions.codons)
@execution_option
@json_option
def start_next(codon: str | None, execution: Path | None, as_json: bool) -> None:
    """Start the next codon of the plan, or CODON.

    \b
    hankweave next
    hankweave next review#1
    """
    command = CodonNext() if codon is None else CodonStart(codon_id=CodonId(codon))
    _finish(root_to_change(execution), command, "Started.", as_json=as_json)


@click.command()
@execution_option
@_yes_option
@json_option
def skip(execution: Path | None, yes: bool, as_json: bool) -> None:
    """Stop the running codon and continue with the next one.

    \b
    hankweave skip
    """
    _end(execution, CodonSkip(), "Skip the codon that runs?", "Skipped.", yes=yes, as_json=as_json)


@click.command()
@execution_option
@click.option("--reason", help="Reason, for the journal.")
@click.option("--server", is_flag=True, help="Shut down the server as well.")
@_yes_option
@json_option
def stop(
    execution: Path | None, reason: str | None, server: bool, yes: bool, as_json: bool
) -> None:
    """Stop the running codon, and with --server, the server.

    Without --server, the server stays up and waits for commands. With it, the server saves the
    codon's work so far in an `exit` checkpoint and shuts down; `hankweave run -e DIR` resumes from
    there.

    \b
    hankweave stop --reason "It runs in circles."
    hankweave stop --server --yes
    """
    if server:
        command: CommandData = ServerShutdown(reason=reason or "client request")
        question, done = "Stop the server?", "The server is stopping."
    else:
        command = CodonForceStop(reason=reason)
        question, done = "Stop the codon that runs?", "Stopped."

    _end(execution, command, question, done, yes=yes, as_json=as_json)


@click.command()
@execution_option
@json_option
def retry(execution: Path | None, as_json: bool) -> None:
    """Run the last codon again, on the current files.

    \b
    hankweave retry
    """
    _finish(root_to_change(execution), CodonRedo(), "Started.", as_json=as_json)


def _end(
    execution: Path | None,
    command: CommandData,
    question: str,
    done: str,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    root = root_to_change(execution)
    require_consent(yes=yes)
    if not (yes or as_json):
        confirm(question)

    _finish(root, command, done, as_json=as_json)


def _finish(root: Path, command: CommandData, done: str, *, as_json: bool) -> None:
    answer = ask_running(root, lambda client: client.send(command))
    if as_json:
        print_json(answer)
    else:
        click.echo(done)


COMMANDS = (start_next, skip, stop, retry)
