"""Permission requests of an agent that withdraws them, or fails while they are pending."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from hankweave_protocol.events import PermissionRequested, PermissionResolved
from hankweave_protocol.hank import Permissions
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.agents.base import (
    AgentSession,
    AgentUnkillable,
    Granted,
    PermissionAsked,
    PermissionWithdrawn,
    Verdict,
)
from hankweave_server.clock import SystemClock
from hankweave_server.domain.permissions import PermissionVerdict
from hankweave_server.execution.codon.permissions import Permits
from hankweave_server.execution.context import PendingPermissions
from support.waiting import limited

ASKED = PermissionAsked("r1", "Bash", {"command": "ls"})


class Room:
    """A test bench of pending requests, a list of events, and an agent that gets answers."""

    def __init__(self, work_tree: Path) -> None:
        self.permission_requests = PendingPermissions()
        self.journal: list[Any] = []
        self.answers: list[Verdict] = []
        ctx = SimpleNamespace(
            clock=SystemClock(),
            permission_requests=self.permission_requests,
            state=EMPTY_STATE,
            layout=SimpleNamespace(work_tree=work_tree),
            ledger=SimpleNamespace(record=self._record),
        )
        entry = SimpleNamespace(codon_id=CodonId("one"))
        record = SimpleNamespace(entry=entry, run_id=RunId("run"), append=self._record)
        permissions = Permissions(otherwise="ask")
        self.permits = Permits(cast(Any, ctx), cast(Any, record), permissions, anyio.Lock())
        self.session = cast(AgentSession, SimpleNamespace(answer=self._answer))

    async def _record(self, event: Any, **_: Any) -> None:
        self.journal.append(event)

    async def _answer(self, _asked: PermissionAsked, verdict: Verdict) -> None:
        self.answers.append(verdict)


async def test_what_is_asked_by_the_name_of_a_withdrawn_request_is_another(tmp_path: Path) -> None:
    """A request that reuses the id of a withdrawn one is separate, and gets its own answer."""
    room = Room(tmp_path)
    with limited():
        async with room.permits.handling() as tasks:
            for signal in (ASKED, PermissionWithdrawn("r1"), ASKED):
                await room.permits.handle(signal, room.session, tasks)

            (left,) = room.permission_requests.pending
            await room.permission_requests.answer(
                left.request_id, PermissionVerdict("allow", "client")
            )

    assert room.answers == [Granted()]
    requests = [each for each in room.journal if isinstance(each, PermissionRequested)]
    resolved = [each for each in room.journal if isinstance(each, PermissionResolved)]
    assert [(each.request_id, each.by) for each in resolved] == [
        (requests[0].request_id, "ended"),
        (requests[1].request_id, "client"),
    ]


async def test_nothing_waits_any_more_once_an_agent_has_failed(tmp_path: Path) -> None:
    """Whatever ended the agent, a request that cannot be settled is neither listed nor answered."""
    room = Room(tmp_path)

    async def fail() -> None:
        async with room.permits.handling() as tasks:
            await room.permits.handle(ASKED, room.session, tasks)
            await anyio.wait_all_tasks_blocked()
            raise AgentUnkillable((1,))

    with limited(), pytest.raises(AgentUnkillable):
        await fail()

    assert room.permission_requests.pending == ()
    assert room.answers == []
