"""The command line as a user runs it: a process that ends, and its output."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread

from hankweave_client.client import Client
from support.running_server import RunningServer, command, environment
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


async def aside(*words: str, **how: Any) -> Done:
    """Run a command in a thread, while this process serves the pipes of its servers.

    The arguments are those of `hankweave`.
    """
    return await anyio.to_thread.run_sync(partial(hankweave, *words, **how))


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


class Shell:
    """A user's shell beside a server that a test talks to as well."""

    def __init__(self, server: RunningServer, client: Client) -> None:
        self.execution = server.execution
        self.client = client

    async def __call__(self, verb: str, *options: str, code: int | None = None) -> Done:
        """Run a command on the execution; check its exit code if given."""
        words = (verb, "--execution", str(self.execution), *options, *agreed(verb, options))
        return await aside(*words, code=code)

    async def json(self, verb: str, *options: str) -> str:
        """Return what a command that succeeds prints for programs."""
        return (await self(verb, "--json", *options, code=0)).stdout


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
