"""Claims about states of the past: any moment of the journal, always the fold, at a small cost."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.events import (
    CheckpointRollback,
    Event,
    EventData,
    Info,
    RollbackCompleted,
    StateTransition,
)
from hankweave_protocol.ids import EventSeq, RunId, Sha
from hankweave_protocol.records import Coordinate, RollbackReport
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import CheckpointCreated, RunStarted, Transition
from hankweave_server.domain.reducer import apply, fold, resulting_state
from hankweave_server.ledger import moments as module
from hankweave_server.ledger.journal import Journal, JournalCorrupt
from hankweave_server.ledger.moments import Moments, state_at_end
from support.histories import MOMENT, a_checkpoint, legal_moves, sha

RUN = RunId("1736000000000-abc123-def456")


class MemoryJournal(Journal):
    """A journal of lines in memory that counts reads; it is not durable."""

    def __init__(self, lines: list[bytes]) -> None:
        self.path = Path("events.jsonl")
        self.lines = lines
        self.read_lines = 0

    @property
    def last_seq(self) -> int:
        return len(self.lines)

    def stored(self, since_seq: int, limit: int | None = None) -> list[bytes]:
        found = self.lines[since_seq : None if limit is None else since_seq + limit]
        self.read_lines += len(found)
        return found


def a_history(choices: list[int]) -> list[bytes]:
    """Return one legal transition per choice, and a neutral event per negative choice."""
    lines: list[bytes] = []
    state = EMPTY_STATE
    for seq, choice in enumerate(choices, start=1):
        if choice < 0:
            lines.append(codec.encode(_event(seq, Info(message="nothing"))))
            continue

        moves = legal_moves(state, seq)
        move = moves[choice % len(moves)]
        state = apply(state, move, seq)
        lines.append(codec.encode(_event(seq, _transition(move, state))))

    return lines


def _event(seq: int, data: EventData) -> Event:
    return Event(id=f"e{seq}", seq=EventSeq(seq), timestamp=MOMENT, type=data.TYPE, data=data)


def _transition(move: Transition, state: State) -> StateTransition:
    return StateTransition(
        transition_type=move.TYPE,
        transition=codec.transition_body(move),
        resulting_state=resulting_state(state),
    )


histories = st.lists(st.integers(-3, 10_000), min_size=1, max_size=60)


@given(histories, st.lists(st.integers(0, 60), max_size=40), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=60)
def test_a_moment_is_the_fold_whatever_was_read_before(
    choices: list[int], reads: list[int], transitions_apart: int, lines_apart: int
) -> None:
    """In any order of queries and with any landmarks, each state is the fold of its prefix."""
    lines = a_history(choices)
    events = [codec.decode_event(line) for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TRANSITIONS_APART", transitions_apart)
        patch.setattr(module, "LINES_APART", lines_apart)
        patch.setattr(module, "MOMENTS_KEPT", 3)
        moments = Moments(MemoryJournal(lines))
        for seq in [min(each, len(lines)) for each in reads] + list(range(len(lines) + 1)):
            moment = moments.at(seq)
            assert moment.state == fold(events[:seq])
            assert moment.run_began == _began(events[:seq])


def _began(events: list[Event]) -> int:
    starts = [
        event.seq
        for event in events
        if isinstance(event.data, StateTransition) and event.data.transition_type == RunStarted.TYPE
    ]
    return starts[-1] if starts else 0


def test_a_moment_names_the_checkpoint_of_its_files() -> None:
    """A past moment names the checkpoint whose files were in the work tree.

    It is the newest checkpoint on record or, after a rollback of everything, its target. A rollback
    of some paths keeps the last complete checkpoint; agent output changes nothing.
    """
    report = RollbackReport(
        target=_at(1),
        source=None,
        safety=None,
        added=(),
        updated=(),
        removed=(),
        kept=(),
        conflicts=(),
        skipped=(),
        recovered=False,
    )
    back = RollbackCompleted(
        from_run=RUN,
        to_run=RUN,
        checkpoint=sha(1),
        codon_id=None,
        codon_name="",
        checkpoint_type="completed",
        auto_restart=False,
    )
    some = CheckpointRollback(
        operation_id="o", checkpoint=sha(1), source=None, target=_at(1), paths=("a",), report=report
    )
    printed = Info(message='"type":"rollback.completed"')
    entries: list[tuple[EventData, Sha | None]] = [
        (Info(message="nothing"), None),
        (_made(1), sha(1)),
        (_made(2), sha(2)),
        (back, sha(1)),
        (printed, sha(1)),
        (_made(3), sha(3)),
        (some, sha(3)),
        (msgspec.structs.replace(some, paths=None), sha(1)),
    ]
    lines = [codec.encode(_event(seq, data)) for seq, (data, _) in enumerate(entries, start=1)]
    moments = Moments(MemoryJournal(lines))
    assert [moments.at(seq).files for seq in range(1, 9)] == [files for _, files in entries]


def _made(number: int) -> StateTransition:
    made = CheckpointCreated(checkpoint=a_checkpoint("manual", RUN, None, number))
    return _transition(made, EMPTY_STATE)


def _at(number: int) -> Coordinate:
    return a_checkpoint("manual", RUN, None, number).coordinate


def test_after_the_first_read_only_the_neighbourhood_is_read() -> None:
    """A second query of a long journal reads no further back than to the nearest landmark."""
    choices = list(itertools.islice(itertools.cycle([2, -1, -1, 4, -1]), 20_000))
    journal = MemoryJournal(a_history([choice if choice < 0 else 1 for choice in choices]))
    moments = Moments(journal)
    moments.at(journal.last_seq)
    journal.read_lines = 0
    moments.at(10_001)
    assert journal.read_lines <= module.LINES_APART
    journal.read_lines = 0
    moments.at(10_001)
    moments.at(journal.last_seq)
    assert journal.read_lines == 0


def test_the_journal_may_grow_between_reads() -> None:
    """Lines that are appended later are folded onto the known state."""
    lines = a_history([2] + [-1] * 500)
    journal = MemoryJournal(lines[:1])
    moments = Moments(journal)
    assert moments.at(1).state.last_event_seq == 1
    journal.lines = lines
    assert moments.at(501).state == fold(map(codec.decode_event, lines))


def test_the_state_at_the_end_is_found_from_the_saved_one() -> None:
    """Only what follows state.json is read; one that is ahead of the journal is not used."""
    lines = a_history([2, 5, *[-1] * 500, 3, 1])
    whole, saved = (fold(map(codec.decode_event, lines[:count])) for count in (len(lines), 503))
    journal = MemoryJournal(lines)
    assert state_at_end(journal, saved) == whole
    assert journal.read_lines == len(lines) - 503
    ahead = msgspec.structs.replace(whole, last_event_seq=len(lines) + 1)
    for unusable in (None, ahead):
        assert state_at_end(journal, unusable) == whole


def test_a_journal_is_read_without_being_touched(tmp_path: Path) -> None:
    """A torn tail is ignored and left in the file; damage in the middle raises an error."""
    lines = a_history([2, -1, -1])
    path = tmp_path / "events.jsonl"
    content = b"".join(line + b"\n" for line in lines) + b'{"seq": 4, "ty'
    path.write_bytes(content)
    path.chmod(0o400)
    journal = Journal.for_reading(path)
    assert (journal.last_seq, journal.read(0)) == (3, lines)
    journal.close()
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["events.jsonl"]

    path.chmod(0o600)
    path.write_bytes(b"\n".join([lines[0], b"garbage", lines[1], lines[2], b""]))
    with pytest.raises(JournalCorrupt, match="line 2"):
        Journal.for_reading(path)
