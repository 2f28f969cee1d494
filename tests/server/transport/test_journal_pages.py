"""Journal lines are read once for all clients, and the cache of them is bounded."""

from __future__ import annotations

import random

import pytest

from hankweave_server.transport.frames import LINE_BYTES, JournalPages

PAGE = 10


class Lines:
    """A journal in memory that counts the pages read from it."""

    def __init__(self, count: int, size: int = 20) -> None:
        self.lines = [str(seq).encode().ljust(size, b".") for seq in range(1, count + 1)]
        self.reads = 0

    def read(self, since: int) -> list[bytes]:
        self.reads += 1
        return self.lines[since : since + PAGE]


def whole(pages: JournalPages, seq: int) -> bytes:
    return pages.part(seq, 0, pages.size(seq))


def test_a_page_is_read_once_for_all_clients() -> None:
    """A hundred positions that advance together cost as many reads as one."""
    journal = Lines(100)
    pages = JournalPages(journal.read)
    for seq in range(1, 101):
        assert {whole(pages, seq) for _ in range(100)} == {journal.lines[seq - 1]}

    assert journal.reads == 10


def test_clients_that_begin_at_different_events_share_pages() -> None:
    """Lines that one client has read are not read again for another, wherever it starts."""
    journal = Lines(100)
    pages = JournalPages(journal.read)
    for since in range(5):
        assert [whole(pages, seq) for seq in range(since + 1, 101)] == journal.lines[since:]

    assert journal.reads == 10


def test_what_is_kept_is_bounded_and_the_rest_is_read_again() -> None:
    """For positions all over a long journal, each line is right, and few stay in memory."""
    journal, dice = Lines(2_000, size=100), random.Random(4)
    pages = JournalPages(journal.read, kept_bytes=5_000)
    for _ in range(3_000):
        seq = dice.randint(1, 2_000)
        assert whole(pages, seq) == journal.lines[seq - 1]
        assert pages._bytes <= 5_000

    assert len(pages._lines) == 5_000 // (100 + LINE_BYTES)


def test_a_line_longer_than_all_that_is_kept_can_be_read() -> None:
    journal = Lines(3, size=1_000)
    pages = JournalPages(journal.read, kept_bytes=10)
    assert [whole(pages, seq) for seq in (1, 2, 3)] == journal.lines


def test_an_event_that_the_journal_does_not_have_is_an_error() -> None:
    with pytest.raises(LookupError, match="no event 4"):
        JournalPages(Lines(3).read).size(4)


def test_a_batch_ends_with_the_number_or_the_bytes_that_it_may_have() -> None:
    """A batch has at least one line, however long that line is."""
    pages = JournalPages(Lines(100).read)
    assert pages.batch(0, 100, most=7, most_bytes=1_000) == range(1, 8)
    assert pages.batch(0, 100, most=50, most_bytes=100) == range(1, 6)
    assert pages.batch(97, 100, most=50, most_bytes=100) == range(98, 101)
    assert pages.batch(0, 100, most=50, most_bytes=1) == range(1, 2)
    assert not pages.batch(0, 0, most=50, most_bytes=100)


def test_a_long_line_is_made_into_what_is_sent_as_a_whole() -> None:
    """A long line is read once and its result is cached, be it no bytes or other bytes."""

    class Long:
        size = 100_000
        reads = 0

        def read(self, at: int, most: int) -> bytes:
            self.reads += 1
            return b"x" * most

    line = Long()
    pages = JournalPages(lambda since: [line], lambda whole: whole[:5])
    assert [pages.part(1, 0, 9), pages.part(1, 3, 9), line.reads] == [b"xxxxx", b"xx", 1]
    assert JournalPages(lambda since: [line], lambda whole: None).size(1) == 0
