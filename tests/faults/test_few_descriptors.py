"""A server with too few file descriptors for its connections."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError

import anyio
import anyio.to_thread
import pytest

from hankweave_client.discovery import discover
from hankweave_protocol.commands import CheckpointCreate, GetServerStatus
from hankweave_protocol.events import ServerDegraded, ServerRecovered
from hankweave_server.paths import Layout
from support.invariants import Acknowledged, violations
from support.running_server import command, running_server, state
from support.scripted_hank import codon, write_hank, writes
from support.struck import kill, process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.waiting import LIMIT, eventually
from support.watching import events_of

CONNECTIONS = 100
FAST = 48
FEW_BYTES = 64 * 1024
"""A log with one line for each problem; a line for each refusal would be megabytes."""


@pytest.mark.parametrize("descriptors", [36, FAST, 64])
async def test_a_crowd_of_connections_takes_nothing_from_connected_clients(
    tmp_path: Path, tier: Tier, tally: Tally, descriptors: int
) -> None:
    """With few descriptors a hundred connections are turned away, and work and events continue."""
    if descriptors != FAST and not tier.is_long:
        pytest.skip("in the long tier only")

    execution, acknowledged = tmp_path / "execution", Acknowledged()
    layout = Layout.of_execution(execution)
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1")))
    argv = command("run", str(hank), "--execution", str(execution), "--json", "--no-autostart")
    limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *argv]
    async with process_of(limited) as server, anyio.create_task_group() as group:
        assert await server.until('"server.ready"'), server.lines
        group.start_soon(server.to_its_end)
        port = int(discover(execution).url.rpartition(":")[2].split("/")[0])
        async with session(execution) as client:
            logged = layout.server_log.stat().st_size
            with crowd(port):
                await client.until(ServerDegraded, timeout=LIMIT)
                status = await client.send(GetServerStatus())
                assert [problem.code for problem in status.problems] == ["OUT_OF_DESCRIPTORS"]
                acknowledged.checkpoints.append(
                    await client.send(CheckpointCreate(label="in the crowd"))
                )
                assert (
                    state(execution).last_event_seq
                    >= acknowledged.checkpoints[0].coordinate.event_seq
                )
                if tier.is_long:
                    await _beats(layout)

            await client.until(ServerRecovered, timeout=LIMIT)
            assert (await client.send(GetServerStatus())).problems == ()
            assert await anyio.to_thread.run_sync(_readiness, port) == 200
            acknowledged.checkpoints.append(
                await client.send(CheckpointCreate(label="alone again"))
            )
            assert layout.server_log.stat().st_size - logged < FEW_BYTES

        kill(server.process)

    assert len(events_of(execution, ServerDegraded)) == len(events_of(execution, ServerRecovered))
    async with running_server(None, None, execution, "--no-autostart") as again:
        assert await again.stop() == 0

    found = violations(execution, acknowledged)
    tally.add("few descriptors", acknowledged=acknowledged.count, violations=found)
    assert found == []


async def _beats(layout: Layout) -> None:
    """Wait for the next heartbeat, which writes a file and renames it."""
    before = json.loads(layout.runtime_lock.read_bytes())["lastHeartbeat"]
    await eventually(
        lambda: json.loads(layout.runtime_lock.read_bytes())["lastHeartbeat"] != before
    )


def _readiness(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=LIMIT) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        return refusal.code


@contextmanager
def crowd(port: int) -> Iterator[None]:
    """Open more connections than the server has descriptors; none of them sends a byte."""
    with ExitStack() as all_of_them:
        for _ in range(CONNECTIONS):
            with suppress(ConnectionError):
                all_of_them.enter_context(socket.create_connection(("127.0.0.1", port)))

        yield
