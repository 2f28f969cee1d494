"""A server whose coverage is known though it is killed: it is saved at SIGUSR2, and then it dies.

`running_server` starts this in place of the console script while coverage is measured, and ends it
so: whatever the server would do at an orderly end would be measured too, and seen in its journal.
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
    del sys.path[0]  # The folder of this file, which would come before everything else.
    from hankweave_server.cli.app import main

    main()
