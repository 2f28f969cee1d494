"""Claims about a server's start and end as clients and scripts of Hankweave expect them.

Tests about clients themselves, in which no other client of Hankweave may connect, are marked
`alone`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket

from hankweave_client.discovery import discover
from hankweave_protocol.commands import (
    CheckpointCreate,
    CodonForceStop,
    CodonNext,
    CodonSkip,
    RollbackToCheckpoint,
)
from hankweave_protocol.events import CodonCompletedEvent, Info, ServerIdle
from hankweave_server.domain.reducer import fold
from support.command_line import hankweave
from support.reference_schema import faults_of
from support.running_server import (
    RunningServer,
    journal,
    run_headless,
    running_server,
    served,
    state,
)
from support.screens import Screen
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.waiting import eventually, limited
from support.watching import after_plan, events_of, idle, started


@asynccontextmanager
async def theirs(server: RunningServer, **hello: Any) -> AsyncIterator[ClientConnection]:
    """Connect a client of Hankweave that has just sent its handshake."""
    address = discover(server.execution)
    url = f"{address.url}?token={address.token}"
    async with connect_socket(url, proxy=None, max_size=None) as socket:
        await handshake(socket, **hello)
        yield socket


async def handshake(socket: ClientConnection, **hello: Any) -> None:
    data = {"mode": "readandwrite", **hello}
    await socket.send(json.dumps({"type": "handshake", "data": data}))


async def receive(socket: ClientConnection) -> dict[str, Any]:
    with limited():
        frame = await socket.recv()

    assert faults_of(frame) == []
    event: dict[str, Any] = json.loads(frame)
    return event


@asynccontextmanager
async def served_by_default(hank: Path, execution: Path) -> AsyncIterator[RunningServer]:
    """Start a server with the default end: it depends on the terminal and on connected clients."""
    async with running_server(hank, None, execution, may_end=True) as server:
        yield server


def infos(execution: Path) -> list[str]:
    return [info.message for info in events_of(execution, Info)]


def reasons(execution: Path) -> list[str]:
    return [each.reason for each in events_of(execution, ServerIdle)]


def loses(count: int, counter: Path) -> dict[str, Any]:
    """Return an agent that costs something and fails this many times, then succeeds."""
    line = (
        f"n=$(( $(cat {counter} 2>/dev/null || echo 0) + 1 )); echo $n > {counter}; "
        '[ "$n" -gt ' + str(count) + " ]"
    )
    return {"steps": [{"say": "x"}, {"cost": 0.5}, {"run": line}]}


# --- start ----------------------------------------------------------------------------------------


@pytest.mark.alone
async def test_without_autostart_each_handshake_reports_that_nothing_starts(
    tmp_path: Path,
) -> None:
    """`server.idle` with reason `startup` follows `server.ready`, at a second handshake too."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with running_server(hank, None, tmp_path / "execution", "--no-autostart") as server:
        async with server.client(since_seq=0) as client:
            await idle(client, "startup")  # The one for all clients, from the journal.

        async with theirs(server) as socket:
            for _ in range(2):
                events = [await receive(socket) for _ in range(3)]
                assert [each["type"] for each in events] == [
                    "handshake.response",
                    "server.ready",
                    "server.idle",
                ]
                assert events[-1]["data"]["reason"] == "startup"
                await handshake(socket)


@pytest.mark.alone
@pytest.mark.story("The first codon waits for a client, which misses nothing.")
async def test_with_autostart_the_first_client_misses_nothing(tmp_path: Path) -> None:
    """The plan waits for it: it receives the first codon's start without requesting history."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with (
        running_server(hank, None, tmp_path / "execution") as server,
        theirs(server) as socket,
    ):
        types = []
        while "codon.completed" not in types:
            types.append((await receive(socket))["type"])

    assert types[:2] == ["handshake.response", "server.ready"]
    assert "server.idle" not in types
    transition = types.index("state.transition")
    assert transition < types.index("codon.started") < types.index("codon.completed")


@pytest.mark.alone
async def test_without_a_client_the_plan_begins_all_the_same(tmp_path: Path) -> None:
    """The server waits two seconds for a client, then starts the plan."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    execution = tmp_path / "execution"
    with limited():
        async with running_server(hank, None, execution, "--exit-on-complete") as server:
            assert await server.ended() == 0

    assert reasons(execution) == ["all-codons-completed"]


