"""A client that does not read beside many that do, and a client that is cut off again and again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from hankweave_client.discovery import discover
from hankweave_protocol.commands import CodonNext
from hankweave_protocol.events import Info
from intruders.tier import IS_LONG, rounds
from intruders.wire import deaf_socket, frame, peer, port_of, request, taken_apart
from support.running_server import journal, running_server
from support.scripted_hank import codon, write_hank
from support.small_server import SmallRest, SmallServer, small_server
from support.waiting import eventually
from support.watching import idle

HEALTHY = 50
RATE = 1_000
TEXT_SIZE = 1_500
HELLO = b'{"type":"handshake","data":{"mode":"readonly","protocolVersion":1}}'
MIB = 1024 * 1024


class Reader(asyncio.Protocol):
    """A well-behaved client that uses few resources."""

    def __init__(self, port: int, token: str) -> None:
        self._hello = request(port, f"/ws?token={token}")
        self._rest = b""
        self._is_upgraded = False
        self._heard_at = 0.0
        self.received = 0
        """The number of events received; a count implies that their seqs were 1, 2, 3 …"""
        self.longest_silence = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._hello + frame(HELLO))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if self.received:
            self.longest_silence = max(self.longest_silence, now - self._heard_at)

        self._heard_at = now
        self._rest += data
        if not self._is_upgraded:
            _, end, self._rest = self._rest.partition(b"\r\n\r\n")
            self._is_upgraded = bool(end)

        messages, self._rest = taken_apart(self._rest)
        for message in messages:
            if b',"seq":' in message[:60]:
                assert message.startswith(b'{"id":"e%d","seq"' % (self.received + 1)), message[:60]
                self.received += 1


async def crowd(server: SmallServer) -> list[Reader]:
    loop, port = asyncio.get_running_loop(), port_of(server.url)
    readers = [Reader(port, server.viewer) for _ in range(HEALTHY)]
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", port)

    await eventually(lambda: server.listener.hub.live_clients >= HEALTHY)
    return readers


async def publish(rest: SmallRest, server: SmallServer, count: int) -> tuple[int, float]:
    """Publish at the rate; return the maximum backlog for clients, and the longest own pause."""
    begun = before = time.monotonic()
    most, pause = 0, 0.0
    for number in range(count):
        rest.publish(Info(message="x" * TEXT_SIZE))
        most = max(most, server.listener.waiting_bytes)
        await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        now = time.monotonic()
        pause, before = max(pause, now - before), now

    return most, pause


async def test_a_dead_reader_delays_none_of_fifty(tmp_path: Path) -> None:
    """At 1,000 events a second it is cut off; the others get each event in order and on time."""
    rest, count = SmallRest(), rounds(5, 10) * RATE
    async with small_server(tmp_path, rest) as server:
        readers = await crowd(server)
        with deaf_socket(port_of(server.url), server.viewer, HELLO):
            await eventually(lambda: server.listener.hub.live_clients == HEALTHY + 1)
            most, pause = await publish(rest, server, count)
            await eventually(lambda: all(reader.received == count for reader in readers))
            assert server.listener.evicted_clients == 1
            assert most <= (4 + 1) * MIB, "one outbox, and little more"

    # Publisher and readers share this process: a pause of it is not a delay by the server.
    assert max(reader.longest_silence for reader in readers) < 0.5 + pause


async def peak_of(folder: Path, deaf_ones: int) -> int:
    """Run an agent whose output exceeds all buffers; return the peak memory of its server."""
    talk = [{"say": "y" * 40_000} for _ in range(240)]
    hank = write_hank(folder / "hank", codon("one", *talk))
    async with running_server(hank, None, folder / "execution", "--no-autostart") as server:
        address = discover(server.execution)
        log = server.execution / ".hankweave" / "logs" / "server.log"
        with contextlib.ExitStack() as ears:
            for _ in range(deaf_ones):
                ears.enter_context(deaf_socket(port_of(address.url), address.token, HELLO))

            async with server.client(since_seq=0) as client:
                await client.send(CodonNext())
                await idle(client)

            await eventually(
                lambda: log.read_text().count("A client was disconnected") == deaf_ones
            )

        status = Path(f"/proc/{server.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def test_a_dead_reader_costs_little_memory(tmp_path: Path) -> None:
    """A real server that sends 10 MB needs at most 8 MiB more with a dead reader than without."""
    # Other memory depends on how busy the machine is, and only ever adds.
    with_it, without = [], []
    for attempt in range(3):
        without.append(await peak_of(tmp_path / f"without-{attempt}", 0))
        with_it.append(await peak_of(tmp_path / f"with-{attempt}", 1))
        if min(with_it) - max(without) <= 8 * MIB:
            break

    assert min(with_it) - max(without) <= 8 * MIB


async def test_who_is_cut_off_again_and_again_misses_nothing(tmp_path: Path) -> None:
    """While an agent prints, each reconnect with `sinceSeq` continues with the very next event."""
    dice = random.Random(5)
    talk = [{"say": f"word {number}"} for number in range(rounds(2_000, 5_000))]
    hank = write_hank(tmp_path / "hank", codon("one", *talk))
    async with running_server(hank, None, tmp_path / "execution", "--no-autostart") as server:
        address = discover(server.execution)
        async with server.client() as controller:
            await controller.send(CodonNext())

        seqs: list[int] = []
        returns, is_over = 0, False
        while not is_over:
            returns += 1
            async with peer(address.url, address.token) as client:
                await client.handshake(mode="readonly", sinceSeq=len(seqs))
                left = dice.randint(1, 150)
                while left and not is_over:
                    event = await client.message()
                    seqs.append(event["seq"])
                    left, is_over = left - 1, "all-codons-completed" in str(event["data"])

        assert returns > 20
        assert seqs == list(range(1, len(seqs) + 1))
        assert [event.seq for event in journal(server.execution)] == seqs


@pytest.mark.skipif(not IS_LONG, reason="takes 45 seconds: set HANKWEAVE_LONG_TIER=1")
async def test_a_peer_that_vanished_is_noticed(tmp_path: Path) -> None:
    """A peer that stops answering pings without closing is dropped after 45 seconds."""
    async with small_server(tmp_path) as server, peer(server.url, server.viewer) as gone:
        gone.send(frame(HELLO))
        await eventually(lambda: server.listener.hub.live_clients == 1)
        await eventually(lambda: server.listener.connections == 0)
        assert server.listener.hub.live_clients == 0
