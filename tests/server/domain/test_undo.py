"""Undo and redo of rollbacks as in an editor, and the user edits that rollbacks remove."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol import codec
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import Coordinate, Direction, Notice, Travel
from hankweave_protocol.state import EMPTY_STATE, State
from hankweave_protocol.transitions import (
    AgentTold,
    EditsNoticed,
    EditsOvertaken,
    TimeTravelled,
    Transition,
    TravelsForgotten,
)
from hankweave_server.domain import undo
from hankweave_server.domain.lifecycle import Impossible
from support.histories import MOMENT, sha
from support.timelines import after


def a_travel(number: int, position: int = 0, edits: dict[str, str] | None = None) -> Travel:
    return Travel(operation_id=f"op-{number}", safety=sha(position), source=None, edits=edits or {})


def a_notice(number: int, direction: Direction) -> Notice:
    there = Coordinate(checkpoint_sha=sha(number), event_seq=number, run_id=RunId("run"))
    return Notice(operation_id=f"op-{number}", direction=direction, target=there, timestamp=MOMENT)


# --- Undo and redo --------------------------------------------------------------------------------


@dataclass
class Editor:
    """A reference model: the list of visited positions, and the index of the current one."""

    places: list[int] = field(default_factory=lambda: [0])
    at: int = 0

    def may(self, direction: Direction) -> bool:
        return {"back": True, "undo": self.at > 0, "redo": self.at + 1 < len(self.places)}[
            direction
        ]

    def go(self, direction: Direction, place: int) -> None:
        if direction == "back":
            self.places = [*self.places[: self.at + 1], place]

        self.at += -1 if direction == "undo" else 1
        forgotten = max(0, len(self.places) - 1 - undo.KEPT)
        self.places, self.at = self.places[forgotten:], self.at - forgotten


@dataclass
class Traveller:
    """Follows the undo and redo targets of the state, as `execution.rollback` does."""

    state: State = EMPTY_STATE
    position: int = 0

    def go(self, direction: Direction, number: int) -> None:
        travel = a_travel(number, self.position)
        match direction:
            case "back":
                target = sha(number)
            case "undo":
                target = undo.to_undo(self.state).safety
            case "redo":
                target = undo.to_redo(self.state).safety

        self.state = after(TimeTravelled(direction=direction, travel=travel), start=self.state)
        self.position = int(target, 16)


directions = st.sampled_from(["back", "undo", "redo"])


@given(st.lists(directions, max_size=60))
def test_undo_and_redo_lead_where_an_editor_would(steps: list[Direction]) -> None:
    """At every step, the same directions are possible and lead to the same position."""
    editor, traveller = Editor(), Traveller()
    for number, direction in enumerate(steps, start=1):
        if editor.may(direction):
            editor.go(direction, number)
            traveller.go(direction, number)
        else:
            with pytest.raises(Refused) as nothing:
                traveller.go(direction, number)

            assert nothing.value.code == ErrorCode.NOTHING_TO_UNDO

        assert traveller.position == editor.places[editor.at]
        assert len(traveller.state.undo) == editor.at
        assert len(traveller.state.redo) == len(editor.places) - 1 - editor.at


@given(st.integers(0, undo.KEPT + 20), st.integers(0, undo.KEPT + 20))
def test_a_hundred_journeys_are_kept(gone: int, undone: int) -> None:
    """Older rollbacks are dropped, the oldest first; the remaining ones equal the model's."""
    editor, traveller = Editor(), Traveller()
    for number in range(1, undo.KEPT + gone + 1):
        editor.go("back", number)
        traveller.go("back", number)

    for number in range(undone):
        if not editor.may("undo"):
            break

        editor.go("undo", number)
        traveller.go("undo", 1000 + number)

    assert traveller.position == editor.places[editor.at]
    assert len(traveller.state.undo) + len(traveller.state.redo) == undo.KEPT
    refounded = after(*undo.founding(traveller.state))
    assert (refounded.undo, refounded.redo) == (traveller.state.undo, traveller.state.redo)


@pytest.mark.parametrize("direction", ["undo", "redo"])
def test_an_undo_of_nothing_is_impossible(direction: Direction) -> None:
    """An undo without a rollback contradicts the history: it is refused and changes nothing."""
    with pytest.raises(Impossible):
        after(TimeTravelled(direction=direction, travel=a_travel(1)))


