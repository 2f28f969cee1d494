"""Lists of files that stay small, however many files there are and however long their paths.

Events, replies and reports list files by name. A list with an entry for each of 100,000 files is a
frame of several megabytes, which common WebSocket clients reject. So a list ends after 200 entries,
or earlier if its encoding would be too large, and the number of all files is sent beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from hankweave_protocol import codec

MOST_LISTED = 200
MOST_BYTES = 16 * 1024
"""Maximum size of an encoded list."""

V = TypeVar("V")


def first_of(
    values: Iterable[V], count: int = MOST_LISTED, size: int = MOST_BYTES
) -> tuple[V, ...]:
    """Return the first values: at most `count`, and at most `size` bytes when encoded."""
    found: list[V] = []
    for value in islice(values, count):
        size -= len(codec.encode(value)) + 1
        if size < 0:
            break

        found.append(value)

    return tuple(found)
