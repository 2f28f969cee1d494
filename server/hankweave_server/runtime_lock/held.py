"""Acquiring the execution directory, holding it, and releasing it.

`examine` gathers the facts by which `domain.liveness` judges a runtime.lock that another server
left behind; `acquire` takes the directory, and `HeldLock` keeps and verifies it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import assert_never

import anyio
import anyio.to_thread
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.ids import RunId
from hankweave_protocol.instants import from_text, to_text
from hankweave_protocol.records import RuntimeLock
from hankweave_server import fsutil
from hankweave_server.clock import Clock
from hankweave_server.domain.liveness import (
    HEARTBEAT_INTERVAL,
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
from hankweave_server.logs import logger
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock import lock_file
from hankweave_server.runtime_lock.guard import (
    GuardBusy,
    granted_guard,
    guard_owner,
    identity,
    still_named,
    write_owner,
)
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost, described, read_record

log = logger(__name__)

FOREIGN_WATCH = timedelta(seconds=75)  # Two heartbeats of another program, and half a one to spare.
_POLL_INTERVAL = timedelta(seconds=1)
_BETWEEN_NOTICES = timedelta(seconds=5)
_START_SLACK = timedelta(seconds=2)  # The kernel's boot time, to which ticks are added, is rounded.


def examine(
    path: Path, owner: GuardOwner | None, watch: HeartbeatWatch, clock: Clock
) -> PreviousOwner | None:
    """Determine the owner of an existing runtime.lock; `owner` is the content of the guard.

    Returns the previous owner if it is gone, or None without a lock. Raises LockHeld if it lives.
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
    writer = owner if owner is not None and owner.is_writer_of(record) else None
    ticks = lock_file.start_ticks(record.pid)
    return judge(
        record,
        owner,
        pid_alive=ticks is not None,
        start_matches=ticks is not None and _began_then(ticks, record, writer),
        boot_matches=writer is None or writer.boot_id == lock_file.boot_id(),
        heartbeat_moved=moved,
        now=clock.now(),
    )


def _began_then(ticks: int, record: RuntimeLock, writer: GuardOwner | None) -> bool:
    """Return whether the process that has the pid now can be the writer of the lock."""
    if writer is not None:
        return ticks == writer.start_ticks

    if record.pid == os.getpid():
        return False  # It wrote nothing yet. Each container calls its first process pid 1.

    # If it ran already when the lock was written, it had the pid at that moment.
    try:
        return lock_file.started_at(ticks) <= from_text(record.start_time) + _START_SLACK
    except ValueError:
        return True


@dataclass(slots=True)
class HeartbeatWatch:
    """Watches, on the monotonic clock, whether another program still updates its lock."""

    path: Path
    clock: Clock
    wait: Callable[[float], None]
    report: Callable[[str], None]
    """Called with the owner that the start waits for, and every few seconds with the time left."""
    stale: RuntimeLock | None = None

    def moves(self, record: RuntimeLock) -> bool:
        if record == self.stale:
            return False

        span = self._span_for(record)
        end = self.clock.monotonic() + span
        self.report(_announcement(record, span))
        due = span - _BETWEEN_NOTICES.total_seconds()
        while (left := end - self.clock.monotonic()) > 0:
            if left <= due:
                due -= _BETWEEN_NOTICES.total_seconds()
                self.report(
                    f"Waiting for the heartbeat of process {record.pid}: {left:.0f} s left."
                )

            self.wait(_POLL_INTERVAL.total_seconds())
            if read_record(self.path) not in (record, None):
                return True

        self.stale = record
        return False

    def _span_for(self, record: RuntimeLock) -> float:
        """Return the seconds after which a heartbeat that has not moved is stale."""
        age = heartbeat_age(record, self.clock.now()) or timedelta(0)
        return min(FOREIGN_WATCH, max(_POLL_INTERVAL, STALE_AFTER - age)).total_seconds()


def _announcement(record: RuntimeLock, span: float) -> str:
    return (
        f"There is a lock of process {record.pid}, last heartbeat {record.last_heartbeat}. "
        "The process is not running here, but it may be running on another machine: "
        f"waiting up to {span:.0f} s for its next heartbeat."
    )


_CHECK_INTERVAL = timedelta(seconds=1)
"""Between two checks that the directory is still held: a loss must not last a whole heartbeat."""

_ABANDON_TIMEOUT = 0.1  # Seconds.

_UNSEEN = STALE_AFTER
"""For how long a fault of the disk may hide a loss: then another program may have taken over."""

