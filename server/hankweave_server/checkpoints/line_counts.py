"""Counts the lines two contents differ by where that needs no comparing of lines.

Most edits add lines in one place or take lines out of one. Without what both contents begin and
end with, one side then has nothing left, and the lines of the other are the answer: any smallest
diff gives the same. What is not so simple is libgit2's to compare.
"""

from __future__ import annotations

_LOOKED_AT = 8000
"""Bytes in which git looks for the NUL that makes content binary."""


def line_counts(old: bytes, new: bytes) -> tuple[int, int] | None:
    """Gives how many lines were added and removed; None where the lines must be compared."""
    if b"\0" in old[:_LOOKED_AT] or b"\0" in new[:_LOOKED_AT]:
        return None

    start = old.rfind(b"\n", 0, _common_beginning(old, new)) + 1
    old, new = old[start:], new[start:]
    end = _common_ending(old, new)
    old, new = old[: len(old) - end], new[: len(new) - end]
    return None if old and new else (_lines(new), _lines(old))


def _common_beginning(old: bytes, new: bytes) -> int:
    """Gives the length of what both begin with, by halving: a comparison of bytes is one call."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1

    return low


def _common_ending(old: bytes, new: bytes) -> int:
    """Gives the length of the whole lines that both end with."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle :] == new[len(new) - middle :]:
            low = middle
        else:
            high = middle - 1

    if low == len(old) or low == len(new):
        # Whole on one side; a line begins here on the other only after a newline.
        longer = old if len(old) > len(new) else new
        if len(longer) == low or longer[-low - 1 : len(longer) - low] == b"\n":
            return low

    begin = old.find(b"\n", len(old) - low) + 1
    return len(old) - begin if begin else 0


def _lines(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n") if text else 0)
