"""Claims about events and small commands of a real server: each event is sent when it happens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_raw

from hankweave_client.discovery import discover
from hankweave_protocol import reference
from hankweave_protocol.commands import CodonRedo, GetState, ServerForceShutdown, ServerShutdown
from hankweave_protocol.events import (
    AgentOutput,
    ArchivePartial,
    AssistantAction,
    CheckpointPartial,
    Info,
    JournalRepaired,
    ServerIdle,
    ServerStopping,
    StateSnapshot,
    TokenUsage,
    ToolResult,
)
from hankweave_protocol.state import FailedCodon
from support.running_server import appears, journal, run_headless, running_server, served, state
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import eventually, limited
from support.watching import after_plan, events_of, idle, started


async def test_actions_of_an_agent_are_published(tmp_path: Path, execution: Path) -> None:
    """Thoughts, messages, calls, results with errors, costs and stray output become events."""
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            {"think": "let me see"},
            {"say": "I begin"},
            {"run": "echo out; exit 3"},
            {"stderr": "a warning"},
            {"cost": 0.25},
        ),
    )
    assert await run_headless(hank, execution) == 0

    thought, words, call = events_of(execution, AssistantAction)
    assert (thought.action, thought.content) == ("thinking", "let me see")
    assert (words.action, words.content) == ("message", "I begin")
    assert (call.action, call.tool_input) == ("tool_use", {"command": "echo out; exit 3"})
    (result,) = events_of(execution, ToolResult)
    assert (result.tool_use_id, result.tool_name) == (call.tool_use_id, call.tool_name)
    assert (result.result.strip(), result.is_error) == ("out", True)
    assert ("stderr", "a warning") in {
        (e.stream, e.line) for e in events_of(execution, AgentOutput)
    }
    *turns, final = events_of(execution, TokenUsage)
    assert (final.final, final.total_cost) == (True, 0.25)
    assert final.output_tokens == sum(each.output_tokens for each in turns) > 0


async def test_a_server_publishes_its_work_its_idle_state_and_its_end(tmp_path: Path) -> None:
    """A server reports its rigs, codon ends, idle state and shutdown.

    Hankweave's clients wait for the rig's messages. A snapshot follows each codon's end, newest
    codon first; then come idle and the reason for the shutdown. Files that a checkpoint lacks are
    reported.
    """
    rig = [{"type": "command", "command": {"run": "echo x > 'git~1'"}}]
    hank = write_hank(
        tmp_path / "hank", codon("one", rigSetup=rig), codon("two", writes("b.txt", "b"))
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        await client.send(ServerShutdown())
        assert await server.ended() == 0

    assert [each.message for each in events_of(execution, Info)] == [
        "Rig setup started",
        "Rig operation 1/1",
        "Rig setup completed",
        "All codons completed successfully. Server remains active.",
    ]
    last = events_of(execution, StateSnapshot)[-1]
    assert [each.codon_id for each in last.completed_codons] == ["two", "one"]
    assert (last.is_rolling_back, last.next_codon_id) == (False, None)
    assert [each.reason for each in events_of(execution, ServerIdle)] == ["all-codons-completed"]
    (stopping,) = events_of(execution, ServerStopping)
    assert "client request" in stopping.reason
    lacking = events_of(execution, CheckpointPartial)[0]
    assert [(each.path, each.reason) for each in lacking.skipped] == [("git~1", "reserved-name")]


async def test_a_torn_journal_is_repaired_and_reported(tmp_path: Path, execution: Path) -> None:
    """A partial last line is cut off and kept beside the journal; its length is reported."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    assert await run_headless(hank, execution) == 0

    path = execution / ".hankweave" / "events" / "events.jsonl"
    with path.open("ab") as file:
        file.write(b'{"id": "half')

    assert await run_headless(hank, execution) == 0

    (repaired,) = events_of(execution, JournalRepaired)
    assert repaired.bytes == len(b'{"id": "half')
    assert (path.parent / repaired.quarantine).read_bytes() == b'{"id": "half'


async def test_files_that_cannot_be_archived_are_reported(tmp_path: Path, execution: Path) -> None:
    """The codon stays completed, its file stays in place, and clients get the reason.

    The other files are moved. The file in the way in the archive cannot be renamed: with `~1` its
    name would be too long.
    """
    name = "n" * 254
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            writes(name, "long"),
            writes("notes.md", "notes"),
            {"run": f"mkdir -p ../rigArchive/one; echo x > ../rigArchive/one/{name}"},
            archiveOnSuccess=["n*"],
        ),
    )
    assert await run_headless(hank, execution) == 0

    (partial,) = events_of(execution, ArchivePartial)
    assert (partial.codon_id, partial.archived_paths) == ("one", ("notes.md",))
    assert [each.path for each in partial.failed_paths] == [name]
    assert (execution / "agentRoot" / name).read_text() == "long"


