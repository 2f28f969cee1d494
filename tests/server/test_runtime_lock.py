"""Claims about owning an execution directory: two servers never own one (DESIGN 6)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from structlog.testing import capture_logs

from hankweave_protocol.ids import RunId
from hankweave_protocol.instants import to_text
from hankweave_server import fsutil
from hankweave_server.clock import SystemClock
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockHeld, LockLost
from support.calls import failing
from support.lock_witness import Starter, crash, starters, write_foreign_lock
from support.waiting import LIMIT, limited

RUN = RunId("1736000000000-abc123-def456")
BEAT = timedelta(milliseconds=10)


class MovedClock:
    """A clock that only the test moves; a wait moves it as well."""

    def __init__(self) -> None:
        self.wall = datetime(2025, 1, 4, 12, 0, tzinfo=UTC)
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


class BeatenClock(MovedClock):
    """A clock that counts its queries: one for each heartbeat."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = threading.Semaphore(0)

    def now(self) -> datetime:
        self._asked.release()
        self.wall += timedelta(milliseconds=1)
        return self.wall

    def await_a_whole_beat(self) -> None:
        """Block until a heartbeat that began after this call has written its data."""
        while self._asked.acquire(blocking=False):
            pass

        for _ in range(2):  # The next beat begins when the one before it is done.
            assert self._asked.acquire(timeout=LIMIT), "no beat"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of_execution(tmp_path / "execution")


@contextlib.contextmanager
def servers(layout: Layout, count: int) -> Iterator[list[Starter]]:
    """Start processes that try to own the lock."""
    with starters(layout.root.with_name("log"), count) as started:
        yield started


def written(layout: Layout) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(layout.runtime_lock.read_bytes())
    return record


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Record all files below a folder with inode, mtime and content."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_ino,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


# --- file content -------------------------------------------------------------------------------


