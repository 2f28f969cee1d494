"""Waits of codons for the end of their provider's limit, on a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CodonForceStop,
    CodonSkip,
    CodonStart,
    GetServerStatus,
    RollbackToCodon,
)
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonResumed,
    CodonRetrying,
    CodonStartedEvent,
    CodonWaiting,
    Info,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.instants import from_text
from hankweave_protocol.state import CompletedCodon, FailedCodon, RunningCodon, SkippedCodon
from support.invariants import Acknowledged, violations
from support.moved_clocks import moved_clocks
from support.running_server import journal, run_headless, running_server, served, state
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT
from support.watching import events_of, idle

HOURS = {"resetsIn": 3 * 3600}
SOON = {"resetsIn": 1}
ONE = CodonId("one")


def limit(**when: float) -> dict[str, Any]:
    return {"limit": when}


async def waiting(client: Client) -> CodonWaiting:
    event = await client.until(CodonWaiting, timeout=LIMIT)
    assert isinstance(event.data, CodonWaiting)
    return event.data


async def test_the_same_conversation_continues_when_the_limit_ends(tmp_path: Path) -> None:
    """The agent has ended meanwhile, its files are in a checkpoint, and nothing is done twice."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), limit(**SOON), writes("b.txt", "b"), {"recall": "I"}),
        codon("two", writes("c.txt", "c")),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    (begun,) = events_of(execution, CodonWaiting)
    (resumed,) = events_of(execution, CodonResumed)
    assert (begun.codon_id, begun.reason, begun.source, begun.number) == (ONE, "usage", "event", 1)
    (run,) = state(execution).runs
    one, two = run.codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert 0 < one.waited_ms == resumed.waited_ms
    assert (resumed.by, resumed.session_id) == ("time", one.claude_session_id)
    at = next(event.timestamp for event in journal(execution) if event.data == resumed)
    assert from_text(at) >= from_text(begun.until)
    assert (
        len(events_of(execution, CodonStartedEvent)) == 2
    )  # One of each codon, not of each process.
    log = (execution / ".hankweave" / one.claude_log_path).read_text()
    assert "1 prompts and 3 steps" in log
    assert log.count('"type": "tool_use"') == 2
    assert violations(execution, Acknowledged()) == []


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.story(
    "A usage limit is a wait that survives a restart.",
    of="docs/how-to/unattended.md",
    cases=("kill",),
)
async def test_a_wait_survives_its_server(tmp_path: Path, how: str) -> None:
    """After `kill -9` or an orderly stop, the next server waits on, and no file is rolled back."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), limit(**HOURS), writes("b.txt", "b"), {"cost": 0.5}),
    )
    execution, clocks = tmp_path / "execution", moved_clocks(tmp_path)
    async with running_server(hank, None, execution, env=clocks.environment) as server:
        async with server.client(since_seq=0) as client:
            until = (await waiting(client)).until

        if how == "kill":
            server.kill()
        else:
            assert await server.stop() == 0

    left = state(execution).runs[0]
    assert left.status == "running"
    assert isinstance(left.codons[0], RunningCodon)
    assert left.codons[0].wait is not None
    edited = execution / "agentRoot" / "a.txt"
    edited.write_text("a person's")
    clocks.move(wall=4 * 3600)
    assert await run_headless(hank, execution, env=clocks.environment) == 0

    (run,) = state(execution).runs
    (one,) = run.codons
    assert isinstance(one, CompletedCodon)
    assert (run.status, one.final_cost) == ("completed", 0.5)
    assert edited.read_text() == "a person's"
    assert (execution / "agentRoot" / "b.txt").read_text() == "b"
    (begun,) = events_of(execution, CodonWaiting)
    (resumed,) = events_of(execution, CodonResumed)
    assert begun.until == until
    assert resumed.by == "time"
    assert violations(execution, Acknowledged()) == []


async def test_clients_see_and_end_a_wait(tmp_path: Path, execution: Path) -> None:
    """The status and the state name it; `codon.start` continues the codon at once."""
    hank = write_hank(tmp_path / "hank", codon("one", limit(**HOURS), writes("b.txt", "b")))
    async with served(hank, execution, since_seq=0) as (_, client):
        begun = await waiting(client)
        status = await client.send(GetServerStatus())
        assert status.waiting is not None
        assert (status.waiting.until, status.active_codon_id) == (begun.until, ONE)
        await client.send(CodonStart(codon_id=ONE))
        await client.until(CodonResumed, timeout=LIMIT)
        await idle(client)
        assert (await client.send(GetServerStatus())).waiting is None

    assert [each.by for each in events_of(execution, CodonResumed)] == ["command"]
    assert isinstance(state(execution).runs[0].codons[0], CompletedCodon)


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (CodonSkip(), SkippedCodon),
        (CodonForceStop(), FailedCodon),
        (RollbackToCodon(codon_id=ONE, checkpoint_type="completed"), FailedCodon),
    ],
    ids=["skip", "forceStop", "rollback"],
)
async def test_a_command_cancels_a_wait(tmp_path: Path, command: Any, left: type) -> None:
    """Skip, force stop and rollback need not wait for the limit, nor for `onRunning`."""
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a")), codon("two", limit(**HOURS))
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (server, client):
        await waiting(client)
        await client.send(command)
        await client.until(CodonCompletedEvent, lambda e: e.codon_id == "two", timeout=LIMIT)
        await server.stop()

    found = [each for run in state(execution).runs for each in run.codons if each.codon_id == "two"]
    assert [type(each) for each in found] == [left]
    assert events_of(execution, CodonResumed) == []
    assert violations(execution, Acknowledged()) == []


@pytest.mark.full
async def test_a_second_limit_is_another_wait(tmp_path: Path, execution: Path) -> None:
    """Waits are counted while the model does not answer in between; none is a failed attempt."""
    steps = (limit(**SOON), limit(**SOON), writes("a.txt", "a"), limit(**SOON))
    assert await run_headless(write_hank(tmp_path / "hank", codon("one", *steps)), execution) == 0

    assert [each.number for each in events_of(execution, CodonWaiting)] == [1, 2, 1]
    assert [each.attempt for each in state(execution).runs[0].codons] == [1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("longest", "sentence"), [("1h", "later than `hankweave run --max-wait` allows"), ("0", "")]
)
async def test_a_limit_beyond_max_wait_is_a_failure(
    tmp_path: Path, execution: Path, longest: str, sentence: str
) -> None:
    """The codon fails as it would without waits, and its policy applies."""
    failing = codon("one", limit(**HOURS), onFailure="retry", retryConfig={"delayMs": 1})
    hank = write_hank(tmp_path / "hank", failing)
    assert await run_headless(hank, execution, "--max-wait", longest) == 1

    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    assert failed.failure_reason.message is not None
    assert failed.failure_reason.message.startswith("You've hit your usage limit.")
    assert sentence in failed.failure_reason.message
    assert events_of(execution, CodonWaiting) == events_of(execution, CodonRetrying) == []


@pytest.mark.full
async def test_a_wait_counts_against_no_budget(tmp_path: Path, execution: Path) -> None:
    """Time limits of the codon and of the execution do not run while it waits."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", limit(resetsIn=3), budget={"maxTimeSeconds": 2}, timeoutSeconds=2),
        codon("two", writes("a.txt", "a")),
    )
    assert await run_headless(hank, execution, "--max-time", "2.5") == 0

    one, two = state(execution).runs[0].codons
    assert isinstance(one, CompletedCodon)
    assert isinstance(two, CompletedCodon)
    assert (one.budget_exceeded, two.budget_exceeded) == (None, None)


