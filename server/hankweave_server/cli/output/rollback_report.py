"""The report of a rollback, or of what one would do.

A line for each kind of consequence, and none for what does not happen. Where there is room, the
names of files share the line as far as they fit; in a pipe, and if they are asked for, each has its
own.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from hankweave_protocol.records import ForeseenDiff, RestoreWarning, RollbackReport
from hankweave_server.cli.output.text import encodable, money_and_time, print_line, size_text
from hankweave_server.errors import ExitCode
from hankweave_server.plain_text import counted, one_line, printable

CONVERSATION = (
    "The agents' conversations stay ahead of the files; the next agent is told what was rolled "
    "back. To rewind them too: --rewind-memory."
)
_NAMED = 5
"""Steps that a line names."""

_NAMES_FROM = 42
"""The column of the names."""


class _Consequence(NamedTuple):
    """The fate of some files."""

    mark: str
    number: int
    one: str
    more: str
    files: Sequence[tuple[str, str]]
    """Names, each with its size or with a reason."""
    style: str


class ReportLine(NamedTuple):
    """A line of a report; control characters are escaped."""

    text: str = ""
    style: str = ""


def draw_report(
    report: RollbackReport,
    *,
    is_preview: bool,
    to: str | None = None,
    reverse: str = "`hankweave undo`",
    whole: bool = False,
) -> None:
    """Print the report of a rollback, or of a preview if `is_preview`.

    `to` is the target in the words of the command, `reverse` the command that takes it back. With
    `whole`, all files are listed, as in a pipe.
    """
    whole = whole or not sys.stdout.isatty()
    width = None if whole else shutil.get_terminal_size().columns
    for line in report_lines(report, is_preview=is_preview, to=to, reverse=reverse, width=width):
        print_line(encodable(line.text), line.style)

    if report.diffs:
        _print_diffs(report.diffs)


def report_lines(
    report: RollbackReport,
    *,
    is_preview: bool,
    to: str | None = None,
    reverse: str = "`hankweave undo`",
    width: int | None = None,
) -> Iterator[ReportLine]:
    """Yield the lines of a report; without a `width`, each file has a line of its own."""
    at = report.target
    parts = [at.checkpoint_sha[:12], report.target_title, None if to else at.codon_id]
    there = " · ".join(one_line(part) for part in parts if part)
    yield ReportLine(
        f"Back {'to' if is_preview else 'at'} {there if to is None else f'{to}: {there}'}", "bold"
    )
    if report.note is not None:
        yield ReportLine(printable(report.note))

    yield ReportLine()
    found = [each for each in _consequences(report, is_preview=is_preview) if each.number]
    for each in found:
        yield from _consequence_lines(each, at.checkpoint_sha[:12], width)

    if not found:
        yield ReportLine("  No file changes." if is_preview else "  No file was changed.")

    if report.external_effects:
        yield ReportLine("  What was done outside the work tree is not undone:")
        yield from (ReportLine(f"    {printable(effect)}") for effect in report.external_effects)

    for warning in report.warnings:
        about = "" if warning.path is None else f"{printable(warning.path)}: "
        yield ReportLine(f"  note: {about}{printable(_sentence(warning))}", "yellow")

    if again := again_text(report):
        yield ReportLine(f"  ↻  {again}")

    if back := _way_back(report, reverse, is_preview=is_preview):
        yield ReportLine()
        yield ReportLine(f"  {back}")


def _sentence(warning: RestoreWarning) -> str:
    return CONVERSATION if warning.kind == "conversation" else warning.sentence


def _consequences(report: RollbackReport, *, is_preview: bool) -> tuple[_Consequence, ...]:
    counts = report.counts
    is_, are = ("is", "are") if is_preview else ("was", "were")
    returns, return_ = ("returns", "return") if is_preview else ("returned", "returned")
    comes, come = ("comes", "come") if is_preview else ("came", "came")
    goes, go = ("goes", "go") if is_preview else ("went", "went")
    can, others = ("cannot", "can") if is_preview else ("could not", "were")
    sized = (
        [(printable(file.path), counted(file.bytes, "byte")) for file in files]
        for files in (report.updated, report.added, report.removed)
    )
    updated, added, removed = sized
    kept = {file.path for file in report.kept}
    lost = [(printable(file.path), "") for file in report.conflicts if file.path not in kept]
    skipped = [(printable(file.path), file.reason) for file in report.skipped]
    refused = [(printable(each.sentence), "") for each in report.cannot_restore]
    to = "to earlier content"
    taken = "overwritten or removed; --keep-edits keeps" if is_preview else "overwritten or removed"
    it, them = (" it", " them") if is_preview else ("", "")
    return (
        _Consequence(
            *("↩", counts.updated, f"file {returns} {to}", f"files {return_} {to}"),
            *(updated, "yellow"),
        ),
        _Consequence(
            *("+", counts.added, f"file {comes} back", f"files {come} back", added, "green")
        ),
        _Consequence(
            *("−", counts.removed, f"file {goes} away", f"files {go} away", removed, "red")
        ),
        _Consequence(
            *("●", counts.kept, f"edit of yours {is_} kept", f"edits of yours {are} kept"),
            *([(printable(path), "") for path in sorted(kept)], "magenta"),
        ),
        _Consequence(
            *("!", counts.conflicts - counts.kept, f"edit of yours {is_} {taken}{it}"),
            *(f"edits of yours {are} {taken}{them}", lost, "magenta"),
        ),
        _Consequence(
            *("·", counts.skipped, f"file {is_} left unchanged", f"files {are} left unchanged"),
            *(skipped, "magenta"),
        ),
        _Consequence(
            *("!", counts.cannot_restore, f"path {can} be restored; all others {others}"),
            *(f"paths {can} be restored; all others {others}", refused, "red"),
        ),
    )


def _consequence_lines(what: _Consequence, sha: str, width: int | None) -> Iterator[ReportLine]:
    text = f"  {what.mark}  {counted(what.number, what.one, what.more)}"
    names = [name for name, _ in what.files]
    if width is not None:
        line = text.ljust(_NAMES_FROM)
        fitted = _fitted(names, what.number, width - len(line))
        if fitted is not None:
            yield ReportLine(f"{line}{fitted}".rstrip(), what.style)
            return

    yield ReportLine(text, what.style)
    for name, about in what.files:
        yield ReportLine(f"       {name}  {about}".rstrip())

    if what.number > len(names):
        more = what.number - len(names)
        yield ReportLine(f"       and {more} more; `hankweave diff {sha}` lists all changes")


def _fitted(names: Sequence[str], total: int, room: int) -> str | None:
    """Return as many names as fit, and how many more there are; None if not even one does."""
    for shown in range(len(names), 0, -1):
        more = f"  and {total - shown} more" if total > shown else ""
        text = "  ".join(names[:shown]) + more
        if len(text) <= room:
            return text

    return None


def again_text(report: RollbackReport) -> str:
    """Return `3 steps run again: two, three, four, about $0.40 and 12 min`; empty for none."""
    again = report.runs_again
    if again is None or not again.total:
        return ""

    names = [one_line(name) for name in again.codon_ids[:_NAMED]]
    more = f" and {again.total - len(names)} more" if again.total > len(names) else ""
    steps = counted(again.total, "step runs again", "steps run again")
    costs = money_and_time(again.estimated_cost, again.estimated_ms)
    return f"{steps}: {', '.join(names)}{more}{costs and f', about {costs}'}"


def _way_back(report: RollbackReport, reverse: str, *, is_preview: bool) -> str:
    counts = report.counts
    changed = counts.added + counts.updated + counts.removed
    if report.safety is not None:
        sha = report.safety.checkpoint_sha[:12]
        size = size_text(counts.bytes)
        return f"Saved before, in checkpoint {sha} ({size}): {reverse} takes it back."

    return f"Everything is saved first: {reverse} takes it back." if is_preview and changed else ""


def _print_diffs(diffs: Sequence[ForeseenDiff]) -> None:
    # Imported here because only patches need rich.
    from hankweave_server.cli.output.pictures import print_patch

    for diff in diffs:
        if diff.patch:
            print_patch(diff.patch)
        else:
            click.echo(f"{printable(diff.path)}: {diff.status}, no text to show")


def end_with_exceptions(report: RollbackReport) -> None:
    """End the command with exit code 3 if a rollback could not restore every path."""
    if report.cannot_restore:
        sys.exit(ExitCode.WITH_EXCEPTIONS)
