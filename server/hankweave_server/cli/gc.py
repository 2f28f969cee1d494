"""`hankweave gc`, `fsck` and `pin`: prune, check and pin checkpoints.

`gc` and `pin` are done by the server that runs, or by an ephemeral one. So are `gc --dry-run` and
`fsck` if a server runs; otherwise they work on the files (`local/reader.py`, `local/fsck.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import click

from hankweave_client.errors import NotRunning
from hankweave_protocol.commands import LONGEST_AGE_SECONDS, CheckpointPin, StoreFsck, StoreGc
from hankweave_protocol.records import CheckpointKind, StoreRepair
from hankweave_protocol.replies import FsckReport, GcReport, KeepReason
from hankweave_server.cli.checkpoints import line_of_checkpoint
from hankweave_server.cli.output.progress_bar import waiting
from hankweave_server.cli.output.text import AGE, SIZE, Parsed, size_text
from hankweave_server.cli.remote import (
    ask,
    execution_option,
    json_option,
    print_json,
    report_dead_server,
    root_of,
)
from hankweave_server.cli.shared import completions
from hankweave_server.errors import ExitCode
from hankweave_server.local import fsck as without_server
from hankweave_server.local.server_session import at_server, run_read_only
from hankweave_server.local.targeting import confirm, require_consent, root_to_change
from hankweave_server.plain_text import acted_on, counted
from hankweave_server.worktree.data_source import layout_of

_REASONS: dict[KeepReason, str] = {
    "pinned": "pinned",
    "completed": "completed work is never pruned",
    "thread": "needed by the execution thread",
    "undo": "needed by the next undo or redo",
    "kind": "not one of the selected kinds",
    "ancestor": "ancestor of a checkpoint that is kept",
    "limits": "within the limits",
}


def _kinds(text: str) -> tuple[CheckpointKind, ...]:
    """Return comma-separated kinds of checkpoints."""
    kinds = tuple(part.strip() for part in text.split(",") if part.strip())
    known = get_args(CheckpointKind)
    for kind in kinds or ("",):
        if kind not in known:
            raise ValueError(f"{kind!r} is not a kind of checkpoint. Kinds: {', '.join(known)}.")

    return kinds  # type: ignore[return-value]  # each one is in `known`


@click.command()
@execution_option
@click.option("--dry-run", is_flag=True, help="Show what would be pruned or kept, and why.")
@click.option("--max-age", type=AGE, metavar="AGE", help="Prune older ones, e.g. 30d or 12h.")
@click.option("--max-count", type=click.IntRange(min=0), help="Keep this many of the newest ones.")
@click.option("--max-bytes", type=SIZE, metavar="SIZE", help="Prune the oldest ones to fit SIZE.")
@click.option(
    "--kinds", type=Parsed("kinds", _kinds), help="Prune only these kinds, e.g. safety,manual."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def gc(
    execution: Path | None,
    dry_run: bool,
    max_age: int | None,
    max_count: int | None,
    max_bytes: int | None,
    kinds: tuple[CheckpointKind, ...] | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Prune checkpoints beyond the limits, and pack the store.

    Without a limit, nothing is pruned. Completed and pinned checkpoints are never pruned, nor are
    those that the execution thread or the next undo or redo needs. With a limit, the command asks
    for confirmation; without a terminal, it requires --yes.

    \b
    hankweave gc --dry-run --max-age 30d
    hankweave gc --max-bytes 500MB --kinds tool,turn,safety --yes
    """
    if max_age is not None and max_age > LONGEST_AGE_SECONDS:
        raise click.UsageError("--max-age is limited to a thousand years.")

    root = root_of(execution) if dry_run else root_to_change(execution)
    if not dry_run and (max_age, max_count, max_bytes) != (None, None, None):
        _require_agreement(yes=yes, as_json=as_json)

    sent = StoreGc(
        dry_run=dry_run,
        max_age_seconds=max_age,
        max_count=max_count,
        max_bytes=max_bytes,
        kinds=kinds,
    )
    what = None if as_json else "Looking for checkpoints to prune"
    if dry_run:
        with waiting(what) as report_progress:
            report = run_read_only(root, lambda calls: calls.send(sent), report_progress)
    else:
        report = ask(root, lambda calls: calls.send(sent), what, waits=False)

    if as_json:
        print_json(report)
    else:
        _print_gc(report)


def _require_agreement(*, yes: bool, as_json: bool) -> None:
    require_consent(yes=yes, otherwise="--dry-run shows what would be pruned.")
    if not (yes or as_json):
        confirm("Prune checkpoints beyond these limits?")


def _print_gc(report: GcReport) -> None:
    pruned = acted_on(len(report.pruned), "checkpoint", is_preview=report.dry_run)
    click.echo(f"{pruned} pruned")
    for record in report.pruned:
        click.echo(f"  {line_of_checkpoint(record)}")

    left = counted(report.kept, "checkpoint is", "checkpoints are")
    if report.dry_run:
        left = acted_on(report.kept, "checkpoint", is_preview=True)

    click.echo(f"{left} kept")
    if report.dry_run:
        for kept in report.kept_because:
            click.echo(f"  {kept.sha[:12]}  {kept.kind:<10} {_REASONS[kept.reason]}")
    else:
        for reason, count in Counter(kept.reason for kept in report.kept_because).items():
            click.echo(f"  {count}  {_REASONS[reason]}")

    for count, what in ((report.undos_lost, "undo"), (report.redos_lost, "redo")):
        if count:
            rollbacks = counted(count, "rollback")
            click.echo(f"`hankweave {what}` is no longer possible for {rollbacks}")

    before, after = size_text(report.bytes_before), size_text(report.bytes_after)
    click.echo(f"{before} on disk{' now, about' if report.dry_run else ' before,'} {after} after")
    if report.unreadable is not None:
        click.echo(
            f"{report.unreadable} cannot be read, so no garbage was removed. "
            "`hankweave fsck --repair` shows what is lost.",
            err=True,
        )

    if report.consolidated is not None and not report.consolidated.finished:
        click.echo(
            "The store is not fully packed yet: packing was interrupted by more urgent work."
        )


