"""Running a rig's shell commands, so that none outlives its step and no output is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Literal

import anyio
import anyio.lowlevel

FailureType = Literal["command_failed", "timeout", "other"]
Stream = Literal["stdout", "stderr"]
OnLine = Callable[[Stream, str], Awaitable[None]]

_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024
_GRACE_SECONDS = 2.0  # Between SIGTERM and SIGKILL.
_BETWEEN_LOOKS_SECONDS = 0.005
_LOOKS = 400  # Two seconds: who is not dead by then hangs in the kernel.
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


async def run_rig_command(
    command: str,
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_seconds: float | None,
    on_line: OnLine,
) -> None:
    """Runs a shell command in a session of its own and hands over its output line by line.

    `env` comes on top of the server's environment (Hankweave, rigs). When the command ends, fails,
    takes too long or is cancelled, every process left in its session's group is killed: nothing
    writes into the work tree behind the checkpoint's back. Raises CommandFailed, CommandTimedOut,
    or RigError where the command could not be started.
    """
    process = _started(command, cwd, env)
    with process:
        ended = os.pidfd_open(process.pid)
        try:
            with anyio.move_on_after(timeout_seconds) as patience:
                await _until_ended(process, ended, on_line)
        finally:
            with anyio.CancelScope(shield=True):
                await _end_group(process, ended)

            os.close(ended)

    if patience.cancelled_caught:
        raise CommandTimedOut(
            f"The command took more than {timeout_seconds:g} s: {_short(command)}"
        )

    _judge(command, process.returncode)


def _started(command: str, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    try:
        return subprocess.Popen(
            command,
            shell=True,
            cwd=cwd,
            env={**inherited, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise RigError(f"The command could not be started: {error}") from error


async def _until_ended(process: subprocess.Popen[bytes], ended: int, on_line: OnLine) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    out = _Pipe(process.stdout, "stdout", on_line)
    err = _Pipe(process.stderr, "stderr", on_line)
    async with anyio.create_task_group() as reading:
        reading.start_soon(out.read_lines)
        reading.start_soon(err.read_lines)
        await anyio.wait_readable(ended)
        _signal_group(process, signal.SIGKILL)  # What it left in the background talks no more.
        # A process that fled into another session may hold the pipes open for ever.
        out.abandon()
        err.abandon()
        reading.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS


class _Pipe:
    """Reads a pipe to its end, or, once abandoned, to where nothing more is in it."""

    def __init__(self, pipe: IO[bytes], stream: Stream, on_line: OnLine) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._descriptor = pipe.fileno()
        self._stream: Stream = stream
        self._on_line = on_line
        self._waiting = anyio.CancelScope()
        self._is_abandoned = False

    def abandon(self) -> None:
        self._is_abandoned = True
        self._waiting.cancel()

    async def read_lines(self) -> None:
        held = b""
        while chunk := await self._read():
            *lines, held = (held + chunk).split(b"\n")
            held = held[:_LONGEST_LINE]
            for line in lines:
                await self._tell(line)

        if held:
            await self._tell(held)

    async def _tell(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].removesuffix(b"\r").decode(errors="replace")
        await self._on_line(self._stream, text)

    async def _read(self) -> bytes:
        await anyio.lowlevel.checkpoint()  # Endless output must not keep others from their turn.
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                if self._is_abandoned:
                    return b""

            with anyio.CancelScope() as self._waiting:
                await anyio.wait_readable(self._descriptor)


async def _end_group(process: subprocess.Popen[bytes], ended: int) -> None:
    """Ends whatever still runs, gently first; while the leader is not reaped its id is safe."""
    if not _is_ended(process):
        _signal_group(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE_SECONDS):
            await anyio.wait_readable(ended)

    _signal_group(process, signal.SIGKILL)
    await anyio.wait_readable(ended)
    process.wait()
    for _ in range(_LOOKS):
        # A signal is only on its way when kill(2) returns.
        if not _is_running(process.pid):
            return

        await anyio.sleep(_BETWEEN_LOOKS_SECONDS)


def _is_running(group: int) -> bool:
    """Tells whether a process of the group lives; one that is dead and not reaped does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name stands in parentheses and may hold any byte; all that follows it is plain.
            state, _parent, its_group, *_ = stat.read_bytes().rpartition(b")")[2].split()
            if int(its_group) == group and state not in b"ZX":
                return True

    return False


def _is_ended(process: subprocess.Popen[bytes]) -> bool:
    """Looks without waiting for it: until somebody has, no other group can get its id."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # Gone already, or run under another user by sudo: out of our reach.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _judge(command: str, code: int) -> None:
    if code < 0:
        name = signal.Signals(-code).name
        raise CommandFailed(f"The command was ended by {name}: {_short(command)}", -1)

    if code > 0:
        raise CommandFailed(f"The command exited with code {code}: {_short(command)}", code)


def _short(command: str) -> str:
    return command if len(command) <= 120 else f"{command[:120]}…"
