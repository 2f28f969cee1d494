"""The bounded queue between the pipes and the reader."""

from __future__ import annotations

import anyio

from hankweave_server.agents.base import AgentSaid
from hankweave_server.agents.process.stdio import ROOM, ROOM_IN_A_HURRY, Mailbox


async def test_a_full_mailbox_waits_for_its_reader() -> None:
    """A full mailbox drops nothing: `put` waits until the reader has made space."""
    mailbox = Mailbox()
    for number in range(ROOM):
        await mailbox.put([AgentSaid(str(number))])

    has_put = anyio.Event()

    async def put_one_more() -> None:
        await mailbox.put([AgentSaid("last")])
        has_put.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put_one_more)
        await anyio.wait_all_tasks_blocked()
        assert not has_put.is_set()
        taken = [await mailbox.take() for _ in range(ROOM + 1)]

    assert taken[-1] == [AgentSaid("last")]


async def test_in_a_hurry_no_sender_waits_and_memory_stays_bounded() -> None:
    """In hurried mode, items that do not fit are dropped."""
    mailbox = Mailbox()
    mailbox.hurry()
    for number in range(ROOM_IN_A_HURRY + 10):
        await mailbox.put([AgentSaid(str(number))])

    mailbox.close()
    taken = [batch async for batch in _all(mailbox)]
    assert len(taken) == ROOM_IN_A_HURRY


async def test_a_closed_mailbox_is_read_to_its_end() -> None:
    """Items put before the close are still delivered, then None."""
    mailbox = Mailbox()
    await mailbox.put([AgentSaid("a")])
    mailbox.close()
    assert await mailbox.take() == [AgentSaid("a")]
    assert await mailbox.take() is None


async def _all(mailbox: Mailbox):
    while (batch := await mailbox.take()) is not None:
        yield batch
