"""The command line as a person uses it: a process that ends, and what it said."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeAlias

from support.running_server import command, environment

Done: TypeAlias = subprocess.CompletedProcess[str]


def hankweave(
    *words: str, cwd: Path | None = None, answer: str = "", code: int | None = None, **env: str
) -> Done:
    """Runs a command to its end, which is never a traceback, and has this exit code if any."""
    done = subprocess.run(
        command(*words),
        env=environment(**env),
        cwd=cwd,
        input=answer,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    # One of an agent is told further to the right.
    assert "\nTraceback" not in f"\n{done.stdout}\n{done.stderr}"
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr

    return done


def agreed(verb: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the --yes that a command wants where there is no terminal to ask on."""
    asks = verb in ("rollback", "undo", "redo") and "--preview" not in options
    return ("--yes",) if asks else ()