# --- small commands -------------------------------------------------------------------------------


@asynccontextmanager
async def raw(execution: Path, **hello: Any) -> AsyncIterator[ClientConnection]:
    """Connect a client that sends JSON by hand, and shake hands."""
    address = discover(execution)
    url = f"{address.url}?token={address.token}"
    async with connect_raw(url, proxy=None, max_size=None) as socket:
        data = {"mode": "readandwrite", **hello}
        await socket.send(json.dumps({"type": "handshake", "data": data}))
        await until(socket, "server.ready")
        yield socket


async def until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    with limited():
        while True:
            frame: dict[str, Any] = json.loads(await socket.recv())
            if frame["type"] == kind:
                return frame


@pytest.mark.command("ping", "ping.broadcast", "history.sync")
@pytest.mark.story("Hankweave's own clients work unchanged.")
async def test_pings_lists_and_histories_reach_whom_they_are_for(tmp_path: Path) -> None:
    """ping answers its sender; ping.broadcast reaches all, with the sender's name.

    Hankweave's checkpoint.list is an event to all; history.sync sends all of the journal that
    Hankweave has.
    """
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    execution = tmp_path / "execution"
    async with running_server(hank, None, execution) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)
            name = client.client_id

        async with raw(execution) as one, raw(execution) as other:
            await one.send('{"id": "1", "type": "ping"}')
            assert "clientId" not in (await until(one, "pong"))["data"]
            await one.send('{"id": "2", "type": "ping.broadcast"}')
            pongs = [(await until(each, "pong"))["data"] for each in (one, other)]
            assert pongs[0] == pongs[1]
            assert pongs[0]["clientId"] not in (None, name)
            await one.send('{"id": "3", "type": "checkpoint.list"}')
            listed = (await until(other, "checkpoint.list"))["data"]
            assert listed["checkpoints"][0]["checkpointType"] == "completed"
            assert listed["currentBranch"].startswith("run-")
            await one.send('{"id": "4", "type": "history.sync"}')
            ids = []
            while True:
                batch = (await until(one, "history.batch"))["data"]
                assert len(batch["events"]) == 1, "as Hankweave's clients expect"
                ids += [event["id"] for event in batch["events"]]
                if not batch["hasMore"]:
                    break

    lines = (execution / ".hankweave" / "events" / "events.jsonl").read_bytes().splitlines()
    all_ids = [json.loads(frame)["id"] for frame in reference.project_all(lines)]
    assert ids == all_ids[: len(ids)]
    listed_at = [event.id for event in journal(execution) if event.type == "checkpoint.list"]
    assert set(listed_at) <= set(ids)


@pytest.mark.command("state.get", "server.force_shutdown")
async def test_a_forced_end_is_an_end_at_once(tmp_path: Path, execution: Path) -> None:
    """server.force_shutdown kills the agent and exits with 1; the next start recovers.

    state.get returns the state as in state.json.
    """
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank", codon("one", {"run": "echo $PPID > pid.txt"}, waits_for(gate))
    )
    async with served(hank, execution, since_seq=0) as (server, client):
        await started(client, "one")
        pid = execution / "agentRoot" / "pid.txt"
        await appears(pid)
        found = await client.send(GetState())
        assert found.current_run_id == state(execution).current_run_id
        async with raw(execution, protocolVersion=1) as socket:
            await socket.send(json.dumps({"id": "1", "type": ServerForceShutdown.TYPE}))
            assert await server.ended() == 1

    await eventually(lambda: not (Path("/proc", pid.read_text().strip()).exists()))

    gate.touch()
    assert await run_headless(hank, execution) == 0

    assert isinstance(state(execution).runs[-1].codons[0], FailedCodon)


@pytest.mark.command("server.shutdown")
async def test_a_reason_of_ones_own_changes_no_exit_code(tmp_path: Path, execution: Path) -> None:
    """server.shutdown with any reason exits with 0, and the reason is reported.

    Hankweave's exit code is 1 unless the reason is the usual one.
    """
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with running_server(hank, None, execution) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)
            await client.send(CodonRedo())
            await idle(client)

        async with raw(execution, protocolVersion=1) as socket:
            data = {"reason": "lunch"}
            await socket.send(json.dumps({"id": "1", "type": "server.shutdown", "data": data}))
            assert await server.ended() == 0

    (stopping,) = events_of(execution, ServerStopping)
    assert "lunch" in stopping.reason
