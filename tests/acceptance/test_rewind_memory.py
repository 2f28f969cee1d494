"""After a rollback with rewindMemory into a running codon, files, plan and conversation agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_client.client import Client
from hankweave_protocol.commands import (
    CodonNext,
    CodonStart,
    RollbackToCheckpoint,
    RollbackUndo,
)
from hankweave_protocol.events import AssistantAction, CodonStartedEvent, RigSetupCompleted
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import CheckpointRecord, RollbackReport
from hankweave_protocol.state import CompletedCodon, Continuation
from hankweave_server.domain.execution_thread import thread
from support.running_server import state
from support.scripted_hank import Step, codon, write_hank, writes
from support.watching import after_plan, events_of, idle, listed, started

APPENDS = {"append": {"path": "log.txt", "text": "again\n"}}
RECALLS = {"recall": "I know"}


def asking(name: str, *steps: Step, **fields: Any) -> dict[str, Any]:
    """Return a codon whose agent waits before each tool: no checkpoint has a step too many."""
    prompt = json.dumps({"steps": list(steps), "asks": True})
    return codon(name, promptText=prompt, **fields)


WORKING = (
    codon("one", writes("one.txt", "1")),
    asking("two", writes("log.txt", "first\n"), APPENDS, APPENDS, RECALLS),
)


async def after_step(client: Client, codon_id: str, number: int) -> CheckpointRecord:
    """Return the checkpoint taken after a file step of a codon's first execution."""
    taken = [record for record in reversed(await listed(client)) if record.kind == "tool"]
    return [record for record in taken if record.coordinate.codon_id == codon_id][number - 1]


async def go_back(client: Client, record: CheckpointRecord, **fields: Any) -> RollbackReport:
    command = RollbackToCheckpoint(checkpoint_sha=record.sha, **fields)
    return await client.send(command)


def recollections(execution: Path) -> list[str]:
    acts = events_of(execution, AssistantAction)
    return [act.content for act in acts if act.action == "message"]


async def test_an_agent_goes_on_where_files_and_conversation_went_back_to(tmp_path: Path) -> None:
    """Completed steps are not repeated, and the session knows of no later one."""
    execution = tmp_path / "execution"
    log = execution / "agentRoot" / "log.txt"
    async with after_plan(write_hank(tmp_path / "hank", *WORKING), execution) as (_, client):
        assert log.read_text() == "first\nagain\nagain\n"
        target = await after_step(client, "two", 2)
        await go_back(client, target, rewind_memory=True)
        assert log.read_text() == "first\nagain\n"
        await client.send(CodonNext())
        await idle(client)

    assert log.read_text() == "first\nagain\nagain\n"
    assert recollections(execution) == ["I know 1 prompts and 3 steps"] * 2
    run = state(execution).runs[0]
    assert isinstance(run.starting_conditions, Continuation)
    assert run.starting_conditions.source.conversation == target.conversation is not None
    begun = events_of(execution, CodonStartedEvent)
    assert begun[-1].previous_session_id == target.conversation.session_id
    assert [e.codon.codon_id for e in thread(state(execution))] == ["one", "two"]


async def test_without_rewinding_the_codon_begins_anew(tmp_path: Path, execution: Path) -> None:
    """The agent gets its prompt again, with the restored files: only files were requested."""
    async with after_plan(write_hank(tmp_path / "hank", *WORKING), execution) as (_, client):
        await go_back(client, await after_step(client, "two", 2), auto_restart=True)
        await idle(client)

    assert recollections(execution)[-1] == "I know 1 prompts and 3 steps"
    assert state(execution).runs[0].starting_conditions.source.conversation is None
    assert events_of(execution, CodonStartedEvent)[-1].previous_session_id is None


async def test_a_codon_that_goes_on_keeps_its_rig(tmp_path: Path, execution: Path) -> None:
    """The rig's output, changed by the agent since, is not made again."""
    rig = [{"type": "command", "command": {"run": "echo rig > log.txt"}}]
    hank = write_hank(tmp_path / "hank", asking("two", APPENDS, APPENDS, rigSetup=rig))
    async with after_plan(hank, execution) as (_, client):
        target = await after_step(client, "two", 1)
        await go_back(client, target, rewind_memory=True, auto_restart=True)
        await idle(client)

    assert (execution / "agentRoot" / "log.txt").read_text() == "rig\nagain\nagain\n"
    assert len(events_of(execution, RigSetupCompleted)) == 1


async def test_an_attempt_of_it_that_fails_is_tried_again_from_there(tmp_path: Path) -> None:
    """Files and conversation are restored to where the run resumed, not to the codon's start."""
    execution, passed = tmp_path / "execution", tmp_path / "passed"
    passed.touch()
    retrying = asking(
        "two",
        APPENDS,
        APPENDS,
        RECALLS,
        checks=[{"run": f"test -e {passed} || {{ touch {passed}; exit 3; }}"}],
        onFailure="retry",
        retryConfig={"maxAttempts": 3, "delayMs": 0},
    )
    async with after_plan(write_hank(tmp_path / "hank", retrying), execution) as (_, client):
        target = await after_step(client, "two", 1)
        passed.unlink()
        await go_back(client, target, rewind_memory=True, auto_restart=True)
        await idle(client)

    assert (execution / "agentRoot" / "log.txt").read_text() == "again\nagain\n"
    attempts = [type(codon).__name__ for codon in state(execution).runs[0].codons]
    assert attempts == ["FailedCodon", "CompletedCodon"]
    assert recollections(execution) == ["I know 1 prompts and 2 steps"] * 3


@pytest.mark.parametrize("other", ["one", "three"])
async def test_another_codon_that_is_started_instead_has_nothing_of_it(
    tmp_path: Path, execution: Path, other: str
) -> None:
    """The conversation belongs to one codon: another codon that is started begins anew."""
    hank = write_hank(tmp_path / "hank", *WORKING, codon("three", RECALLS))
    async with after_plan(hank, execution) as (_, client):
        await go_back(client, await after_step(client, "two", 1), rewind_memory=True)
        await client.send(CodonStart(codon_id=CodonId(other)))
        await started(client, other)

    begun = events_of(execution, CodonStartedEvent)
    assert [e.previous_session_id for e in begun if e.codon_id == other][-1] is None


async def test_an_undo_takes_files_plan_and_conversation_back(tmp_path: Path) -> None:
    """The plan is at its end again, and the session knows everything it knew."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *WORKING), execution) as (_, client):
        await go_back(client, await after_step(client, "two", 1), rewind_memory=True)
        await client.send(RollbackUndo())

    newest = thread(state(execution))[-1].codon
    assert isinstance(newest, CompletedCodon)
    assert newest.codon_id == "two"
    assert state(execution).runs[0].starting_conditions.source.conversation is None


@pytest.mark.parametrize("kept", [True, False])
async def test_a_session_that_is_gone_is_not_gone_on_with(tmp_path: Path, kept: bool) -> None:
    """If the agent's session is lost, the codon begins anew; otherwise it continues."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *WORKING), execution) as (_, client):
        await go_back(client, await after_step(client, "two", 1), rewind_memory=True)
        if not kept:
            for file in (execution / ".hankweave" / "sessions").iterdir():
                file.unlink()

        await client.send(CodonNext())
        await idle(client)

    begun = events_of(execution, CodonStartedEvent)[-1]
    assert (begun.previous_session_id is not None) == kept
