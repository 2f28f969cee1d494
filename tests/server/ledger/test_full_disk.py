"""On a disk that is full for a while, a ledger waits, keeps the order and loses nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
import pytest

from hankweave_protocol.events import Info
from hankweave_protocol.state import State
from hankweave_protocol.transitions import RunStarted
from hankweave_server import fsutil
from hankweave_server.ledger import disk_space as reserve_module
from hankweave_server.ledger.disk_space import (
    LONGEST_PAUSE,
    RESERVE_BYTES,
    RETRY_SECONDS,
    Reserve,
    Space,
)
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.paths import Layout
from support.calls import failing
from support.histories import SteppingClock, a_run
from support.waiting import eventually, limited

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass
class Disk:
    """A disk that a test can fill: a write then stores half its bytes, and the next one nothing."""

    monkeypatch: pytest.MonkeyPatch
    error: int = errno.ENOSPC
    is_full: bool = False
    fails_flushes: bool = False
    pauses: list[float] = field(default_factory=list)
    paused: anyio.Event = field(default_factory=anyio.Event)
    """Set while a task waits for disk space."""
    _go_on: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        write, sync = os.write, os.fdatasync

        def half(descriptor: int, data: bytes) -> int:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            if not (self.is_full and regular):
                return write(descriptor, data)

            if len(data) > 1:
                return write(descriptor, data[: len(data) // 2])

            raise OSError(self.error, os.strerror(self.error))

        def flush(descriptor: int) -> None:
            if self.fails_flushes:
                raise OSError(self.error, os.strerror(self.error))

            sync(descriptor)

        self.monkeypatch.setattr(os, "write", half)
        self.monkeypatch.setattr(os, "fdatasync", flush)

    async def pause(self, seconds: float) -> None:
        """Stand in for a sleep that ends when the test says so."""
        self.pauses.append(seconds)
        self.paused.set()
        await self._go_on.wait()

    def time_passes(self) -> None:
        self.paused = anyio.Event()
        self._go_on.set()
        self._go_on = anyio.Event()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@asynccontextmanager
async def waiting_ledger(layout: Layout, disk: Disk) -> AsyncIterator[Ledger]:
    """Open a ledger that waits for disk space, as one of a serving server does."""
    ledger = await Ledger.open(layout, SteppingClock(), pause=disk.pause)
    ledger.space.allow_waiting()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger
        await ledger.aclose()


def info(text: str) -> Info:
    return Info(message=text)


def messages(layout: Layout) -> list[str]:
    return [
        msgspec.json.decode(line)["data"].get("message", "")
        for line in layout.journal.read_bytes().splitlines()
    ]


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_record_waits_for_room_and_is_not_lost(
    layout: Layout, disk: Disk, error: int
) -> None:
    """A waiting record is delivered only when durable, leaves nothing torn, and keeps the order."""
    disk.error, published = error, list[str]()
    async with waiting_ledger(layout, disk) as ledger:
        await ledger.record(info("before"))
        size = layout.journal.stat().st_size
        with ledger.subscribe(lambda each: published.append(each.event.data.message)):  # type: ignore[attr-defined]
            async with anyio.create_task_group() as tasks:
                disk.is_full = True
                tasks.start_soon(ledger.record, info("first"))
                await disk.paused.wait()
                tasks.start_soon(ledger.record, info("second"))
                await anyio.wait_all_tasks_blocked()
                await ledger.post(info("third"))
                for _ in range(3):
                    assert (published, ledger.last_seq) == ([], 1)
                    assert layout.journal.stat().st_size == size
                    assert messages(layout) == ["before"]
                    assert len(ledger.read(0)) == 1
                    disk.time_passes()
                    await disk.paused.wait()

                disk.is_full = False
                disk.time_passes()

            await ledger.flush()

        assert published == ["first", "second", "third"]
        assert set(disk.pauses) == {RETRY_SECONDS}

    assert messages(layout) == ["before", "first", "second", "third"]


async def test_a_state_that_has_no_room_waits_and_no_line_is_written_twice(
    layout: Layout, disk: Disk
) -> None:
    """If the journal had space and state.json does not, only state.json is retried."""
    async with waiting_ledger(layout, disk) as ledger:
        await ledger.record(info("before"))
        save, fails = ledger._store.save, [True]

        def full_at_first(state: State, *, durable: bool) -> int:
            if fails:
                raise FULL

            return save(state, durable=durable)

        ledger._store.save = full_at_first  # type: ignore[method-assign]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.record, RunStarted(run=a_run()))
            await disk.paused.wait()
            assert len(layout.journal.read_bytes().splitlines()) == 2
            assert (ledger.last_seq, ledger.durable_state.runs) == (1, ())
            fails.clear()
            disk.time_passes()

        assert ledger.last_seq == 2

    assert len(layout.journal.read_bytes().splitlines()) == 2
    assert len(msgspec.json.decode(layout.state.read_bytes(), type=State).runs) == 1


async def test_an_optional_record_waits_only_while_there_is_room(
    layout: Layout, disk: Disk
) -> None:
    """A record that is optional is refused at once; one that must not be lost waits."""
    caught_up = list[int]()

    async def retry(ledger: Ledger) -> None:
        caught_up.append(await ledger.catch_up(waits_for_space=True))

    async with waiting_ledger(layout, disk) as ledger:
        ledger.leave(info("first"))
        assert await ledger.catch_up(waits_for_space=False) == 1, "there is room: it waits"
        disk.is_full = True
        ledger.leave(info("second"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retry, ledger)
            assert await ledger.catch_up(waits_for_space=False) == 1, (
                "the disk is found full meanwhile"
            )
            assert await ledger.catch_up(waits_for_space=False) == 1, "it is known to be full"
            await disk.paused.wait()
            await anyio.wait_all_tasks_blocked()
            assert caught_up == []
            disk.is_full = False
            disk.time_passes()

    assert caught_up == [2]
    assert messages(layout) == ["first", "second"]


async def test_the_reserve_lets_the_write_in_hand_finish(layout: Layout, disk: Disk) -> None:
    """The reserve is released without waiting; until it is back, the disk counts as full."""
    shortages = list[BaseException]()
    async with waiting_ledger(layout, disk) as ledger:
        await ledger.record(info("before"))
        reserve = Reserve(layout.reserve)
        assert reserve.make()
        ledger.space.subscribe(on_shortage=shortages.append)
        ledger.space._reserve = _Freeing(reserve, disk)  # type: ignore[assignment]
        disk.is_full = True
        await ledger.record(info("in hand"))
        assert disk.pauses == []
        assert (ledger.space.is_short, len(shortages)) == (True, 1)
        assert not layout.reserve.exists()

    assert messages(layout) == ["before", "in hand"]


@dataclass
class _Freeing:
    """A reserve whose release frees space on the disk of this test."""

    reserve: Reserve
    disk: Disk

    def spend(self) -> bool:
        spent = self.reserve.spend()
        self.disk.is_full = self.disk.is_full and not spent
        return spent


async def test_a_ledger_without_clients_does_not_wait(layout: Layout, disk: Disk) -> None:
    """Before the server serves, a full disk ends it: no client could be told of the wait."""
    ledger = await Ledger.open(layout, SteppingClock(), pause=disk.pause)
    disk.is_full = True
    with pytest.RaisesGroup(LedgerFailed):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.run)
            with pytest.raises(LedgerFailed) as failed:
                await ledger.record(info("never"))

    assert failed.value.unsaved == 1
    assert (disk.pauses, layout.journal.read_bytes()) == ([], b"")


async def test_a_wait_can_be_given_up(layout: Layout, disk: Disk) -> None:
    """A waiting caller learns how much was not saved, and nothing torn stays."""
    with pytest.RaisesGroup(LedgerFailed):
        async with waiting_ledger(layout, disk) as ledger, anyio.create_task_group() as tasks:
            await ledger.record(info("before"))
            disk.is_full = True
            outcomes = list[int]()

            async def record() -> None:
                try:
                    await ledger.record(info("never"))
                except LedgerFailed as failed:
                    outcomes.append(failed.unsaved)

            tasks.start_soon(record)
            await disk.paused.wait()
            tasks.start_soon(record)
            await anyio.wait_all_tasks_blocked()
            ledger.space.give_up()

    assert outcomes == [2, 2]
    assert messages(layout) == ["before"]


async def test_a_wait_ends_with_the_task_group_around_it(layout: Layout, disk: Disk) -> None:
    """A full disk does not delay the shutdown of a server that fails elsewhere."""
    with limited():
        async with anyio.create_task_group() as tasks:
            ledger = await Ledger.open(layout, SteppingClock(), pause=disk.pause)
            ledger.space.allow_waiting()
            tasks.start_soon(ledger.run)
            disk.is_full = True
            await ledger.post(info("never"))
            await disk.paused.wait()
            tasks.cancel_scope.cancel()

    with pytest.raises(LedgerFailed) as failed:
        await ledger.record(info("too late"))

    assert failed.value.unsaved == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
async def test_a_disk_that_is_broken_is_not_waited_for(
    layout: Layout, disk: Disk, error: int
) -> None:
    """Nothing is retried, and nothing is written after it."""
    disk.error = error
    with pytest.RaisesGroup(LedgerFailed):
        async with waiting_ledger(layout, disk) as ledger:
            disk.is_full = True
            with pytest.raises(LedgerFailed):
                await ledger.record(info("never"))

            disk.is_full = False
            with pytest.raises(LedgerFailed):
                await ledger.record(info("nor this"))

    assert disk.pauses == []
    assert layout.journal.read_bytes() == b""


async def test_a_flush_that_finds_no_room_is_waited_for(layout: Layout, disk: Disk) -> None:
    """The failed lines are taken back, written anew and flushed; everything before is durable."""
    async with waiting_ledger(layout, disk) as ledger, anyio.create_task_group() as tasks:
        await ledger.record(info("before"))
        disk.fails_flushes = True
        tasks.start_soon(ledger.record, info("later"))
        await disk.paused.wait()
        assert messages(layout) == ["before"]
        disk.fails_flushes = False
        disk.time_passes()

    assert messages(layout) == ["before", "later"]


async def test_a_flush_that_failed_otherwise_is_not_tried_again(layout: Layout, disk: Disk) -> None:
    """The kernel discards pages it could not write: a second flush would only seem to succeed."""
    disk.error = errno.EIO
    with pytest.RaisesGroup(LedgerFailed):
        async with waiting_ledger(layout, disk) as ledger:
            disk.fails_flushes = True
            with pytest.raises(LedgerFailed):
                await ledger.record(info("never"))

    assert disk.pauses == []


async def test_a_disk_reported_as_broken_stops_the_ledger(layout: Layout, disk: Disk) -> None:
    """After `report_broken_disk` nothing is written or saved any more, not even at the end."""
    with pytest.RaisesGroup(LedgerFailed):
        async with waiting_ledger(layout, disk) as ledger:
            await ledger.record(info("before"))
            saved = layout.state.read_bytes()
            ledger.report_broken_disk(OSError(errno.EIO, "Input/output error"))
            ledger.report_broken_disk(OSError(errno.EIO, "again"))
            with pytest.raises(LedgerFailed, match="Input/output error"):
                await ledger.record(info("never"))

    assert messages(layout) == ["before"]
    assert layout.state.read_bytes() == saved


# --- other waiting work ---------------------------------------------------------------------------


async def test_work_is_tried_again_with_growing_pauses(layout: Layout, disk: Disk) -> None:
    """Retries of larger work come at growing intervals; other faults end it at once."""
    space, tries = _space(layout, disk), 0

    async def work() -> int:
        nonlocal tries
        tries += 1
        if tries <= 6:
            raise FULL

        return tries

    space.allow_waiting()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(space.retry, work)
        for _ in range(6):
            await disk.paused.wait()
            assert (space.is_short, space.is_waited_for) == (True, True)
            disk.time_passes()

    assert disk.pauses == [1, 2, 4, 8, LONGEST_PAUSE, LONGEST_PAUSE]
    assert not space.is_waited_for

    async def broken() -> int:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await space.retry(broken)


async def test_a_shortage_ends_when_nothing_waits_and_the_reserve_is_back(
    layout: Layout, disk: Disk
) -> None:
    """A shortage does not end earlier: waiting work needs the space more than the reserve does."""
    space, recovered = _space(layout, disk), list[str]()
    space.subscribe(on_recovery=lambda: recovered.append("recovery"))
    space.allow_waiting()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(space.watch)
        await eventually(layout.reserve.exists)
        with space._waited_for():
            space.note(FULL)
            await disk.paused.wait()
            disk.time_passes()
            await disk.paused.wait()
            assert (space.is_short, recovered) == (True, [])

        tasks.start_soon(space.wait_for_recovery)
        disk.time_passes()
        await eventually(lambda: not space.is_short)
        assert recovered == ["recovery"]
        tasks.cancel_scope.cancel()

    await space.release()
    assert not layout.reserve.exists()


def _space(layout: Layout, disk: Disk) -> Space:
    fsutil.make_private_directory(layout.state_directory)
    return Space(Reserve(layout.reserve), pause=disk.pause)


# --- the reserve ----------------------------------------------------------------------------------


def test_the_reserve_really_takes_room(layout: Layout) -> None:
    """The reserve occupies blocks, not only a length, and is private to its owner."""
    fsutil.make_private_directory(layout.state_directory)
    reserve = Reserve(layout.reserve)
    assert reserve.make()
    assert reserve.make()
    status = layout.reserve.stat()
    assert status.st_blocks * 512 >= status.st_size == RESERVE_BYTES
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert (reserve.spend(), reserve.spend()) == (True, False)
    assert not layout.reserve.exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_reserve_that_cannot_be_made_leaves_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A full disk is reported; a disk that cannot reserve counts as one with space."""
    fsutil.make_private_directory(layout.state_directory)
    monkeypatch.setattr(os, "posix_fallocate", failing(error))
    assert Reserve(layout.reserve).make() is (error == errno.EOPNOTSUPP)
    assert not layout.reserve.exists()


def test_a_disk_with_little_room_gets_no_reserve(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reserve would take space that others need."""
    fsutil.make_private_directory(layout.state_directory)
    monkeypatch.setattr(reserve_module, "ROOM_BYTES", 1 << 60)
    assert not Reserve(layout.reserve).make()
    assert not layout.reserve.exists()


def test_a_reserve_is_not_sought_in_a_folder_that_took_its_place(
    layout: Layout, tmp_path: Path
) -> None:
    """If another directory takes the path, its reserve stays."""
    fsutil.make_private_directory(layout.state_directory)
    reserve = Reserve(layout.reserve)
    layout.state_directory.rename(tmp_path / "moved")
    fsutil.make_private_directory(layout.state_directory)
    layout.reserve.write_bytes(b"another server's")
    assert not reserve.spend()
    assert layout.reserve.exists()
