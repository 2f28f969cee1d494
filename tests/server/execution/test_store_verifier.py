"""Claims about the background reading of checkpoints, and when it rests."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.transitions import RunStarted
from hankweave_server.clock import SystemClock
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance import fsck
from hankweave_server.execution.maintenance.fsck import StoreVerifier
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.paths import Layout
from support.components import ErrorsSeen, by_hand, components
from support.damage import damage, unpack
from support.git_facts import GitWitness
from support.histories import SteppingClock, a_run
from support.waiting import LIMIT, eventually, limited

RUN = a_run()
FILES = 40


class Asked(SystemClock):
    """A clock that counts how often it is asked."""

    asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


@dataclass
class Verified:
    """An execution with a few files, its verifier, and the warnings in its journal."""

    layout: Layout
    checkpointer: Checkpointer
    verifier: StoreVerifier
    quiet: Quiet
    clock: Asked
    warnings: ErrorsSeen

    async def take(self) -> CheckpointRecord:
        return await by_hand(self.checkpointer, RUN.run_id)

    def break_blob(self, record: CheckpointRecord, path: str) -> str:
        unpack(self.layout.shadow_repository)
        blob = GitWitness(self.layout.root).run("rev-parse", f"{record.sha}:{path}").strip()
        damage(self.layout.root, blob, "flipped")
        return blob


@asynccontextmanager
async def verified(root: Path, *, runs: bool = True) -> AsyncIterator[Verified]:
    layout, clock, warnings = Layout.of_execution(root), Asked(), ErrorsSeen()
    layout.work_tree.mkdir(parents=True)
    for number in range(FILES):
        (layout.work_tree / f"f{number}").write_text(f"content {number}")

    async with components(layout, SteppingClock()) as found:
        await found.ledger.record(RunStarted(run=RUN))
        quiet = Quiet(clock, seconds=0.01)
        verifier = StoreVerifier(layout, found.ledger, found.checkpointer, quiet)
        with found.ledger.subscribe(warnings.handle):
            async with anyio.create_task_group() as background:
                if runs:
                    background.start_soon(verifier.run)

                yield Verified(layout, found.checkpointer, verifier, quiet, clock, warnings)
                background.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the background begin at once."""
    monkeypatch.setattr(fsck, "START_SECONDS", 0.01)


class Reading:
    """The objects that were read, in whose midst the reader waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.is_in_the_midst = threading.Event()
        self.goes_on = threading.Event()
        read = fsck.ShadowRepo.read

        def noted(repo: fsck.ShadowRepo, digest: bytes) -> tuple[str, bytes]:
            self.count += 1
            if self.count == 3:
                self.is_in_the_midst.set()
                assert self.goes_on.wait(LIMIT)

            return read(repo, digest)

        monkeypatch.setattr(fsck.ShadowRepo, "read", noted)


async def test_damage_is_reported_once(tmp_path: Path) -> None:
    """The second look at the same damage adds no warning; new damage does."""
    async with verified(tmp_path) as found:
        record = await found.take()
        blob = found.break_blob(record, "f7")
        found.verifier.note(record.sha)
        with limited():
            await found.warnings.news.wait()

        found.warnings.news = anyio.Event()
        found.verifier.note(record.sha)
        other = found.break_blob(record, "f9")
        found.verifier.note(record.sha)
        with limited():
            await found.warnings.news.wait()

    first, second = found.warnings.events
    assert blob in first.message
    assert "1 object is damaged" in first.message
    assert other in second.message
    assert "1 object is damaged" in second.message


async def test_reading_stops_while_a_command_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one more object is read until it is answered; then the rest is."""
    async with verified(tmp_path, runs=False) as found, anyio.create_task_group() as background:
        record = await found.take()
        found.break_blob(record, "f7")
        reading = Reading(monkeypatch)
        found.verifier.note(record.sha)
        background.start_soon(found.verifier.run)
        await anyio.to_thread.run_sync(reading.is_in_the_midst.wait, LIMIT)
        with found.quiet.serving():
            (work,) = found.quiet.behind
            assert (work.name, work.late) == ("verification", False)
            found.clock.asked = 0
            reading.goes_on.set()
            await eventually(lambda: found.clock.asked > 3)
            assert reading.count == 3
            assert not found.warnings.news.is_set()

        with limited():
            await found.warnings.news.wait()

        assert reading.count > FILES
        await eventually(lambda: not found.quiet.behind)
        background.cancel_scope.cancel()


async def test_an_end_does_not_wait_for_a_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verification that cannot go on is abandoned with its task."""
    async with verified(tmp_path, runs=False) as found:
        record = await found.take()
        reading = Reading(monkeypatch)
        found.verifier.note(record.sha)
        with limited():
            async with anyio.create_task_group() as another:
                another.start_soon(found.verifier.run)
                await anyio.to_thread.run_sync(reading.is_in_the_midst.wait, LIMIT)
                with found.quiet.serving():
                    reading.goes_on.set()
                    another.cancel_scope.cancel()
