"""runtime.lock as it is read: whole, torn, or not there.

Processes as this machine tells them apart: by pid and start time, within one boot.

How a lock is refused, and how it is lost.
"""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import psutil

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import RuntimeLock
from hankweave_server.errors import ExitCode, Stop

MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""What the kernel says when a path does not lead to a file of ours."""

_LARGEST = 64 * 1024

T = TypeVar("T")


def read_record(path: Path) -> RuntimeLock | None:
    """Reads runtime.lock without following a link; null where there is none or it is no JSON."""
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
    """Reads a small file of ours that another writer may have torn; null for anything else."""
    try:
        return codec.decode_value(shape, data)
    except Refused:
        return None


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; null where nothing runs under that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None

    # The name stands in parentheses and may hold any byte; all that follows it is plain.
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def started_at(ticks: int) -> datetime:
    """Turns ticks since boot into a moment; right to two seconds if nobody moved the clock."""
    return datetime.fromtimestamp(psutil.boot_time() + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def pid_namespace() -> int:
    """Returns the number of the namespace in which our pids mean something."""
    return os.stat("/proc/self/ns/pid").st_ino


class LockHeld(Stop):
    """Another server owns the execution directory; nothing in it was touched."""

    def __init__(
        self, owner: RuntimeLock | None, pid: int | None, heartbeat_age: timedelta | None
    ) -> None:
        self.owner = owner
        self.pid = pid
        self.heartbeat_age = heartbeat_age
        super().__init__(
            f"A server is already running here: {described(owner, pid)}.",
            ExitCode.LOCK_HELD,
            hint=f"{_told(heartbeat_age)} Attach to it, stop it, or use another directory.",
        )


class LockLost(Stop):
    """This server owns the execution directory no longer: it must write nothing more (DESIGN 6)."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"This server lost its execution directory: {reason}.",
            ExitCode.SOFTWARE,
            hint="Somebody moved, deleted or took over .hankweave while the server was running. If "
            "it was moved, move it back, and start again: what was acknowledged is in it.",
        )


def described(owner: RuntimeLock | None, pid: int | None) -> str:
    if owner is None:
        return "a server that is just starting or ending" if pid is None else f"pid {pid}"

    return f"pid {owner.pid}, run {owner.run_id or 'none yet'}, since {owner.start_time}"


def _told(heartbeat_age: timedelta | None) -> str:
    if heartbeat_age is None:
        return "Its heartbeat is not known."

    return f"Its last heartbeat was {round(heartbeat_age.total_seconds())} s ago."