@click.command()
@execution_option
@click.option(
    "--repair", is_flag=True, help="Restore lost objects; drop checkpoints that stay incomplete."
)
@click.option(
    "--mirror",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A git repository or execution that may contain lost objects; with --repair.",
)
@json_option
def fsck(execution: Path | None, repair: bool, mirror: Path | None, as_json: bool) -> None:
    """Verify every checkpoint, down to the content of each file.

    The exit code is 1 if something is damaged. With --repair, lost objects are restored from the
    work tree, from damaged packs and from the mirror. Checkpoints that stay incomplete are removed
    from the history; all others are kept. Damaged files are moved aside and never deleted.

    \b
    hankweave fsck
    hankweave fsck --repair
    hankweave fsck --repair --mirror /backup/execution
    """
    if mirror is not None and not repair:
        raise click.UsageError("--mirror is for --repair.")

    place = None if mirror is None else str(mirror.resolve())
    what = "Repairing the store" if repair else "Reading the store"
    report = _checked(root_of(execution), repair, place, None if as_json else what)
    if as_json:
        print_json(report)
    else:
        if report.repair is not None:
            _print_repair(report.repair)

        _print_fsck(report)
        if (report.damages or report.missing) and not repair:
            click.echo(
                "`hankweave fsck --repair` restores the objects that can be found.", err=True
            )

    sys.exit(ExitCode.FAILED if report.damages or report.missing else ExitCode.DONE)


def _checked(root: Path, repair: bool, mirror: str | None, what: str | None) -> FsckReport:
    with waiting(what) as report_progress:
        try:
            return at_server(
                root,
                lambda client: client.send(StoreFsck(repair=repair, mirror=mirror)),
                report_progress,
            )
        except (NotRunning, ConnectionRefusedError):
            if repair:
                report_dead_server(root)

            command = StoreFsck(repair=repair, mirror=mirror)
            return without_server.fsck(layout_of(root), command, report_progress)


def _print_repair(repair: StoreRepair) -> None:
    click.echo(f"{acted_on(len(repair.rewritten), 'object')} restored")
    for sha in repair.lost:
        click.echo(f"checkpoint {sha} is lost: some of its objects could not be found")

    for sha in repair.unknown_permissions:
        click.echo(f"checkpoint {sha}: permissions and empty folders may be lost")

    for moved in repair.moved_refs:
        now = "was moved aside" if moved.now is None else f"now points to {moved.now[:12]}"
        click.echo(f"{moved.ref} pointed to {moved.was[:12]}, and {now}")

    if repair.quarantine is not None:
        click.echo(f"Damaged files were moved to {repair.quarantine}")


def _print_fsck(report: FsckReport) -> None:
    for hit in report.damages:
        click.echo(f"checkpoint {hit.checkpoint} is damaged:")
        for each in hit.damages:
            click.echo(f"  {each.kind} {each.sha}{f' at {each.path!r}' if each.path else ''}")

    for sha in report.missing:
        click.echo(f"checkpoint {sha} is missing: it is in the journal and was not pruned")

    bad = len(report.damages) + len(report.missing)
    if bad == 0:
        intact = counted(report.checked, "checkpoint is intact", "checkpoints are intact")
        click.echo(f"{intact}, including every file.")
    else:
        read = acted_on(report.checked, "checkpoint")
        click.echo(f"{read} read; {bad} cannot be rolled back to.")


@click.command()
@click.argument("sha", shell_complete=completions.checkpoints)
@execution_option
@click.option("--name", help="Name for the checkpoint.")
@click.option("--remove", is_flag=True, help="Unpin the checkpoint.")
@json_option
def pin(sha: str, execution: Path | None, name: str | None, remove: bool, as_json: bool) -> None:
    """Protect checkpoint SHA from pruning. SHA may be abbreviated.

    \b
    hankweave pin 6dc2daae --name "the good one"
    hankweave pin 6dc2daae --remove
    """
    if remove and name is not None:
        raise click.UsageError("--remove and --name exclude each other.")

    if name is not None and not 1 <= len(name) <= 200:
        raise click.UsageError("A name has 1 to 200 characters.")

    execution = root_to_change(execution)
    record = ask(
        execution,
        lambda client: client.send(CheckpointPin(checkpoint_sha=sha, name=name, pinned=not remove)),
        None if as_json else "Pinning",
        waits=False,
    )
    if as_json:
        print_json(record)
    elif record.pinned:
        click.echo(f"{record.sha[:12]} is pinned{f' as {record.name!r}' if record.name else ''}")
    else:
        click.echo(f"{record.sha[:12]} is not pinned")


COMMANDS = (gc, fsck, pin)
