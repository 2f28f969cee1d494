"""Writing down each new run, in runtime.lock and as a folder, beside the publishing of events."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import Info
from hankweave_protocol.records import RuntimeLock
from hankweave_protocol.transitions import RunStarted
from hankweave_server import fsutil
from hankweave_server.clock import SystemClock
from hankweave_server.daemon.daemon import RunNotes
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from hankweave_server.runtime_lock.held import HeldLock, acquire
from hankweave_server.runtime_lock.lock_file import LockLost
from support.calls import failing
from support.histories import SteppingClock, a_run
from support.waiting import LIMIT, eventually

RUN = a_run().run_id


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of_execution(tmp_path)


@pytest.fixture
def lock(layout: Layout):
    held = acquire(layout, SystemClock())
    yield held
    held.release()


def run_in(layout: Layout) -> str | None:
    return codec.decode_value(RuntimeLock, layout.runtime_lock.read_bytes()).run_id


def _raise(error: Exception) -> None:
    raise error


async def test_a_new_run_is_named_by_the_lock_and_has_a_folder(layout: Layout, lock: HeldLock):
    """Of several runs that begin together, as after a branch, the lock names the last."""
    notes = RunNotes(lock, layout)
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: notes.run(on_lost=_raise))
        tasks.start_soon(ledger.run)
        with ledger.subscribe(notes.handle):
            await ledger.record(RunStarted(run=a_run()))
            await eventually(lambda: layout.run_folder(RUN).is_dir())
            assert run_in(layout) == RUN

        await ledger.aclose()
        tasks.cancel_scope.cancel()


async def test_a_disk_that_hangs_does_not_hold_up_the_events(
    layout: Layout, lock: HeldLock, monkeypatch: pytest.MonkeyPatch
):
    """Events are published while runtime.lock is being written."""
    is_writing, may_write = threading.Event(), threading.Event()
    real, update = fsutil.replace, lock.update

    def slow(path: Path, data: bytes) -> None:
        is_writing.set()
        assert may_write.wait(LIMIT)
        real(path, data)

    def update_slowly(**fields) -> None:
        with monkeypatch.context() as slowed:
            slowed.setattr(fsutil, "replace", slow)
            update(**fields)

    monkeypatch.setattr(lock, "update", update_slowly)
    notes, seqs = RunNotes(lock, layout), list[int]()
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: notes.run(on_lost=_raise))
        tasks.start_soon(ledger.run)
        with ledger.subscribe(notes.handle), ledger.subscribe(lambda e: seqs.append(e.event.seq)):
            ledger.leave(RunStarted(run=a_run()))
            await anyio.to_thread.run_sync(is_writing.wait)
            await eventually(lambda: seqs == [1])
            ledger.leave(Info(message="meanwhile"))
            await eventually(lambda: seqs == [1, 2])
            assert run_in(layout) is None
            may_write.set()
            await eventually(lambda: run_in(layout) == RUN)

        await ledger.aclose()
        tasks.cancel_scope.cancel()


async def test_a_failing_disk_ends_the_server_with_a_sentence(
    layout: Layout, lock: HeldLock, monkeypatch: pytest.MonkeyPatch
):
    """The error names runtime.lock, and every event was published before."""
    notes, seqs = RunNotes(lock, layout), list[int]()
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        with ledger.subscribe(notes.handle), ledger.subscribe(lambda e: seqs.append(e.event.seq)):
            await ledger.record(RunStarted(run=a_run()), Info(message="last"))

        with monkeypatch.context() as broken:
            broken.setattr(lock, "_write", failing(errno.EIO))
            with pytest.raises(Stop) as stop:
                await notes.run(on_lost=_raise)

        await ledger.aclose()

    assert stop.value.exit_code is ExitCode.IO_ERROR
    assert str(layout.runtime_lock) in stop.value.message
    assert seqs == [1, 2]


async def test_a_lost_directory_is_reported_when_a_run_begins(layout: Layout, lock: HeldLock):
    """Nothing is written into a directory that another server may own."""
    losses: list[LockLost] = []
    notes = RunNotes(lock, layout)
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        with ledger.subscribe(notes.handle):
            layout.lock_guard.unlink()
            await ledger.record(RunStarted(run=a_run()))
            await notes.run(on_lost=losses.append)

        await ledger.aclose()

    assert len(losses) == 1
    assert not layout.run_folder(RUN).exists()
