"""Reading runtime.lock, identifying processes, and the errors of a refused or lost lock.

A process is identified by its pid and start time, within one boot.
"""

from __future__ import annotations

import errno
import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import psutil

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import RuntimeLock
from hankweave_server.errors import ExitCode, Stop

MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""Errors by which the kernel reports that a path does not lead to the expected file."""

_LARGEST = 64 * 1024
_SELF = "/proc/self"

T = TypeVar("T")


def read_record(path: Path) -> RuntimeLock | None:
    """Read runtime.lock without following a link; return None if it is missing or not JSON."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in MISSING:
            return None

        raise

    try:
        return decoded(RuntimeLock, os.read(descriptor, _LARGEST))
    finally:
        os.close(descriptor)


def decoded(shape: type[T], data: bytes) -> T | None:
    """Decode a small file that another writer may have torn; return None for anything else."""
    try:
        return codec.decode_value(shape, data)
    except Refused:
        return None


def require_own_processes() -> None:
    """Raise Stop unless /proc shows this process under its own pid.

    The lock and the cleanup after a crash recognise processes by what /proc says about a pid. In a
    PID namespace that uses the /proc of another one, a pid means two different processes.
    """
    try:
        shown = os.readlink(_SELF)
    except OSError:
        fault = "/proc is not mounted, or shows other processes only"
    else:
        if shown == str(os.getpid()):
            return

        fault = f"/proc belongs to another PID namespace: it calls this process {shown}"

    raise Stop(
        f"{fault}. Processes cannot be recognised there.",
        ExitCode.UNAVAILABLE,
        hint="Mount the /proc of this namespace first: `mount -t proc proc /proc`, or use "
        "`unshare --fork --pid --mount-proc`.",
    )


def start_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat; None if no process has that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None

    # The name is in parentheses and may hold any byte; the fields after it are plain.
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def started_at(ticks: int) -> datetime:
    """Convert ticks since boot to a time; right to two seconds unless the clock was set."""
    return datetime.fromtimestamp(psutil.boot_time() + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def pid_namespace() -> int:
    """Return the number of the namespace in which this process's pids are valid."""
    return os.stat("/proc/self/ns/pid").st_ino


class LockHeld(Stop):
    """Another server owns the execution directory; nothing in it was touched."""

    def __init__(
        self,
        owner: RuntimeLock | None,
        pid: int | None,
        heartbeat_age: timedelta | None,
        root: Path | None = None,
    ) -> None:
        """`root` is the execution directory, which the commands of the hint name."""
        here = "." if root is None else shlex.quote(str(root))
        self.owner = owner
        self.pid = pid
        self.heartbeat_age = heartbeat_age
        super().__init__(
            f"A server is already running here: {described(owner, pid)}.",
            ExitCode.LOCK_HELD,
            hint=f"{_heartbeat_text(heartbeat_age)} `hankweave attach -e {here}` shows it, "
            f"`hankweave stop --server -e {here}` stops it; or use another directory.",
        )


class LockLost(Stop):
    """This server has lost the execution directory: it must write nothing more."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"This server lost its execution directory: {reason}.",
            ExitCode.SOFTWARE,
            hint=hint
            or ".hankweave was moved, deleted or taken over while the server was "
            "running. If it was moved, move it back, then start again: it contains "
            "all acknowledged data.",
        )


def described(owner: RuntimeLock | None, pid: int | None) -> str:
    if owner is None:
        return "a server that is starting or stopping" if pid is None else f"pid {pid}"

    return f"pid {owner.pid}, run {owner.run_id or 'none yet'}, since {owner.start_time}"


def _heartbeat_text(heartbeat_age: timedelta | None) -> str:
    if heartbeat_age is None:
        return "Its heartbeat is unknown."

    return f"Its last heartbeat was {round(heartbeat_age.total_seconds())} s ago."
