"""The lines that differ between two contents, as `git blame` finds them.

libgit2 looks at every line of both contents. Two versions of a file that follow each other mostly
differ in one place, so the lines that they have in common at both ends are cut off first. What git
says about the rest depends on the lines around it, so the rest decides what libgit2 has to see:

- If no line of one rest is in the other, both are changed as a whole: nothing is left to compare.
- If one rest is empty, lines were added or removed. Git moves them up and down as far as the text
  stays the same, and chooses a place by the lines around it: libgit2 gets all of these.
- Otherwise there may be several shortest differences, and how often each line is in the whole
  contents has a part in the choice: libgit2 gets both contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pygit2
from pygit2.enums import DiffOption

from hankweave_server.git.errors import named_by_libgit2

_COMMON_BLOCK = 1024
_LINES_AROUND = 24
"""Git looks at no more than 20 blank lines and one other to choose a place (`measure_split`)."""


class ChangedLines(NamedTuple):
    """Lines that differ between two contents: half-open ranges of line numbers, from 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def changed_lines(old: bytes, new: bytes) -> list[ChangedLines]:
    """Compare two contents as `git blame` does, whatever their bytes are.

    Raises ShadowRepositoryError if libgit2 fails.
    """
    old, new = _without_common_end(old, new)
    top, removed, added = without_common_lines(old, new)
    if removed and added:
        before, after = _lines_of(removed), _lines_of(added)
        if not set(before).isdisjoint(after):
            return compared(old, new)

        first = old.count(b"\n", 0, top)
        return [ChangedLines(first, first + len(before), first, first + len(after))]

    group = added or removed
    if not group:
        return []

    end = top + len(group)
    text = new if added else old
    highest = _moved_up(text, top, end)
    if highest == top:
        first, count = old.count(b"\n", 0, top), len(_lines_of(group))
        old_end, new_end = (first, first + count) if added else (first + count, first)
        return [ChangedLines(first, old_end, first, new_end)]

    start = _lines_above(text, highest)
    below = _lines_below(text, end) - end
    old_end, new_end = (top, end) if added else (end, top)
    return compared(old[start : old_end + below], new[start : new_end + below], start, old)


def compared(old: bytes, new: bytes, start: int = 0, whole: bytes = b"") -> list[ChangedLines]:
    """Compare two contents with libgit2; they begin at that byte of a whole content."""
    flags = DiffOption.FORCE_TEXT | DiffOption.INDENT_HEURISTIC
    first = whole.count(b"\n", 0, start)
    try:
        hunks = pygit2.Patch.create_from(old, new, flag=flags, context_lines=0).hunks
    except (pygit2.GitError, OSError, ValueError) as problem:
        raise named_by_libgit2(problem) from problem

    return [
        ChangedLines(
            *_half_open(first + hunk.old_start, hunk.old_lines),
            *_half_open(first + hunk.new_start, hunk.new_lines),
        )
        for hunk in hunks
    ]


def _half_open(start: int, count: int) -> tuple[int, int]:
    """Return a range of lines, from 0; a hunk without lines names the line before it."""
    first = start - 1 if count else start
    return first, first + count


def _without_common_end(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Cut off the common end as git does before it compares without context (`xdi_diff`).

    Of several equal lines, it decides which one counts as added.
    """
    olds, news = len(old), len(new)

    def is_same(low: int, high: int) -> bool:
        start, end = high * _COMMON_BLOCK, low * _COMMON_BLOCK
        return old[olds - start : olds - end] == new[news - start : news - end]

    common = _most(min(olds, news) // _COMMON_BLOCK, is_same) * _COMMON_BLOCK
    newline = old.find(b"\n", olds - common)
    cut = olds - newline - 1 if common and newline >= 0 else 0
    return old[: olds - cut], new[: news - cut]


def _most(limit: int, is_same: Callable[[int, int], bool]) -> int:
    """Return the largest number, up to a limit, below which everything is the same.

    `is_same` compares what lies between two numbers; the lower one is known to be small enough.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if is_same(low, middle):
            low = middle
        else:
            high = middle - 1

    return low


def without_common_lines(old: bytes, new: bytes) -> tuple[int, bytes, bytes]:
    """Cut off the lines that both begin and end with; return where the rests begin, and the rests.

    The last line of a content may lack its newline, and then differs from one that has it.
    """
    top = _common_start(old, new)
    bottom = _common_end(old, new, top)
    return top, old[top : len(old) - bottom], new[top : len(new) - bottom]


def _common_start(old: bytes, new: bytes) -> int:
    """Return how many bytes the first lines have that are the same in both."""
    same = _most(min(len(old), len(new)), lambda low, high: old[low:high] == new[low:high])
    return old.rfind(b"\n", 0, same) + 1


def _common_end(old: bytes, new: bytes, top: int) -> int:
    """Return how many bytes the last lines have that are the same in both, below the top."""
    olds, news = len(old), len(new)
    low = _most(
        min(olds, news) - top,
        lambda low, high: old[olds - high : olds - low] == new[news - high : news - low],
    )
    if _begins_line(old, olds - low) and _begins_line(new, news - low):
        return low

    newline = old.find(b"\n", olds - low)
    return olds - newline - 1 if newline >= 0 else 0


def _begins_line(content: bytes, at: int) -> bool:
    return not at or content[at - 1] == ord("\n")


def _lines_of(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n")


def _moved_up(text: bytes, start: int, end: int) -> int:
    """Return where a group of lines begins if it is moved up as far as the text stays the same."""
    while start:
        before, last = (text.rfind(b"\n", 0, at - 1) + 1 for at in (start, end))
        if text[before:start] != text[last:end]:
            break

        start, end = before, last

    return start


def _lines_above(text: bytes, at: int) -> int:
    for _ in range(_LINES_AROUND):
        if at:
            at = text.rfind(b"\n", 0, at - 1) + 1

    return at


def _lines_below(text: bytes, at: int) -> int:
    for _ in range(_LINES_AROUND):
        at = text.find(b"\n", at) + 1 or len(text)

    return at
