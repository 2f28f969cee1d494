"""Claims about a journal that is searched: the same lines, from a few reads of any length."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from hankweave_server.ledger import searched_journal
from hankweave_server.ledger.journal import JournalCorrupt
from hankweave_server.ledger.searched_journal import SearchedJournal, of_types
from support.calls import noted

LONGEST = 300_000
"""Bytes of the longest lines: more than is read at once."""

Lay = Callable[[list[bytes]], SearchedJournal]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Return what writes lines, the last one perhaps without its end, and opens the journal."""

    def lay(lines: list[bytes], tail: bytes = b"") -> SearchedJournal:
        path = tmp_path / "events.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines) + tail)
        return SearchedJournal(path, os.open(path, os.O_RDONLY))

    return lay


def a_line(seq: int, kind: str = "info", filling: int = 10) -> bytes:
    return b'{"id":"%d","seq":%d,"type":"%s","data":"%s"}' % (
        seq,
        seq,
        kind.encode(),
        b"x" * filling,
    )


def of_many_sizes(count: int, seed: int) -> list[bytes]:
    """Return lines whose sizes differ so much that seqs say little about offsets."""
    draw = Random(seed)
    sizes = (0, 1, 50, 500, 5_000, LONGEST)
    return [
        a_line(seq, filling=draw.choices(sizes, (9, 9, 9, 9, 2, 0.05))[0])
        for seq in range(1, count + 1)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_any_lines_are_found_whatever_their_sizes(lay: Lay, seed: int) -> None:
    """Every stretch is the one that reading all lines would give, in any order of reading."""
    lines, draw = of_many_sizes(1_500, seed), Random(seed)
    with closing(lay(lines)) as journal:
        assert journal.last_seq == len(lines)
        for _ in range(60):
            since, limit = draw.randrange(-1, 1_600), draw.choice((0, 1, 2, 20, 900, None))
            first = max(since, 0)
            until = None if limit is None else first + limit
            assert journal.read(since, limit) == lines[first:until]

        journal.check()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_short_journal_is_no_exception(lay: Lay, count: int) -> None:
    """A journal without events has no lines, and one with few has all of them."""
    with closing(lay(of_many_sizes(count, 0))) as journal:
        assert journal.read(0) == of_many_sizes(count, 0)
        assert journal.last_seq == count


def test_a_long_journal_costs_a_few_reads(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends and the middle of a journal are read without what lies between."""
    lines = [a_line(seq, filling=400) for seq in range(1, 50_001)]
    reads = noted(monkeypatch, searched_journal, "pread_all")
    with closing(lay(lines)) as journal:
        for since in (0, 49_980, 25_000, 12_345):
            assert journal.read(since, 20) == lines[since : since + 20]

    assert sum(count for _, count, _ in reads) < sum(map(len, lines)) / 4


@pytest.mark.parametrize(
    "tail", [b"", b'{"id":"4","seq":4,"ty', b"\0" * 200_000, b"\0\0\0\n\0\0", b"garbage\ngarbage\n"]
)
def test_what_was_never_published_is_left_out(
    lay: Callable[..., SearchedJournal], tail: bytes
) -> None:
    """A journal ends with its last whole event, whatever a crash left after it."""
    lines = of_many_sizes(3, 1)
    with closing(lay(lines, tail)) as journal:
        assert (journal.last_seq, journal.read(0)) == (3, lines)
        assert [line for _, line in journal.backward(of_types(["info"]))] == lines[::-1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:6], b"garbage", *lines[6:]],
        lambda lines: [*lines[:6], *lines[7:]],
        lambda lines: [*lines[:6], lines[5], *lines[6:]],
        lambda lines: [*lines[:6], lines[6][:-1], *lines[7:]],
    ],
    ids=["inserted", "missing", "twice", "cut"],
)
def test_each_reader_of_damage_names_it(
    lay: Lay, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Lines before and after it are read; a reading over it names the first bad line."""
    lines = of_many_sizes(40, 2)
    with closing(lay(damage(lines))) as journal:
        assert journal.read(0, 6) == lines[:6]
        assert journal.read(30, 5) == lines[30:35]
        for reading in (journal.check, lambda: journal.read(3, 10)):
            with pytest.raises(JournalCorrupt, match="line 7"):
                reading()


def test_events_of_a_type_are_found_from_the_end(lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end at lines, so that no event is missed or found twice; damage is yielded, too."""
    monkeypatch.setattr(searched_journal, "_BLOCK", 1_000)
    draw = Random(3)
    lines = [
        a_line(seq, draw.choice(("info", "error", "other")), draw.choice((5, 50, 3_000)))
        for seq in range(1, 400)
    ]
    lines[100] = b"garbage"
    words = of_types(["info", "error"])
    wanted = [line for line in lines if b"info" in line or b"error" in line or line == b"garbage"]
    with closing(lay(lines)) as journal:
        found = list(journal.backward(words, with_damage=True))
        assert [line for _, line in found] == wanted[::-1]
        assert [lines[journal.lines_before(end) - 1] for end, _ in found] == wanted[::-1]
        since = sum(len(line) + 1 for line in lines[:-50])
        newest = [line for _, line in journal.backward(words, since)]
        assert newest == [line for line in lines[-50:] if line in wanted][::-1]
        assert len(list(journal.backward(words))) == len(wanted) - 1
