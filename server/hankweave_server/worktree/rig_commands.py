"""Running a rig's shell commands, so that none outlives its step and no output is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

import anyio
import anyio.lowlevel

FailureType = Literal["command_failed", "timeout", "other"]
Stream = Literal["stdout", "stderr"]
OnLine = Callable[[Stream, str], Awaitable[None]]

_LONGEST_LINE = 64 * 1024
_GRACE_SECONDS = 2.0  # Between SIGTERM and SIGKILL.
_DRAIN_SECONDS = 10.0  # For what the command wrote last, however slowly the lines are taken.

# A server that was started in a shell set up for the shadow repository (seed 000's stock commands)
# must not hand that on: a rig's `git commit` would go into the checkpoints.
_GIT_PLACES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
    | {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"}
)


class RigError(Exception):
    """A rig operation that failed; whether that matters, the hank says."""

    failure_type: FailureType = "other"


class CommandFailed(RigError):
    """A command that ended badly; the code is -1 where a signal ended it."""

    failure_type: FailureType = "command_failed"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CommandTimedOut(RigError):
    """A command that took longer than its hank allows; all of its processes were ended."""

    failure_type: FailureType = "timeout"


class Pipe(Protocol):
    """What a command says on one of its two pipes."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Gives what is said, to the pipe's end."""

    def abandon(self) -> None:
        """Ends `chunks` as soon as nothing more is in the pipe, whoever still holds it open."""


class RunningCommand(Protocol):
    """A command that runs, with all that it has started."""

    @property
    def stdout(self) -> Pipe: ...

    @property
    def stderr(self) -> Pipe: ...

    @property
    def exit_code(self) -> int:
        """Minus the signal, where one ended it."""

    async def ended(self) -> None:
        """Returns when it has ended and nothing of it lives."""

    async def terminate(self) -> None:
        """Asks all its processes to end."""


Start = Callable[
    [Sequence[str], Path, Mapping[str, str]], AbstractAsyncContextManager[RunningCommand]
]
"""Starts words in a folder, in an environment; leaving the context ends every process of it.

Raises RigError.
"""


async def run_rig_command(
    command: str,
    *,
    start: Start,
    cwd: Path,
    env: Mapping[str, str],
    timeout_seconds: float | None,
    on_line: OnLine,
) -> None:
    """Runs a shell command and hands over its output line by line.

    `env` comes on top of the server's environment (Hankweave, rigs). When the command ends, fails,
    takes too long or is cancelled, every process that it started is killed: nothing writes into
    the work tree behind the checkpoint's back. Raises CommandFailed, CommandTimedOut, or RigError
    where the command could not be started.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    async with start(("/bin/sh", "-c", command), cwd, {**inherited, **env}) as running:
        has_ended = False
        try:
            with anyio.move_on_after(timeout_seconds) as patience:
                await _until_ended(running, on_line)
                has_ended = True
        finally:
            if not has_ended:
                await _ask_to_end(running)

    if patience.cancelled_caught:
        raise CommandTimedOut(
            f"The command took more than {timeout_seconds:g} s: {_short(command)}"
        )

    _judge(command, running.exit_code)


async def _ask_to_end(running: RunningCommand) -> None:
    with anyio.move_on_after(_GRACE_SECONDS, shield=True):
        await running.terminate()
        await running.ended()


async def _until_ended(running: RunningCommand, on_line: OnLine) -> None:
    async with anyio.create_task_group() as reading:
        reading.start_soon(_read_lines, running.stdout, "stdout", on_line)
        reading.start_soon(_read_lines, running.stderr, "stderr", on_line)
        await running.ended()
        running.stdout.abandon()
        running.stderr.abandon()
        reading.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS


async def _read_lines(pipe: Pipe, stream: Stream, on_line: OnLine) -> None:
    held = b""
    async for chunk in pipe.chunks():
        await anyio.lowlevel.checkpoint()  # Endless output must not keep others from their turn.
        *lines, held = (held + chunk).split(b"\n")
        held = held[:_LONGEST_LINE]
        for line in lines:
            await on_line(stream, _text(line))

    if held:
        await on_line(stream, _text(held))


def _text(line: bytes) -> str:
    return line[:_LONGEST_LINE].removesuffix(b"\r").decode(errors="replace")


def _judge(command: str, code: int) -> None:
    if code < 0:
        name = signal.Signals(-code).name
        raise CommandFailed(f"The command was ended by {name}: {_short(command)}", -1)

    if code > 0:
        raise CommandFailed(f"The command exited with code {code}: {_short(command)}", code)


def _short(command: str) -> str:
    return command if len(command) <= 120 else f"{command[:120]}…"
