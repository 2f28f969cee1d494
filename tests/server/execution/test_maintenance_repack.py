"""Repacking in the background: it yields, stops with the server, and reports errors.

The store is a double that repacks until it is stopped, or fails; gate, ledger and tasks are real.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent, StoreConsolidated
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointRecord
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance import repack as packing_module
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.execution.maintenance.repack import MANY, MORE, YIELDINGS, Repacker
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.git.repack import Consolidated, Pace
from hankweave_server.ledger.writer import Ledger, Published
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout
from support.histories import SteppingClock
from support.waiting import eventually_blocking, limited


@dataclass
class BusyStore:
    """A store with `steps` left to do, which takes one only if it is not asked to stop."""

    steps: int = 1
    waits: bool = False
    """Whether a step lasts until the store is asked to stop."""
    fault: Exception | None = None
    attempts: int = 0
    begun: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    """Releases a call for the tip of a branch."""
    in_a_call: bool = False
    overlapped: bool = False

    def size(self) -> int:
        return self.steps

    def tip(self, _run_id: RunId) -> None:
        self.in_a_call = True
        self.release.wait()
        self.in_a_call = False

    def needs_consolidation(self) -> bool:
        return self.steps > 0

    def consolidate(self, pace: Pace, _meter: Meter) -> Consolidated:
        self.attempts += 1
        self.begun.set()
        if self.fault is not None:
            raise self.fault

        before = self.steps
        while self.steps and not pace.should_stop():
            if self.waits:
                eventually_blocking(lambda: pace.should_stop() or not self.waits)
            else:
                pace.exclusively(self._take_one)

        return Consolidated(before, self.steps, 0, 0, 10 * before, 10 * self.steps, not self.steps)

    def _take_one(self) -> None:
        self.overlapped |= self.in_a_call
        self.steps -= 1


@dataclass
class Fixture:
    """A repacker with its store and its published events."""

    packing: Repacker
    store: BusyStore
    checkpointer: Checkpointer
    tasks: anyio.abc.TaskGroup
    quiet: Quiet
    published: list[Published] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)

    def handle(self, published: Published) -> None:
        self.published.append(published)
        self._news.set()

    def take_checkpoint(self) -> None:
        """Let all who want to know of checkpoints believe that one was taken."""
        for callback in self.checkpointer._on_taken:
            callback(cast("CheckpointRecord", None))

    async def next_event(self, count: int) -> object:
        with limited():
            while len(self.published) < count:
                self._news = anyio.Event()
                await self._news.wait()

        return self.published[count - 1].event.data

    async def has_begun(self) -> None:
        with limited():
            await anyio.to_thread.run_sync(self.store.begun.wait, abandon_on_cancel=True)


@asynccontextmanager
async def a_fixture(folder: Path, store: BusyStore) -> AsyncIterator[Fixture]:
    ledger = await Ledger.open(Layout.of_execution(folder), SteppingClock())
    engine = cast(
        "CheckpointEngine",
        SimpleNamespace(housekeeping=store, require_same_store=lambda: None, tip=store.tip),
    )
    checkpointer = Checkpointer(engine, ledger, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        quiet = Quiet()
        fixture = Fixture(Repacker(ledger, checkpointer, quiet), store, checkpointer, tasks, quiet)
        with ledger.subscribe(fixture.handle):
            yield fixture
            fixture.packing.stop()
            tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_module, "QUIET_SECONDS", 0.0)


async def test_accumulated_objects_are_packed_and_reported(tmp_path: Path) -> None:
    """The store is repacked after the start, and when a checkpoint makes it necessary."""
    async with a_fixture(tmp_path, BusyStore(steps=3)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        first = await fixture.next_event(1)
        assert isinstance(first, StoreConsolidated)
        assert (first.packs_before, first.packs_after) == (3, 0)
        fixture.store.steps = 2
        fixture.packing.wake()
        second = await fixture.next_event(2)
        assert isinstance(second, StoreConsolidated)
        assert second.packs_before == 2


async def test_a_call_of_the_engine_does_not_wait_for_a_step(tmp_path: Path) -> None:
    """Calls are served while a step is in progress; the step continues, and is in the status."""
    async with a_fixture(tmp_path, BusyStore(steps=5, waits=True)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        await fixture.has_begun()
        assert [work.name for work in fixture.quiet.behind] == ["packing"]
        with limited():
            assert (
                cast(
                    int, await fixture.checkpointer.call(lambda engine: engine.housekeeping.size())
                )
                == 5
            )

        fixture.store.waits = False
        assert isinstance(await fixture.next_event(1), StoreConsolidated)
        assert (fixture.store.steps, fixture.store.attempts) == (0, 1)


async def test_files_are_removed_between_calls_of_the_engine(tmp_path: Path) -> None:
    """The last act of a step waits for the call in progress."""
    async with a_fixture(tmp_path, BusyStore(steps=2, waits=True)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        await fixture.has_begun()
        fixture.tasks.start_soon(fixture.checkpointer.call, lambda engine: engine.tip(RunId("r")))
        with limited():
            while not fixture.store.in_a_call:
                await anyio.lowlevel.checkpoint()

        fixture.store.waits = False
        with limited():
            while not fixture.checkpointer.is_waited_for:
                await anyio.lowlevel.checkpoint()

        assert fixture.store.steps == 2
        fixture.store.release.set()
        assert isinstance(await fixture.next_event(1), StoreConsolidated)
        assert (fixture.store.steps, fixture.store.overlapped) == (0, False)


async def test_checkpoints_that_never_pause_are_packed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a number of checkpoints that makes a step worth while, no pause is awaited."""
    monkeypatch.setattr(packing_module, "QUIET_SECONDS", 1e6)
    async with a_fixture(tmp_path, BusyStore()) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        for _ in range(MANY - 1):
            fixture.take_checkpoint()

        await anyio.wait_all_tasks_blocked()
        assert fixture.store.attempts == 0
        fixture.take_checkpoint()
        assert isinstance(await fixture.next_event(1), StoreConsolidated)


