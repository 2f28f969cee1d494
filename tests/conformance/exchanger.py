"""A hostile process: swaps two paths at least the given number of times, each swap atomic.

    python exchanger.py ONE OTHER TIMES

It runs until its stdin is closed, and prints the number of swaps. Each swap is `renameat2` with
RENAME_EXCHANGE, so neither path is ever missing. A short pause between swaps gives the other side
time to open a path that the next swap moves away.
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
    """Pause for a varying time: a fixed rhythm would miss most race windows."""
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
