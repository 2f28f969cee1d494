"""The components of a server's execution, in the process of a test: files and journal are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from hankweave_protocol.events import ErrorEvent
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.context import ExecutionContext, HankRecord
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.hank.load import load
from hankweave_server.ledger.batch import Published
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout


@dataclass
class Components:
    layout: Layout
    clock: Clock
    engine: CheckpointEngine
    ledger: Ledger
    checkpointer: Checkpointer
    tasks: anyio.abc.TaskGroup

    def context(self, hank: Path, **fields: Any) -> ExecutionContext:
        """Return the context of a hank, with the scripted agent unless `fields` has another."""
        loaded = load(hank)
        defaults: dict[str, Any] = {"agent_for": lambda codon: ScriptedAgent()}
        return ExecutionContext(
            layout=self.layout,
            clock=self.clock,
            ledger=self.ledger,
            checkpointer=self.checkpointer,
            hank=loaded,
            recorded=HankRecord(loaded.hank, self.ledger.redactor),
            started_monotonic=self.clock.monotonic(),
            **(defaults | fields),
        )


@asynccontextmanager
async def components(
    layout: Layout,
    clock: Clock | None = None,
    *,
    watches: bool = False,
    quiet: Quiet | None = None,
) -> AsyncIterator[Components]:
    """Open the checkpoints and the journal of an execution, whose ledger runs."""
    layout.work_tree.mkdir(parents=True, exist_ok=True)
    clock = clock or SystemClock()
    engine = CheckpointEngine.open(layout, watches=watches)
    ledger = await Ledger.open(layout, clock)
    checkpointer = Checkpointer(engine, ledger, clock, quiet=quiet)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ledger.run)
            yield Components(layout, clock, engine, ledger, checkpointer, tasks)
            await ledger.aclose()
            tasks.cancel_scope.cancel()
    finally:
        engine.close()


async def by_hand(
    checkpointer: Checkpointer, run_id: RunId, kind: CheckpointKind = "manual"
) -> CheckpointRecord:
    """Take a checkpoint of all files."""
    return await checkpointer.take(
        kind, run_id=run_id, codon=None, codon_name="Manual", patterns=("**",)
    )


@dataclass
class ErrorsSeen:
    """The error events of a journal, for a subscriber of its ledger."""

    events: list[ErrorEvent] = field(default_factory=list)
    news: anyio.Event = field(default_factory=anyio.Event)

    def handle(self, published: Published) -> None:
        if isinstance(published.event.data, ErrorEvent):
            self.events.append(published.event.data)
            self.news.set()