async def test_it_is_patient_until_many_checkpoints_wait(tmp_path: Path) -> None:
    """Background work makes way for calls until as many checkpoints came as are worth a step."""
    async with a_fixture(tmp_path, BusyStore()) as fixture:
        assert fixture.packing.waits_for_others()
        for _ in range(MORE):
            fixture.take_checkpoint()

        assert not fixture.packing.waits_for_others()


async def test_who_waits_to_prune_or_check_ends_it(tmp_path: Path) -> None:
    """A gc or fsck that needs the store alone does not wait for the background."""
    async with a_fixture(tmp_path, BusyStore(steps=5, waits=True)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        await fixture.has_begun()
        with limited():
            async with fixture.packing.alone:
                assert fixture.store.steps == 5


async def test_the_servers_end_stops_it(tmp_path: Path) -> None:
    """Work in progress stops at its next step, and no more starts."""
    async with a_fixture(tmp_path, BusyStore(steps=5, waits=True)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        await fixture.has_begun()
        fixture.packing.stop()
        with limited():
            async with fixture.packing.alone:
                attempts = fixture.store.attempts

        fixture.packing.wake()
        await anyio.wait_all_tasks_blocked()
        assert fixture.store.attempts == attempts


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (ShadowRepositoryError("the disk is odd"), ErrorCode.STORE_UNUSABLE),
        (InsufficientSpace(10, 5), ErrorCode.INSUFFICIENT_SPACE),
        (ValueError("a defect"), ErrorCode.INTERNAL_ERROR),
    ],
)
async def test_a_fault_is_published_once_and_ends_nothing_but_the_packing(
    tmp_path: Path, fault: Exception, code: ErrorCode
) -> None:
    """The `error` event is not fatal; no attempt follows until a gc; the engine keeps serving."""
    async with a_fixture(tmp_path, BusyStore(fault=fault)) as fixture:
        fixture.tasks.start_soon(fixture.packing.run)
        event = await fixture.next_event(1)
        assert isinstance(event, ErrorEvent)
        assert (event.fatal, event.severity, event.code) == (False, "warning", code)
        fixture.packing.wake()
        await anyio.wait_all_tasks_blocked()
        assert (fixture.store.attempts, len(fixture.published)) == (1, 1)
        assert (
            cast(int, await fixture.checkpointer.call(lambda engine: engine.housekeeping.size()))
            == 1
        )

        fixture.store.fault = None
        async with fixture.packing.alone:
            assert (await fixture.packing.pack(())).finished

        fixture.store.steps = 1
        fixture.packing.wake()
        assert isinstance(await fixture.next_event(3), StoreConsolidated)


async def test_what_a_person_asked_for_makes_way_but_not_for_ever(tmp_path: Path) -> None:
    """A user's pruning yields a limited number of times; then only a shutdown stops it."""
    async with a_fixture(tmp_path, BusyStore()) as fixture:
        stop_conditions = list(fixture.packing.stop_conditions())
        assert len(stop_conditions) == YIELDINGS + 1
        fixture.tasks.start_soon(fixture.checkpointer.call, lambda engine: engine.tip(RunId("r")))
        await anyio.wait_all_tasks_blocked()
        fixture.tasks.start_soon(
            fixture.checkpointer.call, lambda engine: engine.housekeeping.size()
        )
        await anyio.wait_all_tasks_blocked()
        assert [stop() for stop in stop_conditions] == [True] * YIELDINGS + [False]
        fixture.packing.stop()
        assert stop_conditions[-1]()
        fixture.store.release.set()
