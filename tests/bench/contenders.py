"""The contenders in the bench of the socket: servers with a client, and other programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil

from bench.peers import HermesStore
from bench.stores import Store
from bench.trees import copy_tree
from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    RollbackToCheckpoint,
    RollbackToLastSuccess,
    RollbackUndo,
)
from hankweave_protocol.ids import Sha
from hankweave_protocol.instants import from_text
from hankweave_server.paths import Layout
from support.flushes import FlushCounter
from support.running_server import RunningServer, running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle

SETTLE = 2.0
"""Seconds between two acts of a settled server."""

REST = 0.3
"""Seconds in which it is seen whether a server rests."""

QUIET = 0.05
"""A server rests if it takes less of a processor than this; what follows a reply is then done."""

REST_LIMIT = 10.0
STEPS = 21
"""Calls of the agent; measured is the time from each to the next."""


class Contender(ABC):
    """One program with its copy of the tree."""

    store: Store

    @abstractmethod
    async def checkpoint(self) -> None: ...

    @abstractmethod
    def newest(self) -> str:
        """Return the name of the newest checkpoint."""

    def found(self, name: str) -> str:
        """Return what `rollback` and `undo` need to be told of a checkpoint."""
        return name

    @abstractmethod
    async def rollback(self, sha: str) -> None: ...

    @abstractmethod
    async def undo(self, later: str) -> None:
        """Take the last rollback back; `later` is the checkpoint before it."""

    async def mark_success(self) -> None:  # noqa: B027 - a server knows its last success
        """Let the present files be the last success; no-op if a codon has succeeded."""

    @abstractmethod
    async def to_last_success(self) -> None: ...

    async def agent_cycles(self) -> list[float]:
        """Return the milliseconds from each call of an agent to its next; empty if none can run."""
        return []

    async def rest(self) -> None:
        await anyio.sleep(REST)

    def counts(self) -> tuple[int, int]:
        """Return flushes of the disk and looks at files so far."""
        return 0, 0


class Peer(Contender):
    def __init__(self, store: Store) -> None:
        self.store = store
        self._newest = self._success = ""

    async def checkpoint(self) -> None:
        self._newest = self.store.checkpoint()

    def newest(self) -> str:
        return self._newest

    def found(self, name: str) -> str:
        return self.store.find(name) if isinstance(self.store, HermesStore) else name

    async def rollback(self, sha: str) -> None:
        self.store.rollback(sha)

    async def undo(self, later: str) -> None:
        self.store.rollback(later)

    async def mark_success(self) -> None:
        self.store.edit(1)
        await self.checkpoint()
        self._success = self._newest

    async def to_last_success(self) -> None:
        self.store.rollback(self.found(self._success))


class _Tree(Store):
    """The work tree of a running server."""

    def renew(self) -> None:
        raise AssertionError("a server keeps its history")

    def checkpoint(self) -> str:
        raise AssertionError("a server is asked through its client")


class _Served(Contender):
    """A running server and a client of it."""

    def __init__(
        self, root: Path, server: RunningServer, client: Client, counter: FlushCounter | None
    ) -> None:
        self.store = _Tree(root)
        self._server = server
        self._client = client
        self._counter = counter
        self._newest = ""

    async def checkpoint(self) -> None:
        self._newest = (await self._client.send(CheckpointCreate())).sha

    def newest(self) -> str:
        return self._newest

    async def rollback(self, sha: str) -> None:
        await self._client.send(RollbackToCheckpoint(checkpoint_sha=Sha(sha), auto_restart=False))

    async def undo(self, later: str) -> None:
        await self._client.send(RollbackUndo())

    async def to_last_success(self) -> None:
        await self._client.send(RollbackToLastSuccess(auto_restart=False))

    async def agent_cycles(self) -> list[float]:
        await self._client.send(CodonNext())
        await idle(self._client)
        journal = Layout.of_execution(self._server.execution).journal
        lines = map(msgspec.json.decode, journal.read_bytes().splitlines())
        events = [event for event in lines if event.get("codonId") == "work"]
        called = [_moment(each) for each in events if _is_call(each)]
        return [after - before for before, after in pairwise(called)]

    async def rest(self) -> None:
        """Wait until what follows a reply in the background is done."""
        await anyio.sleep(SETTLE)
        process, deadline = psutil.Process(self._server.pid), anyio.current_time() + REST_LIMIT
        busy = 1.0
        while busy > QUIET and anyio.current_time() < deadline:
            before = sum(process.cpu_times()[:2])
            await anyio.sleep(REST)
            busy = (sum(process.cpu_times()[:2]) - before) / REST

    def counts(self) -> tuple[int, int]:
        return (
            (0, 0) if self._counter is None else (self._counter.count(), self._counter.stat_calls())
        )


def _is_call(event: Mapping[str, Any]) -> bool:
    return (event["type"], event["data"].get("action")) == ("assistant.action", "tool_use")


def _moment(event: Mapping[str, Any]) -> float:
    return from_text(event["timestamp"]).timestamp() * 1000


@asynccontextmanager
async def served(original: Path, root: Path, watch: str) -> AsyncIterator[_Served]:
    """Start a server for a copy of the tree; after its first codon it tracks every file."""
    copy_tree(original, root)
    layout, aside = Layout.of_execution(root), root.with_name(f"{root.name}-aside")
    aside.mkdir()
    steps = [writes("agent.txt", f"step {number}\n") for number in range(STEPS)]
    hank = write_hank(aside / "hank", codon("track"), codon("work", *steps))
    kept = aside / "kept"
    layout.work_tree.rename(kept)
    counter = FlushCounter.in_folder(aside)
    env = {} if counter is None else counter.environment
    options = ("--no-autostart", "--watch", watch)
    async with (
        running_server(hank, None, layout.root, *options, env=env) as running,
        running.client() as client,
    ):
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        for path in kept.iterdir():
            path.rename(layout.work_tree / path.name)

        yield _Served(root, running, client, counter)
        await running.stop()
