"""What the background reads of checkpoints, and when it does not."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hankweave_protocol.events import ErrorEvent
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.transitions import RunStarted
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance import fsck
from hankweave_server.execution.maintenance.fsck import StoreVerifier
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.damage import damage, unpack
from support.git_facts import GitWitness
from support.histories import SteppingClock, a_run
from support.waiting import LIMIT, eventually, limited

RUN = a_run()
FILES = 40


class Verified:
    """An execution with a few files, its verifier, and the warnings in its journal."""

    def __init__(self, layout: Layout, checkpointer: Checkpointer, verifier: StoreVerifier) -> None:
        self.layout = layout
        self.checkpointer = checkpointer
        self.verifier = verifier
        self.warnings: list[ErrorEvent] = []
        self.warned = anyio.Event()

    async def take(self) -> CheckpointRecord:
        return await self.checkpointer.take(
            "manual", run_id=RUN.run_id, codon=None, codon_name="Manual", patterns=("**",)
        )

    def break_blob(self, record: CheckpointRecord, path: str) -> str:
        unpack(self.layout.shadow_repository)
        blob = GitWitness(self.layout.root).run("rev-parse", f"{record.sha}:{path}").strip()
        damage(self.layout.root, blob, "flipped")
        return blob


@asynccontextmanager
async def verified(root: Path, *, runs: bool = True) -> AsyncIterator[Verified]:
    layout = Layout.of_execution(root)
    layout.work_tree.mkdir(parents=True)
    for number in range(FILES):
        (layout.work_tree / f"f{number}").write_text(f"content {number}")

    engine = CheckpointEngine.open(layout)
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        await ledger.record(RunStarted(run=RUN))
        checkpointer = Checkpointer(engine, ledger, SteppingClock())
        verifier = StoreVerifier(layout, ledger, checkpointer)
        found = Verified(layout, checkpointer, verifier)

        def note(each: object) -> None:
            data = getattr(getattr(each, "event", None), "data", None)
            if isinstance(data, ErrorEvent):
                found.warnings.append(data)
                found.warned.set()

        with ledger.subscribe(note):
            async with anyio.create_task_group() as background:
                if runs:
                    background.start_soon(verifier.run)

                yield found
                background.cancel_scope.cancel()

        await ledger.aclose()

    engine.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the background follow at once, and look after each object whether it may go on."""
    monkeypatch.setattr(fsck, "START_SECONDS", 0.01)
    monkeypatch.setattr(fsck, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(fsck, "READ_AT_ONCE", 1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record each time that a reader asks whether the engine is in use."""
    answers: list[bool] = []
    is_in_use = Checkpointer.is_in_use.fget
    assert is_in_use is not None

    def recorded(checkpointer: Checkpointer) -> bool:
        answers.append(is_in_use(checkpointer))
        return answers[-1]

    monkeypatch.setattr(Checkpointer, "is_in_use", property(recorded))
    return answers


async def test_damage_is_reported_once(tmp_path: Path) -> None:
    """The second look at the same damage adds no warning; new damage does."""
    async with verified(tmp_path) as found:
        record = await found.take()
        blob = found.break_blob(record, "f7")
        found.verifier.note(record.sha)
        with limited():
            await found.warned.wait()

        found.warned = anyio.Event()
        found.verifier.note(record.sha)
        other = found.break_blob(record, "f9")
        found.verifier.note(record.sha)
        with limited():
            await found.warned.wait()

    first, second = found.warnings
    assert blob in first.message
    assert "1 objects are damaged" in first.message
    assert other in second.message
    assert "1 objects are damaged" in second.message


async def test_nothing_is_read_while_the_engine_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[bool]
) -> None:
    """The background waits for a call of the engine, and goes on after it."""
    read: list[bytes] = []
    original = fsck.ShadowRepo.read

    def noted(repo: fsck.ShadowRepo, digest: bytes) -> tuple[str, bytes]:
        read.append(digest)
        return original(repo, digest)

    async with verified(tmp_path) as found:
        record = await found.take()
        found.break_blob(record, "f7")
        release = threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(found.checkpointer.call, lambda _: release.wait(LIMIT))
            await anyio.wait_all_tasks_blocked()
            assert found.checkpointer.is_in_use
            monkeypatch.setattr(fsck.ShadowRepo, "read", noted)
            asked.clear()
            found.verifier.note(record.sha)
            await eventually(lambda: len(asked) > 3)
            assert not found.warned.is_set()
            assert len(read) <= 1
            release.set()

        with limited():
            await found.warned.wait()

        assert len(read) > FILES


async def test_an_end_does_not_wait_for_a_verification(tmp_path: Path, asked: list[bool]) -> None:
    """A verification that cannot go on is abandoned with its task."""
    async with verified(tmp_path, runs=False) as found:
        record = await found.take()
        release = threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(found.checkpointer.call, lambda _: release.wait(LIMIT))
            await anyio.wait_all_tasks_blocked()
            found.verifier.note(record.sha)
            with limited():
                async with anyio.create_task_group() as another:
                    another.start_soon(found.verifier.run)
                    await eventually(lambda: any(asked))
                    another.cancel_scope.cancel()

            release.set()
