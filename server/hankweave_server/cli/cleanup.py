"""`hankweave cleanup`: remove executions, and maps with all of theirs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from hankweave_protocol import instants
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.shapes import Value
from hankweave_server.cli.output.text import (
    AGE_IN_DAYS,
    date,
    size_text,
)
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.installed import parts
from hankweave_server.local.catalog import listed
from hankweave_server.local.executions import executions_root, nothing_at
from hankweave_server.local.register import executions_in
from hankweave_server.local.removal import Removed, remove_execution, require_execution
from hankweave_server.local.targeting import named
from hankweave_server.plain_text import counted, one_line
from hankweave_server.runtime_lock.lock_file import LockHeld
from hankweave_server.worktree.data_source import data_hash, find_execution
from hankweave_server.worktree.removal import size_of


class Gone(Value, kw_only=True):
    path: str
    bytes: int
    stays: tuple[str, ...] = ()
    """Other names in the directory, which are kept."""


class Kept(Value, kw_only=True):
    path: str
    reason: str


class CleanupReport(Value, kw_only=True, omit_defaults=False):
    """The output of `hankweave cleanup --json`; with `dryRun`, nothing has been removed."""

    dry_run: bool
    removed: tuple[Gone, ...]
    kept: tuple[Kept, ...]
    failed: tuple[Kept, ...]
    """Executions that could not be removed completely, and why; another cleanup continues."""
    freed_bytes: int


@click.command()
@click.option(
    "--execution", "-e", type=click.Path(path_type=Path), help="Remove this execution or map."
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Remove the newest execution of this data."
)
@click.option(
    "--older-than",
    type=AGE_IN_DAYS,
    metavar="DAYS",
    help="Remove executions not used for this many days, or for a time like 12h.",
)
@click.option("--keep", type=click.IntRange(min=0), help="Keep this many, the most recently used.")
@click.option("--all", "every", is_flag=True, help="Remove all executions.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def cleanup(
    execution: Path | None,
    data: Path | None,
    older_than: int | None,
    keep: int | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove executions permanently.

    Checkpoints and the files of agents are removed as well. Linked data is never touched, nor are
    files that are not part of an execution. Of a project that is served in place, only .hankweave
    is removed. An execution with a running server is kept.

    A map is removed with the executions of all its items; its inputs and the files in --output are
    never touched. A map on which a command or a server works is kept.

    \b
    hankweave cleanup --older-than 30 --dry-run
    hankweave cleanup --all --keep 3 -y
    hankweave cleanup -e map-review-1a2b3c
    """
    if data is not None:
        if execution is not None:
            raise click.UsageError("--data and --execution exclude each other.")

        execution = _made_of(data)

    if execution is None and not every and older_than is None and keep is None:
        raise click.UsageError("Specify --execution, --older-than, --keep or --all.")

    if execution is not None and (every or older_than is not None or keep is not None):
        raise click.UsageError("--execution excludes --older-than, --keep and --all.")

    if as_json and not (yes or dry_run):
        raise click.UsageError("--json requires --yes or --dry-run.")

    if execution is not None:
        deletions, kept = [_named(execution)], list[Kept]()
    else:
        deletions, kept = _selected(older_than, keep)

    deletions = [msgspec.structs.replace(one, bytes=size_of(Path(one.path))) for one in deletions]
    if not as_json:
        _print_deletions(deletions, dry_run=dry_run)

    if not dry_run and deletions and not yes:
        _ask(deletions)

    report = (
        _preview_report(deletions, kept) if dry_run else _done(deletions, kept, alone=execution)
    )
    if as_json:
        print_json(report)
    else:
        _print_report(report)

    sys.exit(ExitCode.FAILED if report.failed else ExitCode.DONE)


def _made_of(data: Path) -> Path:
    """Return the newest execution of `data`; raise Stop if there is none."""
    if not data.exists():
        raise nothing_at("data", data)

    found = find_execution(executions_root(), data_hash(data))
    if found is None:
        raise Stop(
            f"There is no execution of {data.absolute()} in {executions_root()}.",
            ExitCode.NO_INPUT,
            hint="`hankweave ls` lists all executions; name one with --execution.",
        )

    return found


def _named(execution: Path) -> ListedExecution:
    others = chain.from_iterable(part.all_in(executions_root()) for part in parts("removal"))
    root = named(execution, list(others))
    if (maker := _maker_of(root)) is not None:
        maker.require_removable(root)
        row: ListedExecution = maker.row_of(root)
        return row

    require_execution(root, managed=_is_managed(root))
    return listed(root)


def _maker_of(root: Path) -> Any | None:
    """Return the module of the feature that has made a directory; None for an execution."""
    return next((part for part in parts("removal") if part.has_made(root)), None)


def _is_managed(root: Path) -> bool:
    return root.parent.resolve() == executions_root().resolve()


def _selected(older_than: int | None, keep: int | None) -> tuple[list[ListedExecution], list[Kept]]:
    deletions: list[ListedExecution] = []
    kept: list[Kept] = []
    limit = None
    if older_than is not None:
        limit = instants.to_text(datetime.now(UTC) - timedelta(seconds=older_than))

    for number, each in enumerate(_newest_first()):
        reason = _reason_to_keep(each, number, limit, keep)
        if reason is None:
            deletions.append(each)
        else:
            kept.append(Kept(path=each.path, reason=reason))

    return deletions, kept


