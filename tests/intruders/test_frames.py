"""Invalid frames: each ends its own connection or gets an error, and affects no other client."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from intruders.servers import Target, target
from intruders.tier import rounds
from intruders.wire import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    deaf_socket,
    frame,
    peer,
    port_of,
    request,
)
from support.small_server import small_server
from support.waiting import eventually, limited

MIB = 1024 * 1024
MALFORMED: dict[str, tuple[bytes, int]] = {
    # what: bytes, close code
    "a reserved bit": (frame(b"{}", rsv=2), 1002),
    "the bit of a compression that nobody agreed to": (frame(b"\x00", rsv=4), 1002),
    "a reserved opcode": (frame(b"{}", 0x3), 1002),
    "a reserved control opcode": (frame(b"", 0xB), 1002),
    "a ping in two parts": (frame(b"x", PING, fin=False), 1002),
    "a ping of 126 bytes": (frame(b"x" * 126, PING), 1002),
    "no mask": (frame(b"{}", mask=None), 1002),
    "a continuation of nothing": (frame(b"{}", 0x0), 1002),
    "a message inside another": (frame(b"{", fin=False) + frame(b"}"), 1002),
    "a close of one byte": (frame(b"\x03", CLOSE), 1002),
    "a close with a code that must not be sent": (frame(b"\x03\xed", CLOSE), 1002),
    "a close with a reason that is no UTF-8": (frame(b"\x03\xe8\xff", CLOSE), 1007),
    "a text that is no UTF-8": (frame(b'{"type":"\xff"}'), 1007),
    "a length with its highest bit set": (frame(length=1 << 63), 1009),
    "four gigabytes announced": (frame(length=1 << 32), 1009),
    "200 MB of zeros in one frame": (frame(bytes(64 * 1024), length=200_000_000), 1009),
    "200 MB of zeros in a thousand frames": (
        frame(bytes(60_000), fin=False) + frame(bytes(60_000), 0x0, fin=False) * 99,
        1009,
    ),
}


async def is_well(aim: Target) -> None:
    """Assert that a well-behaved client is served."""
    with limited():
        async with peer(aim.url, aim.controller) as honest:
            await honest.handshake()
            await honest.command("ping")


@pytest.mark.story("A malformed frame ends its own connection and no other.", of="SECURITY.md")
async def test_each_malformed_frame_ends_its_own_connection_with_its_code(tmp_path: Path) -> None:
    """The close code is 1002, 1007 or 1009, and a client on another connection is not affected."""
    async with target(tmp_path) as aim, peer(aim.url, aim.controller) as beside:
        await beside.handshake()
        for what, (data, code) in MALFORMED.items():
            async with peer(aim.url, aim.controller) as bad:
                await bad.handshake()
                bad.send(data)
                assert await bad.close_code() == code, what

        beside.send(frame(b'{"id":"p","type":"ping"}'))
        assert (await beside.message())["type"] == "pong"
        assert (await beside.message())["inReplyTo"] == "p"
        assert "Traceback" not in aim.log("server.log")


async def test_no_compression_is_agreed_to(tmp_path: Path) -> None:
    """A client that offers permessage-deflate gets no compression, so no bomb can expand."""
    async with small_server(tmp_path) as server:
        port = port_of(server.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
        writer.write(request(port, "/ws", offer))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.close()

    assert head.startswith(b"http/1.1 101 ")
    assert b"sec-websocket-extensions" not in head


async def _throw(aim: Target, data: bytes) -> None:
    """Send bytes on a connection after its handshake and wait for its end."""
    async with peer(aim.url, aim.controller) as bad:
        with contextlib.suppress(ConnectionError):
            bad.send(data)
            bad.writer.write_eof()
            await bad.close_code()


async def test_random_bytes_end_connections_and_nothing_else(tmp_path: Path) -> None:
    """After thousands of random streams and frames the server is healthy and its memory small."""
    dice = random.Random(20260105)
    async with target(tmp_path) as aim:
        for _ in range(50):
            await _throw(aim, dice.randbytes(200))

        before = aim.memory()
        count = rounds(1_000, 10_000)
        for _ in range(count // 2):
            await _throw(aim, dice.randbytes(dice.randint(1, 2_000)))

        opcodes = (0x0, TEXT, TEXT, TEXT, BINARY, 0x3, CLOSE, PING, 0xB)
        for _ in range(count // 20):
            stream = [
                frame(
                    dice.randbytes(dice.randint(0, 300)),
                    dice.choice(opcodes),
                    fin=dice.random() < 0.9,
                    rsv=dice.choice((0, 0, 0, 0, 1)),
                    mask=dice.randbytes(4),
                )
                for _ in range(10)
            ]
            await _throw(aim, b"".join(stream))

        await is_well(aim)
        assert aim.memory() - before < 5 * MIB
        assert "Traceback" not in aim.log("server.log")


async def test_a_flood_of_pings_that_are_never_read_costs_no_memory(tmp_path: Path) -> None:
    """Even before the token, the server stops reading from a peer that does not read its pongs."""
    async with target(tmp_path) as aim:
        before = aim.memory()
        pings, sent = frame(b"x" * 125, PING) * 500, 0
        with deaf_socket(port_of(aim.url)) as deaf:
            deaf.setblocking(False)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    sent += deaf.send(pings)

                await asyncio.sleep(0.001)

            assert sent > 4 * MIB, "it was a flood"
            assert aim.memory() - before < 8 * MIB
            await is_well(aim)


async def test_ten_thousand_messages_a_second_are_mostly_refused(tmp_path: Path) -> None:
    """The excess is refused with RATE_LIMITED; another client is served throughout."""
    async with target(tmp_path) as aim, peer(aim.url, aim.controller) as loud:
        await loud.handshake(mode="readonly")
        before, answers = aim.memory(), 0
        pings = b"".join(frame(b'{"id":"%d","type":"ping"}' % n) for n in range(500))

        async def listen() -> None:
            nonlocal answers
            while True:
                answers += (await loud.message())["type"].startswith("command.")

        async def shout() -> None:
            for _ in range(40):
                loud.send(pings)
                await loud.writer.drain()
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            listener = group.create_task(listen())
            shouting = group.create_task(shout())
            served = 0
            async with peer(aim.url, aim.controller) as calm:
                await calm.handshake()
                while not shouting.done():
                    calm.send(frame(b'{"id":"c","type":"ping"}'))
                    while (await calm.message()).get("inReplyTo") != "c":
                        pass

                    served += 1
                    await asyncio.sleep(0.05)

            await eventually(lambda: answers == 20_000)
            listener.cancel()

        assert served > 2
        assert aim.memory() - before < 16 * MIB


@pytest.mark.parametrize("half", [b"", b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpg"])
async def test_two_hundred_half_open_handshakes_block_no_client(
    tmp_path: Path, half: bytes
) -> None:
    """A real client connects beside the half-open handshakes, which end after the deadline."""
    async with small_server(tmp_path, handshake_seconds=2.0) as server:
        port = port_of(server.url)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for _, writer in silent:
            writer.write(half)

        await eventually(lambda: server.listener.connections >= 200)
        async with server.raw(mode="readonly"):
            await eventually(lambda: server.listener.connections == 1)
            assert server.listener.connections == 1, "the real client's"

        for _, writer in silent:
            writer.transport.abort()