def test_the_lock_has_exactly_the_four_fields_of_the_seed(layout: Layout) -> None:
    """Seed 001: pid, runId, startTime and lastHeartbeat, the stamps in UTC with a Z."""
    lock = acquire(layout, SystemClock(), RUN)
    record = written(layout)
    lock.release()

    assert list(record) == ["pid", "runId", "startTime", "lastHeartbeat"]
    assert (record["pid"], record["runId"]) == (os.getpid(), RUN)
    for stamp in (record["startTime"], record["lastHeartbeat"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)


def test_run_and_port_are_written_when_they_are_known(layout: Layout) -> None:
    """An update adds the port, changes the run, and keeps the rest."""
    lock = acquire(layout, MovedClock())
    assert written(layout)["runId"] is None
    assert "port" not in written(layout)

    lock.update(port=7777)
    lock.update(run_id=RUN)
    record = written(layout)
    lock.release()

    assert (record["runId"], record["port"]) == (RUN, 7777)
    assert record["startTime"] == "2025-01-04T12:00:00.000Z"


def test_lock_and_guard_are_for_their_owner_alone(layout: Layout) -> None:
    """Both files are 0600 and the state directory is 0700 (DESIGN 4)."""
    lock = acquire(layout, SystemClock())
    modes = [
        path.stat().st_mode & 0o777
        for path in (layout.runtime_lock, layout.lock_guard, layout.state_directory)
    ]
    lock.release()
    assert modes == [0o600, 0o600, 0o700]


def test_a_release_leaves_the_guard_and_nothing_else(layout: Layout) -> None:
    """After a release only the guard is left, with its old inode; the next start finds no owner."""
    lock = acquire(layout, SystemClock())
    inode = layout.lock_guard.stat().st_ino
    lock.release()
    lock.release()
    assert [path.name for path in layout.state_directory.iterdir()] == ["runtime.lock.guard"]

    again = acquire(layout, SystemClock())
    assert again.previous is None
    assert layout.lock_guard.stat().st_ino == inode
    again.release()


def test_a_lock_that_was_given_up_verifies_no_more(layout: Layout) -> None:
    """Writers that come after the release are refused."""
    lock = acquire(layout, SystemClock())
    lock.release()
    with pytest.raises(LockLost):
        lock.verify()


# --- two servers --------------------------------------------------------------------------------


def test_a_second_server_is_refused_and_touches_nothing(layout: Layout) -> None:
    """The second server exits with 75, names the owner, and changes no file (DESIGN 6).

    The owner is named with its pid, run and start.
    """
    clock = MovedClock()
    lock = acquire(layout, clock, RUN)
    before = snapshot(layout.root)
    clock.wait(20)
    with pytest.raises(LockHeld) as refusal:
        acquire(layout, clock)

    assert snapshot(layout.root) == before
    lock.release()
    assert refusal.value.exit_code == ExitCode.LOCK_HELD == 75
    assert f"`hankweave attach -e {shlex.quote(str(layout.root))}`" in str(refusal.value.hint)
    assert refusal.value.pid == os.getpid()
    assert refusal.value.owner == lock.record
    assert refusal.value.heartbeat_age == timedelta(seconds=20)
    for fact in (str(os.getpid()), RUN, "2025-01-04T12:00:00.000Z"):
        assert fact in refusal.value.message


def test_an_owner_that_has_not_written_yet_is_named_by_its_guard(layout: Layout) -> None:
    """Between the grant and the first write the refusal names the pid in the guard."""
    lock = acquire(layout, SystemClock())
    layout.runtime_lock.unlink()
    with pytest.raises(LockHeld) as refusal:
        acquire(layout, SystemClock())

    lock.release()
    assert (refusal.value.owner, refusal.value.pid) == (None, os.getpid())


@pytest.mark.parametrize("begin", ["nothing", "stale"])
def test_of_many_starters_one_owns(layout: Layout, begin: str) -> None:
    """T-L1, T-L2: of eight concurrent starters one owns, without a lock or with a stale one."""
    with servers(layout, 8) as rivals:
        for _ in range(25):
            for rival in rivals:
                rival.tell("acquire", layout.root)

            answers = [rival.answer() for rival in rivals]
            owners = [i for i, answer in enumerate(answers) if answer["owned"]]
            assert len(owners) == 1, answers
            assert rivals[owners[0]].ask("hold") == {"done": True}
            rivals[owners[0]].ask("crash" if begin == "stale" else "release")


def test_a_killed_owner_is_succeeded_at_once_and_named(layout: Layout) -> None:
    """T-L4: after SIGKILL the next start owns without waiting, and knows the dead pid."""
    with servers(layout, 1) as [owner]:
        assert owner.ask("acquire", layout.root)["owned"]
        owner.kill()

    lock = acquire(layout, SystemClock(), wait=_never_wait)
    assert lock.previous is not None
    assert (lock.previous.pid, lock.previous.pid_alive) == (owner.pid, False)
    lock.release()


def test_a_stopped_owner_still_owns(layout: Layout) -> None:
    """T-L3: a server under SIGSTOP is not replaced, and continues after SIGCONT."""
    with servers(layout, 1) as [owner]:
        assert owner.ask("acquire", layout.root)["owned"]
        os.kill(owner.pid, signal.SIGSTOP)
        hours_later = MovedClock()
        hours_later.wall = datetime(2999, 1, 4, tzinfo=UTC)
        with pytest.raises(LockHeld) as refusal:
            acquire(layout, hours_later, wait=_never_wait)

        os.kill(owner.pid, signal.SIGCONT)
        assert refusal.value.pid == owner.pid
        assert owner.ask("hold") == {"done": True}
        assert owner.ask("release") == {"done": True}


def test_a_child_does_not_inherit_the_guard(layout: Layout) -> None:
    """A program that the server started and that outlives it does not block the next start."""
    lock = acquire(layout, SystemClock())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        crash(lock)
        successor = acquire(layout, SystemClock(), wait=_never_wait)
        assert successor.previous is not None
        assert successor.previous.pid == os.getpid()
        successor.release()
        child.kill()


def test_a_pid_that_was_given_out_again_does_not_keep_us_out(layout: Layout) -> None:
    """T-L5, T-L6, T-L7: if the guard is free, its last owner is gone, even if its pid is reused."""
    crash(acquire(layout, SystemClock(), RUN))
    owner = json.loads(layout.lock_guard.read_bytes())
    layout.lock_guard.write_text(json.dumps(owner | {"bootId": "another boot"}))

    lock = acquire(layout, SystemClock(), wait=_never_wait)
    assert lock.previous is not None
    assert (lock.previous.pid, lock.previous.run_id) == (os.getpid(), RUN)
    assert lock.previous.pid_reused
    lock.release()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 200, b"[1]", b'{"pid": "x"}', b'{"pid":' + b"9" * 5000]
)
def test_a_torn_lock_is_written_anew(layout: Layout, content: bytes) -> None:
    """T-L8: a runtime.lock that is empty, garbage or NULs blocks no start."""
    layout.state_directory.mkdir(parents=True)
    layout.runtime_lock.write_bytes(content)
    lock = acquire(layout, SystemClock(), wait=_never_wait)
    assert written(layout)["pid"] == os.getpid()
    lock.release()


