"""Whether a server runs in an execution, from the files of its lock."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hankweave_protocol.records import RuntimeLock
from hankweave_server.domain.liveness import HEARTBEAT_INTERVAL, GuardOwner, heartbeat_age
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import lock_file
from hankweave_server.runtime_lock.lock_file import decoded, read_record

_FRESH = 3 * HEARTBEAT_INTERVAL
_FILE_LIMIT = 64 * 1024


def living_server(layout: Layout) -> int | None:
    """Return the pid of the server that is running there, judging by all signs.

    No lock is taken, because even a brief one would refuse a server that starts at this moment.
    """
    pid, lives = _last_server(layout)
    return pid if lives else None


def is_served(root: Path) -> bool:
    """Return whether a server is running in the execution in this directory."""
    return living_server(Layout.of_execution(root)) is not None


def dead_server(layout: Layout) -> int | None:
    """Return the pid of a server that died there without removing its lock file."""
    pid, lives = _last_server(layout)
    return None if lives else pid


def _last_server(layout: Layout) -> tuple[int | None, bool]:
    """Return the pid in the lock file, if there is one, and whether that server lives."""
    try:
        record = read_record(layout.runtime_lock)
        owner = decoded(GuardOwner, _small(layout.lock_guard))
    except OSError:
        return None, False

    return (None, False) if record is None else (record.pid, _lives(record, owner))


def _lives(record: RuntimeLock, owner: GuardOwner | None) -> bool:
    if owner is not None and owner.is_writer_of(record) and _is_of_this_machine(owner):
        return lock_file.start_ticks(record.pid) == owner.start_ticks

    age = heartbeat_age(record, datetime.now(UTC))
    return age is not None and timedelta(0) <= age < _FRESH


def _is_of_this_machine(owner: GuardOwner) -> bool:
    """Return whether the owner's pids are comparable to those of this process.

    An owner from before the last boot is recognised as dead by its start ticks.
    """
    return owner.pid_namespace == lock_file.pid_namespace() and (
        owner.boot_id == lock_file.boot_id()
    )


def _small(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""

    try:
        return os.read(descriptor, _FILE_LIMIT)
    finally:
        os.close(descriptor)
