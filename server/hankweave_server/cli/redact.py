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

from hankweave_protocol.records import RedactIntent, RedactionRecord
from hankweave_server.cli.remote import execution_option, json_option, print_json
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local import redaction
from hankweave_server.local.executions import can_ask
from hankweave_server.local.redaction import LeftInWorkTree, Redaction, RedactionRequest, Survey
from hankweave_server.local.targeting import require_consent, root_of, root_to_change
from hankweave_server.paths import Layout
from hankweave_server.plain_text import one_line
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
            if not click.confirm("Replace them?", err=True):
                raise Stop("Nothing was changed.", ExitCode.FAILED)

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

    click.echo(f"{found.events} lines of the journal contain it")
    _list(found.files, "other files of the execution contain it")
    click.echo(f"{found.blobs} contents of files in {found.checkpoints} checkpoints contain it")
    click.echo(f"{found.rewritten} checkpoints would get a new sha")
    _list(found.work_files, "files of the work tree contain it")
    _list(found.work_links, "links of the work tree have it in their target")
    _list(found.work_names, "files, folders and links of the work tree have it in their name")


def _list(files: list[str], what: str, *, err: bool = False) -> None:
    click.echo(f"{len(files)} {what}", err=err)
    for name in files[:LISTED]:
        click.echo(f"  {one_line(name)}", err=err)

    if len(files) > LISTED:
        click.echo(f"  and {len(files) - LISTED} more", err=err)


def _print_done(record: RedactionRecord | None, left: LeftInWorkTree, layout: Layout) -> None:
    if record is None:
        click.echo("Nothing of the execution contains it.")
    else:
        click.echo(
            f"Removed from {record.events} lines of the journal, {len(record.files)} other files, "
            f"and {record.contents} contents in {record.checkpoints} checkpoints."
        )
        if record.renamed:
            click.echo(f"{len(record.renamed)} checkpoints have a new sha; old ones still work.")

        click.echo(
            "The replaced files are kept: `hankweave redact --confirm` removes them, "
            "--undo restores them."
        )

    if left.files or left.links or left.names:
        click.echo("The next checkpoint will have it again:", err=True)

    if left.files:
        _list(left.files, "files contain it; --work-tree changes them", err=True)

    if left.links:
        _list(left.links, "links have it in their target; make them anew", err=True)

    if left.names:
        _list(left.names, "files, folders and links have it in their name; rename them", err=True)

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

        _confirm(layout, pending, yes=yes)


def _confirm(layout: Layout, pending: RedactIntent, *, yes: bool) -> None:
    require_consent(yes=yes)
    if not yes and not click.confirm("Remove the replaced files for good?", err=True):
        raise Stop("The replaced files are still kept.", ExitCode.FAILED)

    redaction.confirm(layout, pending)
    click.echo("The replaced files are removed. If the secret was real, change it all the same.")


COMMANDS = (redact,)
