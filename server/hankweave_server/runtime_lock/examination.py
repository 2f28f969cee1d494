"""Whose runtime.lock lies there: gathers the facts that `domain.liveness` judges by."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import assert_never

from hankweave_protocol.instants import from_text
from hankweave_protocol.records import RuntimeLock
from hankweave_server.clock import Clock
from hankweave_server.domain.liveness import (
    STALE_AFTER,
    Free,
    GuardOwner,
    Held,
    Judgement,
    PreviousOwner,
    Stale,
    Unclear,
    heartbeat_age,
    judge,
)
from hankweave_server.runtime_lock import processes
from hankweave_server.runtime_lock.errors import LockHeld
from hankweave_server.runtime_lock.lock_file import read_record

FOREIGN_WATCH = timedelta(seconds=75)  # Two heartbeats of another program and half a one to spare.
_BETWEEN_LOOKS = timedelta(seconds=1)
_BETWEEN_NOTICES = timedelta(seconds=5)
_START_SLACK = timedelta(seconds=2)  # The kernel's boot time, to which ticks are added, is rounded.


def examine(
    path: Path, owner: GuardOwner | None, watch: HeartbeatWatch, clock: Clock
) -> PreviousOwner | None:
    """Finds out whose runtime.lock lies there; `owner` is what the guard says.

    Returns the owner that is gone, or None if there was no lock. Raises LockHeld if it lives.
    """
    record = read_record(path)
    if record is None:
        return None

    judgement = _judge(record, owner, None, clock)
    if isinstance(judgement, Unclear):
        judgement = _judge(record, owner, watch.moves(record), clock)

    match judgement:
        case Stale(previous):
            return previous
        case Held(found, age):
            raise LockHeld(found, found.pid, age)
        case Free() | Unclear():
            raise AssertionError("there was a lock, and its heartbeat was watched")
        case _:
            assert_never(judgement)


def _judge(
    record: RuntimeLock, owner: GuardOwner | None, moved: bool | None, clock: Clock
) -> Judgement:
    writer = owner if owner is not None and owner.wrote(record) else None
    ticks = processes.start_ticks(record.pid)
    return judge(
        record,
        owner,
        pid_alive=ticks is not None,
        start_matches=ticks is not None and _began_then(ticks, record, writer),
        boot_matches=writer is None or writer.boot_id == processes.boot_id(),
        heartbeat_moved=moved,
        now=clock.now(),
    )


def _began_then(ticks: int, record: RuntimeLock, writer: GuardOwner | None) -> bool:
    """Tells whether the process that has the pid now can be the one that wrote the lock."""
    if writer is not None:
        return ticks == writer.start_ticks

    if record.pid == os.getpid():
        return False  # We wrote nothing yet. Each container calls its first process pid 1.

    # If it ran already when the lock was written, the pid was its own at that moment.
    try:
        return processes.started_at(ticks) <= from_text(record.start_time) + _START_SLACK
    except ValueError:
        return True


@dataclass(slots=True)
class HeartbeatWatch:
    """Looks whether another program still writes its lock, by our own monotonic time."""

    path: Path
    clock: Clock
    wait: Callable[[float], None]
    tell: Callable[[str], None]
    """Is told whom the start waits for, and every few seconds for how long."""
    still: RuntimeLock | None = None

    def moves(self, record: RuntimeLock) -> bool:
        if record == self.still:
            return False

        span = self._span_for(record)
        end = self.clock.monotonic() + span
        self.tell(_announcement(record, span))
        due = span - _BETWEEN_NOTICES.total_seconds()
        while (left := end - self.clock.monotonic()) > 0:
            if left <= due:
                due -= _BETWEEN_NOTICES.total_seconds()
                self.tell(f"Waiting for the heartbeat of process {record.pid}: {left:.0f} s left.")

            self.wait(_BETWEEN_LOOKS.total_seconds())
            if read_record(self.path) not in (record, None):
                return True

        self.still = record
        return False

    def _span_for(self, record: RuntimeLock) -> float:
        """Return the seconds after which a heartbeat that has not moved is a stale one."""
        age = heartbeat_age(record, self.clock.now()) or timedelta(0)
        return min(FOREIGN_WATCH, max(_BETWEEN_LOOKS, STALE_AFTER - age)).total_seconds()


def _announcement(record: RuntimeLock, span: float) -> str:
    return (
        f"Another program left a lock: process {record.pid}, last heartbeat "
        f"{record.last_heartbeat}. No such process runs here, but it may on another machine: "
        f"waiting up to {span:.0f} s for its next heartbeat."
    )
