"""Two ways to use checkpoints: the engine's own calls, and a client of the real server.

A test that uses `StoreAccess` holds for both. Either works without root's privileges.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from hankweave_client.client import Client, connect
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    ListCheckpoints,
    RollbackToCheckpoint,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import Event, ServerIdle
from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.model import CheckpointRequest, PathEntry, RestorePlan
from hankweave_server.git.errors import InsufficientSpace
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.privileges import as_ordinary_user, ordinary_command
from support.running_server import command, environment
from support.scripted_hank import codon, write_hank
from support.waiting import LIMIT
from support.work_tree import WorkTree

RUN = RunId("1736000000000-abc123-def456")
START = datetime(2025, 1, 4, 12, 0, tzinfo=UTC)


def a_request(
    number: int = 1,
    kind: str = "manual",
    before: RestorePlan | None = None,
    patterns: tuple[str, ...] = ("**",),
) -> CheckpointRequest:
    """Return the request for a checkpoint, by default a manual one of all files."""
    return CheckpointRequest(
        kind=kind,
        codon_id=None,
        codon_name="x",
        run_id=RUN,
        timestamp=START,
        duration_ms=None,
        operation_id=f"{number}",
        event_seq=number,
        session_id=None,
        memory_epoch=0,
        label=None,
        patterns=patterns,
        before=before,
    )


def a_restore_plan(*changed: bytes, **fields: Any) -> RestorePlan:
    """Return the plan of a restore that updates these files."""
    return RestorePlan(
        target=Sha("0" * 40),
        added=(),
        updated=tuple(PathEntry(path, 1, 0o100644) for path in changed),
        removed=(),
        unchanged_count=0,
        kept=(),
        bytes_to_write=0,
        **fields,
    )


@dataclass(frozen=True)
class Made:
    """The report of a checkpoint, with names as defined in the protocol's README."""

    sha: str
    skipped: dict[str, str]
    partial: bool


@dataclass(frozen=True)
class Restored:
    touched: set[str]
    """Added, updated or removed."""
    skipped: dict[str, str]
    """Left alone, as predicted or as found."""


def shown(path: bytes) -> str:
    r"""Return the name as text; a byte that is not UTF-8 becomes `\xff`."""
    return path.decode("utf-8", "backslashreplace")


