"""`hankweave validate`: all that is wrong with a hank, or all that it would do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from hankweave_server.agents.preflight import AgentCheck
from hankweave_server.cli import foresight
from hankweave_server.cli.outlook import CodonOutlook, Outlook
from hankweave_server.cli.output.amounts import size_text
from hankweave_server.cli.output.text import console
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.cli.shared import agent_checks, hank_loading
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.load import HankInvalid
from hankweave_server.hank.price_files import load_prices, usual_place
from hankweave_server.plain_text import printable


@click.command()
@click.argument("hank", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Count what is tracked in it."
)
@click.option("--agent", type=click.Choice(sorted(BY_NAME)), help="Who does every codon.")
@click.option("--model", "-m", help="The model of every codon, whatever the hank says.")
@click.option(
    "--no-agent-check", is_flag=True, help="Show missing agents and logins, but do not fail."
)
@click.option("--prices", type=click.Path(path_type=Path), help="A price list of your own.")
@json_option
def validate(
    hank: Path,
    data: Path | None,
    workspace: Path | None,
    agent: str | None,
    model: str | None,
    no_agent_check: bool,
    prices: Path | None,
    as_json: bool,
) -> None:
    """Check HANK and show what it would do; nothing is run, made or written.

    All errors come at once, each with its line, its JSON path and what to do; the exit code is 2
    then. A valid hank is shown as it would run: plan, budgets, what is tracked, requirements; and
    warnings, which do not make it invalid. Where an agent that it needs is missing, too old or not
    logged in, or does not run its model, the exit code is 78: with --no-agent-check such a hank
    can be checked on another machine than the one it runs on. No network is used.

    \b
    hankweave validate hank.json
    hankweave validate hank.json data/ --json
    hankweave validate hank.json --agent codex --model gpt-5.4
    """
    file = hank_loading.file_of(hank)
    _must_exist(data, "data")
    _must_exist(workspace, "workspace")
    try:
        loaded = hank_loading.read(file, model)
    except HankInvalid as invalid:
        if not as_json:
            raise

        print_json(foresight.of_problems(file, invalid.problems))
        sys.exit(ExitCode.USAGE)

    known = load_prices(prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    found = foresight.of_hank(
        file, loaded, os.environ, known, workspace, data, agent=agent, model=model
    )
    if as_json:
        print_json(found)
        if not no_agent_check and any(each.faults for each in found.agents):
            sys.exit(ExitCode.CONFIGURATION)

        return

    _show(found)
    if not no_agent_check:
        agent_checks.refuse(found.agents)


def _must_exist(path: Path | None, what: str) -> None:
    if path is not None and not path.exists():
        raise Stop(f"There is no {what} at {path}.", ExitCode.NO_INPUT)


def _show(found: Outlook) -> None:
    codons, loops = len(found.plan), len(found.loops)
    called = f" ({printable(found.name)})" if found.name else ""
    size = f"{_counted(codons, 'codon')}, {_counted(loops, 'loop')}"
    click.echo(f"{found.file}{called} is valid: {size}.")
    _section("Plan")
    _table(("codon", "agent", "model", "prompt", "on failure"), map(_row, found.plan))
    _section("Agents")
    _table(("agent", "model", "version", "key or login", "codons"), map(_agent_row, found.agents))
    _lines("Loops", (f"{each.loop_id}: ends {each.ends}" for each in found.loops))
    _lines("Rigs", (f"{each.codon_id}: {line}" for each in found.plan for line in each.rig))
    watched = (each for each in found.plan if each.sentinels)
    _lines("Sentinels", (f"{each.codon_id}: {', '.join(each.sentinels)}" for each in watched))
    _show_budgets(found)
    _show_tracked(found)
    states = (f"{each.kind} {each.name}: {_met(each.is_met)}" for each in found.requirements)
    _lines("Requirements", states)
    _lines("Not checked", (note for each in found.agents for note in each.notes))
    _lines("Warnings", found.warnings)


def _row(codon: CodonOutlook) -> Sequence[str]:
    prompt = f"{codon.prompt} ({codon.prompt_words} words)"
    return codon.codon_id, codon.agent, codon.model, prompt, codon.on_failure


def _agent_row(agent: AgentCheck) -> Sequence[str]:
    is_plain = agent.agent.startswith(("command ", "scripted"))
    login = "-" if is_plain else ", ".join(agent.logged_in_by) or "none seen"
    model = "-" if is_plain else agent.model or "its own"
    version = agent.version or ("missing" if agent.path is None and agent.faults else "-")
    return agent.agent, model, version, login, ", ".join(agent.codons)


def _show_budgets(found: Outlook) -> None:
    if not found.budgets:
        return

    _section("Budgets")
    columns = ("codon", "at most", "seconds", "output tokens", "context tokens", "when exceeded")
    rows = (
        (
            each.codon_id,
            "-" if each.max_dollars is None else f"${each.max_dollars:.2f}",
            _amount(each.max_time_seconds),
            _amount(each.max_output_tokens),
            _amount(each.max_context_tokens),
            each.on_exceeded,
        )
        for each in found.budgets
    )
    _table(columns, rows)


def _show_tracked(found: Outlook) -> None:
    adding = (f"{each.codon_id}: {'  '.join(each.tracks)}" for each in found.plan if each.tracks)
    _lines("Tracked, each codon beside those before it", adding)
    for each in found.folders:
        size = size_text(each.bytes_tracked)
        if each.role == "workspace":
            line = f"in {each.folder}: {each.tracked} of {_counted(each.files, 'file')}, {size}"
        else:
            line = (
                f"of {each.folder} nothing: data is read, never tracked; as a --workspace"
                f" {each.tracked} of {_counted(each.files, 'file')} would be, {size}"
            )

        click.echo(f"  {printable(line)}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _met(is_met: bool) -> str:
    return "there" if is_met else "missing"


def _amount(number: float | None) -> str:
    return "-" if number is None else f"{number:,g}"


def _lines(title: str, lines: Iterable[str]) -> None:
    shown = [f"  {printable(line)}" for line in lines]
    if shown:
        _section(title)
        click.echo("\n".join(shown))


def _section(title: str) -> None:
    click.echo()
    click.echo(click.style(title, bold=True))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")

    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))

    out = console()
    with out.capture() as captured:
        out.print(table, soft_wrap=False)

    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


COMMANDS = (validate,)