def _reason_to_keep(
    each: ListedExecution, number: int, limit: str | None, keep: int | None
) -> str | None:
    if keep is not None and number < keep:
        return f"one of the {keep} most recently used"

    if limit is not None and (each.last_used or "") >= limit:
        return "used more recently"

    if each.server_pid is not None:
        return f"it has a running server (pid {each.server_pid})"

    if (maker := _maker_of(Path(each.path))) is not None:
        try:
            maker.require_removable(Path(each.path))
        except Stop as reason:
            return reason.message

        return None

    if each.in_place:
        return "it is a project that is served in place"

    if each.state == "unreadable":
        return f"it cannot be read: {each.problem}; name it with --execution"

    return None


def _print_deletions(deletions: list[ListedExecution], *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "will be"
    click.echo(f"{_number_of(deletions)} {verb} removed")
    for each in deletions:
        size = size_text(each.bytes or 0)
        used = "-" if each.last_used is None else date(each.last_used)
        aside = "  only .hankweave: the project's own files are kept" if each.in_place else ""
        click.echo(f"  {one_line(each.path)}  {_state_text(each)}  {used}  {size}{aside}")
        if (maker := _maker_of(Path(each.path))) is not None:
            click.echo(f"    {maker.kept_by(Path(each.path))}")


def _number_of(deletions: Sequence[ListedExecution]) -> str:
    maps = sum(each.map is not None for each in deletions)
    executions = counted(len(deletions) - maps, "execution")
    if not maps:
        return executions

    return (
        counted(maps, "map")
        if maps == len(deletions)
        else f"{executions} and {counted(maps, 'map')}"
    )


def _ask(deletions: list[ListedExecution]) -> None:
    total = size_text(sum(each.bytes or 0 for each in deletions))
    try:
        agreed = click.confirm(f"Remove {_number_of(deletions)} for good, {total} in all?")
    except click.Abort:
        agreed = False  # stdin is closed or Ctrl-C was pressed.

    if not agreed:
        raise Stop("Nothing was removed.", ExitCode.FAILED, hint="--yes skips this question.")


def _preview_report(deletions: list[ListedExecution], kept: list[Kept]) -> CleanupReport:
    gone = tuple(Gone(path=each.path, bytes=each.bytes or 0) for each in deletions)
    return CleanupReport(
        dry_run=True,
        removed=gone,
        kept=tuple(kept),
        failed=(),
        freed_bytes=sum(each.bytes for each in gone),
    )


def _done(
    deletions: list[ListedExecution], kept: list[Kept], *, alone: Path | None
) -> CleanupReport:
    gone: list[Gone] = []
    failed: list[Kept] = []
    for each in deletions:
        root = Path(each.path)
        try:
            removed = _removed(root)
            gone.append(Gone(path=each.path, bytes=removed.bytes, stays=removed.stays))
        except (Stop, OSError) as error:
            if alone is not None:
                raise

            is_held = isinstance(error, LockHeld)
            (kept if is_held else failed).append(Kept(path=each.path, reason=str(error)))

    return CleanupReport(
        dry_run=False,
        removed=tuple(gone),
        kept=tuple(kept),
        failed=tuple(failed),
        freed_bytes=sum(each.bytes for each in gone),
    )


def _removed(root: Path) -> Removed:
    if (maker := _maker_of(root)) is not None:
        removed: Removed = maker.removed(root, SystemClock())
        return removed

    return remove_execution(root, SystemClock(), managed=_is_managed(root))


def _print_report(report: CleanupReport) -> None:
    for kept in report.kept:
        click.echo(f"  kept: {one_line(kept.path)}  ({one_line(kept.reason)})")

    for each in report.removed:
        if each.stays:
            names = ", ".join(map(one_line, each.stays))
            click.echo(f"  {one_line(each.path)} is kept, because it contains other files: {names}")

    for failure in report.failed:
        click.echo(f"  not removed: {one_line(failure.path)}  ({one_line(failure.reason)})")

    verb = "would be" if report.dry_run else "were"
    click.echo(f"{size_text(report.freed_bytes)} {verb} freed")


def _newest_first() -> list[ListedExecution]:
    """Return what a cleanup may choose: executions and maps in the usual folder, and no others."""
    every = [listed(path) for path in executions_in(executions_root())]
    for part in parts("removal"):
        every += part.rows_in(executions_root())

    return sorted(every, key=lambda each: (each.last_used or "", each.path), reverse=True)


def _state_text(each: ListedExecution) -> str:
    if each.map is not None:
        failed = f", {each.map.failed} failed" if each.map.failed else ""
        return f"map of {counted(each.map.inputs, 'input')}: {each.map.completed} completed{failed}"

    state = each.state if each.server_pid is None else f"{each.state} (pid {each.server_pid})"
    if each.attempt is None:
        return state

    whose = "" if each.attempt_of is None else f" of {Path(each.attempt_of).name}"
    return one_line(f"{state}, attempt {each.attempt}{whose}")


COMMANDS = (cleanup,)
