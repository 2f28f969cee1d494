"""One connection: the handshake, then frames in both directions."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, TypeVar

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from hankweave_client.discovery import Address
from hankweave_client.errors import (
    CommandRefused,
    ConnectionLost,
    NotRunning,
    Unauthorized,
    Unreadable,
)
from hankweave_protocol import PROTOCOL_VERSION
from hankweave_protocol.codec import decode_envelope, decode_event, decode_value, encode
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, ServerReady, StateSnapshot
from hankweave_protocol.replies import (
    CommandFailed,
    Handshake,
    HandshakeData,
    HandshakeResponse,
    HandshakeResponseData,
    Mode,
)

OPEN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
MAX_FRAME = 64 * 1024 * 1024  # A snapshot of a large work tree has a large file tree.
UNAUTHORIZED_STATUS = 401

D = TypeVar("D", bound=EventData)


class Link:
    """A connection after its handshake."""

    def __init__(
        self,
        socket: ClientConnection,
        response: HandshakeResponseData,
        ready: ServerReady,
        snapshot: StateSnapshot | None,
    ) -> None:
        self._socket = socket
        self.response = response
        self.ready = ready
        self.snapshot = snapshot

    @classmethod
    async def open(
        cls,
        address: Address,
        mode: Mode,
        since_seq: int | None,
        name: str | None = None,
        *,
        progress: bool = False,
    ) -> Link:
        """Connect and do the handshake.

        Raises NotRunning, Unauthorized, ConnectionLost, Unreadable or TimeoutError if that fails,
        and CommandRefused if the server does not accept the handshake.
        """
        with anyio.move_on_after(OPEN_SECONDS):
            socket = await _connect(address)
            is_agent = address.socket is not None
            try:
                return await cls._handshake(
                    socket, mode, since_seq, name, progress=progress, is_agent=is_agent
                )
            except Refused as fault:
                socket.transport.abort()
                raise Unreadable(fault) from None
            except BaseException:
                socket.transport.abort()
                raise

        raise TimeoutError(f"{address.url} did not answer within {OPEN_SECONDS:g} seconds.")

    @classmethod
    async def _handshake(
        cls,
        socket: ClientConnection,
        mode: Mode,
        since_seq: int | None,
        name: str | None,
        *,
        progress: bool,
        is_agent: bool,
    ) -> Link:
        hello = HandshakeData(
            mode=mode,
            protocol_version=PROTOCOL_VERSION,
            since_seq=since_seq,
            client_name=name,
            progress=progress,
        )
        await _send(socket, encode(Handshake(data=hello)))
        response = _response_in(await _receive(socket))
        ready = _event_in(await _receive(socket), ServerReady)
        snapshot = None if is_agent else _event_in(await _receive(socket), StateSnapshot)
        return cls(socket, response, ready, snapshot)

    async def send(self, frame: bytes) -> None:
        """Send a frame; raise ConnectionLost."""
        await _send(self._socket, frame)

    async def receive(self) -> str:
        """Wait for the next frame; raise ConnectionLost."""
        return await _receive(self._socket)

    async def aclose(self) -> None:
        """Close the connection, waiting for the peer only briefly."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._socket.close()

        self.abort()

    def abort(self) -> None:
        self._socket.transport.abort()


async def _connect(address: Address) -> ClientConnection:
    headers = {} if address.token is None else {"Authorization": f"Bearer {address.token}"}
    options: dict[str, Any] = {} if address.socket is None else {"sock": _opened(address.socket)}
    try:
        return await connect_websocket(
            address.url,
            additional_headers=headers,
            **options,
            compression=None,
            proxy=None,
            max_size=MAX_FRAME,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as refusal:
        if refusal.response.status_code == UNAUTHORIZED_STATUS:
            raise Unauthorized(f"The token does not hold at {address.url}.") from None

        raise ConnectionLost(
            f"{address.url} answered {refusal.response.status_code}: "
            f"{refusal.response.body.decode('utf-8', 'replace').strip()}"
        ) from None
    except InvalidHandshake as fault:
        raise ConnectionLost(f"{address.url} is no WebSocket: {fault}") from None
    except ConnectionRefusedError:
        raise NotRunning(f"Nobody listens at {address.url}.") from None


def _opened(path: Path) -> socket.socket:
    """Connect to a Unix socket; raise NotRunning if none listens there.

    A path may be too long for a socket address, so the folder is named by a descriptor.
    """
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            opened.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except (FileNotFoundError, ConnectionRefusedError):
        opened.close()
        raise NotRunning("The codon of this agent has ended, and its socket with it.") from None
    except OSError:
        opened.close()
        raise

    opened.setblocking(False)
    return opened


async def _send(socket: ClientConnection, frame: bytes) -> None:
    try:
        await socket.send(frame, text=True)
    except ConnectionClosed as closed:
        raise _loss(closed) from None


async def _receive(socket: ClientConnection) -> str:
    try:
        return await socket.recv(decode=True)
    except ConnectionClosed as closed:
        raise _loss(closed) from None


def _loss(closed: ConnectionClosed) -> ConnectionLost:
    close_frame = closed.rcvd
    if close_frame is None:
        return ConnectionLost("The connection broke.")

    reason = f" ({close_frame.reason})" if close_frame.reason else ""
    return ConnectionLost(
        f"The server closed the connection with {close_frame.code}{reason}.",
        orderly=close_frame.code in {1000, 1001},
    )


def _response_in(frame: str) -> HandshakeResponseData:
    match decode_envelope(frame).type:
        case "handshake.response":
            return decode_value(HandshakeResponse, frame).data
        case "command.failed":
            failure = decode_value(CommandFailed, frame).data
            if failure.code is ErrorCode.UNAUTHORIZED:
                raise Unauthorized(failure.message)

            raise CommandRefused(failure)
        case kind:
            raise ConnectionLost(f"The handshake was answered by {kind!r}.")


def _event_in(frame: str, wanted: type[D]) -> D:
    data = decode_event(frame).data
    if not isinstance(data, wanted):
        raise ConnectionLost(f"Instead of {wanted.TYPE} came {data.TYPE}.")

    return data
