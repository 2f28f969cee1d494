"""A server whose coverage is known though it is killed: SIGUSR2 saves the data and kills it.

`running_server` starts this in place of the console script while coverage is measured, and ends it
so: an orderly end would run code that would be measured too, and that would appear in the journal.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from coverage import Coverage


def die(_number: int, _frame: FrameType | None) -> None:
    measured = Coverage.current()
    if measured is not None:
        measured.stop()
        measured.save()

    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, die)
    del sys.path[0]  # The folder of this file would precede all others.
    from hankweave_server.cli.app import main

    main()
