"""Calls of the engine run one at a time, and decide in the same call as they act."""

from __future__ import annotations

import threading

import anyio
import msgspec
import pytest

from hankweave_server.checkpoints.errors import CheckpointNotFound
from hankweave_server.execution.checkpoint_access import CheckpointAccess
from hankweave_server.meter import UNWATCHED
from hankweave_server.paths import Layout
from support.waiting import LIMIT, limited


class Held:
    """An engine call that blocks until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()
        self.is_over = False

    def __call__(self, *_: object) -> None:
        self.begun.set()
        self.release.wait(LIMIT)
        self.is_over = True

    async def has_begun(self) -> None:
        await anyio.to_thread.run_sync(self.begun.wait, LIMIT)


@pytest.fixture
def held(lab, monkeypatch):
    held = Held()
    monkeypatch.setattr(lab.engine, "tip", held)
    yield held
    held.release.set()


async def test_a_cancelled_caller_leaves_when_its_call_has_ended(lab, held):
    """A cancelled call runs to its end, and the next caller waits for it."""
    access = CheckpointAccess(lab.engine)
    was_over: list[bool] = []

    async def call(scope: anyio.CancelScope) -> None:
        with scope:
            await access.call(lambda engine: engine.tip("r"))

        was_over.append(held.is_over)

    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, called := anyio.CancelScope())
            await held.has_begun()
            called.cancel()
            await anyio.wait_all_tasks_blocked()
            assert was_over == []
            held.release.set()

    assert was_over == [True]
    assert not access.is_waited_for


async def test_what_was_pruned_while_its_caller_waited_is_not_found(lab, held, tmp_path):
    """A checkpoint pruned while a plan, clone or pin was queued raises CheckpointNotFound."""
    lab.write("a", "1")
    sha = lab.checkpoint().sha
    access = CheckpointAccess(lab.engine)
    await access.load()
    pinned = msgspec.structs.replace(access.known[sha], pinned=True)
    found: list[object] = []

    async def plan() -> None:
        with pytest.raises(CheckpointNotFound):
            await access.plan_restore(sha, lambda: ("**",), None, UNWATCHED, frozenset())

        found.append("plan")

    async def clone() -> None:
        with pytest.raises(CheckpointNotFound):
            await access.clone(
                sha,
                Layout.of_execution(tmp_path / "copy"),
                before_copy=found.append,
                should_stop=lambda: False,
                meter=UNWATCHED,
            )

        found.append("clone")

    async def pin() -> None:
        found.append(await access.pin(pinned))

    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(access.call, lambda engine: engine.tip("r"))
            await held.has_begun()
            for work in (plan, clone, pin):
                tasks.start_soon(work)

            await anyio.wait_all_tasks_blocked()
            assert access.is_waited_for
            del access.known[sha]
            held.release.set()

    assert found == ["plan", "clone", False]
    assert lab.engine.pins.all() == {}
    assert sha not in access.known
