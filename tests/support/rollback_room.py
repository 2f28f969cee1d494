"""An execution with a rollback to perform, in one process: components and disk are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel

from hankweave_protocol.events import (
    EventData,
    RollbackFailed,
)
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.clock import SystemClock
from hankweave_server.domain import targets
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.context import ExecutionContext, HankRecord
from hankweave_server.execution.recovery import Recovery
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Runner
from hankweave_server.hank.load import load
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.running_server import journal
from support.scripted_hank import codon, write_hank
from support.waiting import limited


@dataclass
class Room:
    """A new execution with one file in its initial checkpoint, whose text has changed since."""

    ctx: ExecutionContext
    engine: CheckpointEngine
    runner: Runner
    rollback: Rollback
    recovery: Recovery

    @property
    def file(self) -> Path:
        return self.ctx.layout.work_tree / "a.txt"

    @property
    def journey(self) -> RollbackRequest:
        known = self.ctx.checkpointer.known
        return RollbackRequest(targets.last_success(self.ctx.state, known))

    @property
    def is_intended(self) -> bool:
        return self.ctx.layout.rollback_intent.exists()

    async def events_of(self, kind: type[EventData]) -> list[EventData]:
        await self.ctx.ledger.flush()
        events = journal(self.ctx.layout.root)
        return [event.data for event in events if isinstance(event.data, kind)]

    async def failures(self) -> list[str]:
        await self.ctx.ledger.flush()
        events = journal(self.ctx.layout.root)
        return [event.data.message for event in events if isinstance(event.data, RollbackFailed)]


@asynccontextmanager
async def a_room(tmp_path: Path, *others: str) -> AsyncIterator[Room]:
    """Open an execution with a file that has changed since its first checkpoint, and others."""
    write_hank(tmp_path / "hank", codon("one"))
    layout = Layout.of_execution(tmp_path / "execution")
    layout.work_tree.mkdir(parents=True)
    for name in ("a.txt", *others):
        (layout.work_tree / name).write_text("first")

    async with served(tmp_path) as room:
        room.file.write_text("second")
        yield room


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[Room]:
    """Open the execution in this folder; what a crash left of it is not recovered yet."""
    hank = tmp_path / "hank" / "hank.json"
    layout, clock = Layout.of_execution(tmp_path / "execution"), SystemClock()
    engine = CheckpointEngine.open(layout)
    ledger = await Ledger.open(layout, clock)
    loaded = load(hank)
    ctx = ExecutionContext(
        layout=layout,
        clock=clock,
        ledger=ledger,
        checkpointer=Checkpointer(engine, ledger, clock),
        hank=loaded,
        recorded=HankRecord(loaded.hank, ledger.redactor),
        agent_for=lambda codon: ScriptedAgent(),
        started_monotonic=clock.monotonic(),
    )
    runner = Runner(ctx, autostart=False)
    rollback = Rollback(ctx, runner)
    try:
        with limited():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ledger.run)
                tasks.start_soon(ledger.space.watch)
                ledger.space.be_patient()
                recovery = Recovery(ctx, runner, rollback, frozenset())
                await ctx.checkpointer.load()
                if not ctx.state.runs:
                    await recovery.begin_if_new()

                yield Room(ctx, engine, runner, rollback, recovery)
                ledger.space.give_up()
                await ledger.aclose()
                tasks.cancel_scope.cancel()
    finally:
        engine.close()
