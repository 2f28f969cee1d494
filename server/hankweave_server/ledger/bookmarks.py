"""Where the lines of a file of millions begin, without a number for each of them.

A bookmark stands every few lines, and sooner where the lines are long; whoever looks for a line
reads on from the bookmark before it. So an event costs one byte of memory instead of
eight, and who looks for one reads some kilobytes more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

LINES_APART = 16
BYTES_APART = 16 << 10
"""Two bookmarks lie no further apart than this and one line."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of the file in which the lines that were asked for stand."""

    begin: int
    end: int
    skipped: int
    """Lines in it that come before those asked for."""
    count: int
    """Lines that were asked for."""


class Bookmarks:
    """One thread may `extend` while others look: what they see of the top is one value."""

    def __init__(self) -> None:
        self._numbers = array("Q", [0])
        self._offsets = array("Q", [0])
        self._top = (0, 0)

    @property
    def lines(self) -> int:
        return self._top[0]

    @property
    def size(self) -> int:
        """Bytes of all lines: where the next one begins."""
        return self._top[1]

    def extend(self, sizes: Iterable[int]) -> None:
        """Adds lines at the end, given by their sizes with their newlines."""
        number, offset = self._top
        for size in sizes:
            number += 1
            offset += size
            is_far = offset - self._offsets[-1] >= BYTES_APART
            if is_far or number - self._numbers[-1] >= LINES_APART:
                self._offsets.append(offset)  # First, for who looks finds it by its number.
                self._numbers.append(number)

        self._top = (number, offset)

    def find(self, first: int, limit: int | None) -> Stretch:
        """Finds the lines after so many, up to a limit."""
        lines, size = self._top
        first = min(max(first, 0), lines)
        until = lines if limit is None else min(lines, first + max(limit, 0))
        before = bisect_right(self._numbers, first) - 1
        behind = bisect_left(self._numbers, until)
        begin = self._offsets[before]
        end = self._offsets[behind] if behind < len(self._numbers) else size
        return Stretch(begin, min(end, size), first - self._numbers[before], until - first)

    def page_after(self, first: int, most_bytes: int) -> int:
        """Return how many lines after so many can be read by reading about `most_bytes`.

        It is at least one, however long that is, unless there is none.
        """
        lines, size = self._top
        if first >= lines:
            return 0

        begin = self._offsets[bisect_right(self._numbers, first) - 1]
        if size - begin <= most_bytes:
            return lines - first

        # The last bookmark that is near enough, or the next one where a single line is too long.
        near = bisect_right(self._offsets, begin + most_bytes) - 1
        if near < len(self._numbers) and self._numbers[near] <= first:
            near += 1

        until = self._numbers[near] if near < len(self._numbers) else lines
        return min(until, lines) - first