async def test_the_folder_of_a_run_is_there_from_its_start(tmp_path: Path, execution: Path) -> None:
    """A run's folder exists before any codon starts, for the first run and after a rollback."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    async with served(hank, execution, "--no-autostart") as (_, client):
        assert all(Path(run.run_folder).is_dir() for run in state(execution).runs)
        await client.send(CodonNext())
        await idle(client)
        initial = state(execution).initial_checkpoint
        assert initial is not None
        await client.send(RollbackToCheckpoint(checkpoint_sha=initial))
        runs = state(execution).runs
        assert len(runs) == 2
        await eventually(lambda: all(Path(run.run_folder).is_dir() for run in runs))


# --- end ------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.story("In a script, the server ends after its plan.")
def test_a_script_that_runs_a_plan_gets_to_its_end(tmp_path: Path, execution: Path) -> None:
    """With stdout not a terminal and no client connected, the server says so and exits with 0."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    hankweave("run", str(hank), "-e", str(execution), code=0)
    assert infos(execution) == ["All codons completed successfully. Server shutting down."]
    again = hankweave("run", str(hank), "-e", str(execution), code=0)
    assert "nothing to do" in again.stdout
    assert "nothing to do" in infos(execution)[-1]


@pytest.mark.alone
@pytest.mark.story("A run whose codon failed exits with 1.")
def test_a_script_whose_plan_fails_gets_to_its_end(tmp_path: Path) -> None:
    """The exit code says that the plan failed."""
    hank = write_hank(tmp_path / "hank", codon("one", {"fail": {"message": "no"}}))
    hankweave("run", str(hank), "-e", str(tmp_path / "execution"), code=1)


@pytest.mark.alone
async def test_a_client_keeps_the_server_until_it_leaves(tmp_path: Path, execution: Path) -> None:
    """The results can be viewed and rolled back; after the client leaves, the server ends."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with served_by_default(hank, execution) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)
            assert infos(execution) == ["All codons completed successfully. Server remains active."]
            await client.send(CheckpointCreate())

        assert await server.ended() == 0


@pytest.mark.alone
async def test_a_server_can_be_configured_to_keep_running(tmp_path: Path, execution: Path) -> None:
    """`--no-exit-on-complete` works headless too; a signal ends the server."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    options = ("--headless", "--no-exit-on-complete")
    async with running_server(hank, None, execution, *options) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)

        assert infos(execution) == ["All codons completed successfully. Server remains active."]
        async with server.client() as client:
            await client.send(CheckpointCreate())

        await server.stop()