@pytest.mark.story(
    "While a limit lasts, a fallback model continues the conversation.",
    of="docs/how-to/unattended.md",
)
async def test_another_model_takes_over_while_the_limit_lasts(tmp_path: Path) -> None:
    """A fallback continues the conversation at once; a limit that ends soon is waited for."""
    model = {"run": "echo $HANKWEAVE_MODEL >> models.txt"}
    long, others = limit(**HOURS), {"fallbackModels": ["second", "third"]}
    hank = write_hank(
        tmp_path / "hank",
        codon("one", model, long, model, long, model, {"recall": "I"}, **others),
        codon("two", limit(**SOON), model, **others, fallbackAfter=60),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    models = (execution / "agentRoot" / "models.txt").read_text().split()
    assert models == ["scripted", "second", "third", "scripted"]
    assert [each.codon_id for each in events_of(execution, CodonWaiting)] == ["two"]
    one = state(execution).runs[0].codons[0]
    assert isinstance(one, CompletedCodon)
    assert "1 prompts and 5 steps" in (execution / ".hankweave" / one.claude_log_path).read_text()
    switches = [
        each.message for each in events_of(execution, Info) if "has reached" in each.message
    ]
    assert switches == [
        "Codon one uses second: scripted has reached a limit.",
        "Codon one uses third: second has reached a limit.",
    ]


@pytest.mark.full
async def test_a_wait_is_not_longer_if_the_clock_is_set_back(tmp_path: Path) -> None:
    """An hour back: the wait ends when it would have ended, and no later codon waits for it."""
    hank = write_hank(tmp_path / "hank", codon("one", limit(**SOON)), codon("two"))
    execution, clocks = tmp_path / "execution", moved_clocks(tmp_path)
    async with running_server(
        hank, None, execution, "--headless", env=clocks.environment
    ) as server:
        async with server.client(since_seq=0) as client:
            await waiting(client)
            clocks.move(wall=-3600)

        assert await server.ended() == 0

    (resumed,) = events_of(execution, CodonResumed)
    assert resumed.by == "time"
    assert [type(each) for each in state(execution).runs[0].codons] == [CompletedCodon] * 2