def test_a_link_in_place_of_a_lock_is_not_followed(layout: Layout, tmp_path: Path) -> None:
    """The target of a link called runtime.lock or runtime.lock.guard is unchanged."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    layout.state_directory.mkdir(parents=True)
    layout.runtime_lock.symlink_to(precious)
    acquire(layout, SystemClock(), wait=_never_wait).release()
    assert precious.read_text() == "mine"

    layout.lock_guard.unlink()
    layout.lock_guard.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        acquire(layout, SystemClock())

    assert precious.read_text() == "mine"


def test_a_link_to_the_lock_of_another_execution_keeps_no_server_out(
    layout: Layout, tmp_path: Path
) -> None:
    """A link called runtime.lock names no owner, even if its target names one that lives."""
    other = Layout.of_execution(tmp_path / "other")
    write_foreign_lock(other, pid=os.getppid(), startTime="2999-01-01T00:00:00.000Z")
    layout.state_directory.mkdir(parents=True)
    layout.runtime_lock.symlink_to(other.runtime_lock)
    lock = acquire(layout, SystemClock(), wait=_never_wait)
    assert lock.previous is None
    assert not layout.runtime_lock.is_symlink()
    lock.release()


def test_a_grant_on_a_guard_that_was_replaced_meanwhile_is_not_one(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starter that locked an inode which the path no longer names retries with the new one."""
    acquire(layout, SystemClock()).release()
    rivals: list[HeldLock] = []
    flock = fcntl.flock

    def flock_late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        layout.lock_guard.unlink()
        rivals.append(acquire(layout, SystemClock()))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with pytest.raises(LockHeld):
        acquire(layout, SystemClock(), wait=_never_wait)

    rivals[0].verify()
    rivals[0].release()


# --- other programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("begun", ["2999-01-01T00:00:00.000Z", "yesterday"])
def test_a_foreign_lock_with_a_living_process_is_respected(layout: Layout, begun: str) -> None:
    """A lock without a guard holds while its pid lives and began before it; no file appears.

    An unreadable start time counts as one after the start of the process.
    """
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        write_foreign_lock(layout, pid=other.pid, startTime=begun)
        before = snapshot(layout.root)
        with pytest.raises(LockHeld) as refusal:
            acquire(layout, SystemClock(), wait=_never_wait)

        assert refusal.value.pid == other.pid
        assert snapshot(layout.root) == before
        other.kill()


def test_a_foreign_lock_whose_heartbeat_moves_is_respected(layout: Layout) -> None:
    """T-L11: a server on another host cannot be seen, but its heartbeat can."""
    clock = MovedClock()
    write_foreign_lock(layout)

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        if clock.seconds >= 30:
            write_foreign_lock(layout, lastHeartbeat="2025-01-04T12:00:00.000Z")

    with pytest.raises(LockHeld):
        acquire(layout, clock, wait=wait)

    assert clock.seconds == 30
    assert not layout.lock_guard.exists()


def test_a_foreign_lock_whose_heartbeat_stands_still_is_taken_over(layout: Layout) -> None:
    """T-L11: after 75 s of local monotonic time without a change the lock is stale."""
    clock, messages = MovedClock(), list[str]()
    write_foreign_lock(layout, pid=os.getpid(), lastHeartbeat=to_text(clock.now()))
    lock = acquire(layout, clock, wait=clock.wait, report=messages.append)
    assert clock.seconds == 75
    assert lock.previous is not None
    assert lock.previous.run_id == RUN
    assert "waiting up to 75 s" in messages[0]
    assert [line.rpartition(": ")[2] for line in messages[1:]] == [
        f"{left} s left." for left in range(70, 0, -5)
    ]
    lock.release()