def test_at_a_terminal_the_server_serves_on(tmp_path: Path, execution: Path) -> None:
    """A person views the results; SIGTERM ends the server."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    screen = Screen("run", str(hank), "--execution", str(execution), "--plain")
    screen.until(lambda text: "remains active" in text or "All codons completed." in text)
    assert infos(execution) == ["All codons completed successfully. Server remains active."]
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ended() == 0


async def test_a_skipped_codon_at_the_end_completes_no_plan(tmp_path: Path) -> None:
    """The server is idle because of the skipped codon, not because all were completed."""
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(tmp_path / "never")))
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "one")
        await client.send(CodonSkip())
        await idle(client, "codon-completed")

    assert reasons(execution) == ["codon-completed"]


async def test_a_plan_whose_last_codon_skips_itself_is_completed(tmp_path: Path) -> None:
    """The condition of the codon is false, so the plan has done everything."""
    hank = write_hank(tmp_path / "hank", codon("one"), codon("two", condition="'a' == 'b'"))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert reasons(execution) == ["all-codons-completed"]


# --- events about failures ------------------------------------------------------------------------


async def test_a_retry_is_announced_and_its_cost_counts_what_failed(tmp_path: Path) -> None:
    """`codon.completed` of the last attempt has the total cost; the state has the cost of each."""
    script = loses(2, tmp_path / "count")
    hank = write_hank(
        tmp_path / "hank",
        codon(
            "one",
            *script["steps"],
            checks=[{"run": f"[ $(cat {tmp_path / 'count'}) -gt 2 ]"}],
            onFailure="retry",
            retryConfig={"maxAttempts": 3, "delayMs": 0},
        ),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert [text for text in infos(execution) if "Retrying" in text] == [
        "Retrying codon one (attempt 2/3)",
        "Retrying codon one (attempt 3/3)",
    ]
    costs = [done.cost for done in events_of(execution, CodonCompletedEvent)]
    assert costs == [0.5, 1.0, 1.5]
    final = state(execution)
    assert [getattr(each, "partial_cost", None) for each in final.runs[0].codons[:2]] == [0.5, 0.5]
    assert getattr(final.runs[0].codons[2], "final_cost", None) == 0.5


async def test_a_failure_that_is_ignored_is_announced(tmp_path: Path, execution: Path) -> None:
    """An ignored failure of an agent or its rig is announced; for the last codon, at the end."""
    rig = [{"type": "command", "command": {"run": "false"}}]
    hank = write_hank(
        tmp_path / "hank",
        codon("one", rigSetup=rig, onFailure="ignore"),
        codon("two", {"fail": {"message": "no"}}, onFailure="ignore"),
    )
    assert await run_headless(hank, execution) == 0

    assert [text for text in infos(execution) if "ignore" in text] == [
        "Codon one rig setup failed, continuing (onFailure=ignore)",
        "Codon two failed, continuing (onFailure=ignore)",
    ]
    (idles,) = events_of(execution, ServerIdle)
    assert idles.message == "Run completed. Last codon two failed (ignored)."


async def test_a_codon_that_is_force_stopped_is_announced(tmp_path: Path, execution: Path) -> None:
    """The event has Hankweave's words; a protocolVersion client sees a reason in `server.idle`."""
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(tmp_path / "never")))
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "one")
        await client.send(CodonForceStop())
        await idle(client, "stopped")

    assert infos(execution) == ["Codon one force stopped"]


# --- the current run ------------------------------------------------------------------------------


async def test_the_current_run_is_the_one_that_has_just_ended(tmp_path: Path) -> None:
    """While its server runs, `currentRunId` leads to the reason, last success and cost.

    These are the fields of seed 002. It is null after the server has stopped. The state stays the
    fold of the journal.
    """
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"cost": 0.25}, {"say": "x"}, writes("a.txt", "a")),
        codon("two", {"fail": {"message": "the table is empty", "exitCode": 3}}),
    )
    execution = tmp_path / "execution"
    path = execution / ".hankweave" / "state.json"
    async with served(hank, execution, since_seq=0) as (server, client):
        await idle(client, "codon-failed")
        saved = json.loads(path.read_text())
        current = next(run for run in saved["runs"] if run["runId"] == saved["currentRunId"])
        assert current["status"] == "failed"
        failed = next(each for each in current["codons"] if each["status"] == "failed")
        assert "the table is empty" in failed["failureReason"]["message"]
        completed = [each for each in current["codons"] if each["status"] == "completed"]
        assert completed[-1]["completionCheckpoint"]
        assert sum(each.get("finalCost", 0.0) for each in current["codons"]) == 0.25
        assert await server.stop() == 0

    assert state(execution).current_run_id is None
    assert fold(journal(execution)) == state(execution)


async def test_a_server_that_was_killed_leaves_no_ended_run_current(tmp_path: Path) -> None:
    """The next server finds the ended run and clears it before anything new begins."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (server, _):
        server.kill()
        await server.ended()

    assert state(execution).current_run_id is not None
    async with running_server(hank, None, execution):
        assert state(execution).current_run_id is None

    assert [run.status for run in state(execution).runs] == ["completed"]
