"""Which events led to which: the closure over `causes` (DESIGN 5).

A cause is the seq of an earlier event or the id of a command. An effect always stands after its
cause, so one pass in journal order finds all descendants, and ancestors are found by going back.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Read = Callable[[int, int], list[bytes]]
"""Gives at most so many lines of the journal after a seq, oldest first."""


class Descendants:
    """All that an event or a command led to; asked about each later event in journal order."""

    def __init__(self, root: int | str) -> None:
        self._line: set[int | str] = {root}

    def take(self, seq: int, causes: list[int | str]) -> bool:
        """Tells whether an event descends from the root, and remembers that it does."""
        if self._line.isdisjoint(causes):
            return False

        self._line.add(seq)
        return True


class _Parents(msgspec.Struct):
    causes: list[int | str] = []


_parents_in = msgspec.json.Decoder(_Parents).decode


def ancestors(seq: int, read: Read) -> frozenset[int]:
    """Returns the seqs of all events that led to one, itself not included."""
    found: set[int] = set()
    waiting = [seq]
    while waiting:
        child = waiting.pop()
        for line in read(child - 1, 1):
            earlier = {
                cause
                for cause in _parents_in(line).causes
                if isinstance(cause, int) and 0 < cause < child
            }
            waiting += earlier - found
            found |= earlier

    return frozenset(found)
