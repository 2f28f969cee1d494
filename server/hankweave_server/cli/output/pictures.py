"""Print diffs, checkpoints, past moments and runs.

On a terminal, output is coloured and arranged in trees and tables. In a pipe, it is plain lines,
and unified diffs are unchanged, for a pager or `patch`.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hankweave_protocol.events import ExecutionBranched, ExecutionOrigin
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import DiffPage, PastView
from hankweave_server.cli.checkpoints import line_of_checkpoint
from hankweave_server.cli.output.text import clock, console, encodable, moment, size_text
from hankweave_server.domain.lifecycle import status_of
from hankweave_server.domain.timelines import Line, RunLine, TimelineStep, tree_of
from hankweave_server.plain_text import counted, harmless, printable

_STYLES = (
    ("+++", "bold"),
    ("---", "bold"),
    ("diff ", "bold"),
    ("index ", "bold"),
    ("@@", "cyan"),
    ("+", "green"),
    ("-", "red"),
    ("\\", "dim"),
)


def print_patch(patch: str) -> None:
    """Print the patch of one file; on a terminal, with its control characters escaped."""
    if not sys.stdout.isatty():
        click.echo(patch, nl=not patch.endswith("\n"))
        return

    out = console()
    for line in patch_lines(patch):
        out.print(line, soft_wrap=True)


def patch_lines(patch: str) -> Iterator[Text]:
    """Yield the lines of a patch, coloured and with control characters escaped."""
    in_hunk = False
    for line in patch.removesuffix("\n").split("\n"):
        in_hunk = in_hunk or line.startswith("@@")
        yield Text(harmless(line), _style_of(line, in_hunk))


def _style_of(line: str, in_hunk: bool) -> str:
    """Return the style of a line; inside a hunk, `---` begins a removed line, not a file name."""
    if in_hunk and line[:1] in ("+", "-"):
        return "green" if line[0] == "+" else "red"

    return next((style for beginning, style in _STYLES if line.startswith(beginning)), "")


_LETTERS = {"created": ("A", "green"), "modified": ("M", "yellow"), "deleted": ("D", "red")}


# --- differences ----------------------------------------------------------------------------------


def draw_sides(page: DiffPage) -> None:
    click.echo(f"from  {page.from_sha[:12]}  {encodable(page.from_title or '')}".rstrip())
    to = "the work tree" if page.to_sha is None else page.to_sha[:12]
    click.echo(f"to    {to}  {encodable(page.to_title or '')}".rstrip())


def draw_stat(page: DiffPage) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for column in ("status", "path", "added", "removed"):
        table.add_column(column, justify="right" if column in ("added", "removed") else "left")

    for file in page.files:
        letter, style = _LETTERS[file.status]
        added, removed = Text(f"+{file.added}", "green"), Text(f"-{file.removed}", "red")
        table.add_row(Text(letter, style), Text(printable(file.path)), added, removed)

    if page.files:
        console().print(table)

    stats = page.stats
    differ = counted(stats.files, "file differs", "files differ")
    lines = counted(stats.added, "line")
    click.echo(f"{differ}, {lines} added, {stats.removed} removed")


def print_patches(page: DiffPage) -> None:
    """Print the patches of a page; for a file without a patch, print its name."""
    for file in page.files:
        if file.patch:
            print_patch(file.patch)
        else:
            click.echo(f"{file.status}: {printable(file.path)} (no lines to compare)")


# --- moments --------------------------------------------------------------------------------------


def draw_checkpoint(record: CheckpointRecord | None, view: PastView) -> None:
    if record is not None:
        console().print(Text(printable(line_of_checkpoint(record)), "bold yellow"))
        click.echo(f"  sha         {record.sha}")
        click.echo(f"  run         {record.coordinate.run_id}")
        click.echo(f"  event       {record.coordinate.event_seq}")
        for skipped in record.skipped:
            click.echo(f"  left out    {printable(skipped.path)} ({skipped.reason})")

        if record.skipped_total is not None:
            more = record.skipped_total - len(record.skipped)
            click.echo(f"  left out    {counted(more, 'more file')}")

    click.echo(f"  files       {view.stats.files}, {size_text(view.stats.bytes)}")
    if view.previous is None:
        click.echo("  This is the first checkpoint.")
    else:
        click.echo(f"  since       {view.previous.from_sha[:12]}")
        draw_stat(view.previous)


def draw_moment(view: PastView) -> None:
    at = view.coordinate
    if at is None:
        click.echo("no checkpoint yet")
    else:
        click.echo(f"checkpoint  {at.checkpoint_sha}")
        click.echo(f"  run       {at.run_id}")
        state = f" ({at.codon_state})" if at.codon_state else ""
        click.echo(f"  codon     {at.codon_id or 'none'}{state}")

    click.echo(f"  files     {view.stats.files}, {size_text(view.stats.bytes)}")
    if view.events is None or view.state is None:
        click.echo("  The journal does not reach back to this moment.")
        return

    click.echo(f"  events    {view.events.from_seq} to {view.events.to_seq}")
    for run in reversed(view.state.runs):
        codons = ", ".join(f"{codon.codon_id} {status_of(codon)}" for codon in run.codons)
        click.echo(f"  state     {run.run_id} {run.status}: {codons or 'no codon yet'}")


def print_tree(view: PastView) -> None:
    for file in view.tree:
        click.echo(f"{stat.filemode(file.mode)} {file.size:>10}  {printable(file.path)}")


# --- runs -----------------------------------------------------------------------------------------


def draw_runs(
    origin: ExecutionOrigin | None, runs: Sequence[RunLine], branches: Iterable[ExecutionBranched]
) -> None:
    if origin is not None:
        path, sha = printable(origin.execution_path), origin.coordinate.checkpoint_sha
        click.echo(f"a branch of {path}, made at {sha[:12]}")

    tree = Tree("", hide_root=True, guide_style="dim")
    elsewhere: dict[str, list[str]] = {}
    for branch in branches:
        elsewhere.setdefault(branch.coordinate.checkpoint_sha, []).append(branch.execution_path)

    for line in tree_of(tuple(runs)):
        _add_runs(tree, line, elsewhere)

    if runs:
        console().print(tree, soft_wrap=False)
    else:
        click.echo("There is no run yet.")


def _add_runs(tree: Tree, line: Line, elsewhere: dict[str, list[str]]) -> None:
    for step in line:
        branch = tree.add(_run_text(step.run))
        for record in step.run.checkpoints:
            label = printable(line_of_checkpoint(record, clock(record.timestamp)))
            leaf = branch.add(Text(label, _style(step), no_wrap=True, overflow="ellipsis"))
            for path in elsewhere.get(record.sha, ()):
                leaf.add(Text(f"branched to {printable(path)}", "cyan"))

        for aside in step.aside:
            _add_runs(branch, aside, elsewhere)


_ENDED = frozenset({"completed", "failed", "skipped"})


def _style(step: TimelineStep) -> str:
    return "" if step.run.on_thread else "dim"


def _run_text(run: RunLine) -> Text:
    is_idle = run.status == "running" and all(codon.status in _ENDED for codon in run.codons)
    status = "idle" if is_idle else run.status
    text = Text(
        f"run {run.run_id}  {status}",
        "bold" if run.on_thread else "dim",
        no_wrap=True,
        overflow="ellipsis",
    )
    if run.attempt is not None:
        text.append(f"  attempt {printable(run.attempt)}", "cyan")

    if run.is_current:
        text.append("  current", "green")
    elif run.attempt is None and not run.on_thread:
        text.append("  abandoned", "yellow")

    if warned := [codon.codon_id for codon in run.codons if codon.warnings]:
        text.append(f"  with a warning: {printable(', '.join(warned))}", "yellow")

    if run.source is not None:
        after = run.source.after_codon or "the beginning"
        text.append(f"  {run.reason} of {run.source.run_id}: after {after}")

    text.append(f"  {moment(run.start_time)}", "dim")
    codons = ", ".join(
        f"{codon.codon_id} {'reused' if codon.reused else codon.status}" for codon in run.codons
    )
    text.append(f"  [{codons}]" if codons else "")
    return text