class Refusal(Exception):
    """A rollback that was refused; no file may have changed."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class StoreAccess(Protocol):
    """The operations of a test case on a work tree."""

    layout: Layout
    tree: WorkTree

    async def checkpoint(self) -> Made: ...

    async def rollback(self, sha: str) -> Restored:
        """Roll back; raise Refusal if it is refused."""
        ...

    async def restart(self, *, kill: bool = False) -> None:
        """Stop the process or object that holds the repository, and start it anew."""
        ...

    async def end(self) -> None: ...

    async def begin(self) -> None: ...


class EngineAccess:
    """The engine, called in the daemon's order."""

    def __init__(self, root: Path, patterns: tuple[str, ...] = ("**",)) -> None:
        self.layout = Layout.of_execution(root)
        self.tree = WorkTree.beside(self.layout.work_tree)
        self._patterns = patterns
        self._count = itertools.count(1)
        self._engine: CheckpointEngine | None = None

    @property
    def engine(self) -> CheckpointEngine:
        assert self._engine is not None
        return self._engine

    async def begin(self) -> None:
        with as_ordinary_user():
            self._engine = CheckpointEngine.open(self.layout)

    async def end(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    async def restart(self, *, kill: bool = False) -> None:
        if not kill:
            await self.end()

        await self.begin()

    async def checkpoint(self) -> Made:
        with as_ordinary_user():
            made = self.engine.checkpoint(self._request("manual"))

        return Made(
            made.sha, {shown(item.path): item.reason for item in made.skipped}, made.partial
        )

    async def rollback(self, sha: str) -> Restored:
        try:
            with as_ordinary_user():
                return self._rollback(sha)
        except CheckpointDamaged as problem:
            raise Refusal(ErrorCode.CHECKPOINT_DAMAGED) from problem
        except InsufficientSpace as problem:
            raise Refusal(ErrorCode.INSUFFICIENT_SPACE) from problem

    def _rollback(self, sha: str) -> Restored:
        (target,) = (each.sha for each in self.engine.commits() if each.sha.startswith(sha))
        plan = self.engine.plan_restore(target, self._patterns)
        safety = self.engine.checkpoint(self._request("safety", plan))
        report = self.engine.restore(target, safety.sha, detaches=True)
        touched = {entry.path for entry in (*report.added, *report.updated, *report.removed)}
        assert touched == plan.touched, "the restore did what the plan had said"
        skipped = {shown(item.path): item.reason for item in (*plan.kept, *report.skipped)}
        return Restored({shown(path) for path in touched}, skipped)

    def _request(self, kind: str, before: RestorePlan | None = None) -> CheckpointRequest:
        return a_request(next(self._count), kind, before, self._patterns)


@dataclass
class ServerAccess:
    """A client of `hankweave run --no-autostart`."""

    root: Path
    patterns: tuple[str, ...] = ("**",)
    variables: dict[str, str] = field(default_factory=dict)
    layout: Layout = field(init=False)
    tree: WorkTree = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout.of_execution(self.root)
        self._hank = write_hank(self.root.with_name("hank"), codon("track", tracked=self.patterns))
        self._server: subprocess.Popen[str] | None = None
        self._home: str | None = None

    async def begin(self) -> None:
        self._server = started(self._hank, self.root, self.variables)
        self.tree = WorkTree.beside(self.layout.work_tree)

    async def end(self) -> None:
        self.close()

    async def restart(self, *, kill: bool = False) -> None:
        self.close(signal.SIGKILL if kill else signal.SIGTERM)
        await self.begin()

    def close(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(LIMIT)
            self._server = None

    async def checkpoint(self) -> Made:
        async with self._client() as client:
            record = await client.send(CheckpointCreate(label="conformance"))

        skipped = {item.path: item.reason for item in record.skipped}
        return Made(record.sha, skipped, record.partial)

    async def rollback(self, sha: str) -> Restored:
        try:
            async with self._client() as client:
                report = await client.send(RollbackToCheckpoint(checkpoint_sha=sha))
        except CommandRefused as refused:
            raise Refusal(ErrorCode(refused.code)) from refused

        touched = {file.path for file in (*report.added, *report.updated, *report.removed)}
        return Restored(touched, {item.path: item.reason for item in report.skipped})

    async def track(self) -> None:
        """Run the codon, whose patterns apply from then on.

        The first call runs it; a later one rolls back to that moment and its empty tree.
        """
        if self._home is not None:
            await self.rollback(self._home)
            return

        async with self._client() as client:
            await client.send(CodonNext())
            await client.until(ServerIdle, _has_run, timeout=LIMIT)
            page = await client.send(ListCheckpoints(kinds=("completed",)))

        self._home = page.checkpoints[0].sha

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        address = discover(self.root)
        async with connect(address.url, token=address.token) as client:
            yield client


def _has_run(event: Event) -> bool:
    return isinstance(event.data, ServerIdle) and event.data.reason == "all-codons-completed"


def started(hank: Path, execution: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Start a server that several tests may share, and wait until it serves."""
    words = ["run", str(hank), "--execution", str(execution), "--json", "--no-autostart"]
    server = subprocess.Popen(
        ordinary_command(*command(*words)),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ready, output = threading.Event(), list[str]()

    def listen() -> None:
        assert server.stdout is not None
        with server.stdout as lines:
            for line in lines:
                output.append(line)
                if '"server.ready"' in line:
                    ready.set()

        ready.set()

    threading.Thread(target=listen, daemon=True).start()
    in_time = ready.wait(LIMIT)
    # A server that fails to start closes its output a moment before it exits.
    if not in_time or not any('"server.ready"' in line for line in output):
        server.kill()
        server.wait(LIMIT)
        raise AssertionError(f"the server did not start: {output}")

    return server


def witness(layout: Layout) -> GitWitness:
    return GitWitness(layout.root)
