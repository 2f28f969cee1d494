"""Counts the lines of Python that primes_up_to(limit) runs: a measure that no busy machine changes.

As an agent it is asked for `primes_up_to(LIMIT)` on stdin. As a check it is called with the limit
and with the most lines there may be, and fails where there are more.
"""

from __future__ import annotations

import re
import sys
from types import FrameType

from primes import primes_up_to


def lines_for(limit: int) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        primes_up_to(limit)
    finally:
        sys.settrace(None)

    return count


def main() -> int:
    asked = sys.argv[1:] or re.findall(r"primes_up_to\((\d+)\)", sys.stdin.read())
    limit, *most = map(int, asked)
    lines = lines_for(limit)
    print(lines)
    return 1 if most and lines > most[0] else 0


if __name__ == "__main__":
    sys.exit(main())
