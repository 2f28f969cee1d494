"""Find the intent of a rollback that was cut short, and decide whether it may still be carried out.

An intent is for a crash, or for a disk that was full. Its rollback is finished as long as nothing
that changed files was acknowledged after it: a checkpoint, another rollback, a codon. Restoring the
target then would take that work back, although no command asks for it.

Servers up to this version also left an intent when a single path could not be restored; such a
rollback has failed for good, and repeating it at every start would never succeed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import Enum

from hankweave_protocol import codec
from hankweave_protocol.events import (
    CheckpointRollback,
    CodonStartedEvent,
    EventData,
    RollbackCompleted,
    RollbackFailed,
    StateTransition,
)
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import RollbackIntent
from hankweave_protocol.state import State
from hankweave_protocol.transitions import CheckpointCreated, Transition
from hankweave_server import fsutil
from hankweave_server.domain import undo
from hankweave_server.domain.execution_thread import run_named
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout

_RELEVANT_TYPES = tuple(
    f'"type":"{kind.TYPE}"'.encode()
    for kind in (
        CheckpointCreated,
        CheckpointRollback,
        CodonStartedEvent,
        RollbackCompleted,
        RollbackFailed,
    )
)
_REFUSED = "paths could not be restored"
"""Part of the message with which earlier servers gave up."""


def standing(layout: Layout) -> RollbackIntent | None:
    """Return the intent of the rollback that was cut short; None if there is none."""
    data = fsutil.content_of(layout.rollback_intent)
    return None if data is None else codec.decode_value(RollbackIntent, data)


async def has_happened(ctx: ExecutionContext, intent: RollbackIntent) -> bool:
    """Return whether the rollback is in the journal, so that nothing may be restored again.

    The removal of an intent is not flushed, so one that a power cut brings back may be long over:
    its rollback may have been forgotten by the state, and any number of events may follow.
    """
    state = ctx.state
    return (
        undo.is_recorded(state, intent.operation_id)
        or (intent.to_run not in (None, intent.from_run) and _has_begun(state, intent.to_run))
        or await is_in_journal(ctx, intent)
    )


def _has_begun(state: State, run_id: RunId | None) -> bool:
    """Return whether the run is in the state; do not ask for a run that was taken over."""
    return run_named(state, run_id) is not None


async def is_in_journal(ctx: ExecutionContext, intent: RollbackIntent) -> bool:
    """Return whether the rollback's last event is in the journal."""
    last = CheckpointRollback.TYPE if intent.to_run is None else RollbackCompleted.TYPE
    return await has_event(ctx, intent, last)


async def has_event(ctx: ExecutionContext, intent: RollbackIntent, event_type: str) -> bool:
    """Return whether an event of this type about the rollback is in the journal."""
    operation = f'"operationId":"{intent.operation_id}"'.encode()
    name = f'"type":"{event_type}"'.encode()
    since = 0 if intent.source is None else intent.source.event_seq
    async for line in ctx.ledger.lines_after(since):
        if operation in line and name in line:
            return True

    return False


class Overtaken(Enum):
    """Why an intent must not be carried out."""

    BY_CHECKPOINT = "a checkpoint was taken after it"
    BY_PLACE = "a codon or another rollback followed it"
    """The files belong to a new place in the plan."""
    REFUSED = "it met paths that could not be restored"


async def overtaken(ctx: ExecutionContext, intent: RollbackIntent) -> Overtaken | None:
    """Return why an intent must not be carried out, from what the journal has after it."""
    found = None
    async for data in _later(ctx.ledger, intent):
        reason = _judged(data, intent)
        if reason is Overtaken.BY_PLACE:
            return reason

        found = found if reason is None else reason

    return found


def _judged(data: EventData | Transition, intent: RollbackIntent) -> Overtaken | None:
    match data:
        case CodonStartedEvent():
            return Overtaken.BY_PLACE
        case CheckpointRollback(operation_id=name) | RollbackCompleted(operation_id=name):
            return None if name == intent.operation_id else Overtaken.BY_PLACE
        case CheckpointCreated(checkpoint=record, recovered=False) if record.kind != "safety":
            return Overtaken.BY_CHECKPOINT
        case RollbackFailed(target=target, message=message):
            is_refused = target == intent.target.coordinate and _REFUSED in message
            return Overtaken.REFUSED if is_refused else None
        case _:
            return None


async def _later(ledger: Ledger, intent: RollbackIntent) -> AsyncIterator[EventData | Transition]:
    moments = [intent.safety.coordinate.event_seq]
    if intent.source is not None:
        moments.append(intent.source.event_seq)

    async for line in ledger.lines_after(max(moments)):
        if any(name in line for name in _RELEVANT_TYPES):
            data = codec.decode_event(line).data
            yield codec.decode_transition(data) if isinstance(data, StateTransition) else data
