"""After SIGTERM in any phase, the server ends within eight seconds, and the next start is clean.

Each phase brings a server to a busy moment. Then the signal arrives, and the test checks everything
that a supervisor and the next start rely on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from websockets.asyncio.client import connect as connect_raw

from hankweave_client.client import Client
from hankweave_client.discovery import discover
from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonNext,
    EventsQuery,
    ExecutionBranch,
    ListCheckpoints,
    ReplayView,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackUndo,
    StoreFsck,
    StoreGc,
)
from hankweave_protocol.events import Event, StateTransition
from hankweave_protocol.ids import CodonId
from hankweave_protocol.transitions import CheckpointCreated, CodonStarted
from hankweave_server.paths import Layout
from support.invariants import Acknowledged, violations
from support.nth_call import why_not
from support.running_server import appears, command, journal, running_server, state
from support.scenarios import cut_short
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.struck import Lost, process_of, session
from support.tally import Tally
from support.tiers import Tier
from support.waiting import LIMIT, eventually
from support.watching import idle, started

SECONDS = 8.0
UNDER_LOAD = 2.0
"""Extra seconds for a machine that schedules the server or the test late."""

MANY = 3_000
"""The number of files: enough for each operation on them to take a while."""

MANY_EVENTS = 100_000


@dataclass(frozen=True)
class Place:
    """The folder, execution and files of one phase."""

    folder: Path

    @property
    def execution(self) -> Path:
        return self.folder / "execution"

    @property
    def layout(self) -> Layout:
        return Layout.of_execution(self.execution)

    @property
    def pid_file(self) -> Path:
        """Return the file in which a process that must not outlive the server writes its pid."""
        return self.folder / "pid"

    def hank(self, *codons: dict[str, Any]) -> Path:
        return write_hank(self.folder / "hank", *codons)


Busy = Callable[[Place], AbstractAsyncContextManager[Process]]
"""Brings a server to its phase, and returns its process; it is signalled within the context."""


# --- the phases -----------------------------------------------------------------------------------


@asynccontextmanager
async def starting(place: Place) -> AsyncIterator[Process]:
    """Start a server that has the lock and opens its files."""
    hank = place.hank(codon("one", writes("a.txt", "1")))
    argv = command("run", str(hank), "--execution", str(place.execution), "--json")
    async with process_of(argv) as server, anyio.create_task_group() as reading:
        reading.start_soon(server.to_its_end)
        await appears(place.layout.runtime_lock)
        yield server.process


@asynccontextmanager
async def recovering(place: Place) -> AsyncIterator[Process]:
    """Start a server that completes a rollback that a crash interrupted."""
    await cut_short(place.folder)
    argv = command("run", "--execution", str(place.execution), "--json", "--no-autostart")
    async with process_of(argv) as server, anyio.create_task_group() as reading:
        reading.start_soon(server.to_its_end)
        ours = f'"pid":{server.process.pid},'.encode()
        await eventually(lambda: _contains(place.layout.runtime_lock, ours))

        yield server.process


def _contains(path: Path, text: bytes) -> bool:
    try:
        return text in path.read_bytes()
    except FileNotFoundError:
        return False


def notes_its_pid(place: Place, line: str) -> str:
    return f"echo $$ > {place.pid_file}.new; mv {place.pid_file}.new {place.pid_file}; {line}"


@asynccontextmanager
async def running_a_rig(place: Place) -> AsyncIterator[Process]:
    """Run a rig whose command does not end by itself."""
    line = notes_its_pid(place, "trap '' INT TERM; while :; do sleep 1; done")
    rig = [{"type": "command", "command": {"run": line}}]
    hank = place.hank(codon("one", writes("a.txt", "1"), rigSetup=rig))
    async with running_server(hank, None, place.execution) as server:
        await appears(place.pid_file)
        yield server.process


@asynccontextmanager
async def copying_a_rig(place: Place) -> AsyncIterator[Process]:
    """Run a rig that copies a great many files."""
    source = place.folder / "hank" / "template"
    source.mkdir(parents=True)
    (source / "0").write_bytes(b"x" * 100_000)
    for number in range(1, 10 * MANY):
        os.link(source / "0", source / str(number))

    rig = [{"type": "copy", "copy": {"from": "template", "to": "src"}}]
    hank = place.hank(codon("one", writes("a.txt", "1"), rigSetup=rig))
    async with running_server(hank, None, place.execution) as server:
        await eventually(lambda: list(place.layout.work_tree.glob(".hankweave-rig-*")))

        yield server.process


@asynccontextmanager
async def with_a_deaf_agent(place: Place) -> AsyncIterator[Process]:
    """Run an agent that ignores INT and TERM."""
    line = notes_its_pid(place, "echo at work; trap '' INT TERM; while :; do sleep 1; done")
    agent = {"agent": {"type": "command", "command": ["sh", "-c", line]}}
    hank = place.hank(codon("one", writes("a.txt", "1"), **agent))
    async with (
        running_server(hank, None, place.execution) as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "one")
        await appears(place.pid_file)
        yield server.process


def many_files(text: str) -> dict[str, str]:
    return {"run": f"mkdir -p many; for i in $(seq {MANY}); do echo {text} > many/$i; done"}


@asynccontextmanager
async def with_a_frozen_agent(place: Place) -> AsyncIterator[Process]:
    """Start a rollback that freezes the agent and restores files."""
    first, changed = place.folder / "first", place.folder / "changed"
    hank = place.hank(
        codon(
            "one",
            many_files("1"),
            waits_for(first),
            many_files("2"),
            {"run": notes_its_pid(place, f"touch {changed}; sleep 1000")},
        )
    )
    async with (
        running_server(hank, None, place.execution) as server,
        server.client(since_seq=0) as client,
    ):
        await started(client, "one")
        await appears(place.layout.work_tree / "many" / str(MANY))
        kept = await client.send(CheckpointCreate(label="all of them"))
        first.touch()
        await appears(changed)
        async with busy(
            client.send,
            RollbackToCheckpoint(checkpoint_sha=kept.sha, on_running="pause", paths=("many",)),
        ):
            await appears(place.layout.rollback_intent)
            yield server.process


@asynccontextmanager
async def ended_plan(place: Place) -> AsyncIterator[tuple[Process, Client]]:
    """Run a plan of two codons that each write all of the files; return its server."""
    hank = place.hank(codon("one", many_files("1")), codon("two", many_files("2")))
    async with (
        running_server(hank, None, place.execution) as server,
        server.client(since_seq=0) as client,
    ):
        await idle(client)
        yield server.process, client


@asynccontextmanager
async def taking_a_checkpoint(place: Place) -> AsyncIterator[Process]:
    """Start a checkpoint of many new files."""
    async with ended_plan(place) as (server, client):
        for number in range(MANY):
            (place.layout.work_tree / f"new-{number}").write_text(str(number))

        async with busy(client.send, CheckpointCreate(label="many")):
            yield server


@asynccontextmanager
async def rolling_back(place: Place) -> AsyncIterator[Process]:
    """Start a rollback that restores many files."""
    async with (
        ended_plan(place) as (server, client),
        busy(client.send, RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end")),
    ):
        await appears(place.layout.rollback_intent)
        yield server


@asynccontextmanager
async def undoing(place: Place) -> AsyncIterator[Process]:
    """Start an undo that restores many files."""
    async with ended_plan(place) as (server, client):
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        async with busy(client.send, RollbackUndo()):
            await appears(place.layout.rollback_intent)
            yield server


@asynccontextmanager
async def collecting_garbage(place: Place) -> AsyncIterator[Process]:
    """Start a gc that prunes old checkpoints and packs the store."""
    async with ended_plan(place) as (server, client):
        for number in range(5):
            (place.layout.work_tree / "a.txt").write_text(str(number))
            await client.send(CheckpointCreate())

        async with busy(client.send, StoreGc(max_count=0)):
            yield server


@asynccontextmanager
async def checking_the_store(place: Place) -> AsyncIterator[Process]:
    """Start an fsck that reads every object."""
    async with ended_plan(place) as (server, client), busy(client.send, StoreFsck()):
        yield server


@asynccontextmanager
async def branching(place: Place) -> AsyncIterator[Process]:
    """Start making a branch."""
    async with ended_plan(place) as (server, client):
        newest = (await client.send(ListCheckpoints())).checkpoints[0]
        path = str(place.folder / "branch")
        async with busy(client.send, ExecutionBranch(checkpoint_sha=newest.sha, path=path)):
            await appears(place.layout.branch_intent)
            yield server


@asynccontextmanager
async def asked_much(place: Place) -> AsyncIterator[Process]:
    """Start a query that searches a long journal, and a view of an event in it."""
    hank = place.hank(codon("one", writes("a.txt", "1")))
    async with running_server(hank, None, place.execution, "--headless") as server:
        assert await server.ended() == 0

    _lengthen(place.layout.journal)
    async with (
        running_server(hank, None, place.execution, "--no-autostart") as server,
        server.client() as client,
        server.client() as other,
        busy(other.send, ReplayView(seq=MANY_EVENTS)),
        busy(client.send, EventsQuery(text="none of many")),
    ):
        yield server.process


def _lengthen(path: Path) -> None:
    """Append events to the journal of a stopped server."""
    last = journal(path.parents[2])[-1].seq
    line = (
        '{{"id":"many-{0}","seq":{0},"timestamp":"2025-01-04T12:00:00.000Z",'
        '"type":"info","data":{{"message":"one of many"}}}}\n'
    )
    with path.open("a") as file:
        file.writelines(line.format(seq) for seq in range(last + 1, last + MANY_EVENTS))


@asynccontextmanager
async def with_a_dead_reader(place: Place) -> AsyncIterator[Process]:
    """Connect a client that reads nothing of a large amount of output."""
    hank = place.hank(codon("one", {"run": "seq 300000"}, waits_for(place.folder / "never")))
    async with running_server(hank, None, place.execution, "--no-autostart") as server:
        address = discover(place.execution)
        async with connect_raw(address.url, max_queue=1, compression=None) as dead:
            await dead.send(_handshake(address.token))
            async with server.client(since_seq=0) as client:
                await client.send(CodonNext())
                await started(client, "one")
                yield server.process
                dead.transport.abort()


def _handshake(token: str | None) -> str:
    data = {"mode": "readonly", "protocolVersion": 1, "sinceSeq": 0, "token": token}
    return codec.encode({"id": "1", "type": "handshake", "data": data}).decode()


@asynccontextmanager
async def busy(
    ask: Callable[..., Awaitable[object]], *argv: Any, **more: Any
) -> AsyncIterator[None]:
    """Send a command; run the block without waiting for the reply."""

    async def asked() -> None:
        with contextlib.suppress(*Lost):
            await ask(*argv, **more)

    async with anyio.create_task_group() as asking:
        asking.start_soon(asked)
        await anyio.sleep(0.05)
        yield
        asking.cancel_scope.cancel()


FAST: tuple[Busy, ...] = (starting, running_a_rig, with_a_deaf_agent, with_a_frozen_agent)
SLOW: tuple[Busy, ...] = (
    recovering,
    copying_a_rig,
    taking_a_checkpoint,
    rolling_back,
    undoing,
    collecting_garbage,
    checking_the_store,
    branching,
    asked_much,
    with_a_dead_reader,
)


# --- the claim ------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [*FAST, *SLOW], ids=lambda phase: phase.__name__)
@pytest.mark.executed
async def test_a_server_ends_within_eight_seconds(
    tmp_path: Path, tier: Tier, tally: Tally, phase: Busy
) -> None:
    """The server ends in order, in the long tier in time, and the next start is clean.

    No lock file, no open run and no process remains.
    """
    if phase in SLOW and not tier.is_long:
        pytest.skip("in the long tier only")

    if phase is recovering and (missing := why_not()):
        pytest.skip(missing)

    place = Place(tmp_path)
    async with phase(place) as process:
        code = await _terminated(process, SECONDS + UNDER_LOAD if tier.is_long else LIMIT)

    found = [*_left_in_order(place), *await _starts_again(place)]
    tally.add("SIGTERM in any phase", of="phases", violations=found)
    assert code == 0
    assert found == []


async def _terminated(process: Process, seconds: float) -> int | None:
    """Send the signal and return the exit code, or None if the server did not end in time."""
    process.send_signal(signal.SIGTERM)
    with anyio.move_on_after(seconds):
        return await process.wait()

    return None


def _left_in_order(place: Place) -> list[str]:
    found = []
    if place.layout.runtime_lock.exists():
        found.append("runtime.lock is left.")

    if place.pid_file.exists() and _lives(int(place.pid_file.read_text())):
        found.append("A process of the agent or rig is left.")

    if place.layout.state.exists() and state(place.execution).current_run_id is not None:
        found.append("A run is still open.")

    if place.layout.journal.exists() and _is_cut_short(journal(place.execution)):
        found.append("A codon ran, and there is no exit checkpoint of it.")

    return found


def _is_cut_short(events: list[Event]) -> bool:
    """Return True if the signal ended the last codon and its exit checkpoint is missing."""
    made = [codec.decode_transition(e.data) for e in events if isinstance(e.data, StateTransition)]
    begun = [at for at, each in enumerate(made) if isinstance(each, CodonStarted)]
    kinds = [
        each.checkpoint.kind
        for each in made[begun[-1] if begun else 0 :]
        if isinstance(each, CheckpointCreated)
    ]
    return bool(begun) and "exit" not in kinds and "completed" not in kinds


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False

    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def _starts_again(place: Place) -> list[str]:
    async with running_server(
        place.folder / "hank" / "hank.json", None, place.execution, "--no-autostart"
    ) as again:
        async with session(place.execution) as client:
            await client.send(CheckpointCreate(label="It still works."))

        code = await again.stop()

    ended = [] if code == 0 else [f"The next server ended with {code}."]
    return [*ended, *violations(place.execution, Acknowledged())]
