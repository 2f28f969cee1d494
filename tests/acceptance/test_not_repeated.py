"""Defects visible in Hankweave's source are absent from a real server here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    CodonSkip,
    CodonStart,
    RollbackToCheckpoint,
    RollbackToCodon,
)
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    RigSetupCompleted,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.git_facts import GitWitness
from support.running_server import appears, run_headless, running_server, served, state
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import after_plan, events_of, idle, started

RIG = [{"type": "command", "command": {"run": "date +%N > rig.txt"}}]


@pytest.mark.parametrize("order", [CodonForceStop(reason="enough"), CodonSkip()])
async def test_a_codon_that_a_person_ends_is_reported_as_ended(tmp_path: Path, order: Any) -> None:
    """codon.completed is sent once, with the cost so far, and says if the codon was skipped.

    Hankweave reports nothing for a stopped codon, and cost 0 for a skipped one.
    """
    message = (
        '{"type":"assistant","message":{"id":"m","model":"claude-sonnet-4-5","usage":'
        '{"input_tokens":1000000,"output_tokens":1},"content":[{"type":"text","text":"x"}]}}'
    )
    reached = {"run": "touch reached"}
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"raw": message}, reached, waits_for(tmp_path / "never")),
        codon("two", waits_for(tmp_path / "never")),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await client.send(CodonNext())
        await started(client, "one")
        await appears(execution / "agentRoot" / "reached")
        await client.send(order)
        skipped = isinstance(order, CodonSkip)
        await idle(client, "codon-completed" if skipped else "stopped")

    (ended,) = events_of(execution, CodonCompletedEvent)
    assert (ended.success, ended.skipped) == (False, True if skipped else None)
    record: Any = state(execution).runs[0].codons[0]
    assert ended.cost == record.partial_cost > 0


async def test_a_headless_server_ends_when_its_codon_is_stopped(tmp_path: Path) -> None:
    """With no client left to continue it, it exits with 1 (Hankweave idles forever)."""
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(tmp_path / "never")))
    execution = tmp_path / "execution"
    async with running_server(hank, None, execution, "--headless") as server:
        async with server.client(since_seq=0) as client:
            await started(client, "one")
            await client.send(CodonForceStop())

        assert await server.ended() == 1

    assert state(execution).runs[0].status == "failed"


async def test_a_rig_that_was_rolled_back_is_set_up_again(tmp_path: Path, execution: Path) -> None:
    """After a rollback removes the output of an earlier run's rig, the rig runs once more.

    Hankweave 0.10 skips it because it had run.
    """
    hank = write_hank(tmp_path / "hank", codon("one"), codon("two", rigSetup=RIG))
    rig = execution / "agentRoot" / "rig.txt"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        before = rig.read_text()
        back = RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="completed")
        await client.send(back)
        await idle(client, "rollback-completed")
        assert not rig.exists()
        await client.send(CodonNext())
        await idle(client)

    assert rig.read_text() != before
    assert len(events_of(execution, RigSetupCompleted)) == 2


async def test_codons_of_a_loop_track_files_and_have_rig_checkpoints(tmp_path: Path) -> None:
    """In each iteration, the files that the loop's codons track are in checkpoints, the rig's too.

    Hankweave 0.10 looks only at the top level.
    """
    loop = {
        "type": "loop",
        "id": "polish",
        "name": "Polish",
        "terminateOn": {"type": "iterationLimit", "limit": 2},
        "codons": [codon("look", writes("seen.md", "x"), tracked=("*.md", "*.txt"), rigSetup=RIG)],
    }
    hank = write_hank(tmp_path / "hank", codon("one", tracked=("*.none",)), loop)
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    git = GitWitness(execution)
    _, *rounds = state(execution).runs[0].codons
    assert len(rounds) == 2
    for each in rounds:
        assert isinstance(each, CompletedCodon)
        assert "rig.txt" in git.files(each.rig_setup_checkpoint or "")
        assert set(git.files(each.completion_checkpoint)) == {"rig.txt", "seen.md"}


async def test_after_a_rollback_to_a_rig_the_session_before_goes_on(tmp_path: Path) -> None:
    """A codon that continues the previous one finds its session.

    In Hankweave that session is outside the thread, and the codon fails.
    """
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"say": "hello"}),
        codon("two", {"say": "again"}, rigSetup=RIG, continuationMode="continue-previous"),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        back = RollbackToCodon(codon_id=CodonId("two"), checkpoint_type="rig-setup")
        await client.send(back)
        await idle(client, "rollback-completed")
        await client.send(CodonNext())
        await idle(client)

    one, two, again = events_of(execution, CodonStartedEvent)
    assert (again.codon_id, again.session_id) == ("two", two.session_id)
    assert two.session_id == one.session_id


async def test_every_message_of_an_agent_is_counted(tmp_path: Path, execution: Path) -> None:
    """Messages are counted however fast they arrive.

    Hankweave increments a state that lags behind.
    """
    hank = write_hank(tmp_path / "hank", codon("one", *({"say": str(n)} for n in range(200))))
    assert await run_headless(hank, execution) == 0

    (done,) = state(execution).runs[0].codons
    assert isinstance(done, CompletedCodon)
    assert done.assistant_message_count == 200


async def test_an_end_is_the_same_after_a_start_of_an_older_codon(tmp_path: Path) -> None:
    """codon.start of a codon that has run begins a run of its own.

    Costs go to the new record, and the old one is unchanged (Hankweave addresses the first record
    of that name).
    """
    hank = write_hank(tmp_path / "hank", codon("one", {"cost": 0.5}), codon("two"))
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        await client.send(CodonStart(codon_id=CodonId("one")))
        await idle(client)

    costs = [
        each.final_cost
        for run in state(execution).runs
        for each in run.codons
        if isinstance(each, CompletedCodon) and each.codon_id == "one"
    ]
    assert costs == [0.5, 0.5]


async def test_each_attempt_costs_what_it_cost(tmp_path: Path, execution: Path) -> None:
    """Each record has its own cost; codon.completed, as in Hankweave, sums all up to it."""
    retries: dict[str, Any] = {
        "onFailure": "retry",
        "retryConfig": {"maxAttempts": 2, "delayMs": 1},
    }
    hank = write_hank(
        tmp_path / "hank", codon("one", {"cost": 0.5}, {"fail": {"message": "busy"}}, **retries)
    )
    assert await run_headless(hank, execution) == 1

    records: Any = state(execution).runs[0].codons
    assert [each.partial_cost for each in records] == [0.5, 0.5]
    assert [each.cost for each in events_of(execution, CodonCompletedEvent)] == [0.5, 1.0]


async def test_a_rig_that_two_attempts_share_can_be_gone_back_to(tmp_path: Path) -> None:
    """The rig's full sha names one moment, though two records have it.

    In Hankweave it is ambiguous.
    """
    retries: dict[str, Any] = {
        "onFailure": "retry",
        "retryConfig": {"maxAttempts": 2, "delayMs": 1},
    }
    hank = write_hank(
        tmp_path / "hank",
        codon("one", rigSetup=RIG, **retries)
        | {"agent": {"type": "command", "command": ["sh", "-c", "echo >> rig.txt; exit 7"]}},
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (_, client):
        await idle(client, "codon-failed")
        first, second = state(execution).runs[0].codons
        assert isinstance(first, FailedCodon)
        assert isinstance(second, FailedCodon)
        rig = first.rig_setup_checkpoint
        assert rig == second.rig_setup_checkpoint
        assert rig is not None
        await client.send(RollbackToCheckpoint(checkpoint_sha=rig))
        await idle(client, "rollback-completed")

    assert (execution / "agentRoot" / "rig.txt").read_text().count("\n") == 1
