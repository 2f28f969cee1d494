"""The line index finds lines by number at any line size and takes little memory."""

from __future__ import annotations

import threading
import tracemalloc
from itertools import accumulate, repeat

from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.ledger.journal import BYTES_APART, LINES_APART, Bookmarks

SIZES = st.lists(st.integers(1, 200) | st.sampled_from([BYTES_APART - 1, BYTES_APART, 1 << 20]))


@given(st.lists(SIZES), st.integers(-2, 500), st.none() | st.integers(-1, 500))
def test_every_stretch_is_found_within_its_bookmarks(
    batches: list[list[int]], since: int, limit: int | None
) -> None:
    """A range contains the requested lines and few others."""
    sizes = [size for batch in batches for size in batch]
    marks = Bookmarks()
    for batch in batches:
        marks.extend(batch)

    ends = list(accumulate(sizes, initial=0))
    asked = range(len(sizes))[max(since, 0) :][: None if limit is None else max(limit, 0)]
    found = marks.find(since, limit)
    assert (marks.lines, marks.size, found.count) == (len(sizes), sum(sizes), len(asked))
    if not asked:
        return

    first = asked.start - found.skipped
    assert found.begin == ends[first]
    assert found.end in ends
    assert found.end >= ends[asked.stop]
    assert found.skipped < LINES_APART
    assert ends[asked.start] - found.begin < BYTES_APART
    assert found.end - ends[asked.stop] <= BYTES_APART + max(sizes)


@given(SIZES, st.integers(0, 500), st.sampled_from([1, BYTES_APART, 4 * BYTES_APART]))
def test_a_page_is_about_as_long_as_asked_and_never_empty(
    sizes: list[int], since: int, most: int
) -> None:
    """Consecutive pages hold each line once; only a long line makes a page longer."""
    marks = Bookmarks()
    marks.extend(sizes)
    while since < len(sizes):
        count = marks.page_after(since, most)
        assert 0 < count <= len(sizes) - since
        read = marks.find(since, count)
        assert read.end - read.begin <= max(most, BYTES_APART + max(sizes))
        since += count

    assert marks.page_after(since, most) == 0


def test_two_million_events_take_two_megabytes() -> None:
    """The index of two million lines, more than a gigabyte of output, takes about two megabytes."""
    tracemalloc.start()
    try:
        marks = Bookmarks()
        marks.extend(repeat(600, 2_000_000))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert marks.find(1_999_999, 1).end == 600 * 2_000_000
    assert kept < 9 << 18


def test_a_reader_sees_whole_lines_while_lines_are_added() -> None:
    """A reader in another thread never gets a range that ends beyond the lines that exist."""
    marks = Bookmarks()
    marks.extend(repeat(10, 1_000))
    wrong: list[object] = []
    is_over = threading.Event()

    def find_repeatedly() -> None:
        while not is_over.is_set():
            stretch = marks.find(1_000, None)
            if stretch.end != 10 * (1_000 + stretch.count):
                wrong.append(stretch)

    reader = threading.Thread(target=find_repeatedly)
    reader.start()
    for _ in range(2_000):
        marks.extend(repeat(10, 50))

    is_over.set()
    reader.join()
    assert wrong == []
