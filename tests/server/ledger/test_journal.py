"""The journal file: which content is accepted, truncated or refused."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hankweave_server import fsutil
from hankweave_server.ledger import journal as journal_module
from hankweave_server.ledger.journal import (
    Journal,
    JournalCorrupt,
    JournalFull,
    JournalWriteFailed,
    LongJournalLine,
)
from support.calls import failing


def line(seq: int, text: str = "Erdbeben südlich von Tōkyō 🌏") -> bytes:
    event = {"id": f"e-{seq}", "seq": seq, "type": "info", "data": {"message": text}}
    return json.dumps(event, ensure_ascii=False).encode()


def lines(count: int) -> list[bytes]:
    return [line(seq) for seq in range(1, count + 1)]


def text_of(*written: bytes) -> bytes:
    return b"".join(each + b"\n" for each in written)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events" / "events.jsonl"


def journal_of(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_new_journal_is_empty_and_private(path: Path):
    """The journal is created with its directory and is private to its owner."""
    journal, repair = Journal.open(path)
    assert (journal.last_seq, journal.read(0), repair) == (0, [], None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_what_was_appended_is_read_again_after_opening(path: Path):
    """Lines are read back byte for byte and in order."""
    journal, _ = Journal.open(path)
    journal.append(lines(3))
    journal.append([line(4)])
    journal.close()
    again, repair = Journal.open(path)
    assert (again.read(0), again.last_seq, repair) == (lines(4), 4, None)


@pytest.mark.parametrize(
    ("since", "limit", "seqs"),
    [
        (0, None, [1, 2, 3, 4, 5]),
        (2, None, [3, 4, 5]),
        (2, 2, [3, 4]),
        (4, 9, [5]),
        (5, None, []),
        (99, None, []),
        (-7, 1, [1]),
        (1, 0, []),
    ],
)
def test_reading_starts_after_a_seq_and_stops_at_a_limit(path: Path, since, limit, seqs):
    """Any range of the journal can be read; a range beyond its end is empty."""
    journal, _ = Journal.open(path)
    journal.append(lines(5))
    assert journal.read(since, limit) == [line(seq) for seq in seqs]


def test_a_tail_torn_at_any_byte_is_cut_and_kept(path: Path):
    """A torn tail is quarantined, wherever the tear is.

    For a cut at any byte of the last three lines, inside a UTF-8 sequence too, the whole lines
    before it stay, the fragment is kept in another file, and the next append is intact.
    """
    whole = text_of(*lines(6))
    start = len(text_of(*lines(3)))
    for cut in range(start, len(whole)):
        journal_of(path, whole[:cut])
        journal, repair = Journal.open(path)
        complete = whole[:cut].count(b"\n")
        fragment = whole[len(text_of(*lines(complete))) : cut]
        assert journal.last_seq == complete
        if fragment:
            assert repair is not None
            assert repair.quarantine.read_bytes() == fragment
            assert repair.bytes == len(fragment)
            assert stat.S_IMODE(repair.quarantine.stat().st_mode) == 0o600
            repair.quarantine.unlink()
        else:
            assert repair is None

        journal.append([line(complete + 1, "after")])
        journal.close()
        expected = text_of(*lines(complete), line(complete + 1, "after"))
        assert path.read_bytes() == expected


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\0" * 10 + b"\n", b"{}\n\xff\n", b'[1]\n"x"'])
def test_garbage_at_the_end_is_cut_and_kept(path: Path, garbage: bytes):
    """Trailing bytes without one whole event are cut off, and kept in another file."""
    journal, repair = Journal.open(journal_of(path, text_of(*lines(2)) + garbage))
    assert journal.last_seq == 2
    assert repair is not None
    assert repair.quarantine.read_bytes() == garbage
    assert path.read_bytes() == text_of(*lines(2))


def test_quarantined_tails_never_replace_each_other(path: Path):
    """Each repair has its own quarantine file."""
    names = set()
    for _ in range(3):
        journal, repair = Journal.open(journal_of(path, b"torn"))
        journal.close()
        assert repair is not None
        names.add(repair.quarantine.name)

    assert names == {"events.quarantine-1", "events.quarantine-2", "events.quarantine-3"}


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (text_of(line(1), b"garbage", line(3)), 2),
        (text_of(line(1), line(2)[:20], line(3)), 2),
        (text_of(line(1), b"\0" * 64, line(3)), 2),
        (text_of(line(1), line(3)), 2),
        (text_of(line(1), line(1)), 2),
        (text_of(line(2)), 1),
        (text_of(b'{"id":"e","type":"info","data":{}}'), 1),
    ],
    ids=["garbage", "fragment", "hole", "gap", "duplicate", "first missing", "no seq"],
)
def test_damage_before_whole_events_is_raised_and_left_in_place(path, content, number):
    """Delivered events are never cut off: the error names the line, and the file is unchanged."""
    journal_of(path, content)
    with pytest.raises(JournalCorrupt) as caught:
        Journal.open(path)

    assert caught.value.line == number
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["events.jsonl"]


def test_a_hole_after_all_that_is_known_durable_is_a_torn_tail(path: Path):
    """An unsynced write may reach the disk out of order; zeros mark where the tail begins."""
    content = text_of(line(1), line(2), b"\0" * 100, line(4))
    journal, repair = Journal.open(journal_of(path, content), known_durable=2)
    assert journal.last_seq == 2
    assert repair is not None
    assert repair.bytes == len(content) - len(text_of(line(1), line(2)))
    journal.close()
    with pytest.raises(JournalCorrupt):
        Journal.open(journal_of(path, content), known_durable=3)


def test_a_journal_behind_a_link_is_not_opened(path: Path, tmp_path: Path):
    """A symbolic link in place of the journal is refused, because it could point anywhere."""
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Journal.open(path)


class FullDisk:
    """A disk that accepts some bytes of a write and is then full; all other calls work."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")

        taken = os.write(descriptor, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 40, 100, 150])
