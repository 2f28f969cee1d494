"""The client that sends a command, and the answer that it gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hankweave_protocol.events import EventData
from hankweave_protocol.ids import ClientId
from hankweave_protocol.replies import Mode


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a command, as granted by the handshake."""

    client_id: ClientId
    mode: Mode
    """With `readonly`, its requests must not add events to the journal."""
    wants_replies: bool
    """True if the client sent `protocolVersion`."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of a command for its caller."""

    data: object = None
    """The reply's data, anything msgspec can encode; None if there is nothing to report."""
    events: Iterable[EventData] = ()
    """Events for the caller alone, created and encoded as they are sent, before the reply."""
    history_since: int | None = None
    """Send the journal's events after this seq, before anything else."""
