"""The tree of runs as rows of a graph, newest first, as git draws its own: values, no terminal.

Every checkpoint stands on the one before it in its run, and the first of a run on the one that the
run went on from. So two futures of one moment are two lines that meet in it, and nothing that a
rollback left behind is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.domain.timelines import BEFORE_ROLLBACK, RunLine


@dataclass(frozen=True, slots=True)
class Node:
    """One checkpoint in the tree."""

    record: CheckpointRecord
    parent: Sha | None
    on_thread: bool
    """On the line that leads to now."""
    is_now: bool = False
    newest_of: RunLine | None = None
    """The run whose line ends here."""
    begins: RunLine | None = None
    """The run that begins with it."""


Lane = bool | None
"""A line in a column: True if it leads to now, False if not; None where there is none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture."""

    lanes: tuple[Lane, ...]
    """What comes into each column from above."""
    at: int
    """The column of the checkpoint, or the one that others bend into."""
    node: Node | None = None
    joining: tuple[int, ...] = ()
    """The columns that end here, as they stand on the same checkpoint; there is no node then."""


def nodes_of(runs: Sequence[RunLine]) -> tuple[Node, ...]:
    """Gives all checkpoints, newest first, each with what it stands on."""
    known = {record.sha for run in runs for record in run.checkpoints}
    parents = _parents(runs, known)
    now = _now(runs, known)
    thread = _thread(parents, now)
    ends = {run.checkpoints[-1].sha: run for run in runs if run.checkpoints}
    begins = {run.checkpoints[0].sha: run for run in runs if run.checkpoints}
    records = [record for run in runs for record in run.checkpoints]
    records.sort(key=lambda record: record.coordinate.event_seq, reverse=True)
    return tuple(
        Node(
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
    """The checkpoint that the work tree stands on: the newest run's last, or what it began at."""
    if not runs:
        return None

    newest = runs[-1]
    if newest.checkpoints and newest.checkpoints[-1].codon_name != BEFORE_ROLLBACK:
        return newest.checkpoints[-1].sha

    # A run that waits and is rolled back once more begins at the new target.
    source = None if newest.source is None else newest.source.checkpoint_sha
    return source if source in known else None


def _thread(parents: Mapping[Sha, Sha | None], now: Sha | None) -> set[Sha]:
    line: set[Sha] = set()
    while now is not None and now not in line:
        line.add(now)
        now = parents[now]

    return line


# --- the picture ----------------------------------------------------------------------------------


def rows_of(nodes: Sequence[Node]) -> Iterator[Row]:
    """Lays the nodes out, the line that leads to now in the first column."""
    now = next((node.record.sha for node in nodes if node.is_now), None)
    lanes = _Lanes(now)
    for node in nodes:
        at, *others = lanes.waiting_for(node.record.sha)
        if others:
            yield Row(lanes.lines(), at, joining=tuple(others))
            lanes.join(at, others)

        yield Row(lanes.lines(), at, node)
        lanes.go_on(at, node)


class _Lanes:
    """Each column waits for the checkpoint that its last one stands on."""

    def __init__(self, now: Sha | None) -> None:
        self._wanted: list[Sha | None] = [now]
        self._lines: list[Lane] = [None]

    def lines(self) -> tuple[Lane, ...]:
        return tuple(self._lines)

    def waiting_for(self, sha: Sha) -> list[int]:
        """The columns, at least one: a checkpoint that none waits for takes a free one."""
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

    def go_on(self, at: int, node: Node) -> None:
        self._wanted[at] = node.parent
        self._lines[at] = None if node.parent is None else node.on_thread
        self._trim()

    def _trim(self) -> None:
        while len(self._wanted) > 1 and self._wanted[-1] is None:
            self._wanted.pop()
            self._lines.pop()
