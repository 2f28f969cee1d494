"""Decide whether the server that a runtime.lock names is still alive.

The question comes from a starter that already holds the guard. So a lock that another server of
this program wrote is stale by construction: the kernel granted the guard because its holder is
gone. Only a lock without a guard, written by another program or on another host, needs a judgement:
it holds while its process lives here, and is stale when its process is gone and its heartbeat is
two minutes old, as in Hankweave. With a younger heartbeat it may belong to a host or container
whose processes are not visible here, and is watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hankweave_protocol.ids import RunId
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.shapes import Value

HEARTBEAT_INTERVAL = timedelta(seconds=30)  # As Hankweave documents `lastHeartbeat`.

STALE_AFTER = timedelta(seconds=120)
"""Four heartbeats, as in Hankweave: its own servers take a lock over after that."""


class GuardOwner(Value):
    """The content of runtime.lock.guard: the process that was granted it last."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to the start of the process; with pid and boot it names one process."""
    boot_id: str
    pid_namespace: int
    host: str
    start_time: str
    """The `startTime` of the runtime.lock that this owner writes."""

    def is_writer_of(self, record: RuntimeLock) -> bool:
        return (self.pid, self.start_time) == (record.pid, record.start_time)


@dataclass(frozen=True, slots=True)
class PreviousOwner:
    """The server that held the execution before and did not release it."""

    pid: int
    run_id: RunId | None
    heartbeat_age: timedelta | None
    """By the wall clock, for display; None if the lock's timestamp cannot be read."""
    pid_alive: bool
    pid_reused: bool
    """True if the pid now belongs to another process."""


@dataclass(frozen=True, slots=True)
class Free:
    """There is no lock."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another program serves this directory."""

    record: RuntimeLock
    heartbeat_age: timedelta | None


@dataclass(frozen=True, slots=True)
class Stale:
    """The lock's owner is gone: the run it left has crashed."""

    previous: PreviousOwner


@dataclass(frozen=True, slots=True)
class Unclear:
    """Not decidable yet: watch whether the heartbeat moves, then judge again."""


Judgement = Free | Held | Stale | Unclear


def judge(
    record: RuntimeLock | None,
    owner: GuardOwner | None,
    *,
    pid_alive: bool,
    start_matches: bool,
    boot_matches: bool,
    heartbeat_moved: bool | None,
    now: datetime,
) -> Judgement:
    """Judge the lock that the holder of the guard found.

    `start_matches`: the process that has the pid now began when the lock's owner did.
    `boot_matches`: the lock is of this boot (true if the lock does not say). `heartbeat_moved`: the
    result of a watch, None before one. A lock whose process lives here is never stale, however old
    its heartbeat is: clocks jump.
    """
    if record is None:
        return Free()

    age = heartbeat_age(record, now)
    is_same_process = pid_alive and start_matches and boot_matches
    previous = PreviousOwner(
        pid=record.pid,
        run_id=record.run_id,
        heartbeat_age=age,
        pid_alive=pid_alive,
        pid_reused=pid_alive and not is_same_process,
    )
    if owner is not None and owner.is_writer_of(record):
        return Stale(previous)

    if is_same_process or heartbeat_moved:
        return Held(record, age)

    is_old = age is not None and age > STALE_AFTER
    return Unclear() if heartbeat_moved is None and not is_old else Stale(previous)


def heartbeat_age(record: RuntimeLock, now: datetime) -> timedelta | None:
    """Return the age of the heartbeat by the wall clock; None if its timestamp cannot be read."""
    try:
        return max(timedelta(0), now - from_text(record.last_heartbeat))
    except ValueError:
        return None
