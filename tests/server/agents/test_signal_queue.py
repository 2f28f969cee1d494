"""The bounded queue between the pipes and the reader."""

from __future__ import annotations

import anyio

from hankweave_server.agents.base import AgentSaid
from hankweave_server.agents.process.stdio import CAPACITY, LARGE_CAPACITY, SignalQueue


async def test_a_full_queue_waits_for_its_reader() -> None:
    """A full queue drops nothing: `put` waits until the reader has made space."""
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


async def test_a_queue_that_does_not_block_stays_bounded() -> None:
    """Batches that do not fit are dropped."""
    queue = SignalQueue()
    queue.stop_blocking()
    for number in range(LARGE_CAPACITY + 10):
        await queue.put([AgentSaid(str(number))])

    queue.close()
    taken = [batch async for batch in _all(queue)]
    assert len(taken) == LARGE_CAPACITY


async def test_a_closed_queue_is_read_to_its_end() -> None:
    """Items put before the close are still delivered, then None."""
    queue = SignalQueue()
    await queue.put([AgentSaid("a")])
    queue.close()
    assert await queue.take() == [AgentSaid("a")]
    assert await queue.take() is None


async def test_a_reader_that_waits_for_signals_lets_more_of_them_in() -> None:
    """They stay in the queue. The wait ends with a condition, a close, or a queue that is full."""
    queue = SignalQueue()
    await queue.wait_until(lambda: True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.wait_until, lambda: len(queue.waiting) == 2 * CAPACITY)
        tasks.start_soon(queue.wait_until, lambda: False)
        for number in range(LARGE_CAPACITY):
            await queue.put([AgentSaid(str(number))])

    assert list(queue.waiting) == [AgentSaid(str(number)) for number in range(LARGE_CAPACITY)]
    await queue.take()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.wait_until, lambda: False)
        await anyio.wait_all_tasks_blocked()
        queue.close()


async def _all(queue: SignalQueue):
    while (batch := await queue.take()) is not None:
        yield batch
