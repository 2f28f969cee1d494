"""Where undo and redo lead, and whose edits a rollback meets: what the state remembers of journeys.

Every rollback pushes what its undo needs; an undo moves the newest of these to the redo side, a
redo moves it back. A new rollback forgets what could be redone, as editors do: the checkpoints
stay, and can be gone to by their sha.
"""

from __future__ import annotations

from collections.abc import Container
from typing import assert_never

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import Direction, Travel
from hankweave_protocol.state import State
from hankweave_protocol.transitions import (
    EditsNoticed,
    EditsOvertaken,
    TimeTravelled,
    Transition,
    TravelsForgotten,
)
from hankweave_server.domain.lifecycle import Impossible

KEPT = 100
"""Journeys that can be undone; older ones are reached by their checkpoints."""


def after(state: State, made: TimeTravelled) -> State:
    """Gives the state after a journey; raises Impossible for an undo of nothing."""
    undo, redo = state.undo, state.redo
    match made.direction:
        case "back":
            undo, redo = (*undo, made.travel)[-KEPT:], ()
        case "undo":
            _require(undo, "undo")
            undo, redo = undo[:-1], (*redo, made.travel)[-KEPT:]
        case "redo":
            _require(redo, "redo")
            undo, redo = (*undo, made.travel)[-KEPT:], redo[:-1]
        case other:
            assert_never(other)

    taken = made.travel.edits
    edits = {path: digest for path, digest in state.edits.items() if path not in taken}
    return msgspec.structs.replace(
        state,
        undo=undo,
        redo=redo,
        edits={**edits, **made.restored_edits},
        notice=made.notice if made.notice is not None else state.notice,
    )


def forgotten(state: State, gone: TravelsForgotten) -> State:
    """Return the state without the journeys that nothing can take back any more."""
    names = frozenset(gone.operation_ids)
    return msgspec.structs.replace(
        state,
        undo=tuple(travel for travel in state.undo if travel.operation_id not in names),
        redo=tuple(travel for travel in state.redo if travel.operation_id not in names),
    )


def without_safety(state: State, known: Container[Sha]) -> TravelsForgotten | None:
    """Return the journeys whose safety checkpoints are gone; None where there are none."""
    lost = [travel for travel in (*state.undo, *state.redo) if travel.safety not in known]
    if not lost:
        return None

    return TravelsForgotten(operation_ids=tuple(travel.operation_id for travel in lost))


def with_edits(state: State, noticed: EditsNoticed) -> State:
    return msgspec.structs.replace(state, edits={**state.edits, **noticed.edits})


def without_edits(state: State, overtaken: EditsOvertaken) -> State:
    gone = frozenset(overtaken.paths)
    kept = {path: digest for path, digest in state.edits.items() if path not in gone}
    return msgspec.structs.replace(state, edits=kept)


def founding(state: State) -> tuple[Transition, ...]:
    """Gives the transitions that make undo, redo, edits and notice of this state out of none."""
    journeys = [
        *(TimeTravelled(direction="back", travel=travel) for travel in (*state.undo, *state.redo)),
        *(TimeTravelled(direction="undo", travel=travel) for travel in state.redo),
    ]
    if journeys:
        journeys[-1] = msgspec.structs.replace(journeys[-1], notice=state.notice)

    return (*journeys, EditsNoticed(edits=state.edits)) if state.edits else tuple(journeys)


def to_undo(state: State) -> Travel:
    """The rollback an undo takes back; raises Refused where there is none."""
    if not state.undo:
        raise Refused(
            ErrorCode.NOTHING_TO_UNDO,
            "There is no rollback that could be undone.",
            hint="rollback.toCheckpoint goes to any moment; checkpoint.list names them.",
        )

    return state.undo[-1]


def to_redo(state: State) -> Travel:
    """The undo a redo takes back; raises Refused where there is none."""
    if not state.redo:
        raise Refused(
            ErrorCode.NOTHING_TO_UNDO,
            "There is no undo that could be taken back.",
            hint="A new rollback forgets what was undone; its safety checkpoint is still listed.",
        )

    return state.redo[-1]


def is_told(state: State, operation_id: str) -> bool:
    """Tells whether a journey is in the state already."""
    return any(travel.operation_id == operation_id for travel in (*state.undo, *state.redo))


def _require(journeys: tuple[Travel, ...], what: Direction) -> None:
    if not journeys:
        raise Impossible(f"There is nothing to {what}.")
