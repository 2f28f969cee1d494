"""Set up a codon's rig: copy what the hank provides, and run its commands.

A command runs in `run_rig_command` so that no process outlives the step and no output is lost.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import anyio
import anyio.lowlevel

from hankweave_server.worktree.dirfd import FILE_FLAGS, FOLDER_FLAGS, make_folders
from hankweave_server.worktree.names import OUR_PREFIX, is_never_captured, is_out_of_bounds

__all__ = [
    "CommandTimedOut",
    "RigCommandFailed",
    "RigError",
    "RunningCommand",
    "Start",
    "copy_rig",
    "run_rig_command",
]

FailureType = Literal["command_failed", "timeout", "other"]
Stream = Literal["stdout", "stderr"]
OnLine = Callable[[Stream, str], Awaitable[None]]

_LONGEST_LINE = 64 * 1024
_GRACE_SECONDS = 2.0  # Between SIGTERM and SIGKILL.
_DRAIN_SECONDS = 10.0  # For the last output of the command, however slowly the lines are taken.

# A server started in a shell set up for the shadow repository (seed 000's stock commands) must not
# pass these on: a rig's `git commit` would go into the checkpoints.
_GIT_PLACES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
    | {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"}
)


class RigError(Exception):
    """A rig operation failed; the hank decides whether that matters."""

    failure_type: FailureType = "other"


class RigCommandFailed(RigError):
    """A command failed; the code is -1 if a signal ended it."""

    failure_type: FailureType = "command_failed"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CommandTimedOut(RigError):
    """A command exceeded its time limit; all of its processes were ended."""

    failure_type: FailureType = "timeout"


class Pipe(Protocol):
    """The output of a command on one of its two pipes."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the output, up to the end of the pipe."""

    def abandon(self) -> None:
        """End `chunks` as soon as the pipe is empty, even if another process holds it open."""


class RunningCommand(Protocol):
    """A running command, with all processes it has started."""

    @property
    def stdout(self) -> Pipe: ...

    @property
    def stderr(self) -> Pipe: ...

    @property
    def exit_code(self) -> int:
        """The exit code; the negative signal number if a signal ended it."""

    async def ended(self) -> None:
        """Return when the command and all of its processes have ended."""

    async def terminate(self) -> None:
        """Ask all its processes to end."""


Start = Callable[
    [Sequence[str], Path, Mapping[str, str]], AbstractAsyncContextManager[RunningCommand]
]
"""Start a command in a folder and environment; leaving the context ends all its processes.

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
    """Run a shell command and pass its output on line by line.

    `env` is added to the server's environment (Hankweave, rigs). When the command ends, fails,
    takes too long or is cancelled, every process that it started is killed: nothing may write into
    the work tree after the checkpoint. Raises CommandFailed, CommandTimedOut, or RigError if the
    command could not be started.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    async with start(("/bin/sh", "-c", command), cwd, {**inherited, **env}) as running:
        has_ended = False
        try:
            with anyio.move_on_after(timeout_seconds) as scope:
                await _until_ended(running, on_line)
                has_ended = True
        finally:
            if not has_ended:
                await _ask_to_end(running)

    if scope.cancelled_caught:
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
        await anyio.lowlevel.checkpoint()  # Endless output must not starve other tasks.
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
        raise RigCommandFailed(f"The command was ended by {name}: {_short(command)}", -1)

    if code > 0:
        raise RigCommandFailed(f"The command exited with code {code}: {_short(command)}", code)


def _short(command: str) -> str:
    return command if len(command) <= 120 else f"{command[:120]}…"


_CHUNK = 1024 * 1024

Proceed = Callable[[], None]
"""Called between two steps; raises to cancel the copy."""


def copy_rig(source: Path, target_root: Path, to: str, proceed: Proceed = lambda: None) -> Path:
    """Copy a file or tree of the hank into the work tree and return its path.

    An existing target is replaced, and only when the copy is complete. No symbolic link is
    followed on either side; one in the source is refused, as are special files and names like
    `.git`. Raises RigError for faults of the hank or the work tree, and passes on exceptions of
    `proceed`, with nothing changed.
    """
    steps = _steps(to)
    name = os.fsencode(f"{os.fsdecode(OUR_PREFIX)}-rig-{secrets.token_hex(4)}")
    try:
        with contextlib.ExitStack() as open_folders:
            parent = make_folders(target_root, steps[:-1], open_folders)
            try:
                _Copying(proceed).copy(os.fspath(source), None, parent, name)
                _remove(steps[-1], parent)
                os.rename(name, steps[-1], src_dir_fd=parent, dst_dir_fd=parent)
            finally:
                _remove(name, parent)
    except (OSError, shutil.Error) as error:
        raise RigError(f"Copying {source.name} to {to}: {error}") from error

    return target_root.joinpath(*map(os.fsdecode, steps))


def _steps(to: str) -> list[bytes]:
    steps = [os.fsencode(step) for step in to.split("/") if step not in ("", ".")]
    if not steps or to.startswith("/") or "\0" in to or is_out_of_bounds(b"/".join(steps)):
        raise RigError(f"{to!r} is not a path in the work tree that a rig may replace.")

    return steps


class _Copying:
    """One copy, which can be cancelled at any file and at any megabyte."""

    def __init__(self, proceed: Proceed) -> None:
        self._proceed = proceed

    def copy(
        self, source: str | bytes, source_folder: int | None, folder: int, name: bytes
    ) -> None:
        self._proceed()
        mode = os.lstat(source, dir_fd=source_folder).st_mode
        if stat.S_ISREG(mode):
            self._file(os.open(source, FILE_FLAGS, dir_fd=source_folder), folder, name, mode)
        elif stat.S_ISDIR(mode):
            self._folder(os.open(source, FOLDER_FLAGS, dir_fd=source_folder), folder, name, mode)
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
            raise RigError(f"{os.fsdecode(source)} is {kind}; a rig copies files and folders only.")

    def _file(self, source: int, folder: int, name: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(source, "rb") as reader, open(_at(folder, name, flags), "wb") as writer:
            self._content(reader, writer)
            os.fchmod(writer.fileno(), stat.S_IMODE(mode) & 0o777)

    def _content(self, reader: BinaryIO, writer: BinaryIO) -> None:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
            self._proceed()

    def _folder(self, source: int, folder: int, name: bytes, mode: int) -> None:
        with contextlib.ExitStack() as open_folders:
            open_folders.callback(os.close, source)
            os.mkdir(name, 0o700, dir_fd=folder)
            target = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            open_folders.callback(os.close, target)
            for item in sorted(map(os.fsencode, os.listdir(source))):
                if is_never_captured(b"-", item):
                    raise RigError(
                        f"{os.fsdecode(item)} is a protected name; a rig cannot copy it."
                    )

                self.copy(item, source, target, item)

            # The agent may need to write here even where the hank's own folder is read-only.
            os.fchmod(target, stat.S_IMODE(mode) & 0o777 | 0o700)


def _at(folder: int, name: bytes, flags: int) -> int:
    return os.open(name, flags, 0o600, dir_fd=folder)


def _remove(name: bytes, folder: int) -> None:
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return

    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
