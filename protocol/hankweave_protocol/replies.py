"""What the server says to one client: the handshake and the answers to commands.

Only a client that sent `protocolVersion` in its handshake gets `command.succeeded` and
`command.failed`; the others get Hankweave's events instead (DESIGN 9).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.ids import ClientId, CodonId, CommandId, RunId
from hankweave_protocol.records import CheckpointRecord, RuntimeLock
from hankweave_protocol.shapes import Value

Mode = Literal["readonly", "readandwrite"]


class HandshakeData(Value):
    mode: Mode
    send_previous_events: bool = False
    protocol_version: int | None = None
    since_seq: int | None = None
    """The last seq the client has; it gets all later events, without gap or duplicate."""
    token: str | None = None


class Handshake(Value, tag_field="type", tag="handshake"):
    data: HandshakeData


class HandshakeResponseData(Value):
    client_id: ClientId
    mode: Mode
    """What was granted: never more than the token's role allows."""
    event_history: tuple[msgspec.Raw, ...]
    """Newest first, at most 50; only where `sendPreviousEvents` asked for it."""
    total_events: int


class HandshakeResponse(Value, tag_field="type", tag="handshake.response"):
    data: HandshakeResponseData


class CommandSucceeded(Value, tag_field="type", tag="command.succeeded"):
    in_reply_to: CommandId
    timestamp: str
    data: msgspec.Raw
    """`null` where the command answers with nothing but that it was done."""


class Failure(Value):
    code: ErrorCode
    message: str
    path: str | None = None
    """JSON path into the command."""
    hint: str | None = None


class CommandFailed(Value, tag_field="type", tag="command.failed"):
    in_reply_to: CommandId | None
    """Null where the frame had no readable id."""
    timestamp: str
    data: Failure


class CheckpointPage(Value):
    """The answer to `checkpoint.list`: newest first."""

    checkpoints: tuple[CheckpointRecord, ...]
    current_branch: str | None
    """None while HEAD is detached, after a rollback and before the next checkpoint."""
    cursor: str | None = None
    """Give it back to get the next page; absent on the last one."""


class ServerStatus(Value):
    """The answer to `server.status`."""

    server_version: str
    pid: int
    execution_path: str
    started_at: str
    uptime_ms: int
    current_run_id: RunId | None
    active_codon_id: CodonId | None
    next_codon_id: CodonId | None
    is_rolling_back: bool
    last_event_seq: int
    total_cost: float
    """USD, over all runs."""
    checkpoints: int
    clients: int
    lock: RuntimeLock
    store_bytes: int
    """Size of the shadow repository on disk."""
