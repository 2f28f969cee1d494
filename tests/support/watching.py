"""Waits for events of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.codec import decode_transition
from hankweave_protocol.commands import CommandData, ListCheckpoints, RollbackToCodon
from hankweave_protocol.events import (
    AssistantAction,
    CodonStartedEvent,
    Event,
    EventData,
    ServerIdle,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import CheckpointKind, CheckpointRecord
from hankweave_protocol.transitions import CheckpointCreated, Transition
from hankweave_server.domain.execution_thread import thread
from support.running_server import RunningServer, journal, served, state
from support.waiting import LIMIT


async def idle(client: Client, reason: str = "all-codons-completed") -> Event:
    """Wait until the server is idle for this reason."""
    return await client.until(
        ServerIdle, lambda event: getattr(event.data, "reason", None) == reason, timeout=LIMIT
    )


@asynccontextmanager
async def after_plan(
    hank: Path | None, execution: Path, *options: str, **how: Any
) -> AsyncIterator[tuple[RunningServer, Client]]:
    """Start a server, connect a client to it, and wait until all codons are completed.

    The arguments are those of `served`.
    """
    async with served(hank, execution, *options, **how) as (server, client):
        await idle(client)
        yield server, client


async def refused(client: Client, command: CommandData) -> CommandRefused:
    """Send a command that the server must refuse, and return the error."""
    with pytest.raises(CommandRefused) as caught:
        await client.send(command)

    return caught.value


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


def on_thread(execution: Path) -> list[str]:
    """Return the codons that led to the present state of an execution."""
    return [entry.codon.codon_id for entry in thread(state(execution))]


def to_end_of(codon_id: str, **fields: Any) -> RollbackToCodon:
    """Return the command that goes back to where a codon has ended."""
    return RollbackToCodon(codon_id=CodonId(codon_id), checkpoint_type="end", **fields)


def events_of(execution: Path, kind: type[EventData], since: int = 0) -> list[Any]:
    """Return the data of all journaled events of a type."""
    events = (event for event in journal(execution) if event.seq > since)
    return [event.data for event in events if isinstance(event.data, kind)]


def recalled(execution: Path) -> list[str]:
    """Return what agents have said to the step `{"recall": "I know"}`, oldest first."""
    actions = events_of(execution, AssistantAction)
    texts = (action.content for action in actions if action.action == "message")
    return [text for text in texts if text.startswith("I know")]


def transitions(execution: Path, kind: type[Transition]) -> list[Any]:
    """Return all journaled transitions of a type."""
    found = (decode_transition(each) for each in events_of(execution, StateTransition))
    return [each for each in found if isinstance(each, kind)]
