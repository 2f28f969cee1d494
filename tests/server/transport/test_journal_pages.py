"""Journal lines are read once for all clients, in a thread, and the cache of them is bounded."""

from __future__ import annotations

import random
import threading

import anyio
import pytest

from hankweave_server.transport.frames import BLOCK_BYTES, LINE_BYTES, JournalPages, settled
from support.waiting import limited

PAGE = 10


class Lines:
    """A journal in memory that counts the pages read from it."""

    def __init__(self, count: int, size: int = 20) -> None:
        self.lines = [str(seq).encode().ljust(size, b".") for seq in range(1, count + 1)]
        self.reads = 0

    def read(self, since: int) -> list[bytes]:
        self.reads += 1
        return self.lines[since : since + PAGE]


async def whole(pages: JournalPages, seq: int) -> bytes:
    return await settled(pages.part(seq, 0, await settled(pages.size(seq))))


async def test_a_page_is_read_once_for_all_clients() -> None:
    """A hundred positions that advance together cost as many reads as one."""
    journal = Lines(100)
    pages = JournalPages(journal.read)
    for seq in range(1, 101):
        assert {await whole(pages, seq) for _ in range(100)} == {journal.lines[seq - 1]}

    assert journal.reads == 10


async def test_clients_that_begin_at_different_events_share_pages() -> None:
    """Lines that one client has read are not read again for another, wherever it starts."""
    journal = Lines(100)
    pages = JournalPages(journal.read)
    for since in range(5):
        assert [await whole(pages, seq) for seq in range(since + 1, 101)] == journal.lines[since:]

    assert journal.reads == 10


async def test_what_is_kept_is_bounded_and_the_rest_is_read_again() -> None:
    """For positions all over a long journal, each line is right, and few stay in memory."""
    journal, dice = Lines(2_000, size=100), random.Random(4)
    pages = JournalPages(journal.read, kept_bytes=5_000)
    for _ in range(3_000):
        seq = dice.randint(1, 2_000)
        assert await whole(pages, seq) == journal.lines[seq - 1]
        assert pages._bytes <= 5_000

    assert len(pages._lines) == 5_000 // (100 + LINE_BYTES)


async def test_a_line_longer_than_all_that_is_kept_can_be_read() -> None:
    journal = Lines(3, size=1_000)
    pages = JournalPages(journal.read, kept_bytes=10)
    assert [await whole(pages, seq) for seq in (1, 2, 3)] == journal.lines


async def test_an_event_that_the_journal_does_not_have_is_an_error() -> None:
    with pytest.raises(LookupError, match="no event 4"):
        await settled(JournalPages(Lines(3).read).size(4))


async def test_a_batch_ends_with_the_number_or_the_bytes_that_it_may_have() -> None:
    """A batch has at least one line, however long that line is."""
    pages = JournalPages(Lines(100).read)
    assert await settled(pages.batch(0, 100, most=7, most_bytes=1_000)) == range(1, 8)
    assert await settled(pages.batch(0, 100, most=50, most_bytes=100)) == range(1, 6)
    assert await settled(pages.batch(97, 100, most=50, most_bytes=100)) == range(98, 101)
    assert await settled(pages.batch(0, 100, most=50, most_bytes=1)) == range(1, 2)
    assert not await settled(pages.batch(0, 0, most=50, most_bytes=100))


class Long:
    """A long line that notes what is read of it."""

    size = 2 * BLOCK_BYTES + 1_000

    def __init__(self) -> None:
        self.read_at: list[int] = []

    def read(self, at: int, most: int) -> bytes:
        self.read_at.append(at)
        return b"x" * min(most, self.size - at)


async def test_a_long_line_is_made_into_what_is_sent_as_a_whole() -> None:
    """A long line is read once and its result is cached, be it no bytes or other bytes."""
    line = Long()
    pages = JournalPages(lambda since: [line], lambda whole: whole[:5])
    parts = [await settled(pages.part(1, at, 9)) for at in (0, 3)]
    assert (parts, line.read_at) == ([b"xxxxx", b"xx"], [0])
    assert await settled(JournalPages(lambda since: [line], lambda whole: None).size(1)) == 0


async def test_a_long_line_is_read_by_blocks_and_never_kept_as_a_whole() -> None:
    """A block is read when it is needed, once for all clients; what is kept stays bounded."""
    line = Long()
    pages = JournalPages(lambda since: [line], kept_bytes=BLOCK_BYTES + 2 * LINE_BYTES)
    for _ in range(100):
        assert await settled(pages.part(1, 5, 10)) == b"x" * 10

    assert line.read_at == [0]
    ends = (BLOCK_BYTES - 1, BLOCK_BYTES, line.size - 1, line.size)
    assert [len(await settled(pages.part(1, at, 10))) for at in ends] == [1, 10, 1, 0]
    assert line.read_at == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    assert pages._bytes <= BLOCK_BYTES + 2 * LINE_BYTES


async def test_the_event_loop_reads_nothing_and_many_clients_read_once() -> None:
    """While a read is slow, all else goes on; clients that need the same page share the read."""
    journal, readers = Lines(100), list[threading.Thread]()
    may_read = threading.Event()

    def read(since: int) -> list[bytes]:
        readers.append(threading.current_thread())
        assert may_read.wait(60)
        return journal.read(since)

    pages, found = JournalPages(read), list[bytes]()

    async def client(seq: int) -> None:
        found.append(await whole(pages, seq))

    with limited():
        async with anyio.create_task_group() as clients:
            for seq in (1, 1, 2, 3):
                clients.start_soon(client, seq)

            await anyio.wait_all_tasks_blocked()
            may_read.set()

    assert sorted(found) == sorted(journal.lines[seq - 1] for seq in (1, 1, 2, 3))
    assert len(readers) == 1
    assert threading.main_thread() not in readers
