"""The coordinate of a checkpoint: its position in the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hankweave_protocol.events import Info
from hankweave_protocol.transitions import RunStarted
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout
from support.components import by_hand, components
from support.git_facts import GitWitness
from support.histories import SteppingClock, a_run

RUN = a_run()


@asynccontextmanager
async def a_checkpointer(layout: Layout) -> AsyncIterator[tuple[Ledger, Checkpointer]]:
    """Return a checkpointer of an execution with a started run and one event."""
    async with components(layout, SteppingClock()) as found:
        await found.ledger.record(RunStarted(run=RUN))
        yield found.ledger, found.checkpointer


async def test_a_checkpoint_comes_after_all_that_was_decided_before_it(tmp_path: Path) -> None:
    """Posted events that are not yet on disk are flushed before the commit.

    A view of the checkpoint shows the state after that event, and would otherwise lack the rest.
    """
    layout = Layout.of_execution(tmp_path)
    async with a_checkpointer(layout) as (ledger, checkpointer):
        for number in range(3):
            ledger.leave(Info(message=str(number)))

        assert ledger.last_seq == 1, "nothing of it is durable yet"
        record = await by_hand(checkpointer, RUN.run_id)
        again = await by_hand(checkpointer, RUN.run_id)

    assert record.coordinate.event_seq == 4
    assert again.coordinate.event_seq == 5, "the first checkpoint is an event, too"
    message = GitWitness(tmp_path).run("log", "-1", "--format=%B", record.sha)
    assert "Event-Seq: 4" in message.splitlines()


async def test_a_checkpoint_is_announced_once_it_is_recorded(tmp_path: Path) -> None:
    """Callbacks run for each checkpoint, in the order of their registration."""
    calls: list[str] = []
    async with a_checkpointer(Layout.of_execution(tmp_path)) as (ledger, checkpointer):
        checkpointer.when_taken(lambda _taken: calls.append(f"first {ledger.last_seq}"))
        checkpointer.when_taken(lambda taken: calls.append(f"second {taken.kind}"))
        await by_hand(checkpointer, RUN.run_id)
        assert calls == ["first 2", "second manual"]
