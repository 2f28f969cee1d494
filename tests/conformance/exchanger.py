"""A hostile neighbour: swaps two paths as often as it is told, each time in one step.

    python exchanger.py ONE OTHER TIMES

It prints how often it really did. Each swap is `renameat2` with RENAME_EXCHANGE, so neither path
is ever missing. A short rest between swaps gives the other side time to open what it then loses.
"""

from __future__ import annotations

import ctypes
import os
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
    done = 0
    for turn in range(times * 50):
        done += exchange(os.fsencode(one), os.fsencode(other))
        rest(turn)
        if done == times:
            break

    sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
