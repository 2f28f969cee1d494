"""The frames that go to one client: replies, failures, and events without a seq."""

from __future__ import annotations

import uuid

import msgspec

from hankweave_protocol.codec import encode
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ErrorEvent, EventData
from hankweave_protocol.ids import CommandId
from hankweave_protocol.instants import to_text
from hankweave_protocol.replies import CommandFailed, CommandSucceeded, Failure
from hankweave_protocol.shapes import Value
from hankweave_server.clock import Clock


class _TargetedEvent(Value):
    """An event that is not journaled: Hankweave's four fields, and no seq."""

    id: str
    timestamp: str
    type: str
    data: EventData


def event_frame(data: EventData, clock: Clock) -> bytes:
    """Encodes an event for one client, or one for all that the journal does not hold."""
    return encode(
        _TargetedEvent(
            id=str(uuid.uuid4()), timestamp=to_text(clock.now()), type=data.TYPE, data=data
        )
    )


def success_frame(command_id: CommandId, data: object | None, clock: Clock) -> bytes:
    return encode(
        CommandSucceeded(
            in_reply_to=command_id,
            timestamp=to_text(clock.now()),
            data=msgspec.Raw(encode(data)),
        )
    )


def failure_frame(refusal: Refused, command_id: CommandId | None, clock: Clock) -> bytes:
    """The answer of a refused frame for a client that sent `protocolVersion`."""
    return encode(
        CommandFailed(
            in_reply_to=command_id,
            timestamp=to_text(clock.now()),
            data=Failure(
                code=refusal.code, message=refusal.message, path=refusal.path, hint=refusal.hint
            ),
        )
    )


def error_frame(refusal: Refused, context: str | None, clock: Clock) -> bytes:
    """The same for a client of Hankweave: its `error` event, to this client alone."""
    hint = f" {refusal.hint}" if refusal.hint else ""
    return event_frame(
        ErrorEvent(
            message=refusal.message + hint,
            fatal=False,
            severity="operation",
            code=refusal.code.value,
            context=context,
        ),
        clock,
    )
