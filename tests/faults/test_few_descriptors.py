"""A server that has no file descriptor left."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio

from hankweave_client.client import Client
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused
from support.invariants import Told, violations
from support.running_server import command, running_server
from support.scripted_hank import codon, write_hank, writes
from support.struck import Tally, kill, process_of, session

DESCRIPTORS = 48
CONNECTIONS = 100


async def test_a_server_without_descriptors_gets_over_it(tmp_path: Path, tally: Tally) -> None:
    """A hundred connections at a limit of 48 descriptors: once they leave, all goes on."""
    execution, told = tmp_path / "execution", Told()
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1")))
    words = command("run", str(hank), "--execution", str(execution), "--json")
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *words]
    async with process_of(limited) as server, anyio.create_task_group() as group:
        assert await server.until('"all-codons-completed"'), server.lines
        group.start_soon(server.to_its_end)
        port = int(discover(execution).url.rpartition(":")[2].split("/")[0])
        async with session(execution) as client:
            with crowd(port):
                await _save(client, told)

            with anyio.fail_after(30):
                while not told.checkpoints:
                    await _save(client, told)
                    await anyio.sleep(0.2)

        kill(server.process)

    async with running_server(None, None, execution, "--no-autostart") as again:
        assert await again.stop() == 0

    found = violations(execution, told)
    tally.rounds["no descriptors"] += 1
    tally.acknowledgements += told.acknowledgements
    tally.violations += found
    assert found == []


@contextmanager
def crowd(port: int) -> Iterator[None]:
    """More connections than the server has descriptors; nobody on them says a word."""
    with ExitStack() as all_of_them:
        for _ in range(CONNECTIONS):
            all_of_them.enter_context(socket.create_connection(("127.0.0.1", port)))

        yield


async def _save(client: Client, told: Told) -> None:
    with contextlib.suppress(CommandRefused):
        told.checkpoints.append(await client.create_checkpoint())