def test_an_append_that_fails_leaves_no_fragment(path: Path, monkeypatch, room: int):
    """After a failed append the file is unchanged, so the next line joins no fragment."""
    journal, _ = Journal.open(path)
    journal.append([line(1)])
    disk = FullDisk(room)
    with monkeypatch.context() as patch:
        patch.setattr(fsutil, "write_all", lambda fd, data: _write_with(disk, fd, data))
        with pytest.raises(JournalWriteFailed, match="No space left"):
            journal.append([line(2), line(3)])

    assert path.read_bytes() == text_of(line(1))
    assert journal.last_seq == 1
    journal.append([line(2, "again")])
    assert journal.read(0) == [line(1), line(2, "again")]


def _write_with(disk: FullDisk, descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[disk.write(descriptor, rest) :]


def test_a_sync_that_fails_takes_the_append_back(path: Path, monkeypatch):
    """Lines that may not be on the disk are taken back, so they are never delivered."""
    journal, _ = Journal.open(path)
    journal.append([line(1)])
    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "fdatasync", failing(errno.EIO))
        with pytest.raises(JournalWriteFailed, match="Input/output error") as failure:
            journal.append([line(2)])

    assert not isinstance(failure.value, JournalFull), "only a full disk is worth another try"
    assert path.read_bytes() == text_of(line(1))


def test_nothing_is_appended_after_a_fragment_that_could_not_be_taken_back(path, monkeypatch):
    """If truncating fails too, further appends are refused, and the next open truncates."""
    journal, _ = Journal.open(path)
    journal.append([line(1)])
    with monkeypatch.context() as patch:
        patch.setattr(fsutil, "write_all", lambda fd, data: _write_with(FullDisk(9), fd, data))
        patch.setattr(journal_module.os, "ftruncate", failing(errno.EIO))
        with pytest.raises(JournalWriteFailed):
            journal.append([line(2)])

    with pytest.raises(JournalWriteFailed, match="could not be taken back"):
        journal.append([line(2)])

    journal.close()
    again, repair = Journal.open(path)
    assert again.read(0) == [line(1)]
    assert repair is not None
    assert repair.quarantine.read_bytes() == line(2)[:9]


def test_a_second_writer_is_noticed(path: Path):
    """Lines that another program appended are detected, not taken for lines of this writer."""
    journal, _ = Journal.open(path)
    with path.open("ab") as other:
        other.write(b"hello\n")

    with pytest.raises(JournalWriteFailed, match="another program"):
        journal.append([line(1)])


def test_a_long_journal_is_numbered_to_its_end(path: Path):
    """A hundred thousand events are indexed, and any of them can be read."""
    count = 100_000
    content = text_of(
        *(b'{"id":"x","seq":%d,"type":"info","data":{}}' % n for n in range(1, count + 1))
    )
    journal, repair = Journal.open(journal_of(path, content))
    assert (journal.last_seq, repair) == (count, None)
    assert json.loads(journal.read(77_776, 1)[0])["seq"] == 77_777


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.sampled_from([1, 900, 9_000, 20_000, 64_000, 300_000]), max_size=40),
    until=st.integers(0, 40),
)
def test_pages_hold_each_line_once_and_leave_long_ones_on_the_disk(
    path: Path, sizes: list[int], until: int
) -> None:
    """The pages, short lines and parts of long lines joined, are the journal up to a seq."""
    path.unlink(missing_ok=True)
    journal, _ = Journal.open(path)
    lines = [
        json.dumps({"type": "t", "seq": seq, "x": str(seq % 10) * size}).encode()
        for seq, size in enumerate(sizes, 1)
    ]
    journal.append(lines)
    found: list[bytes] = []
    while page := journal.page(len(found), until, 64 * 1024):
        assert sum(len(line) for line in page if isinstance(line, bytes)) < 81 * 1024
        found += [line if isinstance(line, bytes) else _in_parts(line) for line in page]

    journal.close()
    assert found == lines[:until]


def _in_parts(line: LongJournalLine) -> bytes:
    assert line.size > 64 * 1024
    parts = [line.read(at, 50_000) for at in range(0, line.size, 50_000)]
    assert line.read(line.size, 10) == b""
    return b"".join(parts)
