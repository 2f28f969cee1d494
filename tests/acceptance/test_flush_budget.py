"""Claims about the wait of a client: the flushes from a command to its reply, in all threads.

Each flush costs a fraction of a millisecond on an idle disk and many on a busy one. They are
counted by a library that is loaded before libc, so those of libgit2 count as well.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from hankweave_client.client import Client
from hankweave_protocol.commands import CheckpointCreate, GetState, RollbackToCheckpoint
from hankweave_server.ledger.typescript_format import decode_state
from support.flushes import FlushCounter
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually
from support.watching import after_plan

QUIET_SECONDS = 1.0
"""The server flushes state.json within a quarter of a second, if it gets a processor."""


@dataclass
class Counted:
    """A server that idles after its plan, a client of it, and the number of its flushes so far."""

    client: Client
    execution: Path
    counter: FlushCounter

    @property
    def files(self) -> Path:
        return self.execution / "agentRoot"

    async def is_quiet(self) -> None:
        """Wait until state.json holds the state of the server, and nothing is flushed."""
        saved = self.execution / ".hankweave" / "state.json"
        seen, since = -1, 0.0

        async def holds() -> bool:
            nonlocal seen, since
            if (count := self.counter.count()) != seen:
                seen, since = count, time.monotonic()

            answer = await self.client.send(GetState())
            on_disk = decode_state(saved.read_bytes())
            # An event that changes nothing else is not a reason to save its seq.
            is_saved = replace(answer, last_event_seq=0) == replace(on_disk, last_event_seq=0)
            return is_saved and time.monotonic() - since > QUIET_SECONDS

        await eventually(holds)

    async def cost(self, reply: Awaitable[object]) -> int:
        """Return the flushes from a command to its reply."""
        before = self.counter.count()
        await reply
        return self.counter.count() - before


@asynccontextmanager
async def counted(folder: Path) -> AsyncIterator[Counted]:
    counter = FlushCounter.in_folder(folder)
    if counter is None:
        pytest.skip("there is no C compiler for the library that counts flushes")

    files = [writes(f"{number}.txt", "as the agent wrote it") for number in range(20)]
    hank = write_hank(folder / "hank", codon("one", *files))
    async with after_plan(hank, folder / "execution", env=counter.environment, since_seq=0) as (
        server,
        client,
    ):
        yield Counted(client, server.execution, counter)


async def test_a_checkpoint_costs_two_flushes(tmp_path: Path) -> None:
    """One for objects, branch and the events about changed files, one for the checkpoint's event.

    The first one after a rollback also creates a branch and attaches HEAD to it.
    The least of several tries counts: the server has work of its own besides.
    """
    async with counted(tmp_path) as server:
        costs = {"nothing": list[int](), "two files": list[int](), "after a rollback": list[int]()}
        target = await server.client.send(CheckpointCreate())
        for number in range(5):
            await server.is_quiet()
            costs["nothing"].append(await server.cost(server.client.send(CheckpointCreate())))
            (server.files / "1.txt").write_text(f"changed {number}")
            (server.files / f"new{number}.txt").write_text("new")
            await server.is_quiet()
            costs["two files"].append(await server.cost(server.client.send(CheckpointCreate())))
            await server.client.send(RollbackToCheckpoint(checkpoint_sha=target.sha))
            await server.is_quiet()
            costs["after a rollback"].append(
                await server.cost(server.client.send(CheckpointCreate()))
            )

    assert min(costs["nothing"]) <= 2
    assert min(costs["two files"]) <= 2
    assert min(costs["after a rollback"]) <= 2


async def test_a_rollback_of_few_files_costs_three_flushes(tmp_path: Path) -> None:
    """Safety checkpoint, intent and people's edits; the restored files with HEAD; the journal.

    The bytes of state.json are visible with the events, and durable later.
    """
    async with counted(tmp_path) as server:
        costs = {"saved": list[int](), "edited": list[int]()}
        target = await server.client.send(CheckpointCreate())
        for number in range(5):
            (server.files / "1.txt").write_text(f"changed {number}")
            await server.client.send(CheckpointCreate())
            await server.is_quiet()
            costs["saved"].append(
                await server.cost(
                    server.client.send(RollbackToCheckpoint(checkpoint_sha=target.sha))
                )
            )
            (server.files / "1.txt").write_text(f"edited {number}")
            await server.is_quiet()
            costs["edited"].append(
                await server.cost(
                    server.client.send(RollbackToCheckpoint(checkpoint_sha=target.sha))
                )
            )
            assert (server.files / "1.txt").read_text() == "as the agent wrote it"

    assert min(costs["saved"]) <= 3
    assert min(costs["edited"]) <= 3
