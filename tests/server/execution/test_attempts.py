"""Retries of codons: files, waiting, numbering and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import (
    CheckpointRollback,
    CodonCompletedEvent,
    CodonRetrying,
    RigSetupCompleted,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.invariants import Acknowledged, violations
from support.running_server import run_headless, served, state
from support.scripted_hank import codon, rig_command, shell, write_hank, writes
from support.waiting import LIMIT
from support.watching import events_of, idle

FAST = {"maxAttempts": 3, "delayMs": 1}
AGES = {"maxAttempts": 3, "delayMs": 60_000, "maxDelayMs": 60_000}


def fails_until(count: int, counter: Path, line: str = "") -> dict[str, Any]:
    """Return an agent that succeeds at that attempt, whose number is `$n` in its line."""
    return shell(
        f"n=$(( $(cat {counter} 2>/dev/null || echo 0) + 1 )); echo $n > {counter}; {line}; "
        f"[ $n -ge {count} ] || {{ echo 'overloaded' >&2; exit 7; }}"
    )


def retries(config: dict[str, int] = FAST) -> dict[str, Any]:
    return {"onFailure": "retry", "retryConfig": config}


async def test_each_attempt_begins_with_the_files_of_the_first(tmp_path: Path) -> None:
    """A failed attempt's changes are undone before the next one; its checkpoint keeps them.

    All attempts are numbered records of one run.
    """
    spoil = "echo $n >> grown.txt; echo $n > try-$n.txt; rm kept.txt"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("kept.txt", "kept"), writes("grown.txt", "0\n")),
        codon("two") | fails_until(3, tmp_path / "count", spoil) | retries(),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    (run,) = state(execution).runs
    assert [type(each) for each in run.codons[1:]] == [FailedCodon, FailedCodon, CompletedCodon]
    assert [each.attempt for each in run.codons[1:]] == [1, 2, 3]
    tree = execution / "agentRoot"
    assert (tree / "grown.txt").read_text() == "0\n3\n"
    assert sorted(path.name for path in tree.glob("try-*")) == ["try-3.txt"]
    assert [(e.attempt, e.max_attempts) for e in events_of(execution, CodonRetrying)] == [
        (2, 3),
        (3, 3),
    ]
    assert {event.direction for event in events_of(execution, CheckpointRollback)} == {"retry"}
    assert violations(execution, Acknowledged()) == []


async def test_a_rig_that_stood_is_not_set_up_again(tmp_path: Path, execution: Path) -> None:
    """The next attempt starts with the files that the rig left, and the rig runs once."""
    rig = [rig_command("date +%N > rig.txt")]
    hank = write_hank(
        tmp_path / "hank",
        codon("one", rigSetup=rig)
        | fails_until(2, tmp_path / "count", "echo spoilt >> rig.txt")
        | retries(),
    )
    assert await run_headless(hank, execution) == 0

    assert len(events_of(execution, RigSetupCompleted)) == 1
    assert (execution / "agentRoot" / "rig.txt").read_text().count("spoilt") == 1
    first, second = state(execution).runs[0].codons
    assert isinstance(first, FailedCodon)
    assert isinstance(second, CompletedCodon)
    assert first.rig_setup_checkpoint == second.rig_setup_checkpoint is not None


async def test_what_people_changed_while_it_waited_stays(tmp_path: Path) -> None:
    """A user's edit between two attempts is not undone with the failed attempt's work."""
    edited = tmp_path / "execution" / "agentRoot" / "notes.md"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("notes.md", "agent")),
        codon("two")
        | fails_until(2, tmp_path / "count", "true")
        | retries({"maxAttempts": 2, "delayMs": 700}),
    )
    async with served(hank, tmp_path / "execution", since_seq=0) as (_, client):
        await client.until(CodonRetrying, timeout=LIMIT)
        edited.write_text("a person's")
        await idle(client)

    assert edited.read_text() == "a person's"


async def test_a_failure_that_no_try_can_mend_is_not_tried_again(tmp_path: Path) -> None:
    """A refused key fails the run at once, with the reason."""
    hank = write_hank(
        tmp_path / "hank", codon("one", {"fail": {"message": "Invalid API key"}}, **retries())
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    assert len(events_of(execution, CodonCompletedEvent)) == 1
    assert state(execution).runs[0].status == "failed"


async def test_attempts_come_to_an_end(tmp_path: Path, execution: Path) -> None:
    """After maxAttempts the run fails; every attempt is on record."""
    hank = write_hank(
        tmp_path / "hank", codon("one") | fails_until(9, tmp_path / "count") | retries()
    )
    assert await run_headless(hank, execution) == 1

    (run,) = state(execution).runs
    assert run.status == "failed"
    assert [each.attempt for each in run.codons] == [1, 2, 3]


async def test_waiting_for_a_retry_can_be_stopped_and_hurried(tmp_path: Path) -> None:
    """forceStop ends the wait and the run; codon.next retries at once, from the same files."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one") | fails_until(2, tmp_path / "count", "echo $n >> tries.txt") | retries(AGES),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (_, client):
        await client.until(CodonRetrying, timeout=LIMIT)
        await client.send(CodonForceStop())
        await idle(client, "stopped")
        assert state(execution).runs[0].status == "failed"
        await client.send(CodonNext())
        await idle(client)

    assert (execution / "agentRoot" / "tries.txt").read_text() == "2\n"
    done = state(execution).runs[0].codons[-1]
    assert isinstance(done, CompletedCodon)
    assert done.attempt == 2


async def test_a_rollback_ends_the_wait(tmp_path: Path, execution: Path) -> None:
    """A rollback during the wait cancels the retry, and no undo is lost."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a")),
        codon("two") | fails_until(9, tmp_path / "count", "echo spoilt > a.txt") | retries(AGES),
    )
    async with served(hank, execution, since_seq=0) as (_, client):
        await client.until(CodonRetrying, timeout=LIMIT)
        await client.send(RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="completed"))
        await idle(client, "rollback-completed")
        assert (execution / "agentRoot" / "a.txt").read_text() == "a"
        await client.send(RollbackUndo())
        await idle(client, "rollback-completed")
        assert (execution / "agentRoot" / "a.txt").read_text() == "spoilt\n"

    assert len(events_of(execution, CodonRetrying)) == 1


async def test_a_server_that_is_stopped_while_it_waits_goes_on_where_it_was(tmp_path: Path) -> None:
    """The next server retries from the attempt's start, and continues the numbering."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one") | fails_until(2, tmp_path / "count", "echo $n >> tries.txt") | retries(AGES),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (server, client):
        await client.until(CodonRetrying, timeout=LIMIT)
        assert await server.stop() == 0

    assert await run_headless(hank, execution) == 0

    assert (execution / "agentRoot" / "tries.txt").read_text() == "2\n"
    assert state(execution).runs[0].codons[-1].attempt == 2
    assert violations(execution, Acknowledged()) == []
