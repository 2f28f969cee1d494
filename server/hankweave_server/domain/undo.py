"""Undo and redo of rollbacks, the user's edits that a rollback meets, and leftovers of rigs.

Every rollback pushes what its undo needs; an undo moves the newest entry to the redo side, a redo
moves it back. A new rollback clears the redo side, as editors do: the checkpoints stay, and can be
restored by their SHA. In this module such a move is called a journey.

A rig replaces the content of its target, so everything that is there afterwards was put there by
the rig or later. Like Hankweave, a rollback removes the targets of the codons that it passes,
whether or not they are tracked. A target stays if a codon that is not passed filled it as well, or
filled a folder inside or around it: the content may be that codon's.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from typing import assert_never

import msgspec

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hank import RigCopy
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import CodonId, Sha
from hankweave_protocol.records import Direction, Travel
from hankweave_protocol.state import PlanEntry, State
from hankweave_protocol.transitions import (
    EditsNoticed,
    EditsOvertaken,
    TimeTravelled,
    Transition,
    TravelsForgotten,
)
from hankweave_server.domain.execution_thread import plan_entry, thread
from hankweave_server.domain.lifecycle import Impossible

KEPT = 100
"""Journeys that can be undone; older ones are reached by their checkpoints."""


def after(state: State, made: TimeTravelled) -> State:
    """Return the state after a journey; raise Impossible for an undo of nothing."""
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
    """Return the state without the journeys that can no longer be undone."""
    names = frozenset(gone.operation_ids)
    return msgspec.structs.replace(
        state,
        undo=tuple(travel for travel in state.undo if travel.operation_id not in names),
        redo=tuple(travel for travel in state.redo if travel.operation_id not in names),
    )


def without_safety(state: State, known: Container[Sha]) -> TravelsForgotten | None:
    """Return the journeys whose safety checkpoints are gone; None if there are none."""
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
    """Return the transitions that create the undo, redo, edits and notice of this state."""
    journeys = [
        *(TimeTravelled(direction="back", travel=travel) for travel in (*state.undo, *state.redo)),
        *(TimeTravelled(direction="undo", travel=travel) for travel in state.redo),
    ]
    if journeys:
        journeys[-1] = msgspec.structs.replace(journeys[-1], notice=state.notice)

    return (*journeys, EditsNoticed(edits=state.edits)) if state.edits else tuple(journeys)


def to_undo(state: State) -> Travel:
    """Return the rollback that an undo would take back; raise Refused if there is none."""
    if not state.undo:
        raise Refused(
            ErrorCode.NOTHING_TO_UNDO,
            "There is no rollback to undo.",
            hint=Hint.NOTHING_TO_UNDO,
        )

    return state.undo[-1]


def to_redo(state: State) -> Travel:
    """Return the undo that a redo would take back; raise Refused if there is none."""
    if not state.redo:
        raise Refused(
            ErrorCode.NOTHING_TO_UNDO,
            "There is no undo to redo.",
            hint="A new rollback discards what was undone; its safety checkpoint is still listed.",
        )

    return state.redo[-1]


def is_recorded(state: State, operation_id: str) -> bool:
    """Return whether the state already contains a journey."""
    return any(travel.operation_id == operation_id for travel in (*state.undo, *state.redo))


def _require(journeys: tuple[Travel, ...], what: Direction) -> None:
    if not journeys:
        raise Impossible(f"There is nothing to {what}.")


def leftovers(state: State, passed: Collection[CodonId]) -> tuple[str, ...]:
    """Return the rig targets that a rollback past these codons removes, as plain paths."""
    plan = state.execution_plan
    stays = [e.codon.codon_id for e in thread(state) if e.codon.codon_id not in passed]
    kept = set(_targets(plan, stays))
    found = dict.fromkeys(_targets(plan, passed))
    return tuple(path for path in found if not any(_overlap(path, other) for other in kept))


def _targets(plan: tuple[PlanEntry, ...], codon_ids: Iterable[CodonId]) -> Iterator[str]:
    for codon_id in codon_ids:
        entry = plan_entry(plan, codon_id)
        for item in () if entry is None else entry.codon.rig_setup:
            if isinstance(item, RigCopy):
                yield "/".join(step for step in item.copy.to.split("/") if step not in ("", "."))


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