def test_a_rollback_is_listed_while_it_can_be_undone() -> None:
    """A rollback is found by its operation id, on the undo and redo stacks."""
    state = after(
        TimeTravelled(direction="back", travel=a_travel(1)),
        TimeTravelled(direction="back", travel=a_travel(2)),
        TimeTravelled(direction="undo", travel=a_travel(3)),
    )
    numbers = [number for number in range(5) if undo.is_recorded(state, f"op-{number}")]
    assert numbers == [1, 3]


# --- Edits ----------------------------------------------------------------------------------------

paths = st.sampled_from(["a", "d/b", "d/c", "e"])
some_edits = st.dictionaries(paths, st.sampled_from(["", "1f", "2f"]))


@given(some_edits, st.sets(paths))
def test_an_undo_brings_back_the_edits_that_the_rollback_took(
    edits: dict[str, str], touched: set[str]
) -> None:
    """The rollback removes the edits, its undo restores them, and the redo removes them again."""
    before = after(EditsNoticed(edits=edits))
    taken = {path: digest for path, digest in edits.items() if path in touched}
    back = after(TimeTravelled(direction="back", travel=a_travel(1, edits=taken)), start=before)
    assert back.edits == {path: edits[path] for path in edits.keys() - touched}

    undone = after(
        TimeTravelled(direction="undo", travel=a_travel(2), restored_edits=taken), start=back
    )
    assert undone.edits == before.edits

    redone = after(TimeTravelled(direction="redo", travel=a_travel(3, edits=taken)), start=undone)
    assert redone.edits == back.edits


@given(some_edits, some_edits, st.sets(paths))
def test_edits_are_noticed_and_overtaken_path_by_path(
    first: dict[str, str], then: dict[str, str], overtaken: set[str]
) -> None:
    """The newest notice of a path counts until an agent or rig writes the path."""
    state = after(
        EditsNoticed(edits=first),
        EditsNoticed(edits=then),
        EditsOvertaken(paths=tuple(sorted(overtaken))),
    )
    assert state.edits == {p: d for p, d in {**first, **then}.items() if p not in overtaken}


# --- The history of a lost journal ----------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Transition]:
    """Return rollbacks, edits and notices to agents, in any possible order."""
    found: list[Transition] = []
    state = EMPTY_STATE
    for number in range(1, draw(st.integers(0, 25)) + 1):
        possible: list[Transition] = [
            EditsNoticed(edits=draw(some_edits)),
            EditsOvertaken(paths=tuple(state.edits)[:1]),
        ]
        possible += [
            TimeTravelled(
                direction=direction,
                travel=a_travel(number, edits=draw(some_edits)),
                restored_edits=draw(some_edits),
                notice=a_notice(number, direction) if draw(st.booleans()) else None,
            )
            for direction, there_is in (("back", True), ("undo", state.undo), ("redo", state.redo))
            if there_is
        ]
        if state.notice is not None:
            possible.append(AgentTold(operation_id=state.notice.operation_id))

        found.append(draw(st.sampled_from(possible)))
        state = after(found[-1], start=state)

    return found


@given(histories())
def test_records_of_rollbacks_can_be_rebuilt(history: list[Transition]) -> None:
    """The founding transitions recreate the same undo, redo, edits and notice."""
    state = after(*history)
    refounded = after(*undo.founding(state))
    assert (refounded.undo, refounded.redo) == (state.undo, state.redo)
    assert (refounded.edits, refounded.notice) == (state.edits, state.notice)


@given(histories())
def test_journeys_outlive_encoding(history: list[Transition]) -> None:
    """state.json contains all of it, and reads back equal."""
    state = after(*history)
    assert codec.decode_value(State, codec.encode(state)) == state


# --- Lost safety checkpoints ----------------------------------------------------------------------


def test_a_journey_whose_safety_checkpoint_is_gone_leaves_the_stacks() -> None:
    """The others stay in order, and are the targets of the next undo and redo."""
    went = [TimeTravelled(direction="back", travel=a_travel(n, n)) for n in (1, 2, 3, 4)]
    undone = TimeTravelled(direction="undo", travel=a_travel(5, 5))
    state = after(*went, undone)
    lost = undo.without_safety(state, {sha(1), sha(3)})
    assert lost == TravelsForgotten(operation_ids=("op-2", "op-5"))
    left = after(lost, start=state)
    assert [travel.operation_id for travel in left.undo] == ["op-1", "op-3"]
    assert left.redo == ()
    assert undo.to_undo(left).operation_id == "op-3"


def test_where_every_safety_checkpoint_stands_nothing_is_forgotten() -> None:
    """If nothing is lost, no transition is recorded."""
    state = after(TimeTravelled(direction="back", travel=a_travel(1, 1)))
    assert undo.without_safety(state, {sha(1)}) is None
