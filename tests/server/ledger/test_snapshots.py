"""Snapshots and inputs in the journal: short in the file, and whole for whoever reads an event."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.events import CodonKeyed, Event, EventData, Info, StateSnapshot
from hankweave_protocol.ids import CodonId, EventSeq
from hankweave_protocol.state import CodonExecution
from hankweave_server.ledger import snapshots
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.searched_journal import SearchedJournal, of_types
from hankweave_server.ledger.snapshots import Shortening, Whole
from hankweave_server.ledger.writer import Ledger, Published
from hankweave_server.paths import Layout
from support.histories import SteppingClock, completed

SHOWN = 5


def a_snapshot(codons: Sequence[CodonExecution]) -> StateSnapshot:
    return StateSnapshot(
        completed_codons=tuple(codons),
        file_tree=(),
        total_cost=0.25,
        total_time=1,
        is_rolling_back=False,
    )


def codon(number: int) -> CodonExecution:
    ended = completed()
    return msgspec.structs.replace(ended, codon_id=CodonId(f"work#{number}"))


def frame(seq: int, codons: Sequence[CodonExecution] | None) -> bytes:
    """Return a snapshot of these codons, or another event."""
    data = Info(message='"type":"state.snapshot"') if codons is None else a_snapshot(codons)
    return frame_of(seq, data)


def frame_of(seq: int, data: EventData) -> bytes:
    event = Event(
        id=f"e-{seq}",
        seq=EventSeq(seq),
        timestamp="2025-01-04T12:00:00.000Z",
        type=data.TYPE,
        data=data,
    )
    return codec.encode(event)


def loop_of(count: int) -> list[bytes]:
    """Return the snapshots of codons that end one after the other."""
    ended = [codon(number) for number in range(count)]
    return [frame(seq, ended[max(0, seq - SHOWN) : seq][::-1]) for seq in range(1, count + 1)]


def stored(frames: Sequence[bytes]) -> list[bytes]:
    shortening = Shortening(short_enough=0)
    return [shortening.stored(seq, each) for seq, each in enumerate(frames, start=1)]


def whole(lines: Sequence[bytes]) -> Whole:
    return Whole(lambda since, count: list(lines[since : since + count]))


STEPS = st.lists(st.sampled_from(["ends", "ends", "says", "again", "back", "other"]), max_size=40)


@given(STEPS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_every_snapshot_is_read_as_it_was_published(steps: list[str], chance: random.Random):
    """Whatever happens between two snapshots, and in whichever order they are read."""
    past: list[CodonExecution] = []
    frames: list[bytes] = []
    for number, step in enumerate(steps, start=1):
        if step == "ends":
            past.append(codon(number))
        elif step == "back":
            past = past[:-2]
        elif step == "other":
            past = [*past[:-1], codon(number)]

        frames.append(frame(number, None if step == "says" else past[-SHOWN:][::-1]))

    lines = stored(frames)
    order = list(range(len(lines)))
    chance.shuffle(order)
    for reader, seqs in ((whole(lines), range(len(lines))), (whole(lines), order)):
        assert all(reader.line(at + 1, lines[at]) == frames[at] for at in seqs)


def test_a_codons_end_costs_what_ended():
    """The line of a snapshot has the one codon that has ended since the snapshot before it."""
    lines = stored(loop_of(30))
    assert [line.count(b'"codonId"') for line in lines[1:]] == [1] * 29


def test_a_snapshot_of_few_codons_is_whole():
    """Most executions are short: their journal is as readable as ever."""
    shortening = Shortening()
    frames = [frame(seq, [codon(number) for number in range(seq)][::-1]) for seq in range(1, 20)]
    in_full = [shortening.stored(seq, each) == each for seq, each in enumerate(frames, start=1)]
    assert in_full == [len(each) <= snapshots.SHORT_ENOUGH for each in frames]
    assert set(in_full) == {True, False}


def test_a_snapshot_is_whole_after_a_start_and_after_a_rollback():
    """A new writer does not know the last one, and a shorter thread continues none."""
    ended = [codon(number) for number in range(4)]
    before = [frame(1, ended[1::-1]), frame(2, ended[2::-1]), frame(3, ended[1::-1])]
    assert [line == each for line, each in zip(stored(before), before, strict=True)] == [
        True,
        False,
        True,
    ]


def test_a_snapshot_is_whole_when_enough_has_happened_since_the_last(monkeypatch):
    """Both many events and many bytes: each of them alone would come too often."""
    frames = loop_of(30)
    for events, size, apart in ((1, 1, 1), (7, 1, 7), (7, 1 << 30, 30), (1 << 30, 1, 30)):
        monkeypatch.setattr(snapshots, "EVENTS_APART", events)
        monkeypatch.setattr(snapshots, "BYTES_APART", size)
        in_full = [at for at, line in enumerate(stored(frames)) if line == frames[at]]
        assert in_full == list(range(0, 30, apart))


def test_a_snapshot_whose_predecessor_is_missing_is_damage(tmp_path: Path):
    """An edited file is not shown with fewer codons than there were."""
    lines = stored(loop_of(4))
    journal, _ = Journal.open(tmp_path / "events" / "events.jsonl")
    journal.append([lines[0], frame(2, None), lines[2]])
    with pytest.raises(JournalCorrupt, match="continues one that is not there"):
        journal.read(2)

    journal.close()


def test_a_searched_journal_shows_whole_snapshots(tmp_path: Path):
    """This includes one that is found from the end, before those that it continues."""
    frames, path = loop_of(12), tmp_path / "events.jsonl"
    lines = stored(frames)
    assert lines != frames
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with closing(SearchedJournal(path, os.open(path, os.O_RDONLY))) as journal:
        newest_first = [line for _, line in journal.backward(of_types([StateSnapshot.TYPE]))]
        assert newest_first == frames[::-1]
        assert journal.read(5, 3) == frames[5:8]
        assert journal.stored(5, 3) == lines[5:8]


async def test_clients_receive_whole_snapshots_live_and_from_the_past(tmp_path: Path):
    """The file alone has the short form: subscribers, pages and a later reader see whole events."""
    layout, frames = Layout.of_execution(tmp_path), list[bytes]()

    def listen(each: Published) -> None:
        frames.append(each.frame)

    ended = [codon(number) for number in range(40)]
    ledger = await Ledger.open(layout, SteppingClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        with ledger.subscribe(listen):
            await ledger.record(Info(message="begins"))
            for number in range(len(ended)):
                await ledger.record(a_snapshot(ended[: number + 1][::-1]))

        assert ledger.read(0) == frames
        assert ledger.read(20, 3) == frames[20:23]
        pages: list[bytes] = []
        while page := ledger.page(len(pages)):
            pages += [each for each in page if isinstance(each, bytes)]

        assert pages == frames
        await ledger.aclose()

    journal = Journal.for_reading(layout.journal)
    assert journal.read(0) == frames
    assert journal.size < sum(map(len, frames)) / 5
    journal.close()


# --- inputs of codons ----------------------------------------------------------------------------

NAMES = [f"input.{number}" for number in range(10)]
VALUES = st.sampled_from(["aa", "bb"])
INPUTS = st.one_of(st.just({}), st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=4))


def keyed(seq: int, inputs: dict[str, str], *, in_order: bool = True) -> bytes:
    ordered = dict(sorted(inputs.items(), reverse=not in_order))
    return frame_of(seq, CodonKeyed(codon_id=CodonId("work"), reuse_key="ab", inputs=ordered))


@given(st.lists(st.tuples(INPUTS, st.booleans()), max_size=30), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_inputs_of_codons_are_read_as_they_were_published(
    past: list[tuple[dict[str, str], bool]], chance: random.Random
):
    """Whatever differs from one codon to the next, and in whichever order they are read."""
    frames = [
        keyed(seq, inputs, in_order=is_sorted) for seq, (inputs, is_sorted) in enumerate(past, 1)
    ]
    lines, order = stored(frames), list(range(len(frames)))
    chance.shuffle(order)
    for reader, seqs in ((whole(lines), range(len(lines))), (whole(lines), order)):
        assert all(reader.line(at + 1, lines[at]) == frames[at] for at in seqs)


def test_the_inputs_of_a_codon_cost_what_differs():
    """In a loop that is the iteration; a codon of another kind is in full, as the next base."""
    inputs = dict.fromkeys(NAMES, "aa")
    loop = [inputs | {"input.3": f"{number:02}"} for number in range(20)]
    other = [dict.fromkeys(NAMES, "cc") | {"input.4": each} for each in ("xx", "yy")]
    lines = stored([keyed(seq, each) for seq, each in enumerate([*loop, *other], 1)])
    assert [line.count(b"input.") for line in lines] == [10, *[1] * 19, 10, 1]


def test_inputs_that_continue_none_are_damage():
    """A codon is not shown with fewer inputs than it had."""
    lines = stored([keyed(1, dict.fromkeys(NAMES, "aa")), keyed(2, dict.fromkeys(NAMES[:9], "aa"))])
    with pytest.raises(ValueError, match="continues one that is not there"):
        whole([frame(1, None), lines[1]]).line(2, lines[1])
