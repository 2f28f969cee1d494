"""The command line as a user runs it: a process that ends, and its output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from support.running_server import command, environment
from support.waiting import LIMIT

Done: TypeAlias = subprocess.CompletedProcess[str]


def hankweave(
    *words: str, cwd: Path | None = None, answer: str = "", code: int | None = None, **env: str
) -> Done:
    """Run a command to its end; check that it printed no traceback, and its exit code if given."""
    done = _ended(command(*words), environment(**env), cwd, answer)
    # A traceback of an agent is indented.
    assert "\nTraceback" not in f"\n{done.stdout}\n{done.stderr}", done.stderr
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr

    return done


def _ended(words: list[str], env: dict[str, str], cwd: Path | None, answer: str = "") -> Done:
    return subprocess.run(
        words,
        env=env,
        cwd=cwd,
        input=answer,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def on_the_path(folder: Path, **env: str) -> dict[str, str]:
    """Return the environment of a user who has `hankweave` on the PATH, as a file in `folder`."""
    folder.mkdir()
    program = folder / "hankweave"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    program.chmod(0o755)
    path = (str(folder), str(Path(sys.executable).parent), os.environ["PATH"])
    root = str(folder.with_name("executions"))
    env = {"HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR": root, **env}
    return environment(PATH=os.pathsep.join(path), **env)


def pasted(line: str, shell: dict[str, str], cwd: Path) -> Done:
    """Run a line as it would be pasted into a shell; check that its exit code is 0."""
    done = _ended(["sh", "-c", line], shell, cwd)
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command whose output is read later; kill it at the end if it still runs."""
    with subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def agreed(verb: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the --yes that a command needs where there is no terminal to ask on."""
    asks = verb in ("rollback", "undo", "redo") and "--preview" not in options
    return ("--yes",) if asks else ()
