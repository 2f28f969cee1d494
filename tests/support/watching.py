"""Waits for events of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hankweave_client.client import Client
from hankweave_protocol.codec import decode_transition
from hankweave_protocol.commands import ListCheckpoints
from hankweave_protocol.events import (
    CodonStartedEvent,
    Event,
    EventData,
    ServerIdle,
    StateTransition,
)
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.transitions import CheckpointCreated, Transition
from support.running_server import journal
from support.waiting import LIMIT


async def idle(client: Client, reason: str = "all-codons-completed") -> Event:
    """Wait until the server is idle for this reason."""
    return await client.until(
        ServerIdle, lambda event: getattr(event.data, "reason", None) == reason, timeout=LIMIT
    )


async def started(client: Client, codon_id: str) -> Event:
    """Wait until the agent of a codon prints something."""
    return await client.until(
        CodonStartedEvent,
        lambda event: getattr(event.data, "codon_id", None) == codon_id,
        timeout=LIMIT,
    )


async def taken(client: Client, kind: CheckpointKind) -> CheckpointRecord:
    """Wait for the next checkpoint of a kind."""
    found: list[CheckpointRecord] = []

    def is_one(event: Event) -> bool:
        assert isinstance(event.data, StateTransition)
        match decode_transition(event.data):
            case CheckpointCreated(checkpoint=record) if record.kind == kind:
                found.append(record)

        return bool(found)

    await client.until(StateTransition, is_one, timeout=LIMIT)
    return found[0]


async def listed(client: Client) -> tuple[CheckpointRecord, ...]:
    """Return the checkpoints, newest first."""
    return (await client.send(ListCheckpoints())).checkpoints


def told(execution: Path, kind: type[EventData], since: int = 0) -> list[Any]:
    """Return the data of all journaled events of a type."""
    events = (event for event in journal(execution) if event.seq > since)
    return [event.data for event in events if isinstance(event.data, kind)]


def transitions(execution: Path, kind: type[Transition]) -> list[Any]:
    """Return all journaled transitions of a type."""
    found = (decode_transition(each) for each in told(execution, StateTransition))
    return [each for each in found if isinstance(each, kind)]
