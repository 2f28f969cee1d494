"""Answers that may be long, one page at a time.

A page ends where it is as long as was asked for, or as heavy as an answer may be: no frame of ours
outgrows what a client takes. A cursor names the last path of its page, so that the next one begins
right behind it even where files came or went meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence

from hankweave_protocol.errors import ErrorCode, Refused

ANSWER_BYTES = 1024 * 1024
"""What the items of one page may weigh in JSON."""


def page_of(
    paths: Sequence[bytes], weights: Sequence[int], cursor: str | None, limit: int | None
) -> tuple[range, str | None]:
    """Says which items a page has, and the cursor of the next one if there is more.

    Paths are in order; weights are sums: `weights[i]` is what all items before `i` weigh. A page
    holds at least one item, however heavy it is, unless the limit is 0.
    """
    begin = 0 if cursor is None else bisect_right(paths, _path_in(cursor))
    last = len(paths) if limit is None else min(len(paths), begin + limit)
    fits = bisect_right(weights, weights[begin] + ANSWER_BYTES) - 1
    end = min(last, max(fits, begin + 1))
    more = begin < end < len(paths)
    return range(begin, end), cursor_after(paths[end - 1]) if more else None


def cursor_after(path: bytes) -> str:
    return base64.urlsafe_b64encode(path).decode()


def _path_in(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "This is no cursor.",
            path="$.data.cursor",
            hint="Give back the cursor of the page before, or none.",
        ) from None