def test_a_foreign_lock_that_is_removed_during_the_watch_is_no_heartbeat(layout: Layout) -> None:
    """A program that ends removes its lock; that must not refuse the start that waits for it."""
    clock = MovedClock()
    write_foreign_lock(layout, lastHeartbeat=to_text(clock.now()))

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        layout.runtime_lock.unlink(missing_ok=True)

    lock = acquire(layout, clock, wait=wait)
    assert written(layout)["pid"] == os.getpid()
    lock.release()


def test_a_watch_ends_when_the_heartbeat_is_old(layout: Layout) -> None:
    """The rest of Hankweave's two minutes is waited for, where that is less than 75 s."""
    clock = MovedClock()
    write_foreign_lock(layout, lastHeartbeat=to_text(clock.now() - timedelta(seconds=110)))
    acquire(layout, clock, wait=clock.wait).release()
    assert clock.seconds == 10


def test_a_lock_of_a_dead_process_with_an_old_heartbeat_is_taken_over_at_once(
    layout: Layout,
) -> None:
    """Seed 001: "a lock file with a stale heartbeat" belongs to a process that crashed."""
    write_foreign_lock(layout, lastHeartbeat="2025-01-04T12:01:30.000Z")
    lock = acquire(layout, SystemClock(), wait=_never_wait)
    assert lock.previous is not None
    assert not lock.previous.pid_alive
    assert written(layout)["pid"] == os.getpid()
    lock.release()


# --- losing it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["guard deleted", "guard replaced", "directory moved"])
async def test_an_owner_whose_directory_changed_hands_notices(layout: Layout, fault: str) -> None:
    """T-L9: the heartbeat reports a loss once, and every later write is refused."""
    lock = acquire(layout, SystemClock())
    match fault:
        case "guard deleted":
            layout.lock_guard.unlink()
        case "guard replaced":
            shutil.copy(layout.lock_guard, layout.root / "copy")
            (layout.root / "copy").replace(layout.lock_guard)
        case "directory moved":
            layout.state_directory.rename(layout.root / "elsewhere")

    losses: list[LockLost] = []
    with limited():
        await lock.heartbeat(BEAT, on_lost=losses.append)

    assert [loss.exit_code for loss in losses] == [ExitCode.SOFTWARE]
    with pytest.raises(LockLost):
        lock.update(port=1)

    lock.release()


def test_an_owner_writes_nothing_into_a_directory_that_took_the_place_of_its_own(
    layout: Layout,
) -> None:
    """T-L10: if .hankweave is moved away and another server starts, the old one fences itself."""
    with servers(layout, 2) as [old, new]:
        assert old.ask("acquire", layout.root)["owned"]
        layout.state_directory.rename(layout.root / "moved")
        assert new.ask("acquire", layout.root)["owned"]
        before = snapshot(layout.state_directory)
        assert "guard" in old.ask("beat")["lost"]
        old.ask("release")
        assert snapshot(layout.state_directory) == before
        assert new.ask("hold") == {"done": True}


