"""`hankweave log --graph`: draw the tree of checkpoints, newest first, as `git log --graph` does.

The parent of a checkpoint is the one before it in its run. The parent of the first checkpoint of a
run is the one that the run continued from. After a rollback, the abandoned and the new run are
therefore two lines that meet in the target, and no checkpoint is missing.

`nodes_of` builds the tree and `rows_of` assigns columns, both as plain values; `picture` formats
the rows for a width; `draw` prints them to a terminal or a pipe.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_server.cli.output.text import PIPE_WIDTH, clock, date, title_text, zone
from hankweave_server.cli.show import OutputLines, lines_of
from hankweave_server.domain.checkpoints.titles import OF_STEPS
from hankweave_server.domain.timelines import BEFORE_ROLLBACK, RunLine
from hankweave_server.local.hints import command
from hankweave_server.plain_text import counted, one_line


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One checkpoint in the tree."""

    record: CheckpointRecord
    parent: Sha | None
    on_thread: bool
    """Whether it is an ancestor of the current work tree."""
    is_now: bool = False
    newest_of: RunLine | None = None
    """The run whose last checkpoint this is."""
    begins: RunLine | None = None
    """The run whose first checkpoint this is."""


Lane = bool | None
"""The line in a column: True if it leads to the current work tree; None if there is none."""


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One line of the graph."""

    lanes: tuple[Lane, ...]
    """The line that enters each column from above."""
    at: int
    """The column of the checkpoint, or the one that others join."""
    node: GraphNode | None = None
    joining: tuple[int, ...] = ()
    """Columns that end here because they have the same parent; such a row has no node."""


def nodes_of(runs: Sequence[RunLine]) -> tuple[GraphNode, ...]:
    """Return all checkpoints, newest first, each with its parent."""
    known = {record.sha for run in runs for record in run.checkpoints}
    parents = _parents(runs, known)
    now = _now(runs, known)
    thread = _thread(parents, now)
    ends = {run.checkpoints[-1].sha: run for run in runs if run.checkpoints}
    begins = {run.checkpoints[0].sha: run for run in runs if run.checkpoints}
    records = [record for run in runs for record in run.checkpoints]
    records.sort(key=lambda record: record.coordinate.event_seq, reverse=True)
    return tuple(
        GraphNode(
            record,
            parents[record.sha],
            on_thread=record.sha in thread,
            is_now=record.sha == now,
            newest_of=ends.get(record.sha),
            begins=begins.get(record.sha),
        )
        for record in records
    )


def _parents(runs: Iterable[RunLine], known: set[Sha]) -> dict[Sha, Sha | None]:
    parents: dict[Sha, Sha | None] = {}
    for run in runs:
        source = None if run.source is None else run.source.checkpoint_sha
        before = source if source in known else None
        for record in run.checkpoints:
            parents[record.sha] = before
            before = record.sha

    return parents


def _now(runs: Sequence[RunLine], known: set[Sha]) -> Sha | None:
    """Return the checkpoint of the current work tree: the newest run's last, or its origin."""
    if not runs:
        return None

    newest = runs[-1]
    if newest.checkpoints and newest.checkpoints[-1].codon_name != BEFORE_ROLLBACK:
        return newest.checkpoints[-1].sha

    # If a run that has not begun yet is rolled back again, its origin is the new target.
    source = None if newest.source is None else newest.source.checkpoint_sha
    return source if source in known else None


def _thread(parents: Mapping[Sha, Sha | None], now: Sha | None) -> set[Sha]:
    line: set[Sha] = set()
    while now is not None and now not in line:
        line.add(now)
        now = parents[now]

    return line


# --- layout and drawing ---------------------------------------------------------------------------


def rows_of(nodes: Sequence[GraphNode]) -> Iterator[GraphRow]:
    """Assign columns to the nodes; the line to the current work tree has the first column."""
    now = next((node.record.sha for node in nodes if node.is_now), None)
    lanes = _Lanes(now)
    for node in nodes:
        at, *others = lanes.waiting_for(node.record.sha)
        if others:
            yield GraphRow(lanes.lines(), at, joining=tuple(others))
            lanes.join(at, others)

        yield GraphRow(lanes.lines(), at, node)
        lanes.advance(at, node)


