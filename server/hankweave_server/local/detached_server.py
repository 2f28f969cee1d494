"""Servers that a command or another server starts, and that outlive it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from hankweave_server.config import SETTINGS

_MAIN = "from hankweave_server.cli.app import main; main()"
_OWN_SETTINGS = {"port": "0", "autostart": "true", "exitOnComplete": "true"}
"""Settings that a person chooses for one server: a detached one has its own, whatever the
environment or `hankweave.json` says."""


def own_command(*arguments: str, prelude: str = "") -> list[str]:
    """Return the command line of `hankweave` in this interpreter; it executes `prelude` first."""
    # -P: no module in the current directory is imported.
    return [sys.executable, "-P", "-c", prelude + _MAIN, *arguments]


def start_detached(arguments: Sequence[str], output: int, *, prelude: str = "") -> int:
    """Start a server in a session of its own; return its pid, which the caller has to reap.

    Its output goes to the file descriptor `output`. Raises OSError.
    """
    own = {SETTINGS[key].variable: value for key, value in _OWN_SETTINGS.items()}
    process = subprocess.Popen(
        own_command(*arguments, prelude=prelude),
        stdin=subprocess.DEVNULL,
        env=os.environ | own,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    # Without this, subprocess would reap it at any later start of a program.
    process.returncode = 0
    return process.pid
