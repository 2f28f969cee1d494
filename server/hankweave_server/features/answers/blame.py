"""Blame: find the checkpoint that each line of a file comes from.

A line is followed from the newest version of its file to the older one that the version came from,
for as long as a comparison of the two finds it unchanged; the version in which it is not unchanged
has brought it. This is what `git blame` does, with the same comparison of lines, so the result is
the same.

The lines of a version are a list with a number for each: that of the line of the blamed file that
it became. Going to an older version replaces the changed part of the list, so a step costs what
changed and one copy of the list; git's list of ranges would cost all ranges at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple, Protocol

from hankweave_protocol.ids import Sha
from hankweave_server.git.line_changes import ChangedLines

_NONE = -1
"""The number of a line that is not followed."""


class FileVersion(NamedTuple):
    """A file as a checkpoint holds it."""

    sha: Sha
    path: bytes
    blob: bytes
    """The name of its content."""


class VersionGraph(Protocol):
    """The versions of files, and how they follow each other."""

    def beginning(self, version: FileVersion) -> FileVersion:
        """Return the first of the versions that have had this content without a break."""
        ...

    def before(self, version: FileVersion) -> Sequence[FileVersion]:
        """Return the versions, all of other content, that one may come from, the nearest first."""
        ...

    def age(self, version: FileVersion) -> float:
        """Return a number that is never smaller for the version that another one comes from."""
        ...

    def changed(self, old: FileVersion, new: FileVersion) -> Sequence[ChangedLines]:
        """Compare two versions line by line."""
        ...


class BlamedLines(NamedTuple):
    """Lines of the blamed file, and the version that has brought them."""

    start: int
    """The first line, from 0."""
    end: int
    """The line after the last one."""
    version: FileVersion
    origin: int
    """The number of the first of them in that version, from 0."""


@dataclass(slots=True)
class _Trace:
    """The lines of one version that are followed."""

    lines: list[int]
    followed: int
    """How many of them are."""


def blame(
    newest: FileVersion, count: int, wanted: Iterable[tuple[int, int]], versions: VersionGraph
) -> list[BlamedLines]:
    """Return who has brought the wanted lines of a file with `count` lines, in their order.

    `wanted` are ranges of line numbers as in `BlamedLines`, within the file.
    """
    followed = [_NONE] * count
    for start, end in wanted:
        followed[start:end] = range(start, end)

    waiting: dict[FileVersion, list[_Trace]] = {}
    order: list[tuple[float, FileVersion]] = []

    def follow(version: FileVersion, trace: _Trace) -> None:
        version = versions.beginning(version)
        if version not in waiting:
            heappush(order, (versions.age(version), version))

        waiting.setdefault(version, []).append(trace)

    found: dict[int, tuple[FileVersion, int]] = {}
    follow(newest, _Trace(followed, count - followed.count(_NONE)))
    while order:
        _, version = heappop(order)
        older_ones = versions.before(version)
        for trace in waiting.pop(version):
            size, rest = len(trace.lines), [(0, trace.lines)]
            for older in older_ones:
                if trace.followed:
                    passed, rest = _divided(trace, versions.changed(older, version))
                    trace = _Trace([], trace.followed - passed.followed)
                    if passed.followed:
                        follow(older, passed)

                    if trace.followed and len(older_ones) > 1:
                        trace.lines = _joined(rest, size)

            if trace.followed:
                for start, lines in rest:
                    places = enumerate(lines, start)
                    found.update((line, (version, at)) for at, line in places if line != _NONE)

    return list(_folded(found))


_Pieces = list[tuple[int, list[int]]]
"""Parts of the lines of a version, each with the number of its first line."""


def _divided(trace: _Trace, changes: Sequence[ChangedLines]) -> tuple[_Trace, _Pieces]:
    """Divide lines into those that an older version has, in its numbers, and the others."""
    older, others, left = trace.lines, _Pieces(), 0
    for change in reversed(changes):
        new = slice(change.new_start, change.new_end)
        taken = older[new]
        left += len(taken) - taken.count(_NONE)
        others.append((change.new_start, taken))
        older[new] = [_NONE] * (change.old_end - change.old_start)

    return _Trace(older, trace.followed - left), others


def _joined(pieces: _Pieces, count: int) -> list[int]:
    lines = [_NONE] * count
    for start, piece in pieces:
        lines[start : start + len(piece)] = piece

    return lines


def _folded(found: dict[int, tuple[FileVersion, int]]) -> Iterable[BlamedLines]:
    """Yield neighbouring lines that the same version has brought as one."""
    numbered = enumerate(sorted(found))
    # The difference of a line's number and its place is the same for neighbours.
    for (_, version), group in groupby(
        numbered, lambda each: (each[1] - each[0], found[each[1]][0])
    ):
        lines = [line for _, line in group]
        yield BlamedLines(lines[0], lines[-1] + 1, version, found[lines[0]][1])
