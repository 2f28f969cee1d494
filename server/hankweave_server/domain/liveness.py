"""Whether the server that a runtime.lock names still lives.

The question is asked by a starter that already holds the guard (DESIGN 6). So a lock that one of
ours wrote is stale by construction: the kernel gave us the guard because its holder is gone. Only
a lock without a guard, written by another program or on another host, needs a judgement: it holds
while its process lives here, and is stale when its process is gone and its heartbeat is two minutes
old, as in Hankweave. With a younger heartbeat it may be of a host or container whose processes are
not ours to see, and is watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hankweave_protocol.ids import RunId
from hankweave_protocol.instants import from_text
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.shapes import Value

STALE_AFTER = timedelta(seconds=120)
"""Hankweave's: four heartbeats. Its own servers take a lock over after that."""


class GuardOwner(Value):
    """What stands in runtime.lock.guard: who was granted it last."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to the start of the process; with pid and boot it names one process."""
    boot_id: str
    pid_namespace: int
    host: str
    start_time: str
    """The `startTime` of the runtime.lock that this owner writes."""

    def wrote(self, record: RuntimeLock) -> bool:
        return (self.pid, self.start_time) == (record.pid, record.start_time)


@dataclass(frozen=True, slots=True)
class PreviousOwner:
    """The server that held the execution before and did not say goodbye."""

    pid: int
    run_id: RunId | None
    heartbeat_age: timedelta | None
    """By the wall clock, for people; null where the lock's own stamp cannot be read."""
    pid_alive: bool
    pid_reused: bool
    """True where the pid now belongs to another process."""


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody left a lock."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another program serves here."""

    record: RuntimeLock
    heartbeat_age: timedelta | None


@dataclass(frozen=True, slots=True)
class Stale:
    """The lock's owner is gone: what it left running has crashed."""

    previous: PreviousOwner


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody can tell yet: watch whether the heartbeat moves, then judge again."""


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
    """Judges the lock that the holder of the guard found.

    `start_matches` says whether the process that now has the pid began when the lock's owner did,
    `boot_matches` whether the lock is of this boot (true where the lock does not tell), and
    `heartbeat_moved` what a watch has shown, null before there was one. No age of a heartbeat makes
    a lock stale whose process lives here: clocks jump.
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
    if owner is not None and owner.wrote(record):
        return Stale(previous)

    if is_same_process or heartbeat_moved:
        return Held(record, age)

    is_old = age is not None and age > STALE_AFTER
    return Unclear() if heartbeat_moved is None and not is_old else Stale(previous)


def heartbeat_age(record: RuntimeLock, now: datetime) -> timedelta | None:
    """Tells how old the heartbeat looks by the wall clock; null where its stamp cannot be read."""
    try:
        return max(timedelta(0), now - from_text(record.last_heartbeat))
    except ValueError:
        return None
