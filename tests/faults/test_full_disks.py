"""Disks that become full, run out of inodes or turn read-only, and recover.

A small tmpfs holds the whole execution. On a full disk the server waits: it stays up and readable,
reports the problem, refuses new work, keeps work in progress, and resumes by itself. On a disk that
cannot be trusted it ends with a message and exit code 74. It never loses what it has acknowledged.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from hankweave_client.client import Client
from hankweave_client.discovery import discover
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointDiff,
    CodonNext,
    GetServerStatus,
    GetState,
    ListCheckpoints,
    ReplayView,
    RollbackToCodon,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    AgentOutput,
    CodonStartedEvent,
    RollbackCompleted,
    RollbackFailed,
    ServerDegraded,
    ServerIdle,
    ServerRecovered,
    ToolResult,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.errors import ExitCode
from support.invariants import Acknowledged, tree_violations, violations
from support.power import EXT4, Disk, NotHere
from support.running_server import command, environment, running_server, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.small_disk import resize, small_disk
from support.struck import Lost, Output, kill, process_of, session
from support.tally import Tally
from support.waiting import LIMIT, limited
from support.watching import events_of, idle, started

SIZE, INODES = 24 << 20, 400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system for the test."""
    with small_disk(tmp_path / "disk", f"size={SIZE},nr_inodes={INODES}") as place:
        yield place


Trouble = Callable[[Path], AbstractContextManager[None]]


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill the disk to the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)):
            pass

    yield
    filler.unlink()


@contextmanager
def out_of_inodes(disk: Path) -> Iterator[None]:
    """Use up the disk's last inode."""
    with contextlib.suppress(OSError):
        for number in range(INODES):
            (disk / f"filler-{number}").touch()

    yield
    for path in disk.glob("filler-*"):
        path.unlink()


# --- a server on a disk that fills ----------------------------------------------------------------


@dataclass
class Ward:
    """A server, its disk, and the replies and events that its clients received."""

    disk: Path
    execution: Path
    server: Output
    acknowledged: Acknowledged

    async def save(self, client: Client) -> None:
        self.acknowledged.checkpoints.append(await client.send(CheckpointCreate()))

    async def go_back(self, client: Client) -> None:
        self.acknowledged.rollbacks.append(
            await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end"))
        )

    async def notices_it(self, client: Client) -> None:
        """Request a checkpoint that the disk cannot hold; a refusal is a valid reply."""
        with contextlib.suppress(CommandRefused):
            await self.save(client)

        await client.until(ServerDegraded, timeout=LIMIT)

    def loses_its_reserve(self) -> None:
        (self.execution / ".hankweave" / "reserve").unlink()

    def readyz(self) -> tuple[int, dict[str, Any]]:
        address = urlsplit(discover(self.execution).url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=LIMIT)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@asynccontextmanager
async def ward(disk: Path, hank: Path, text: str, *options: str) -> AsyncIterator[Ward]:
    """Start a server and wait for this text in its output; kill it at the end."""
    execution = disk / "execution"
    options = ("--json", "--no-exit-on-complete", *options)
    argv = command("run", str(hank), "--execution", str(execution), *options)
    async with process_of(argv) as server, anyio.create_task_group() as group:
        assert await server.until(text), server.lines
        group.start_soon(server.to_its_end)
        yield Ward(disk, execution, server, Acknowledged())
        kill(server.process)


UNDER_LOAD = 2.0
"""Extra seconds for a machine that schedules the server or the test late."""

ALL_DONE = '"all-codons-completed"'


def a_hank(folder: Path) -> Path:
    return write_hank(
        folder, codon("one", writes("a.txt", "1")), codon("two", writes("a.txt", "2"))
    )


