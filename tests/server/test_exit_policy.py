"""A server ends with its plan when no client needs it; it looks only when something has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from hankweave_protocol.ids import CodonId
from hankweave_server import app
from hankweave_server.app import ExitPolicy
from hankweave_server.execution.rollback.guard import TreeGuard
from hankweave_server.execution.runner import Outcome
from hankweave_server.settings import RunSettings
from support.waiting import limited


class Scene:
    """A plan, a rollback and clients, as the policy sees them."""

    def __init__(self) -> None:
        settings = RunSettings(hank=Path("hank.json"), data=None, unattended=True)
        self.clients, self.counts = 0, 0
        self.policy = ExitPolicy(settings, self._count)
        self.guard = TreeGuard(self.policy.recheck)
        self.runner = SimpleNamespace(is_busy=True, outcome=Outcome.WAITING, upcoming=None)
        self.ctx = SimpleNamespace(guard=self.guard, ledger=SimpleNamespace(subscribe=_subscribe))
        self.ended: list[Outcome] = []
        self.settled, self.settling, self.has_settled = anyio.Event(), 0, False
        self.settled.set()

    def _count(self) -> int:
        self.counts += 1
        return self.clients

    async def wait(self) -> None:
        policy = self.policy.wait(cast(Any, self.ctx), cast(Any, self.runner), self._settle)
        self.ended.append(await policy)

    async def _settle(self) -> None:
        self.settling += 1
        await self.settled.wait()
        self.has_settled = True

    async def is_settling(self, times: int) -> None:
        while self.settling < times:
            await anyio.lowlevel.checkpoint()

    async def change(self, **changes: object) -> None:
        """Change the runner or the number of clients, and let the policy look."""
        for name, value in changes.items():
            setattr(self if name == "clients" else self.runner, name, value)

        self.policy.recheck()
        await anyio.wait_all_tasks_blocked()


@contextmanager
def _subscribe(handle: object) -> Iterator[None]:
    yield


async def test_the_server_ends_when_nothing_needs_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not while a codon or a rollback runs, more of the plan is to come, or a client is there."""
    monkeypatch.setattr(app, "LINGER", 0.0)
    scene = Scene()
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.wait)
            await scene.change(clients=1)
            await scene.change(is_busy=False)
            await scene.change(outcome=Outcome.COMPLETED, upcoming=CodonId("next"))
            await scene.change(upcoming=None)
            with scene.guard.rolling_back():
                await scene.change(clients=0)
                assert not scene.ended

    assert scene.ended == [Outcome.COMPLETED]


async def test_a_client_that_comes_in_time_keeps_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time that the server lingers begins anew when the client has left."""
    monkeypatch.setattr(app, "LINGER", 3600.0)
    scene = Scene()
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.wait)
            await scene.change(is_busy=False, outcome=Outcome.FAILED)
            await scene.change(clients=1)
            monkeypatch.setattr(app, "LINGER", 0.0)
            assert not scene.ended
            await scene.change(clients=0)

    assert scene.ended == [Outcome.FAILED]


async def test_a_server_at_rest_does_not_poll() -> None:
    """It looks once for each change."""
    scene = Scene()
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.wait)
            await scene.change(clients=1, is_busy=False, outcome=Outcome.COMPLETED)
            counts = scene.counts
            for _ in range(1_000):
                await anyio.lowlevel.checkpoint()

            assert scene.counts == counts
            await scene.change()
            assert scene.counts == counts + 1
            tasks.cancel_scope.cancel()


async def test_the_server_ends_when_features_have_done_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that comes meanwhile keeps the server, and it is all waited for again."""
    monkeypatch.setattr(app, "LINGER", 0.0)
    scene = Scene()
    scene.settled = anyio.Event()
    with limited():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.wait)
            await scene.change(is_busy=False, outcome=Outcome.COMPLETED)
            await scene.is_settling(1)
            await scene.change(clients=1)
            await scene.change(clients=0)
            await scene.is_settling(2)
            assert not scene.ended
            assert not scene.has_settled
            scene.settled.set()

    assert scene.ended == [Outcome.COMPLETED]
    assert scene.has_settled