class _Lanes:
    """The columns of the graph, each waiting for the parent of its last checkpoint."""

    def __init__(self, now: Sha | None) -> None:
        self._wanted: list[Sha | None] = [now]
        self._lines: list[Lane] = [None]

    def lines(self) -> tuple[Lane, ...]:
        return tuple(self._lines)

    def waiting_for(self, sha: Sha) -> list[int]:
        """Return the columns that wait for a checkpoint; a free one if there are none."""
        found = [column for column, wanted in enumerate(self._wanted) if wanted == sha]
        if found:
            return found

        free = (column for column, wanted in enumerate(self._wanted) if wanted is None and column)
        column = next(free, len(self._wanted))
        if column == len(self._wanted):
            self._wanted.append(None)
            self._lines.append(None)

        return [column]

    def join(self, at: int, others: Iterable[int]) -> None:
        self._lines[at] = self._lines[at] or any(self._lines[column] for column in others)
        for column in others:
            self._wanted[column], self._lines[column] = None, None

        self._trim()

    def advance(self, at: int, node: GraphNode) -> None:
        self._wanted[at] = node.parent
        self._lines[at] = None if node.parent is None else node.on_thread
        self._trim()

    def _trim(self) -> None:
        while len(self._wanted) > 1 and self._wanted[-1] is None:
            self._wanted.pop()
            self._lines.pop()


MARKS: Mapping[CheckpointKind, tuple[str, str, str]] = {
    "initial": ("◎", "O", "bold"),
    "completed": ("●", "*", "green"),
    "error": ("✗", "x", "red"),
    "skipped": ("»", ">", "yellow"),
    "exit": ("■", "#", "yellow"),
    "rig-setup": ("▲", "^", "blue"),
    "tool": ("·", ".", "cyan"),
    "turn": ("∘", "o", "cyan"),
    "manual": ("◆", "@", "magenta"),
    "safety": ("◇", "%", "magenta"),
}
"""The mark, the ASCII mark and the colour of each kind."""

_FANCY = {"line": "│", "into": "├", "from": "╭", "over": "─", "cross": "┼", "end": "╯", "bend": "┴"}
_ASCII = {"line": "|", "into": "|", "from": ".", "over": "-", "cross": "|", "end": "'", "bend": "'"}

_TIME_FROM = 70
_KIND_FROM = 50
_CODON_WIDTH = 16


def draw(root: Path, *, calls: bool) -> None:
    """Print the graph of an execution on stdout; with `calls`, also its tool calls and messages."""
    lines = lines_of(root)
    shown = lines if calls else _of_steps(lines)
    show(shown)
    if left := _number(lines) - _number(shown):
        hint = command("log --graph --calls", root)
        click.echo(f"{counted(left, 'checkpoint')} of calls left out: {hint}")


def show(lines: OutputLines) -> None:
    is_terminal = sys.stdout.isatty()
    console = Console(
        width=None if is_terminal else PIPE_WIDTH, highlight=False, soft_wrap=not is_terminal
    )
    can_show = _can_encode(console.encoding, "".join(mark for mark, _, _ in MARKS.values()) + "│╯←")
    for line in picture(lines, console.width, fancy=can_show):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=is_terminal)


def _of_steps(lines: OutputLines) -> OutputLines:
    """Leave out what was taken while an agent worked, unless something refers to it."""
    now = _now(lines.runs, {record.sha for run in lines.runs for record in run.checkpoints})
    needed = {now, *(branch.coordinate.checkpoint_sha for branch in lines.branches)}
    needed |= {run.source.checkpoint_sha for run in lines.runs if run.source is not None}

    def of_steps(run: RunLine) -> RunLine:
        kept = (
            record
            for record in run.checkpoints
            if record.kind not in OF_STEPS or record.pinned or record.sha in needed
        )
        return msgspec.structs.replace(run, checkpoints=tuple(kept))

    return dataclasses.replace(lines, runs=tuple(map(of_steps, lines.runs)))


def _number(lines: OutputLines) -> int:
    return sum(len(run.checkpoints) for run in lines.runs)


def _can_encode(encoding: str, letters: str) -> bool:
    try:
        letters.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False

    return True


