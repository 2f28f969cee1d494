"""The intent of a rollback, once it lies on the disk: whether there is one, and how far it came."""

from __future__ import annotations

from hankweave_protocol import codec
from hankweave_protocol.events import CheckpointRollback, RollbackCompleted
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import RollbackIntent
from hankweave_protocol.state import State
from hankweave_server.domain import undo
from hankweave_server.domain.history import run_named
from hankweave_server.execution.context import Surroundings
from hankweave_server.worktree.names import meant_by

TOLD_WITHIN = 500
"""How far back in the journal the end of a rollback is looked for: its batch is far smaller."""


def standing(around: Surroundings) -> RollbackIntent | None:
    """Reads the intent of the rollback that was cut short; None where there is none."""
    try:
        data = around.layout.rollback_intent.read_bytes()
    except FileNotFoundError:
        return None

    return codec.decode_value(RollbackIntent, data)


def has_happened(around: Surroundings, intent: RollbackIntent) -> bool:
    """Tells whether the journey is on record, so that nothing may be restored again."""
    state = around.state
    return (
        undo.is_told(state, intent.operation_id)
        or (intent.to_run not in (None, intent.from_run) and _has_begun(state, intent.to_run))
        or (intent.direction == "retry" and is_in_journal(around, intent))
    )


def _has_begun(state: State, run_id: RunId | None) -> bool:
    """Return whether the rollback's own run is there; one that it took over was there before."""
    return run_named(state, run_id) is not None


def is_in_journal(around: Surroundings, intent: RollbackIntent) -> bool:
    """Return whether all of it was told: its last event is among the newest lines."""
    last = CheckpointRollback.TYPE if intent.to_run is None else RollbackCompleted.TYPE
    return has_event(around, intent, last)


def has_event(around: Surroundings, intent: RollbackIntent, event_type: str) -> bool:
    """Return whether an event of this type about the rollback is among the newest lines."""
    operation = f'"operationId":"{intent.operation_id}"'.encode()
    name = f'"type":"{event_type}"'.encode()
    lines = around.ledger.tail(TOLD_WITHIN)
    return any(operation in line and name in line for line in lines)


def moments_of(intent: RollbackIntent) -> tuple[int, ...]:
    """The events that source and target name: the causal parents of all that is told."""
    moments = (intent.source, intent.target.coordinate)
    return tuple(sorted({moment.event_seq for moment in moments if moment and moment.event_seq}))


def paths_of(intent: RollbackIntent) -> frozenset[bytes] | None:
    """The paths it is confined to; None means the whole work tree."""
    return None if intent.paths is None else meant_by(intent.paths)
