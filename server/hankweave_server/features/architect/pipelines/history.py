"""`hankweave history`: list the checkpoints of steps, as Architect does."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from hankweave_protocol.shapes import Value
from hankweave_server.cli.output.text import console
from hankweave_server.cli.remote import execution_option, json_option, print_json
from hankweave_server.features.architect.pipelines.steps import (
    ListedStep,
    Repository,
    listed_in,
    place_of,
    steps_in,
)
from hankweave_server.plain_text import one_line

_NO_STEPS = (
    "There are no checkpoints of steps here: `hankweave history` lists only labelled "
    "checkpoints.\n`hankweave checkpoints` lists all checkpoints."
)


class StepEntry(Value, kw_only=True, omit_defaults=False):
    """One checkpoint, as `hankweave history --json` prints it."""

    step: int
    """0 for a named step."""
    name: str | None
    commit_hash: str
    message: str
    timestamp: float
    files_changed: tuple[str, ...]


@click.command()
@execution_option
@click.option(
    "--repository",
    type=click.Choice(["auto", "workspace", "shadow"]),
    default="auto",
    show_default=True,
    help="The workspace's own git repository, or Hankweave's shadow repository. auto: workspace if "
    "the last pipeline kept its checkpoints there, or if there is no shadow repository.",
)
@json_option
def history(execution: Path | None, repository: Repository, as_json: bool) -> None:
    """List the checkpoints of pipeline steps, newest first.

    As in Architect, only labelled checkpoints are listed; `hankweave checkpoints` lists all.

    \b
    hankweave history
    hankweave history --repository workspace
    """
    place = listed_in(place_of(execution, repository), repository)
    found = steps_in(place)
    if as_json:
        print_json([_entry(step) for step in found])
    elif not found:
        click.echo("No checkpoints recorded." if place.repository == "workspace" else _NO_STEPS)
    else:
        console().print(_table(found))


def _entry(step: ListedStep) -> StepEntry:
    made = step.checkpoint
    return StepEntry(
        step=made.step,
        name=step.name,
        commit_hash=made.commit_hash,
        message=step.text,
        timestamp=made.timestamp,
        files_changed=tuple(one_line(path) for path in made.files_changed),
    )


def _table(found: list[ListedStep]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Step", "Hash", "Date"):
        table.add_column(name, no_wrap=True)

    table.add_column("Message", overflow="ellipsis", no_wrap=True)
    for step in found:
        when = datetime.fromtimestamp(step.checkpoint.timestamp).astimezone()
        table.add_row(
            Text(one_line(step.title)),
            Text(step.checkpoint.short_hash()),
            Text(f"{when:%Y-%m-%d %H:%M:%S %Z}"),
            Text(one_line(step.text or "-")),
        )

    return table


COMMANDS = (history,)
