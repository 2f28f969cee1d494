"""Setting up a codon's rig: copying what the hank brings along, running its commands."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Literal

import anyio

from hankweave_server.workspace.descent import FILE_FLAGS, FOLDER_FLAGS
from hankweave_server.workspace.names import OUR_PREFIX, is_never_captured, is_out_of_bounds

FailureType = Literal["command_failed", "timeout", "other"]
Stream = Literal["stdout", "stderr"]
OnLine = Callable[[Stream, str], Awaitable[None]]

_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024
_GRACE_SECONDS = 2.0  # Between SIGTERM and SIGKILL.
_DRAIN_SECONDS = 1.0  # A pipe ends at once when its last writer is killed, but for one that fled.

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


# --- copying --------------------------------------------------------------------------------------


def copy_rig(source: Path, target_root: Path, to: str) -> Path:
    """Copies a file or tree of the hank into the work tree and returns where it is.

    An existing target is replaced, and only when the copy is complete. No symbolic link is
    followed on either side; one in the source is refused, as are special files and names like
    `.git`. Raises RigError: the hank's fault, or the work tree's.
    """
    steps = _steps(to)
    name = os.fsencode(f"{os.fsdecode(OUR_PREFIX)}-rig-{secrets.token_hex(4)}")
    try:
        with contextlib.ExitStack() as open_folders:
            parent = _parent(target_root, steps[:-1], open_folders)
            try:
                _copy(os.fspath(source), None, parent, name)
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
        raise RigError(f"{to!r} is no place in the work tree that a rig may replace.")

    return steps


def _parent(root: Path, steps: list[bytes], open_folders: contextlib.ExitStack) -> int:
    """Opens the folder that will hold the target, and makes what is missing on the way."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    open_folders.callback(os.close, folder)
    for step in steps:
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)

        folder = os.open(step, FOLDER_FLAGS, dir_fd=folder)
        open_folders.callback(os.close, folder)

    return folder


def _copy(source: str | bytes, source_folder: int | None, folder: int, name: bytes) -> None:
    mode = os.lstat(source, dir_fd=source_folder).st_mode
    if stat.S_ISREG(mode):
        _copy_file(os.open(source, FILE_FLAGS, dir_fd=source_folder), folder, name, mode)
    elif stat.S_ISDIR(mode):
        _copy_folder(os.open(source, FOLDER_FLAGS, dir_fd=source_folder), folder, name, mode)
    else:
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
        raise RigError(f"{os.fsdecode(source)} is {kind}; a rig copies files and folders only.")


def _copy_file(source: int, folder: int, name: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(source, "rb") as reader:
        with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as writer:
            shutil.copyfileobj(reader, writer, 1024 * 1024)
            os.fchmod(writer.fileno(), stat.S_IMODE(mode) & 0o777)


def _copy_folder(source: int, folder: int, name: bytes, mode: int) -> None:
    with contextlib.ExitStack() as open_folders:
        open_folders.callback(os.close, source)
        os.mkdir(name, 0o700, dir_fd=folder)
        target = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        open_folders.callback(os.close, target)
        for item in sorted(map(os.fsencode, os.listdir(source))):
            if is_never_captured(b"-", item):
                raise RigError(f"{os.fsdecode(item)} is a protected name; a rig cannot bring it.")

            _copy(item, source, target, item)

        # The agent may need to write here even where the hank's own folder is read-only.
        os.fchmod(target, stat.S_IMODE(mode) & 0o777 | 0o700)


def _remove(name: bytes, folder: int) -> None:
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return

    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


# --- commands -------------------------------------------------------------------------------------


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
            env=inherited | env,
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
    async with anyio.create_task_group() as reading:
        reading.start_soon(_read_lines, process.stdout, "stdout", on_line)
        reading.start_soon(_read_lines, process.stderr, "stderr", on_line)
        await anyio.wait_readable(ended)
        # What it left running holds the pipes open; without it they end once they are read.
        _signal_group(process, signal.SIGKILL)
        reading.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS


async def _read_lines(pipe: IO[bytes], stream: Stream, on_line: OnLine) -> None:
    os.set_blocking(pipe.fileno(), False)
    held = b""
    while True:
        await anyio.wait_readable(pipe)
        chunk = os.read(pipe.fileno(), _CHUNK)
        *lines, held = (held + chunk).split(b"\n")
        held = held[:_LONGEST_LINE]
        if not chunk and held:
            lines.append(held)

        for line in lines:
            text = line[:_LONGEST_LINE].removesuffix(b"\r").decode(errors="replace")
            await on_line(stream, text)

        if not chunk:
            return


async def _end_group(process: subprocess.Popen[bytes], ended: int) -> None:
    """Ends whatever still runs, gently first; the leader is waited for last, so its id is safe."""
    if not _is_ended(process):
        _signal_group(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE_SECONDS):
            await anyio.wait_readable(ended)

    _signal_group(process, signal.SIGKILL)
    await anyio.wait_readable(ended)
    process.wait()


def _is_ended(process: subprocess.Popen[bytes]) -> bool:
    """Looks without waiting for it: until somebody has, no other group can get its id."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _judge(command: str, code: int) -> None:
    if code < 0:
        name = signal.Signals(-code).name
        raise CommandFailed(f"The command was ended by {name}: {_short(command)}", -1)

    if code > 0:
        raise CommandFailed(f"The command exited with code {code}: {_short(command)}", code)


def _short(command: str) -> str:
    return command if len(command) <= 120 else f"{command[:120]}…"
