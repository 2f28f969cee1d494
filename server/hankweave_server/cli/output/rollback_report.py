"""The report of a rollback, or of what one would do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import click

from hankweave_protocol.records import ForeseenDiff, KeptFile, RollbackReport, TouchedFile
from hankweave_server.cli.output.text import encodable, money_and_time, say, size_text
from hankweave_server.errors import ExitCode
from hankweave_server.plain_text import acted_on, counted, one_line, printable

_NAMED = 5
"""Steps that a line names."""


def draw_report(report: RollbackReport, *, foreseen: bool) -> None:
    """Print the report of a rollback, or of a preview if `foreseen`."""
    at = report.target
    of = f" of {printable(at.codon_id)}" if at.codon_id else ""
    called = "" if report.target_title is None else f": {encodable(report.target_title)}"
    say(f"to checkpoint {at.checkpoint_sha[:12]}{of}{called}", "bold")
    if report.note is not None:
        click.echo(printable(report.note))

    counts = report.counts
    files = partial(acted_on, one="file", foreseen=foreseen)
    _print_touched(f"{files(counts.added)} added", report.added, counts.added, "green")
    _print_touched(f"{files(counts.updated)} updated", report.updated, counts.updated, "yellow")
    _print_touched(f"{files(counts.removed)} removed", report.removed, counts.removed, "red")
    it = "it" if counts.kept == 1 else "them"
    because = f"kept, because people changed {it}"
    _print_left(f"{files(counts.kept)} {because}", report.kept, counts.kept)
    kept = {file.path for file in report.kept}
    lost = [file for file in report.conflicts if file.path not in kept]
    number = counts.conflicts - counts.kept
    edits = acted_on(number, "edit by people", "edits by people", foreseen=foreseen)
    _print_left(f"{edits} overwritten or removed", lost, number)
    unchanged = f"{files(counts.skipped)} left unchanged"
    _print_left(unchanged, report.skipped, counts.skipped, with_reason=True)
    _print_exceptions(report, foreseen=foreseen)
    _print_outside(report.external_effects)
    for warning in report.warnings:
        about = "" if warning.path is None else f"{printable(warning.path)}: "
        say(f"note: {about}{printable(warning.sentence)}", "yellow")

    if again := again_text(report):
        click.echo(again)

    total = counts.added + counts.updated + counts.removed
    click.echo(f"{counted(total, 'file')}, {size_text(counts.bytes)} in all")
    if report.safety is not None:
        sha = report.safety.checkpoint_sha[:12]
        click.echo(f"All of this is saved in safety checkpoint {sha}.")

    if report.diffs:
        _print_diffs(report.diffs)


def again_text(report: RollbackReport) -> str:
    """Return `Runs again: 3 steps (two, three, four), about $0.40 and 12 min`; empty for none."""
    again = report.runs_again
    if again is None or not again.total:
        return ""

    names = [one_line(name) for name in again.codon_ids[:_NAMED]]
    more = f" and {again.total - len(names)} more" if again.total > len(names) else ""
    steps = counted(again.total, "step")
    costs = money_and_time(again.estimated_cost, again.estimated_ms)
    return f"Runs again: {steps} ({', '.join(names)}{more}){costs and f', about {costs}'}"


def _print_diffs(diffs: Sequence[ForeseenDiff]) -> None:
    # Imported here because only patches need rich.
    from hankweave_server.cli.output.pictures import print_patch

    for diff in diffs:
        if diff.patch:
            print_patch(diff.patch)
        else:
            click.echo(f"{printable(diff.path)}: {diff.status}, no text to show")


def _print_touched(title: str, files: Sequence[TouchedFile], total: int, style: str) -> None:
    say(title, style if total else "dim")
    for file in files:
        say(f"  {printable(file.path)}  {counted(file.bytes, 'byte')}", style)

    _print_more(total - len(files))


def _print_left(
    title: str, files: Sequence[KeptFile], total: int, *, with_reason: bool = False
) -> None:
    if total:
        say(title, "magenta")

    for file in files:
        reason = f"  ({file.reason})" if with_reason else ""
        click.echo(f"  {printable(file.path)}{reason}")

    _print_more(total - len(files))


def _print_exceptions(report: RollbackReport, *, foreseen: bool) -> None:
    total = report.counts.cannot_restore
    if total:
        could, others = ("cannot", "can") if foreseen else ("could not", "were")
        say(f"{counted(total, 'path')} {could} be restored; all others {others}", "red")

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