@pytest.mark.parametrize("trouble", [full, out_of_inodes])
async def test_a_server_goes_on_through_a_full_disk(
    trouble: Trouble, disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """The server refuses new work and answers read-only commands.

    With free space it works as before.
    """
    async with ward(disk, a_hank(tmp_path / "hank"), ALL_DONE) as it:
        async with session(it.execution) as client:
            await it.save(client)
            with trouble(disk):
                await it.notices_it(client)
                await _is_readable_and_degraded(it, client)
                await _refuses_what_is_new(it, client)

            await client.until(ServerRecovered, timeout=LIMIT)
            assert (await anyio.to_thread.run_sync(it.readyz))[0] == 200
            assert (await client.send(GetServerStatus())).problems == ()
            await it.save(client)
            await it.go_back(client)

        assert it.server.process.returncode is None
        assert events_of(it.execution, ServerDegraded)
        assert events_of(it.execution, ServerRecovered)

    await _nothing_is_lost(it, tally, f"a disk that is {trouble.__name__.replace('_', ' ')}")


async def _is_readable_and_degraded(it: Ward, client: Client) -> None:
    status, page = await anyio.to_thread.run_sync(it.readyz)
    assert (status, page["ready"], page["alive"]) == (503, False, True)
    assert [problem["code"] for problem in page["problems"]] == ["INSUFFICIENT_SPACE"]
    assert "disk is full" in page["detail"]
    problems = (await client.send(GetServerStatus())).problems
    assert [problem.code for problem in problems] == ["INSUFFICIENT_SPACE"]
    page_of = await client.send(ListCheckpoints())
    newest = page_of.checkpoints[0].sha
    await client.send(GetState())
    await client.send(CheckpointDiff(from_sha=newest))
    await client.send(ReplayView(checkpoint_sha=newest))
    argv = command("status", "--execution", str(it.execution))
    shown = await anyio.run_process(argv, env=environment(), check=True)
    assert b"degraded" in shown.stdout


async def _refuses_what_is_new(it: Ward, client: Client) -> None:
    for act in (it.save, it.go_back, lambda client: client.send(CodonNext())):
        with pytest.raises(CommandRefused) as refused:
            await act(client)

        assert refused.value.code == ErrorCode.INSUFFICIENT_SPACE
        assert refused.value.hint


async def test_an_agent_that_fills_the_disk_may_empty_it_again(
    disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """The agent's output waits; once it has removed its file the codon ends normally."""
    gate = tmp_path / "gate"
    greedy = codon(
        "greedy",
        writes("a.txt", "1"),
        {"run": "head -c 100M /dev/zero > big 2>/dev/null; true"},
        *({"say": "I am still here. " * 400} for _ in range(20)),
        waits_for(gate),
        {"run": "rm big; printf 2 > a.txt"},
    )
    hank = write_hank(tmp_path / "hank", greedy, codon("two", writes("b.txt", "b")))
    async with (
        ward(disk, hank, '"server.ready"') as it,
        session(it.execution, since_seq=0) as client,
    ):
        await client.until(ServerDegraded, timeout=LIMIT)
        gate.touch()
        await client.until(ServerRecovered, timeout=LIMIT)
        await idle(client)
        assert (it.execution / "agentRoot" / "a.txt").read_text() == "2"
        assert len((await client.send(GetState())).runs) == 1

    await _nothing_is_lost(it, tally, "a disk that its agent fills")


async def test_a_codon_ends_and_the_next_begins_only_when_there_is_room(
    disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """The checkpoint at a codon's end waits for disk space, and the plan waits with it."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "1"), waits_for(gate)),
        codon("two", writes("b.txt", "b")),
    )
    async with ward(disk, hank, '"server.ready"') as it:
        async with session(it.execution, since_seq=0) as client:
            await client.until(ToolResult, timeout=LIMIT)  # The agent's file is written.
            it.loses_its_reserve()
            with full(disk):
                gate.touch()
                await client.until(ServerDegraded, timeout=LIMIT)
                assert (await client.send(GetServerStatus())).active_codon_id == "one"
                with anyio.move_on_after(2):
                    await started(client, "two")
                    pytest.fail("a codon began on a full disk")

            await client.until(ServerRecovered, timeout=LIMIT)
            await idle(client)
            ends = [record.kind for record in (await client.send(ListCheckpoints())).checkpoints]
            assert ends.count("completed") == 2

        begun = [event.codon_id for event in events_of(it.execution, CodonStartedEvent)]
        assert begun == ["one", "two"]

    await _nothing_is_lost(it, tally, "a disk that is full at a codon's end")


@pytest.mark.story("A rollback that meets a full disk is completed when there is room.")
async def test_a_rollback_that_meets_a_full_disk_is_finished_when_there_is_room(
    disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """The rollback is reported as failed, and completes when there is free space.

    No codon runs on a half-restored tree.
    """
    names = [f"sub/{number}" for number in range(4)]
    hank = write_hank(
        tmp_path / "hank",
        codon("one", *(writes(name, "1" * 300_000) for name in names)),
        codon("two", {"run": "rm -r sub/*"}),
    )
    async with ward(disk, hank, ALL_DONE) as it:
        sub = it.execution / "agentRoot" / "sub"
        # Another file system lies below the work tree; the plan checks the work tree's.
        with small_disk(sub, "size=700k"):
            async with session(it.execution) as client:
                with pytest.raises(CommandRefused) as refused:
                    await it.go_back(client)

                assert refused.value.code == ErrorCode.INSUFFICIENT_SPACE
                await client.until(RollbackFailed, timeout=LIMIT)
                with pytest.raises(CommandRefused):
                    await client.send(CodonNext())

                await anyio.to_thread.run_sync(resize, sub, "8m")
                await client.until(RollbackCompleted, timeout=LIMIT)
                assert sorted(path.name for path in sub.iterdir()) == ["0", "1", "2", "3"]
                await client.until(ServerIdle, timeout=LIMIT)
                assert not (it.execution / ".hankweave" / "rollback.intent").exists()

            kill(it.server.process)
            with limited():
                await it.server.process.wait()

            kept = {path.name: path.read_bytes() for path in sub.iterdir()}

        for name, content in kept.items():
            (sub / name).write_bytes(content)

    await _nothing_is_lost(it, tally, "a rollback on a full disk")


async def test_a_server_that_waits_for_disk_space_ends_on_request(
    disk: Path, tmp_path: Path, tally: Tally
) -> None:
    """The server ends within eight seconds with exit code 74 and a message.

    The next start has everything else.
    """
    gate = tmp_path / "gate"
    dies = {"stderr": "Traceback (most recent call last):"}  # As an interrupted agent prints.
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "1"), dies, waits_for(gate)))
    async with ward(disk, hank, '"server.ready"') as it:
        async with session(it.execution, since_seq=0) as client:
            await started(client, "one")
            await client.until(AgentOutput, timeout=LIMIT)

        it.loses_its_reserve()
        with full(disk):
            gate.touch()
            async with session(it.execution) as client:
                await client.until(ServerDegraded, timeout=LIMIT)

            it.server.process.terminate()
            begun = anyio.current_time()
            with limited():
                assert await it.server.process.wait() == ExitCode.IO_ERROR

            assert anyio.current_time() - begun < 8 + UNDER_LOAD
            _ended_with_a_sentence(it)

    await _nothing_is_lost(it, tally, "a server told to end on a full disk", at_rest=False)


async def test_a_server_ends_when_its_disk_turns_read_only(tmp_path: Path, tally: Tally) -> None:
    """The server acknowledges nothing more, ends with exit code 74, and prints the reason."""
    try:
        disk = Disk(tmp_path, EXT4)
    except NotHere as reason:
        pytest.skip(str(reason))

    try:
        async with ward(disk.place, a_hank(tmp_path / "hank"), ALL_DONE) as it:
            await _act(it, it.save)
            acknowledged = it.acknowledged.count
            try:
                disk.turn_read_only()
            except NotHere as reason:
                pytest.skip(str(reason))

            for act in (it.save, it.go_back, it.save):
                await _act(it, act)

            with limited():
                assert await it.server.process.wait() == ExitCode.IO_ERROR

            assert it.acknowledged.count == acknowledged
            _ended_with_a_sentence(it)

        await disk.reboot()
        await _nothing_is_lost(it, tally, "a disk that is read only")
    finally:
        disk.discard()


# --- checks ---------------------------------------------------------------------------------------


def _ended_with_a_sentence(it: Ward) -> None:
    """Check the server's own lines only: an event may contain an agent's traceback."""
    output = "\n".join(it.server.lines)
    assert not re.search(r"^[ +|]*(Exception Group )?Traceback", output, re.MULTILINE), output
    assert re.search(r"^hankweave: .*could not be", output, re.MULTILINE), output


async def _act(it: Ward, act: Callable[[Client], Any]) -> None:
    with contextlib.suppress(*Lost), limited():
        async with session(it.execution) as client:
            await act(client)


async def _nothing_is_lost(it: Ward, tally: Tally, campaign: str, *, at_rest: bool = True) -> None:
    files = tree(it.execution / "agentRoot")
    async with running_server(None, None, it.execution, "--no-autostart") as server:
        found = tree_violations(it.execution, files) if at_rest else []
        async with server.client() as client:
            await it.save(client)

        assert await server.stop() == 0

    found += violations(it.execution, it.acknowledged)
    tally.add(campaign, acknowledged=it.acknowledged.count, violations=found)
    assert found == []
