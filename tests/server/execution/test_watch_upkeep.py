"""The upkeep of the watch of the work tree after a checkpoint, when no reply waits."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.transitions import RunStarted
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.execution import checkpointer as checkpointer_module
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.paths import Layout
from hankweave_server.worktree.inotify import Inotify, RawEvent
from support.components import ErrorsSeen, by_hand, components
from support.git_facts import GitWitness
from support.histories import SteppingClock, a_run
from support.waiting import eventually, limited

RUN = a_run()

pytestmark = pytest.mark.full


@dataclass
class Watched:
    """A watched execution with one file, and the errors in its journal."""

    engine: CheckpointEngine
    checkpointer: Checkpointer
    errors: ErrorsSeen

    async def take(self, kind: CheckpointKind = "manual") -> CheckpointRecord:
        return await by_hand(self.checkpointer, RUN.run_id, kind)

    async def prove(self) -> None:
        """Take checkpoints until one neither reads nor compares a file."""
        await self.take()

        async def is_proven() -> bool:
            await self.take()
            return self.engine.watch_state.compared == 0

        await eventually(is_proven)


@asynccontextmanager
async def watched(root: Path) -> AsyncIterator[Watched]:
    layout, errors, quiet = Layout.of_execution(root), ErrorsSeen(), Quiet(seconds=0.01)
    layout.work_tree.mkdir(parents=True)
    (layout.work_tree / "a").write_text("1")
    async with components(layout, SteppingClock(), watches=True, quiet=quiet) as found:
        await found.ledger.record(RunStarted(run=RUN))
        with found.ledger.subscribe(errors.handle):
            async with anyio.create_task_group() as upkeep:
                upkeep.start_soon(found.checkpointer.keep_watch)
                yield Watched(found.engine, found.checkpointer, errors)
                upkeep.cancel_scope.cancel()


async def test_a_file_is_proven_after_its_checkpoint(tmp_path: Path) -> None:
    """A later checkpoint without changes compares no file."""
    async with watched(tmp_path) as found:
        await found.prove()
        assert found.engine.watch_state.reason is None


async def test_a_missed_change_is_journaled_and_ends_the_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verification after a `completed` checkpoint finds it; the next checkpoint has it."""
    real = Inotify.events

    def deaf(inotify: Inotify) -> Iterator[RawEvent]:
        list(real(inotify))
        return iter(())

    async with watched(tmp_path) as found:
        await found.prove()
        monkeypatch.setattr(Inotify, "events", deaf)
        (Layout.of_execution(tmp_path).work_tree / "a").write_text("2")
        blind = await found.take("completed")
        with limited():
            await found.errors.news.wait()

        record = await found.take()

    git = GitWitness(tmp_path)
    assert git.run("show", f"{blind.sha}:a") == "1"
    assert git.run("show", f"{record.sha}:a") == "2"
    assert "missed changes of 1 path (a)" in found.errors.events[0].message
    assert found.engine.watch_state.reason == "distrusted"


async def test_a_link_alone_is_no_missed_change(tmp_path: Path) -> None:
    """The times of the file differ without an event, but its content does not."""
    async with watched(tmp_path) as found:
        await found.prove()
        os.link(Layout.of_execution(tmp_path).work_tree / "a", tmp_path / "second")
        await found.take("completed")
        await anyio.sleep(0.5)

    assert found.errors.events == []
    assert found.engine.watch_state.reason is None


async def test_all_files_are_proven_although_others_use_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each checkpoint of a large tree would compare nearly all of its files."""
    monkeypatch.setattr(checkpointer_module, "PROVEN_AT_ONCE", 1)
    async with watched(tmp_path) as found, anyio.create_task_group() as others:
        for number in range(20):
            (found.engine.layout.work_tree / f"f{number}").write_text("1")

        async def call_the_engine() -> None:
            while True:
                await found.checkpointer.call(lambda _engine: None)

        for _ in range(2):
            others.start_soon(call_the_engine)

        await found.prove()
        others.cancel_scope.cancel()
