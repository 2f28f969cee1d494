"""The intent of a rollback that was cut short, judged by what the journal has after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hankweave_protocol import codec
from hankweave_protocol.events import (
    CheckpointRollback,
    CodonStartedEvent,
    EventData,
    RollbackCompleted,
    RollbackFailed,
    StateTransition,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.records import CheckpointKind, RollbackIntent
from hankweave_protocol.transitions import CheckpointCreated
from hankweave_server.execution.rollback.intents import Overtaken, overtaken
from support.events import an_event, recorded
from support.histories import MOMENT, a_checkpoint

RUN = RunId("run")
TARGET = a_checkpoint("completed", RUN, None, 3)
INTENT = RollbackIntent(
    operation_id="ours",
    target=TARGET,
    safety=a_checkpoint("safety", RUN, None, 10),
    source=a_checkpoint("completed", RUN, None, 5).coordinate,
    from_run=RUN,
    to_run=None,
    after_codon=None,
    checkpoint_type="completed",
    codons_to_process=(),
    auto_restart=False,
    started_at=MOMENT,
)

STARTED = CodonStartedEvent(
    codon_id=CodonId("one"), codon_name="One", session_id="s", start_time=MOMENT
)


def restored(operation: str) -> CheckpointRollback:
    return CheckpointRollback(
        operation_id=operation,
        checkpoint=TARGET.sha,
        source=None,
        target=TARGET.coordinate,
        paths=None,
        report=None,
    )


def completed(operation: str) -> RollbackCompleted:
    return RollbackCompleted(
        from_run=RUN,
        to_run=RUN,
        checkpoint=TARGET.sha,
        codon_id=None,
        codon_name="",
        checkpoint_type="completed",
        auto_restart=False,
        operation_id=operation,
    )


def taken(kind: CheckpointKind, *, recovered: bool = False) -> StateTransition:
    checkpoint = a_checkpoint(kind, RUN, None, 20)
    return recorded(CheckpointCreated(checkpoint=checkpoint, recovered=recovered))


def failed(message: str, number: int = 3) -> RollbackFailed:
    place = a_checkpoint("completed", RUN, None, number).coordinate
    return RollbackFailed(target=place, message=message)


class Journal:
    """A ledger that has these events, the first of them with this number."""

    def __init__(self, first: int, *events: EventData) -> None:
        self._events = [an_event(data, seq) for seq, data in enumerate(events, start=first)]

    async def lines_after(self, since: int) -> AsyncIterator[bytes]:
        for event in self._events:
            if event.seq > since:
                yield codec.encode(event)


async def judged(*events: EventData, first: int = 11) -> Overtaken | None:
    ctx = SimpleNamespace(ledger=Journal(first, *events))
    return await overtaken(cast(Any, ctx), INTENT)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((), None),
        ((restored("ours"), completed("ours")), None),
        ((restored("another"),), Overtaken.BY_PLACE),
        ((completed("another"),), Overtaken.BY_PLACE),
        ((STARTED,), Overtaken.BY_PLACE),
        ((taken("manual"),), Overtaken.BY_CHECKPOINT),
        ((taken("safety"),), None),
        ((taken("manual", recovered=True),), None),
        ((taken("manual"), STARTED, taken("manual")), Overtaken.BY_PLACE),
        ((failed("2 paths could not be restored"),), Overtaken.REFUSED),
        ((failed("2 paths could not be restored", number=4),), None),
        ((failed("the disk is full"),), None),
    ],
)
async def test_what_changed_files_after_an_intent_overtakes_it(
    events: tuple[EventData, ...], reason: Overtaken | None
) -> None:
    """A codon or another rollback does, and a checkpoint of files that were acknowledged."""
    assert await judged(*events) is reason


async def test_what_happened_before_an_intent_does_not_overtake_it() -> None:
    """Nor does what came between the checkpoint that the rollback left and its own."""
    assert await judged(STARTED, taken("manual"), first=6) is None
