"""`hankweave redact`: remove a secret from journal, logs and checkpoints.

The value is never an argument: other users can read command lines, and shells keep them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from hankweave_protocol.records import RedactionRecord
from hankweave_server.cli.remote import execution_option, json_option, print_json
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.redaction import redaction
from hankweave_server.features.redaction.redaction import (
    LeftInWorkTree,
    Redaction,
    RedactionRequest,
    Survey,
)
from hankweave_server.local.executions import can_ask
from hankweave_server.local.targeting import confirm, require_consent, root_of, root_to_change
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted, one_line
from hankweave_server.redaction.redactor import Redactor
from hankweave_server.redaction.rules import RULES
from hankweave_server.worktree.data_source import layout_of

SHORTEST = 6
"""Minimum length of a value: a shorter one would match ordinary words."""

LISTED = 10
"""Files that are listed of each kind."""

_RULE_NAMES = sorted({rule.name for rule in RULES})


@click.command()
@execution_option
@click.option(
    "--value-file",
    type=click.File("rb"),
    help="A file with the value; - is standard input. A line end after it is not part of it.",
)
@click.option("--variable", metavar="NAME", help="The value is that of an environment variable.")
@click.option(
    "--rule", "rules", multiple=True, type=click.Choice(_RULE_NAMES), help="All keys of a format."
)
@click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="A file's content, in all checkpoints."
)
@click.option(
    "--work-tree", "in_work_tree", is_flag=True, help="Change files of the work tree, too."
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed.")
@click.option("--confirm", "confirms", is_flag=True, help="Remove the backup of the last one.")
@click.option("--undo", "undoes", is_flag=True, help="Restore everything as it was before.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def redact(
    execution: Path | None,
    value_file: BinaryIO | None,
    variable: str | None,
    rules: tuple[str, ...],
    paths: tuple[str, ...],
    in_work_tree: bool,
    dry_run: bool,
    confirms: bool,
    undoes: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove a secret from the journal, the logs and all checkpoints.

    Without an option that says what to remove, the value is asked for. Checkpoints that held it,
    and later ones, get new shas; an old sha still finds its checkpoint. What was replaced is kept
    until `--confirm`; `--undo` restores it. The server must be stopped.

    \b
    hankweave redact --dry-run
    hankweave redact --rule github-token --yes
    hankweave redact --path .env
    hankweave redact --confirm
    """
    wanted = any((value_file, variable, rules, paths))
    if confirms and undoes:
        raise click.UsageError("--confirm and --undo exclude each other.")

    if (confirms or undoes) and (wanted or dry_run or in_work_tree):
        raise click.UsageError("--confirm and --undo take no other option.")

    layout = layout_of(root_of(execution) if dry_run else root_to_change(execution))
    if confirms or undoes:
        _end_pending(layout, undoes=undoes, yes=yes)
        return

    request = _request(value_file, variable, rules, paths, in_work_tree=in_work_tree)
    if dry_run:
        _show(redaction.survey(layout, request), as_json=as_json)
        return

    _redact(layout, request, yes=yes, as_json=as_json)


def _request(
    value_file: BinaryIO | None,
    variable: str | None,
    rules: tuple[str, ...],
    paths: tuple[str, ...],
    *,
    in_work_tree: bool,
) -> RedactionRequest:
    values: dict[str, str] = {}
    if value_file is not None:
        content = value_file.read()
        values["value"] = content.decode("utf-8", "surrogateescape").removesuffix("\n")

    if variable is not None:
        values[variable] = _in_environment(variable)

    if not (values or rules or paths):
        values["value"] = _asked()

    for value in values.values():
        if len(value) < SHORTEST:
            raise click.UsageError(f"A value has at least {SHORTEST} characters.")

    return RedactionRequest(
        by=Redactor(
            values, rules=tuple(rule for rule in RULES if rule.name in rules), shortest=SHORTEST
        ),
        names=(*values, *rules, *paths),
        paths=tuple(os.fsencode(path) for path in paths),
        in_work_tree=in_work_tree,
    )


def _in_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise click.UsageError(f"There is no environment variable {name}.")

    return value


