"""Crowds that request the whole journal: their cost, and what the clients that read receive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hankweave_client.discovery import discover
from intruders.tier import rounds
from intruders.wire import Peer, frame, peer
from support.late_crowd import (
    KIB,
    MIB,
    READONLY,
    LateCrowd,
    forget_peak,
    peak,
    resident,
    server_with_journal,
    settled,
)
from support.running_server import RunningServer
from support.waiting import eventually, limited

CLIENTS = rounds(250, 1_000)
EACH = 64 * KIB
"""The limit for a thousand clients is 64 MB, their connections included."""
RETURNED = 8 * KIB
CONSTANT = 8 * MIB
"""Pages of the journal and of the traffic log, independent of the number of clients."""


async def test_a_crowd_that_asks_for_everything_and_reads_nothing_costs_little(
    tmp_path: Path,
) -> None:
    """The crowd's memory is bounded, returned in part, and used again by the next crowd.

    Python returns an arena of 1 MiB when no object in it is left; with PYTHONMALLOC=malloc, nearly
    everything is returned.
    """
    async with server_with_journal(tmp_path, megabytes=8) as server:
        before = await settled(server)
        first = await _peak_of_a_crowd(server)
        assert first - before <= CLIENTS * EACH + CONSTANT
        await eventually(lambda: resident(server.pid) <= first - CLIENTS * RETURNED)
        assert await _peak_of_a_crowd(server) <= first + CONSTANT


async def _peak_of_a_crowd(server: RunningServer) -> int:
    """Return the most resident memory while a crowd asks for everything and reads nothing."""
    forget_peak(server.pid)
    with LateCrowd(server) as crowd:
        await crowd.connect(CLIENTS)
        for _ in range(8):
            await anyio.sleep(0.25)  # The server sends as much as the sockets accept.
            crowd.sip(3_000)

        return peak(server.pid)


@pytest.mark.story(
    "A crowd that asks for everything and reads nothing delays no other client.",
    of="docs/figures.md",
)
async def test_those_that_read_beside_a_crowd_get_each_event_once(tmp_path: Path) -> None:
    """`sinceSeq`, `history.sync` and `sendPreviousEvents` deliver every event exactly once."""
    async with server_with_journal(tmp_path, megabytes=3) as server:
        events = server.execution / ".hankweave" / "events" / "events.jsonl"
        lines = [msgspec.json.decode(line) for line in events.read_bytes().splitlines()]
        with LateCrowd(server) as crowd:
            await crowd.connect(60)
            with limited():
                async with anyio.create_task_group() as group:
                    for since in (0, 0, 7, len(lines) // 2):
                        group.start_soon(_catch_up, server.execution, since, lines)
                        group.start_soon(_synchronize, server.execution, since, lines)

                    group.start_soon(_read_history, server.execution, lines)


async def _catch_up(execution: Path, since: int, lines: list[Any]) -> None:
    address = discover(execution)
    async with peer(address.url, address.token) as client:
        await client.handshake(mode="readonly", sinceSeq=since)
        for line in lines[since:]:
            assert await client.message() == line

        await client.command("ping")


async def _synchronize(execution: Path, since: int, lines: list[Any]) -> None:
    address = discover(execution)
    async with peer(address.url, address.token) as client:
        await client.handshake(mode="readonly")
        asked = {"id": "sync", "type": "history.sync", "data": {"sinceSeq": since}}
        client.send(frame(msgspec.json.encode(asked)))
        assert await _batches(client) == lines[since:]
        assert (await client.message())["inReplyTo"] == "sync"


async def _batches(client: Peer) -> list[Any]:
    found: list[Any] = []
    while True:
        data = (await client.message())["data"]
        found += data["events"]
        if not data["hasMore"]:
            return found


async def _read_history(execution: Path, lines: list[Any]) -> None:
    address = discover(execution)
    async with peer(address.url, address.token) as client:
        hello = {"type": "handshake", "data": READONLY | {"sendPreviousEvents": True}}
        client.send(frame(msgspec.json.encode(hello)))
        response = await client.message()
        assert response["data"]["eventHistory"] == lines[:-51:-1]