def test_a_write_that_is_overtaken_by_a_move_goes_to_the_moved_directory(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even between the check and the write, nothing is written to another server's directory."""
    lock = acquire(layout, SystemClock(), RUN)
    replace = fsutil.replace

    def replace_late(path: Path, data: bytes) -> None:
        layout.state_directory.rename(layout.root / "moved")
        layout.state_directory.mkdir()
        replace(path, data)

    monkeypatch.setattr(fsutil, "replace", replace_late)
    lock.update(port=7)
    assert not list(layout.state_directory.iterdir())
    assert json.loads((layout.root / "moved" / "runtime.lock").read_bytes())["port"] == 7
    lock.release()


@pytest.mark.parametrize("pid", [4711, os.getpid()], ids=["other pid", "same pid"])
async def test_a_lock_that_another_program_took_over_is_lost(layout: Layout, pid: int) -> None:
    """If runtime.lock names another owner, both servers think they own it; this one yields.

    Each container calls its first process pid 1, so the pid alone does not name an owner.
    """
    lock = acquire(layout, SystemClock())
    write_foreign_lock(layout, pid=pid)
    losses: list[LockLost] = []
    with limited():
        await lock.heartbeat(BEAT, on_lost=losses.append)

    assert f"pid {pid}" in losses[0].message
    lock.release()
    assert written(layout)["startTime"] == "2025-01-04T11:00:00.000Z"


# --- the heartbeat ------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def beating(lock: HeldLock, clock: BeatenClock) -> AsyncIterator[None]:
    """Make a lock beat quickly from its first complete beat on; assert that it is not lost."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lock.heartbeat(BEAT, on_lost=_raise))
        await anyio.to_thread.run_sync(clock.await_a_whole_beat)
        yield
        tasks.cancel_scope.cancel()


async def test_the_heartbeat_moves_while_the_event_loop_is_blocked(layout: Layout) -> None:
    """T-L13: a beat needs no turn of the event loop."""
    clock = BeatenClock()
    lock = acquire(layout, clock)
    async with beating(lock, clock):
        before = written(layout)["lastHeartbeat"]
        clock.await_a_whole_beat()  # Without an await: the loop does not turn.
        assert written(layout)["lastHeartbeat"] > before

    lock.release()


async def test_the_heartbeat_moves_while_all_worker_threads_are_busy(layout: Layout) -> None:
    """T-L13: a beat needs no worker thread; git work may occupy them all."""
    clock = BeatenClock()
    lock = acquire(layout, clock)
    workers = anyio.to_thread.current_default_thread_limiter()
    before, workers.total_tokens = workers.total_tokens, 1
    stamp = written(layout)["lastHeartbeat"]
    try:
        async with workers, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: lock.heartbeat(BEAT, on_lost=_raise))
            with limited():
                await anyio.to_thread.run_sync(
                    clock.await_a_whole_beat, limiter=anyio.CapacityLimiter(1)
                )

            assert written(layout)["lastHeartbeat"] > stamp
            tasks.cancel_scope.cancel()
    finally:
        workers.total_tokens = before

    lock.release()


async def test_a_clock_set_back_neither_stops_the_heartbeat_nor_frees_the_lock(
    layout: Layout,
) -> None:
    """T-L14: with the clock two hours back, the stamp is refreshed and the lock stays owned."""
    clock = BeatenClock()
    lock = acquire(layout, clock, RUN)
    clock.wall -= timedelta(hours=2)
    async with beating(lock, clock):
        assert written(layout)["lastHeartbeat"] < "2025-01-04T10:30:00.000Z"
        with pytest.raises(LockHeld):
            acquire(layout, clock)

    lock.release()


async def test_a_deleted_lock_file_is_written_again(layout: Layout) -> None:
    """runtime.lock grants nothing, so its absence revokes nothing; the next beat restores it."""
    clock = BeatenClock()
    lock = acquire(layout, clock, RUN)
    layout.runtime_lock.unlink()
    async with beating(lock, clock):
        assert written(layout)["runId"] == RUN

    lock.release()


async def test_a_failed_beat_is_not_a_loss(layout: Layout) -> None:
    """While the lock cannot be written the server continues, and beats again when it can.

    The log says why, once.
    """
    clock = BeatenClock()
    lock = acquire(layout, clock)
    layout.runtime_lock.unlink()
    obstacle = layout.runtime_lock.with_name("runtime.lock.tmp")
    obstacle.mkdir()
    with capture_logs() as entries:
        async with beating(lock, clock):
            lock.verify()
            assert not layout.runtime_lock.exists()
            obstacle.rmdir()
            clock.await_a_whole_beat()
            assert written(layout)["pid"] == os.getpid()

    lock.release()
    assert sum("cannot be written" in entry["event"] for entry in entries) == 1


async def test_a_disk_that_hides_a_loss_for_too_long_counts_as_one(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot check its directory until others may take it over yields."""
    monkeypatch.setattr("hankweave_server.runtime_lock.held._UNSEEN", timedelta(0))
    lock = acquire(layout, SystemClock())
    losses: list[LockLost] = []
    with monkeypatch.context() as broken:
        broken.setattr(lock, "_find_loss", failing(errno.EIO))
        with limited():
            await lock.heartbeat(BEAT, on_lost=losses.append)

    assert "could not be checked: [Errno 5]" in losses[0].message
    assert "Check the disk" in (losses[0].hint or "")
    with pytest.raises(LockLost):
        lock.update(port=1)

    lock.release()


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
async def test_a_fault_that_passes_is_logged_and_no_loss(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """While the lock cannot be checked the server continues, and beats again when it can."""
    clock = BeatenClock()
    lock = acquire(layout, clock)
    checks, find_loss = threading.Semaphore(0), lock._find_loss

    def refuse() -> None:
        checks.release()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock, "_find_loss", refuse)
    with limited(), capture_logs() as entries:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: lock.heartbeat(BEAT, on_lost=_raise))
            for _ in range(3):
                await anyio.to_thread.run_sync(checks.acquire)

            monkeypatch.setattr(lock, "_find_loss", find_loss)
            await anyio.to_thread.run_sync(clock.await_a_whole_beat)
            tasks.cancel_scope.cancel()

    lock.verify()
    lock.release()
    assert sum("cannot be checked" in entry["event"] for entry in entries) == 1


