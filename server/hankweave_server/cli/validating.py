"""`hankweave validate`: all that is wrong with a hank, or all that it would do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from hankweave_server.cli import foresight, hanks
from hankweave_server.cli.amounts import size_text
from hankweave_server.cli.outlook import CodonOutlook, Outlook
from hankweave_server.cli.plain_text import printable
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.cli.terminals import console
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.hanks.load import HankInvalid
from hankweave_server.hanks.price_files import load_prices, usual_place


@click.command()
@click.argument("hank", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path), required=False)
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Count what is tracked in it."
)
@click.option("--prices", type=click.Path(path_type=Path), help="A price list of your own.")
@json_option
def validate(
    hank: Path,
    data: Path | None,
    workspace: Path | None,
    prices: Path | None,
    as_json: bool,
) -> None:
    """Check HANK and show what it would do; nothing is run, made or written.

    All errors come at once, each with its line, its JSON path and what to do; the exit code is 2
    then. A valid hank is shown as it would run: plan, budgets, what is tracked, requirements; and
    warnings, which do not make it invalid.

    \b
    hankweave validate hank.json
    hankweave validate hank.json data/ --json
    """
    file = hanks.file_of(hank)
    _must_exist(data, "data")
    _must_exist(workspace, "workspace")
    try:
        loaded = hanks.read(file)
    except HankInvalid as invalid:
        if not as_json:
            raise

        print_json(foresight.of_problems(file, invalid.problems))
        sys.exit(ExitCode.USAGE)

    known = load_prices(prices, usual_place(os.environ.get("XDG_CONFIG_HOME")))
    found = foresight.of_hank(file, loaded, os.environ, known, workspace, data)
    if as_json:
        print_json(found)
    else:
        _show(found)


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
    _lines("Loops", (f"{each.loop_id}: ends {each.ends}" for each in found.loops))
    _lines("Rigs", (f"{each.codon_id}: {line}" for each in found.plan for line in each.rig))
    watched = (each for each in found.plan if each.sentinels)
    _lines("Sentinels", (f"{each.codon_id}: {', '.join(each.sentinels)}" for each in watched))
    _show_budgets(found)
    _show_tracked(found)
    states = (f"{each.kind} {each.name}: {_met(each.is_met)}" for each in found.requirements)
    _lines("Requirements", states)
    _lines("Warnings", found.warnings)


def _row(codon: CodonOutlook) -> Sequence[str]:
    prompt = f"{codon.prompt} ({codon.prompt_words} words)"
    return codon.codon_id, codon.agent, codon.model, prompt, codon.on_failure


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
