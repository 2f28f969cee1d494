"""What a rollback did, or would do, in words: every file with its size, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hankweave_protocol.records import KeptFile, RollbackReport, TouchedFile
from hankweave_server.cli.output.amounts import size_text
from hankweave_server.cli.output.patches import print_patch
from hankweave_server.cli.output.text import say
from hankweave_server.plain_text import printable


def draw_report(report: RollbackReport, *, foreseen: bool) -> None:
    """Prints a report; `foreseen` where it is a preview's."""
    verb = "would be" if foreseen else "were"
    at = report.target
    of = f" of {printable(at.codon_id)}" if at.codon_id else ""
    say(f"to checkpoint {at.checkpoint_sha[:12]}{of}", "bold")
    if report.note is not None:
        click.echo(printable(report.note))

    _print_touched(f"files {verb} added", report.added, "green")
    _print_touched(f"files {verb} updated", report.updated, "yellow")
    _print_touched(f"files {verb} removed", report.removed, "red")
    _print_left(f"files {verb} kept, because people changed them", report.kept)
    kept = {file.path for file in report.kept}
    lost = [file for file in report.conflicts if file.path not in kept]
    _print_left(f"edits by people {verb} overwritten or removed", lost)
    _print_left(f"files {verb} left alone", report.skipped, with_reason=True)
    _print_outside(report.external_effects)
    touched = (*report.added, *report.updated, *report.removed)
    total = sum(file.bytes for file in touched)
    click.echo(f"{len(touched)} files, {size_text(total)} in all")
    if report.safety is not None:
        sha = report.safety.checkpoint_sha[:12]
        click.echo(f"All of it is kept in safety checkpoint {sha}.")

    for diff in report.diffs:
        if diff.patch:
            print_patch(diff.patch)
        else:
            click.echo(f"{printable(diff.path)}: {diff.status}, no text to show")


def _print_touched(title: str, files: Sequence[TouchedFile], style: str) -> None:
    say(f"{len(files)} {title}", style if files else "dim")
    for file in files:
        say(f"  {printable(file.path)}  {file.bytes} bytes", style)


def _print_left(title: str, files: Sequence[KeptFile], *, with_reason: bool = False) -> None:
    if files:
        say(f"{len(files)} {title}", "magenta")

    for file in files:
        reason = f"  ({file.reason})" if with_reason else ""
        click.echo(f"  {printable(file.path)}{reason}")


def _print_outside(effects: Sequence[str]) -> None:
    if effects:
        click.echo(f"{len(effects)} effects outside the work tree stay as they are")

    for effect in effects:
        click.echo(f"  {printable(effect)}")
