"""An execution with a rollback to perform, in one process: components and disk are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hankweave_protocol.commands import RollbackUndo
from hankweave_protocol.events import (
    EventData,
    RollbackFailed,
)
from hankweave_protocol.records import RollbackReport
from hankweave_server.api.rollback import Rollbacks
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.domain import targets
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.recovery import Recovery
from hankweave_server.execution.rollback.planner import RollbackRequest
from hankweave_server.execution.rollback.rollback import Rollback
from hankweave_server.execution.runner import Runner
from hankweave_server.paths import Layout
from support.callers import A_REQUEST
from support.components import components
from support.scripted_hank import codon, write_hank
from support.waiting import limited
from support.watching import events_of


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
    def rollback_request(self) -> RollbackRequest:
        known = self.ctx.checkpointer.known
        return RollbackRequest(targets.last_success(self.ctx.state, known))

    @property
    def is_intended(self) -> bool:
        return self.ctx.layout.rollback_intent.exists()

    async def undo(self) -> RollbackReport:
        return await Rollbacks(self.ctx, self.rollback).undo_or_redo(RollbackUndo(), A_REQUEST)

    async def events_of(self, kind: type[EventData]) -> list[Any]:
        await self.ctx.ledger.flush()
        return events_of(self.ctx.layout.root, kind)

    async def failures(self) -> list[str]:
        return [event.message for event in await self.events_of(RollbackFailed)]


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
    layout = Layout.of_execution(tmp_path / "execution")
    with limited():
        async with components(layout) as found:
            ctx = found.context(hank)
            runner = Runner(ctx, autostart=False)
            rollback = Rollback(ctx, runner)
            recovery = Recovery(ctx, runner, rollback, frozenset())
            found.tasks.start_soon(found.ledger.space.watch)
            found.ledger.space.allow_waiting()
            await ctx.checkpointer.load()
            if not ctx.state.runs:
                await recovery.begin_if_new()

            yield Room(ctx, found.engine, runner, rollback, recovery)
            found.ledger.space.give_up()
