"""Many clients at once: the same order, no delay by others, bounded memory for slow ones."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from hankweave_protocol.events import Info, Pong
from hankweave_server.transport.outbox import OutboxLimits
from support.small_server import NOON, RawClient, SmallRest, SmallServer, small_server
from support.waiting import LIMIT, eventually, limited

BIG = "x" * 10_000
EVENTS = 3_000  # Times 10 kB: far more than sockets and outboxes hold together.


async def collect(client: RawClient, upto: int, seqs: list[int]) -> None:
    while not seqs or seqs[-1] < upto:
        seqs.append((await client.receive())["seq"])


def stalled_socket(server: SmallServer) -> socket.socket:
    """Return a socket of a peer that completes the handshake and then never reads."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", server.listener.port))
    peer.sendall(
        f"GET /?token={server.controller} HTTP/1.1\r\nHost: 127.0.0.1:{server.listener.port}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    hello = b'{"type":"handshake","data":{"mode":"readonly"}}'
    # A masked text frame with a mask of zero.
    peer.sendall(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
    return peer


async def wait_for_live(server: SmallServer, count: int) -> None:
    await eventually(lambda: server.listener.hub.live_clients >= count)


async def publish_paced(rest: SmallRest, server: SmallServer) -> int:
    """Publish all events and return the largest number of bytes that waited for clients."""
    most = 0
    for _ in range(EVENTS):
        rest.publish(Info(message=BIG))
        waiting = server.listener.waiting_bytes
        most = max(most, waiting)
        await asyncio.sleep(0)

    return most


async def test_a_large_burst_disconnects_no_client_that_reads(tmp_path: Path) -> None:
    """Twice as many events as an outbox holds, published at once, are taken by the kernel."""
    count, rest = 2_000, SmallRest()
    async with small_server(tmp_path, rest) as server:
        received: list[list[int]] = [[] for _ in range(5)]
        with limited():
            async with anyio.create_task_group() as group:
                for seqs in received:
                    group.start_soon(_healthy, server, seqs, count)

                await wait_for_live(server, 5)
                for number in range(count):
                    rest.publish(Info(message=f"event {number}"))

        assert received == [list(range(1, count + 1))] * 5
        assert server.listener.evicted_clients == 0


async def test_a_peer_that_never_reads_is_cut_off_and_delays_no_other(tmp_path: Path) -> None:
    """Healthy clients get each event in order; the stalled one costs one outbox, then is closed."""
    rest = SmallRest()
    limits = OutboxLimits(messages=200, bytes=1_000_000, send_seconds=5, close_seconds=0.2)
    async with small_server(tmp_path, rest, outbox=limits) as server:
        peer = await asyncio.to_thread(stalled_socket, server)
        with limited():
            async with anyio.create_task_group() as group:
                received: list[list[int]] = [[] for _ in range(5)]
                await wait_for_live(server, 1)
                for seqs in received:
                    group.start_soon(_healthy, server, seqs)

                await wait_for_live(server, 6)
                most = await publish_paced(rest, server)

        assert received == [list(range(1, EVENTS + 1))] * 5
        assert server.listener.evicted_clients == 1
        await eventually(lambda: not server.listener.connections)

        assert most <= 6 * limits.bytes
        peer.close()


async def _healthy(server: SmallServer, seqs: list[int], upto: int = EVENTS) -> None:
    async with server.follower(mode="readonly") as client:
        await collect(client, upto, seqs)


async def test_a_slow_reader_is_closed_with_1013_after_a_stream_without_gaps(
    tmp_path: Path,
) -> None:
    """The frames it received are a prefix of the journal, and it can resume from there."""
    rest = SmallRest()
    limits = OutboxLimits(messages=50, send_seconds=LIMIT, close_seconds=LIMIT)
    async with (
        small_server(tmp_path, rest, outbox=limits) as server,
        server.follower(mode="readonly") as client,
    ):
        await wait_for_live(server, 1)
        client.socket.transport.pause_reading()
        while not server.listener.evicted_clients:
            rest.publish(Info(message=BIG))
            await asyncio.sleep(0)

        client.socket.transport.resume_reading()
        seqs: list[int] = []
        with limited(), pytest.raises(ConnectionClosed) as closed:
            await collect(client, EVENTS * 100, seqs)

        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) < len(rest.lines)


async def test_one_frame_that_is_not_taken_in_time_is_enough(tmp_path: Path) -> None:
    """The send deadline catches a client that stalls with few messages in its outbox."""
    rest = SmallRest()
    limits = OutboxLimits(send_seconds=0.1, close_seconds=0.1, bytes=2**30)
    async with (
        small_server(tmp_path, rest, outbox=limits) as server,
        server.follower(mode="readonly") as client,
    ):
        await wait_for_live(server, 1)
        client.socket.transport.pause_reading()
        for _ in range(3):
            rest.publish(Info(message="y" * 8_000_000))

        await eventually(lambda: not server.listener.connections)

        assert server.listener.evicted_clients == 1
        client.socket.transport.abort()


async def test_a_late_joiner_gets_all_events_once_while_more_happen(tmp_path: Path) -> None:
    """`sinceSeq` joins history and live stream without gap or duplicate, at any moment."""
    rest = SmallRest()
    for _ in range(1_000):
        rest.publish()

    async with small_server(tmp_path, rest) as server, anyio.create_task_group() as group:
        seqs: list[list[int]] = [[] for _ in range(4)]

        async def join(since: int, into: list[int]) -> None:
            async with server.follower(mode="readonly", sinceSeq=since) as client:
                await collect(client, 3_000, into)

        for index, into in enumerate(seqs):
            group.start_soon(join, index * 300, into)

        with limited():
            while len(rest.lines) < 3_000:
                rest.publish()
                await asyncio.sleep(0)

    for index, into in enumerate(seqs):
        assert into == list(range(index * 300 + 1, 3_001))


async def test_history_longer_than_an_outbox_does_not_evict(tmp_path: Path) -> None:
    """The history waits for the client: 30 MB pass through an outbox of 100 kB."""
    rest = SmallRest()
    for _ in range(EVENTS):
        rest.publish(Info(message=BIG))

    limits = OutboxLimits(bytes=100_000, send_seconds=LIMIT)
    async with (
        small_server(tmp_path, rest, outbox=limits) as server,
        server.follower(mode="readonly", sinceSeq=0) as client,
    ):
        seqs: list[int] = []
        with limited():
            await collect(client, EVENTS, seqs)

        assert seqs == list(range(1, EVENTS + 1))
        assert server.listener.evicted_clients == 0


async def test_an_event_counted_before_it_is_published_comes_once(tmp_path: Path) -> None:
    """A client that joins between an event's append and its publication gets it once."""
    rest = SmallRest()
    async with small_server(tmp_path, rest) as server:
        rest.hub = None
        rest.publish()
        async with server.follower(mode="readonly", sinceSeq=0) as client:
            assert (await client.receive())["seq"] == 1
            await wait_for_live(server, 1)
            server.listener.hub.publish(rest.lines[0], 1)
            rest.hub = server.listener.hub
            rest.publish()
            assert (await client.receive())["seq"] == 2


async def test_a_broadcast_reaches_all_without_a_seq(tmp_path: Path) -> None:
    """An event that is not journaled is sent to every live client."""
    async with (
        small_server(tmp_path) as server,
        server.follower(mode="readonly") as one,
        server.follower(mode="readonly") as two,
    ):
        await wait_for_live(server, 2)
        server.listener.hub.broadcast(Pong(message="pong", timestamp=NOON))
        for client in (one, two):
            pong = await client.receive()
            assert (pong["type"], "seq" in pong) == ("pong", False)