def picture(lines: OutputLines, width: int, *, fancy: bool) -> Iterator[Text]:
    """Yield the lines of the graph for a width in columns, then a legend of the marks."""
    nodes = nodes_of(lines.runs)
    branches: dict[Sha, list[str]] = {}
    for branch in lines.branches:
        branches.setdefault(branch.coordinate.checkpoint_sha, []).append(branch.execution_path)

    rows = list(rows_of(nodes))
    columns = max((len(row.lanes) for row in rows), default=0)
    codons = max((len(_codon_of(node.record)) for node in nodes), default=0)
    codons = min(codons, _CODON_WIDTH) if width >= _KIND_FROM else 0
    day = ""
    for row in rows:
        if row.node is not None and day != (day := date(row.node.record.timestamp)):
            yield Text(f"{day} ({zone(row.node.record.timestamp)})", "bold")

        graph = _graph(row, columns, fancy=fancy)
        if row.node is not None:
            graph.append(_description(row.node, branches, width, codons, fancy=fancy))

        graph.rstrip()
        yield graph

    if lines.origin is not None:
        at = lines.origin.coordinate.checkpoint_sha[:12]
        path = one_line(lines.origin.execution_path)
        yield Text(f"a branch of {path}, made at {at}", "cyan")

    if nodes:
        yield _legend({node.record.kind for node in nodes}, fancy=fancy)
    else:
        yield Text("There is no checkpoint yet.")


# --- graph column ---------------------------------------------------------------------------------


def _graph(row: GraphRow, columns: int, *, fancy: bool) -> Text:
    signs = _FANCY if fancy else _ASCII
    text = Text()
    for column in range(columns):
        lane = row.lanes[column] if column < len(row.lanes) else None
        sign, style = _sign(row, column, lane, signs, fancy=fancy)
        is_spanned = bool(row.joining) and row.at <= column < max(row.joining)
        text.append(sign, style)
        text.append(signs["over"] if is_spanned else " ", "dim")

    return text


def _sign(
    row: GraphRow, column: int, lane: Lane, signs: Mapping[str, str], *, fancy: bool
) -> tuple[str, str]:
    style = "bold" if lane else "dim"
    if row.node is not None and column == row.at:
        mark, plain, colour = MARKS[row.node.record.kind]
        return mark if fancy else plain, colour

    if not row.joining or not row.at <= column <= max(row.joining):
        return (" ", "") if lane is None else (signs["line"], style)

    if column == row.at:
        return signs["from" if lane is None else "into"], style

    if column in row.joining:
        return signs["end" if column == max(row.joining) else "bend"], "dim"

    return signs["over" if lane is None else "cross"], style


# --- text column ----------------------------------------------------------------------------------


def _codon_of(record: CheckpointRecord) -> str:
    return one_line(record.coordinate.codon_id or "-")


def _description(
    node: GraphNode,
    branches: Mapping[Sha, list[str]],
    width: int,
    codons: int,
    *,
    fancy: bool,
) -> Text:
    """Return the text beside a mark; the column of codons is `codons` wide."""
    record = node.record
    _, _, colour = MARKS[record.kind]
    text = Text()
    text.append(record.sha[: 12 if width >= _TIME_FROM else 7], "yellow" if node.on_thread else "")
    if width >= _KIND_FROM:
        text.append(f"  {record.kind:<9}", colour)

    text.append(f"  {_codon_of(record):<{codons}}")
    if width >= _TIME_FROM:
        text.append(f"  {clock(record.timestamp)}", "dim")

    if node.is_now:
        text.append(f"  {'←' if fancy else '<-'} now", "bold green")

    text.append(f"  {title_text(record)}", "" if node.on_thread else "dim")
    if record.pinned:
        text.append("  [pinned]", "magenta")

    for note, style in _of_runs(node):
        text.append(f"  {note}", style)

    for path in branches.get(record.sha, ()):
        text.append(f"  (branched to {one_line(path)})", "cyan")

    return text


def _of_runs(node: GraphNode) -> Iterator[tuple[str, str]]:
    run = node.begins
    if run is not None and run.source is not None:
        reason = {"rollback": "after a rollback", "retry": "tried again"}.get(run.reason or "", "")
        yield f"(run {run.run_id} begins{f' {reason}' if reason else ''})", "blue"

    run = node.newest_of
    if run is not None:
        if run.is_current:
            yield f"(run {run.run_id}, current)", "green"
        else:
            left = "" if run.on_thread else ", abandoned"
            yield f"(run {run.run_id}, {run.status}{left})", "yellow" if left else "blue"


def _legend(kinds: set[CheckpointKind], *, fancy: bool) -> Text:
    text = Text()
    for kind, (mark, plain, colour) in MARKS.items():
        if kind in kinds:
            text.append(mark if fancy else plain, colour)
            text.append(f" {kind}  ", "dim")

    return text
