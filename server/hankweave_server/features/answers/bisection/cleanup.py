"""Remove a folder when the process that made it has ended, however it ended.

A process that is killed can clean up nothing. This program waits until its stdin is closed, which
the kernel does at the latest when the other process ends, and then removes the folder. Commands of
that process may still be ending, so a folder that fills up again is removed again.

Standard library only, and modules that need no more: it is started in an isolated interpreter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hankweave_server.worktree.removal import remove

_TRIES = 100
_SECONDS_BETWEEN = 0.1


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of stdin, then remove the folder; return 1 if that is impossible."""
    folder = Path(arguments[0])
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)

    while os.read(0, 1):
        pass

    for _ in range(_TRIES):
        try:
            remove(folder)
            return 0
        except OSError:
            time.sleep(_SECONDS_BETWEEN)

    return 1


@contextmanager
def private_folder(folder: Path, program: Sequence[str]) -> Iterator[None]:
    """Make a private folder for the block; `program` runs this module's `main`.

    Raises OSError if it cannot be made, or not be removed.
    """
    with subprocess.Popen(
        [*program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as cleaner:
        folder.mkdir(mode=0o700)
        yield

    if cleaner.returncode:
        raise OSError(f"{folder} could not be removed")