def _asked() -> str:
    if not can_ask():
        raise click.UsageError(
            "There is no terminal to ask for the value on: use --value-file, --variable, --rule "
            "or --path."
        )

    value: str = click.prompt("Value to remove", hide_input=True, err=True)
    return value


def _redact(layout: Layout, request: RedactionRequest, *, yes: bool, as_json: bool) -> None:
    require_consent(yes=yes, otherwise="--dry-run shows what would be changed.")
    clock = SystemClock()
    with redaction.owned(layout, clock) as pending:
        if pending is not None:
            raise Stop(
                "The last redaction has not been confirmed.",
                ExitCode.FAILED,
                hint="`hankweave redact --confirm` removes its backup, and --undo restores it.",
            )

        redaction.settle(layout, clock)
        if not yes:
            _show(redaction.survey(layout, request), as_json=False)
            confirm("Replace them?")

        record = Redaction(layout, request, clock).perform()
        left = redaction.left_in_work_tree(layout, request)

    if as_json:
        print_json(
            {
                "record": record,
                "leftInWorkTree": left.files,
                "leftLinks": left.links,
                "leftNames": left.names,
            }
        )
    else:
        _print_done(record, left, layout)


def _show(found: Survey, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return

    checkpoints = counted(found.checkpoints, "checkpoint")
    click.echo(f"lines of the journal with it: {found.events}")
    _list("other files of the execution with it", found.files)
    click.echo(f"contents of files with it: {found.blobs}, in {checkpoints}")
    click.echo(f"checkpoints that would get a new sha: {found.rewritten}")
    _list("files of the work tree with it", found.work_files)
    _list("links of the work tree with it in their target", found.work_links)
    _list("files, folders and links of the work tree with it in their name", found.work_names)


def _list(what: str, files: list[str], *, err: bool = False) -> None:
    click.echo(f"{what}: {len(files)}", err=err)
    for name in files[:LISTED]:
        click.echo(f"  {one_line(name)}", err=err)

    if len(files) > LISTED:
        click.echo(f"  and {len(files) - LISTED} more", err=err)


def _print_done(record: RedactionRecord | None, left: LeftInWorkTree, layout: Layout) -> None:
    if record is None:
        click.echo("Nothing of the execution contains it.")
    else:
        click.echo(
            f"Removed from {counted(record.events, 'line')} of the journal, "
            f"{counted(len(record.files), 'other file')}, and "
            f"{counted(record.contents, 'content')} in {counted(record.checkpoints, 'checkpoint')}."
        )
        if record.renamed:
            renamed = counted(len(record.renamed), "checkpoint has", "checkpoints have")
            click.echo(f"{renamed} a new sha; old ones still work.")

        click.echo(
            "The replaced files are kept: `hankweave redact --confirm` removes them, "
            "--undo restores them."
        )

    if left.files or left.links or left.names:
        click.echo("The next checkpoint will have it again:", err=True)

    if left.files:
        _list("files with it (--work-tree changes them)", left.files, err=True)

    if left.links:
        _list("links with it in their target (make them anew)", left.links, err=True)

    if left.names:
        _list("files, folders and links with it in their name (rename them)", left.names, err=True)

    if left.links or left.names:
        tops = " ".join(shlex.quote(str(each)) for each in _tops(layout))
        click.echo(f"This finds one of them by its number: find {tops} -inum NUMBER", err=True)


def _tops(layout: Layout) -> Iterator[Path]:
    return filter(Path.exists, dict.fromkeys((layout.work_tree, layout.rig_archive)))


def _end_pending(layout: Layout, *, undoes: bool, yes: bool) -> None:
    with redaction.owned(layout, SystemClock()) as pending:
        if pending is None:
            click.echo("There is no redaction to confirm or undo.")
            sys.exit(ExitCode.FAILED)

        if undoes:
            redaction.undo(layout, pending)
            click.echo("Everything is as it was before the redaction.")
            return

        require_consent(yes=yes)
        if not yes:
            confirm("Remove the replaced files for good?")

        redaction.confirm(layout, pending)
        click.echo(
            "The replaced files are removed. If the secret was real, change it all the same."
        )


COMMANDS = (redact,)