# --- what the file system refuses -----------------------------------------------------------------


@pytest.mark.parametrize(("number", "is_raised"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_full_disk_keeps_only_the_news_out_of_the_lock(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool
) -> None:
    """An update that finds no space is written by a later beat; any other fault is raised."""
    lock = acquire(layout, SystemClock())
    with monkeypatch.context() as broken:
        broken.setattr(fsutil, "replace", failing(number))
        with pytest.raises(OSError, match="Input") if is_raised else contextlib.nullcontext():
            lock.update(port=7)

    lock.update(run_id=RUN)
    assert (written(layout)["port"], written(layout)["runId"]) == (7, RUN)
    lock.release()


def test_an_abandoned_lock_is_gone_and_the_guard_still_held(layout: Layout) -> None:
    """A process about to end removes runtime.lock, but the guard stays held until its death."""
    lock = acquire(layout, SystemClock())
    assert not lock.is_released
    lock.abandon()
    assert not layout.runtime_lock.exists()
    with pytest.raises(LockHeld):
        acquire(layout, SystemClock())

    lock.release()
    assert lock.is_released
    lock.release()


def test_who_hangs_in_a_write_does_not_hold_up_an_abandonment(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abandonment waits only a bounded time for the gate that a stuck beat holds."""
    lock = acquire(layout, SystemClock())
    monkeypatch.setattr("hankweave_server.runtime_lock.held._ABANDON_TIMEOUT", 0.01)
    with lock._gate:
        lock.abandon()

    assert not layout.runtime_lock.exists()
    lock.release()


async def test_a_released_lock_beats_no_more(layout: Layout) -> None:
    """A heartbeat that outlives the release ends, and reports no loss."""
    lock = acquire(layout, SystemClock())
    lock.release()
    with limited():
        await lock.heartbeat(BEAT, on_lost=_raise)

    assert not layout.runtime_lock.exists()


async def test_a_loss_does_not_wait_for_the_next_beat(layout: Layout) -> None:
    """A missing guard is noticed within about a second, however long the heartbeat interval is."""
    lock = acquire(layout, SystemClock())
    layout.lock_guard.unlink()
    losses: list[LockLost] = []
    with limited():
        await lock.heartbeat(timedelta(hours=1), on_lost=losses.append)

    assert len(losses) == 1
    lock.release()


async def test_reading_the_lock_writes_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two beats the lock is only read: runtime.lock is unchanged."""
    monkeypatch.setattr("hankweave_server.runtime_lock.held._CHECK_INTERVAL", BEAT)
    lock = acquire(layout, SystemClock())
    before, checks = snapshot(layout.state_directory), threading.Semaphore(0)
    find_loss = lock._find_loss
    monkeypatch.setattr(lock, "_find_loss", lambda: (checks.release(), find_loss())[1])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: lock.heartbeat(timedelta(hours=1), on_lost=_raise))
        for _ in range(3):
            assert await anyio.to_thread.run_sync(lambda: checks.acquire(timeout=LIMIT))

        tasks.cancel_scope.cancel()

    assert snapshot(layout.state_directory) == before
    lock.release()


def test_a_guard_that_is_no_file_grants_nothing(layout: Layout) -> None:
    """A FIFO in place of the guard is refused at once, without a wait."""
    layout.state_directory.mkdir(parents=True)
    os.mkfifo(layout.lock_guard)
    with pytest.raises(OSError, match="not a regular file"):
        acquire(layout, SystemClock())


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [("4194305", "it calls this process 4194305"), (None, "shows other processes only")],
    ids=["another pid", "no pid"],
)
def test_a_directory_is_not_taken_where_no_process_can_be_recognised(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, shown: str | None, sentence: str
) -> None:
    """With the /proc of another PID namespace, a start is refused and changes nothing."""
    own = layout.root.with_name("self")
    monkeypatch.setattr("hankweave_server.runtime_lock.lock_file._SELF", own)
    if shown is not None:
        own.symlink_to(shown)

    with pytest.raises(Stop, match=sentence) as stop:
        acquire(layout, SystemClock())

    assert stop.value.exit_code is ExitCode.UNAVAILABLE
    assert "mount -t proc proc /proc" in (stop.value.hint or "")
    assert not layout.root.exists()


@pytest.mark.parametrize("call", ["open", "stat"])
def test_a_fault_of_the_disk_is_no_absence(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """EIO while the lock or the guard is read is raised, not taken for a missing file."""
    lock = acquire(layout, SystemClock())
    with monkeypatch.context() as broken:
        broken.setattr(os, call, failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            lock.verify()

    lock.verify()
    lock.release()


# --- any sequence -------------------------------------------------------------------------------


class Ownership(RuleBasedStateMachine):
    """T-L12: starts, releases, crashes and damage in any order; never two owners."""

    alive: Bundle[HeldLock] = Bundle("alive")

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovedClock()
        self.root = Path(os.environ["HANKWEAVE_TEST_ROOT"]) / os.urandom(4).hex()
        self.layout = Layout.of_execution(self.root)
        self.started: list[HeldLock] = []

    @rule(target=alive)
    def start(self) -> Any:
        self.clock.wait(0.001)
        try:
            lock = acquire(self.layout, self.clock, wait=self.clock.wait)
        except LockHeld:
            return multiple()

        self.started.append(lock)
        return lock

    @rule(lock=consumes(alive))
    def release(self, lock: HeldLock) -> None:
        self.started.remove(lock)
        lock.release()

    @rule(lock=consumes(alive))
    def crash(self, lock: HeldLock) -> None:
        self.started.remove(lock)
        crash(lock)

    @rule()
    def damage_the_lock(self) -> None:
        if self.layout.state_directory.exists():
            self.layout.runtime_lock.write_bytes(b"{\0")

    @rule()
    def delete_the_lock(self) -> None:
        self.layout.runtime_lock.unlink(missing_ok=True)

    @rule()
    def delete_the_guard(self) -> None:
        self.layout.lock_guard.unlink(missing_ok=True)

    @rule()
    def replace_the_directory(self) -> None:
        if self.layout.state_directory.exists():
            self.layout.state_directory.rename(self.root / os.urandom(4).hex())

    @invariant()
    def at_most_one_owner_may_write(self) -> None:
        assert sum(map(_may_write, self.started)) <= 1

    def teardown(self) -> None:
        for lock in self.started:
            lock.release()


def test_whatever_happens_there_are_never_two_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-L12: no sequence of starts, ends, crashes and damage makes two servers that may write."""
    monkeypatch.setenv("HANKWEAVE_TEST_ROOT", str(tmp_path))
    case = Ownership.TestCase
    case.settings = settings(
        max_examples=40,
        stateful_step_count=25,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    case().runTest()


def _may_write(lock: HeldLock) -> bool:
    try:
        lock.verify()
    except LockLost:
        return False

    return True


def _never_wait(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def _raise(loss: LockLost) -> None:
    raise loss
