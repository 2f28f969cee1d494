"""The report of a rollback, or of what one would do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from hankweave_protocol.records import ForeseenDiff, KeptFile, RollbackReport, TouchedFile
from hankweave_server.cli.output.text import encodable, say, size_text
from hankweave_server.errors import ExitCode
from hankweave_server.plain_text import printable


def draw_report(report: RollbackReport, *, foreseen: bool) -> None:
    """Print the report of a rollback, or of a preview if `foreseen`."""
    verb = "would be" if foreseen else "were"
    at = report.target
    of = f" of {printable(at.codon_id)}" if at.codon_id else ""
    called = "" if report.target_title is None else f": {encodable(report.target_title)}"
    say(f"to checkpoint {at.checkpoint_sha[:12]}{of}{called}", "bold")
    if report.note is not None:
        click.echo(printable(report.note))

    counts = report.counts
    _print_touched(f"files {verb} added", report.added, counts.added, "green")
    _print_touched(f"files {verb} updated", report.updated, counts.updated, "yellow")
    _print_touched(f"files {verb} removed", report.removed, counts.removed, "red")
    _print_left(f"files {verb} kept, because people changed them", report.kept, counts.kept)
    kept = {file.path for file in report.kept}
    lost = [file for file in report.conflicts if file.path not in kept]
    _print_left(
        f"edits by people {verb} overwritten or removed", lost, counts.conflicts - counts.kept
    )
    _print_left(f"files {verb} left unchanged", report.skipped, counts.skipped, with_reason=True)
    _print_exceptions(report, foreseen=foreseen)
    _print_outside(report.external_effects)
    for warning in report.warnings:
        about = "" if warning.path is None else f"{printable(warning.path)}: "
        say(f"note: {about}{printable(warning.sentence)}", "yellow")

    total = counts.added + counts.updated + counts.removed
    click.echo(f"{total} files, {size_text(counts.bytes)} in all")
    if report.safety is not None:
        sha = report.safety.checkpoint_sha[:12]
        click.echo(f"All of this is saved in safety checkpoint {sha}.")

    if report.diffs:
        _print_diffs(report.diffs)


def _print_diffs(diffs: Sequence[ForeseenDiff]) -> None:
    # Imported here because only patches need rich.
    from hankweave_server.cli.output.pictures import print_patch

    for diff in diffs:
        if diff.patch:
            print_patch(diff.patch)
        else:
            click.echo(f"{printable(diff.path)}: {diff.status}, no text to show")


def _print_touched(title: str, files: Sequence[TouchedFile], total: int, style: str) -> None:
    say(f"{total} {title}", style if total else "dim")
    for file in files:
        say(f"  {printable(file.path)}  {file.bytes} bytes", style)

    _print_more(total - len(files))


def _print_left(
    title: str, files: Sequence[KeptFile], total: int, *, with_reason: bool = False
) -> None:
    if total:
        say(f"{total} {title}", "magenta")

    for file in files:
        reason = f"  ({file.reason})" if with_reason else ""
        click.echo(f"  {printable(file.path)}{reason}")

    _print_more(total - len(files))


def _print_exceptions(report: RollbackReport, *, foreseen: bool) -> None:
    total = report.counts.cannot_restore
    if total:
        could, others = ("cannot", "can") if foreseen else ("could not", "were")
        paths = "path" if total == 1 else "paths"
        say(f"{total} {paths} {could} be restored; all others {others}", "red")

    for each in report.cannot_restore:
        click.echo(f"  {printable(each.sentence)}")

    _print_more(total - len(report.cannot_restore))


def end_with_exceptions(report: RollbackReport) -> None:
    """End the command with exit code 3 if a rollback could not restore every path."""
    if report.cannot_restore:
        sys.exit(ExitCode.WITH_EXCEPTIONS)


def _print_more(count: int) -> None:
    if count > 0:
        click.echo(f"  and {count} more; `hankweave diff` lists all changes")


def _print_outside(effects: Sequence[str]) -> None:
    if effects:
        click.echo("What was done outside the work tree is not undone:")

    for effect in effects:
        click.echo(f"  {printable(effect)}")
