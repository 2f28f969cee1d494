"""The bounded queue between the pipes and the reader."""

from __future__ import annotations

import anyio

from hankweave_server.agents.base import AgentSaid
from hankweave_server.agents.process.stdio import CAPACITY, NONBLOCKING_CAPACITY, SignalQueue


async def test_a_full_mailbox_waits_for_its_reader() -> None:
    """A full mailbox drops nothing: `put` waits until the reader has made space."""
    queue = SignalQueue()
    for number in range(CAPACITY):
        await queue.put([AgentSaid(str(number))])

    has_put = anyio.Event()

    async def put_one_more() -> None:
        await queue.put([AgentSaid("last")])
        has_put.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put_one_more)
        await anyio.wait_all_tasks_blocked()
        assert not has_put.is_set()
        taken = [await queue.take() for _ in range(CAPACITY + 1)]

    assert taken[-1] == [AgentSaid("last")]


async def test_in_a_hurry_no_sender_waits_and_memory_stays_bounded() -> None:
    """In hurried mode, items that do not fit are dropped."""
    queue = SignalQueue()
    queue.stop_blocking()
    for number in range(NONBLOCKING_CAPACITY + 10):
        await queue.put([AgentSaid(str(number))])

    queue.close()
    taken = [batch async for batch in _all(queue)]
    assert len(taken) == NONBLOCKING_CAPACITY


async def test_a_closed_mailbox_is_read_to_its_end() -> None:
    """Items put before the close are still delivered, then None."""
    queue = SignalQueue()
    await queue.put([AgentSaid("a")])
    queue.close()
    assert await queue.take() == [AgentSaid("a")]
    assert await queue.take() is None


async def _all(queue: SignalQueue):
    while (batch := await queue.take()) is not None:
        yield batch