_CHECK_THE_DISK = "Check the disk, then start again; everything that was acknowledged is safe."


def _on_stderr(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def acquire(
    layout: Layout,
    clock: Clock,
    run_id: RunId | None = None,
    *,
    wait: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = _on_stderr,
) -> HeldLock:
    """Take the execution directory, or raise LockHeld and leave it unchanged.

    Raises Stop if it cannot be determined which process holds it.

    It waits in one case only: another program left a lock without a guard, its process cannot be
    found, and its heartbeat is not old yet. Then it watches, up to `FOREIGN_WATCH`, whether the
    heartbeat moves. `wait` takes seconds; `report` gets the countdown.
    """
    try:
        return _taken(layout, clock, run_id, wait, report)
    except LockHeld as held:
        raise LockHeld(held.owner, held.pid, held.heartbeat_age, layout.root) from None


def _taken(
    layout: Layout,
    clock: Clock,
    run_id: RunId | None,
    wait: Callable[[float], None],
    report: Callable[[str], None],
) -> HeldLock:
    lock_file.require_own_processes()
    fsutil.make_private_directory(layout.state_directory)
    watch = HeartbeatWatch(layout.runtime_lock, clock, wait, report)
    if not os.path.lexists(layout.lock_guard):
        # No server of this program was ever here. Another program's server must not find a guard.
        examine(layout.runtime_lock, None, watch, clock)

    with contextlib.ExitStack() as undo:
        guard = _granted(layout, clock)
        undo.callback(os.close, guard)
        previous = examine(layout.runtime_lock, guard_owner(guard), watch, clock)
        folder = os.open(layout.state_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        undo.callback(os.close, folder)
        now = to_text(clock.now())
        record = RuntimeLock(pid=os.getpid(), run_id=run_id, start_time=now, last_heartbeat=now)
        fsutil.remove_durably(layout.runtime_lock)
        write_owner(guard, identity(now))
        fsutil.replace_durably(layout.runtime_lock, codec.encode(record))
        held = HeldLock(layout, clock, guard, folder, record, previous)
        held.verify()
        undo.pop_all()

    return held


class HeldLock:
    """The held execution directory, until `release` or until `verify` finds it lost.

    Safe to use from several threads.
    """

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        guard: int,
        folder: int,
        record: RuntimeLock,
        previous: PreviousOwner | None,
    ) -> None:
        self.previous = previous
        self._layout = layout
        self._clock = clock
        self._guard = guard
        self._folder = folder
        # The folder as granted: if another one takes its path, nothing is written there.
        self._lock_file = Path(f"/proc/self/fd/{folder}") / layout.runtime_lock.name
        self._record = record
        self._loss: str | None = None
        self._is_released = False
        self._unseen_since: float | None = None
        """Since when the disk's faults hide whether the directory is held, monotonic."""
        self._is_behind = False
        """True if a fault of the disk keeps the heartbeat from runtime.lock."""
        self._gate = threading.Lock()

    @property
    def record(self) -> RuntimeLock:
        return self._record

    @property
    def is_released(self) -> bool:
        return self._is_released

    def update(
        self,
        *,
        run_id: RunId | None = None,
        port: int | None = None,
        host: str | None = None,
        page_url: str | None = None,
    ) -> None:
        """Write the current run or the address into runtime.lock; None leaves a field unchanged."""
        with self._gate:
            self._verify()
            self._record = msgspec.structs.replace(
                self._record,
                run_id=self._record.run_id if run_id is None else run_id,
                port=self._record.port if port is None else port,
                host=self._record.host if host is None else host,
                page_url=self._record.page_url if page_url is None else page_url,
            )
            try:
                self._write()
            except OSError as error:
                # On a full disk the next beat writes it: a status file must not end a server.
                if not fsutil.is_full(error):
                    raise

    def verify(self) -> None:
        """Raise LockLost unless the directory is still held; a loss is final."""
        with self._gate:
            self._verify()

    async def heartbeat(
        self,
        interval: timedelta = HEARTBEAT_INTERVAL,
        *,
        on_lost: Callable[[LockLost], None],
    ) -> None:
        """Refresh runtime.lock until cancelled, released or lost; report a loss to `on_lost`.

        Checks for a loss at least once a second. Runs in its own thread, so that neither a
        blocked event loop nor busy worker threads delay it.
        """
        stopped = threading.Event()
        try:
            loss = await anyio.to_thread.run_sync(
                self._beat_until,
                stopped,
                interval,
                abandon_on_cancel=True,
                limiter=anyio.CapacityLimiter(1),
            )
        finally:
            stopped.set()

        if loss is not None:
            on_lost(loss)

    def release(self) -> None:
        """Release the directory: remove runtime.lock, if it is still this server's; keep the guard.

        Call it when all writers have ended: the guard is closed last.
        """
        with self._gate, contextlib.ExitStack() as closing:
            if self._is_released:
                return

            self._is_released = True
            closing.callback(os.close, self._guard)
            closing.callback(os.close, self._folder)
            # A read-only disk keeps runtime.lock. The guard is released all the same, and the next
            # start finds a dead owner; the reason why this server ends must not be hidden.
            with contextlib.suppress(LockLost, OSError):
                self._verify()
                fsutil.remove_durably(self._lock_file)

            self._loss = self._loss or "it was released"

    def abandon(self) -> None:
        """Remove runtime.lock and keep the guard, for a process that ends at this very moment.

        Waits only briefly for the gate: a thread that writes runtime.lock may hang with the disk.
        """
        is_ours = self._gate.acquire(timeout=_ABANDON_TIMEOUT)
        try:
            with contextlib.suppress(LockLost, OSError):
                self._verify()
                self._lock_file.unlink(missing_ok=True)
        finally:
            if is_ours:
                self._gate.release()

    def _beat_until(self, stopped: threading.Event, interval: timedelta) -> LockLost | None:
        due = time.monotonic() + interval.total_seconds()
        while not stopped.wait(min(interval, _CHECK_INTERVAL).total_seconds()):
            is_due = time.monotonic() >= due
            due += interval.total_seconds() if is_due else 0
            with self._gate:
                if self._is_released:
                    return None

                try:
                    self._check(beats=is_due)
                except LockLost as loss:
                    return loss

        return None

    def _check(self, *, beats: bool) -> None:
        """Verify the lock, and refresh it if `beats`; raise LockLost.

        A fault of the disk may pass, and is no reason to end the agents at once. But a server that
        cannot see for `_UNSEEN` whether the directory is still its own has to take it for lost.
        """
        try:
            self._verify()
        except OSError as error:
            self._note_unseen(error)
            return

        self._unseen_since = None
        if not beats:
            return

        try:
            self._write()
        except OSError as error:
            # The disk's lack of space is reported elsewhere, and the old timestamp shows it.
            if not (fsutil.is_full(error) or self._is_behind):
                self._is_behind = True
                log.warning("%s cannot be written: %s", self._layout.runtime_lock, error)
        else:
            self._is_behind = False

    def _note_unseen(self, error: OSError) -> None:
        now = time.monotonic()
        if self._unseen_since is None:
            self._unseen_since = now
            log.warning("%s cannot be checked: %s", self._layout.runtime_lock, error)

        if now - self._unseen_since >= _UNSEEN.total_seconds():
            self._loss = f"whether it is still held could not be checked: {error}"
            raise LockLost(self._loss, hint=_CHECK_THE_DISK) from error

    def _verify(self) -> None:
        self._loss = self._loss or self._find_loss()
        if self._loss is not None:
            raise LockLost(self._loss)

    def _find_loss(self) -> str | None:
        if not still_named(self._layout.lock_guard, self._guard):
            return f"{self._layout.lock_guard} is missing or was replaced"

        # A missing or torn lock names no other owner; the next beat writes it again.
        found = read_record(self._lock_file)
        if found is None or self._is_ours(found):
            return None

        return f"its runtime.lock was taken over by {described(found, found.pid)}"

    def _is_ours(self, found: RuntimeLock) -> bool:
        ours = self._record
        return (found.pid, found.start_time) == (ours.pid, ours.start_time)

    def _write(self) -> None:
        now = to_text(self._clock.now())
        self._record = msgspec.structs.replace(self._record, last_heartbeat=now)
        fsutil.replace(self._lock_file, codec.encode(self._record))


def _granted(layout: Layout, clock: Clock) -> int:
    try:
        return granted_guard(layout.lock_guard)
    except GuardBusy as busy:
        raise _held_by(busy.owner, read_record(layout.runtime_lock), clock) from None


def _held_by(owner: GuardOwner | None, record: RuntimeLock | None, clock: Clock) -> LockHeld:
    if record is None or (owner is not None and not owner.is_writer_of(record)):
        # The owner is just starting or ending; runtime.lock describes another process.
        return LockHeld(None, None if owner is None else owner.pid, None)

    return LockHeld(record, record.pid, heartbeat_age(record, clock.now()))
