"""WebSocket frames built by hand: invalid ones, and clients cheap enough for a crowd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from support.waiting import limited

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_numbers = count(1)
NO_MASK = bytes(4)
"""A mask of zeros leaves the payload unchanged."""


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = NO_MASK,
    length: int | None = None,
) -> bytes:
    """Build one client frame; `length` overrides the real length, `mask` None omits the mask."""
    size = len(payload) if length is None else length
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    masked = 0 if mask is None else 0x80
    if size < 126:
        head = struct.pack("!BB", first, masked | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first, masked | 127, size)

    return head + (mask or b"") + payload


def request(port: int, path: str = "/ws", *headers: str, host: str | None = None) -> bytes:
    """Build the request that asks for an upgrade."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{port}'}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@dataclass(frozen=True)
class Peer:
    """A connection after the upgrade, frame by frame."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> tuple[int, bytes]:
        """Read one server frame, or a message whose fragments follow each other."""
        opcode, payload, is_whole = await self._frame()
        while not is_whole:
            following, more, is_whole = await self._frame()
            assert following == CONTINUATION, following
            payload += more

        return opcode, payload

    async def _frame(self) -> tuple[int, bytes, bool]:
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))

        return first & 0x0F, await self.reader.readexactly(size), bool(first & 0x80)

    async def message(self) -> Any:
        """Read the next message as JSON; skip the server's pings."""
        opcode, payload = await self.frame()
        while opcode in (PING, PONG):
            opcode, payload = await self.frame()

        assert opcode == TEXT, (opcode, payload)
        return msgspec.json.decode(payload)

    async def close_code(self) -> int | None:
        """Read to the end; return the server's close code, or None without a close frame."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), limited():
            while True:
                opcode, payload = await self.frame()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big") if payload else 1005

        return None

    async def handshake(self, **hello: Any) -> None:
        """Shake hands as a protocolVersion client and read the three first frames."""
        data = {"mode": "readandwrite", "protocolVersion": 1} | hello
        self.send(frame(msgspec.json.encode({"type": "handshake", "data": data})))
        kinds = [(await self.message())["type"] for _ in range(3)]
        assert kinds == ["handshake.response", "server.ready", "state.snapshot"]

    async def command(self, name: str, /, **data: Any) -> Any:
        """Send a command and wait for its reply."""
        command_id = f"{name}-{next(_numbers)}"
        self.send(frame(msgspec.json.encode({"id": command_id, "type": name, "data": data})))
        with limited():
            while (reply := await self.message()).get("inReplyTo") != command_id:
                pass

        return reply

    async def newest_checkpoint(self) -> str:
        listed = await self.command("checkpoint.list")
        return str(listed["data"]["checkpoints"][0]["sha"])


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@asynccontextmanager
async def peer(url: str, token: str | None = None, *headers: str) -> AsyncIterator[Peer]:
    """Connect and upgrade by hand; abort the connection at the end."""
    port = port_of(url)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        path = "/ws" if token is None else f"/ws?token={token}"
        writer.write(request(port, path, *headers))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def open_socket(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a Unix socket with a path of any length; an address holds 107 bytes."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        connection.close()
        raise

    connection.setblocking(False)
    return await asyncio.open_unix_connection(sock=connection, limit=2**24)


@asynccontextmanager
async def socket_peer(path: Path) -> AsyncIterator[Peer]:
    """Connect to the Unix socket of an agent, upgrade by hand, and abort at the end."""
    reader, writer = await open_socket(path)
    try:
        writer.write(request(0))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def ask(port: int, data: bytes) -> bytes:
    """Send raw bytes and return everything received until the server disconnects."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        with limited():
            return await reader.read()

    finally:
        writer.transport.abort()


def deaf_socket(port: int, token: str | None = None, hello: bytes | None = None) -> socket.socket:
    """Open a socket that upgrades, optionally sends hello, and never reads a byte."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", port))
    deaf.sendall(request(port, "/ws" if token is None else f"/ws?token={token}"))
    if hello is not None:
        deaf.sendall(frame(hello))

    return deaf


def taken_apart(stream: bytes) -> tuple[list[bytes], bytes]:
    """Return the payloads of the whole frames at the start of a server's stream, and the rest."""
    messages: list[bytes] = []
    at = 0
    while at + 10 <= len(stream):
        size, head = stream[at + 1] & 0x7F, 2
        if size == 126:
            size, head = int.from_bytes(stream[at + 2 : at + 4], "big"), 4
        elif size == 127:
            size, head = int.from_bytes(stream[at + 2 : at + 10], "big"), 10

        if at + head + size > len(stream):
            break

        messages.append(stream[at + head : at + head + size])
        at += head + size

    return messages, stream[at:]
