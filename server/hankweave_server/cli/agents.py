"""`hankweave agents`: list the agents on this machine, and test them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import click
from rich.table import Table
from rich.text import Text

from hankweave_protocol.hank import AcpAgentSpec, AgentSpec
from hankweave_protocol.state import FailureReason
from hankweave_server.agents.base import AgentError
from hankweave_server.agents.inventory import Found, known_of, look, look_at_all
from hankweave_server.agents.self_test import SelfTest, self_test
from hankweave_server.cli.output.text import confinement_text, console
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.plain_text import one_line

ALL = "all"
"""The value of `--test` without a name."""

_HOW_TO_INSTALL = "`hankweave agents` shows how to install them."


@click.command()
@json_option
@click.option(
    "--acp",
    "commands",
    metavar="COMMAND",
    multiple=True,
    help="Include the agent that COMMAND starts, named after its program. It must speak the Agent "
    "Client Protocol (ACP). Repeatable.",
)
@click.option(
    "--test",
    "tested",
    metavar="[NAME]",
    is_flag=False,
    flag_value=ALL,
    help="Test this agent, or every installed one, by having it write a file. This may cost money.",
)
@click.option("--model", help="Model for --test NAME.")
@click.option("--prices", type=click.Path(path_type=Path), help="File with your own model prices.")
def agents(
    as_json: bool,
    commands: tuple[str, ...],
    tested: str | None,
    model: str | None,
    prices: Path | None,
) -> None:
    """List the known agents, and whether they are installed.

    The list shows version, program, and whether a key or login was found. Keys are never printed.
    With --test, an agent runs one short turn in a temporary directory. Without a NAME, all
    installed agents are tested, one after the other. The exit code is 0 if the test passed, 1 if it
    failed and 69 if the agent is not installed.

    \b
    hankweave agents
    hankweave agents --test claude
    hankweave agents --test
    """
    named = {**BY_NAME, **dict(map(_of_command, commands))}
    if tested is None:
        if model is not None or prices is not None:
            raise click.UsageError("--model and --prices require --test.")

        _list(look_at_all(named), as_json=as_json)
        return

    if tested == ALL and tested not in named:
        done = _test_all(named, model, prices, as_json=as_json)
    else:
        done = [_test(tested, named, model, prices, as_json=as_json)]

    if not all(each.passed for each in done):
        sys.exit(ExitCode.FAILED)


def _of_command(command: str) -> tuple[str, AgentSpec]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"--acp {command!r}: {error}.") from None

    if not words:
        raise click.UsageError("--acp needs a command line, such as 'opencode acp'.")

    return PurePosixPath(words[0]).name, AcpAgentSpec(command=words)


# --- the list ----------------------------------------------------------------------------------


def _list(found: list[Found], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Agent", "Version", "Program", "Key or login"):
        table.add_column(column, overflow="fold")

    for each in found:
        words = (each.name, each.version or "-", _program(each), _login(each))
        table.add_row(*(Text(one_line(word)) for word in words))

    console().print(table)


def _program(found: Found) -> str:
    needs = "" if found.needs is None else f". It needs a library, too. {found.needs}"
    if found.path is None:
        return f"not installed: {found.install}{needs}"

    words = (found.path, *found.command[1:])
    complaint = "" if found.complaint is None else f" ({found.complaint})"
    return " ".join(words) + complaint + needs


def _login(found: Found) -> str:
    if not found.looked_for:
        return "not needed" if found.kind == "scripted" else "not known"

    if not found.logged_in_by:
        return f"not found: set {found.looked_for[0]}, or log in with the program"

    return ", ".join(found.logged_in_by)


# --- the self-test -----------------------------------------------------------------------------


def _test(
    name: str,
    named: Mapping[str, AgentSpec],
    model: str | None,
    prices: Path | None,
    *,
    as_json: bool,
) -> SelfTest:
    if name not in named:
        raise click.UsageError(f"There is no agent {name!r}; there are {', '.join(named)}.")

    found = look(name, named[name])
    if found.path is None:
        message = f"{name} is not installed: {found.command[0]!r} was not found."
        raise Stop(message, ExitCode.UNAVAILABLE, hint=found.install)

    try:
        done = _turn_of(name, named[name], model, prices)
    except AgentError as error:
        raise Stop(error.message, ExitCode.FAILED, hint=error.hint) from error

    print_json(done) if as_json else _tell(done)
    return done


def _test_all(
    named: Mapping[str, AgentSpec], model: str | None, prices: Path | None, *, as_json: bool
) -> list[SelfTest]:
    """Test every installed agent; one that cannot be started has failed."""
    if model is not None:
        raise click.UsageError("--model requires --test NAME, since agents have different models.")

    real = {name: spec for name, spec in named.items() if name != "scripted"}
    installed = [each.name for each in look_at_all(real) if each.path is not None]
    if not installed:
        message = f"None of {', '.join(real)} is installed."
        raise Stop(message, ExitCode.UNAVAILABLE, hint=_HOW_TO_INSTALL)

    done: list[SelfTest] = []
    for name in installed:
        try:
            done.append(_turn_of(name, real[name], None, prices))
        except AgentError as error:
            message = " ".join(filter(None, (error.message, error.hint)))
            why = FailureReason(type="unknown", retriable=False, message=message)
            asked = known_of(name).model or None
            done.append(SelfTest(name=name, model=asked, passed=False, failure=why))

        if not as_json:
            _tell(done[-1])

    if as_json:
        print_json(done)

    return done


def _turn_of(name: str, spec: AgentSpec, model: str | None, own_prices: Path | None) -> SelfTest:
    prices = load_prices(own_prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    asked = known_of(name).model if model is None else model
    if spec != BY_NAME["scripted"]:
        whom = f"{name}, with {asked}," if asked else name
        click.echo(f"Asking {whom} to write one small file; its provider may charge you.", err=True)

    return self_test(name, spec, asked, prices)


def _tell(done: SelfTest) -> None:
    verdict = "works" if done.passed else "failed"
    click.echo(f"{done.name} {verdict} ({done.seconds:.1f} s).")
    if done.failure is not None:
        may = "may" if done.failure.retriable else "cannot"
        click.echo(f"  why: {one_line(done.failure.message or 'no reason was given')}")
        click.echo(f"  kind: {done.failure.type}; a retry {may} help")

    if done.confinement is not None:
        click.echo(f"  confinement: {confinement_text(done.confinement)}")
        for sentence in done.confinement.not_covered:
            click.echo(one_line(f"    {sentence}"))

    written = "written" if done.file_written else "not written"
    click.echo(f"  file: {written}; tools: {', '.join(map(one_line, done.tools)) or 'none'}")
    tokens = done.tokens
    read = tokens.input_tokens + tokens.cache_creation_tokens + tokens.cache_read_tokens
    cost = "not known" if done.cost is None else f"${done.cost:.4f}"
    click.echo(f"  tokens: {read} in, {tokens.output_tokens} out; cost: {cost}")


COMMANDS = (agents,)
