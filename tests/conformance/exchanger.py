"""A hostile neighbour: swaps two paths at least as often as it is told, each time in one step.

    python exchanger.py ONE OTHER TIMES

It goes on until its input is closed, and prints how often it did. Each swap is `renameat2` with
RENAME_EXCHANGE, so neither path is ever missing. A short rest between swaps gives the other side
time to open what it then loses.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys

AT_FDCWD = -100
EXCHANGE = 1 << 1

_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: bytes, other: bytes) -> bool:
    done: int = _libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)
    return done == 0


def rest(turn: int) -> None:
    """Yields for a different while each time: a fixed rhythm would miss most windows."""
    for _ in range(turn % 97):
        os.sched_yield()


def main(one: str, other: str, times: int) -> None:
    done = turn = 0
    while done < times or not _is_over():
        turn += 1
        done += exchange(os.fsencode(one), os.fsencode(other))
        rest(turn)

    sys.stdout.write(f"{done}\n")


def _is_over() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
