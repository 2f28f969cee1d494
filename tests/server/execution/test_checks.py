"""A codon's checks run after its agent's success, and decide about the codon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    ListCheckpoints,
    RollbackToCheckpoint,
)
from hankweave_protocol.events import CheckCompleted, CodonRetrying
from hankweave_protocol.state import CompletedCodon, FailedCodon
from support.git_facts import GitWitness
from support.running_server import appears, run_headless, served, state
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of, idle


def checks(*lines: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"run": line, **fields} for line in lines]


async def test_a_failed_check_fails_its_codon_and_the_run(tmp_path: Path, execution: Path) -> None:
    """The reason has the end of the check's output; nothing later runs; exit code 1.

    Architect's checks change neither the status nor the exit code (A8, 18).
    """
    wrong = checks("true", "echo to stdout; echo to stderr >&2; exit 3", "touch never")
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a"), checks=wrong), codon("two")
    )
    assert await run_headless(hank, execution) == 1

    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    assert failed.failure_reason.type == "check-failed"
    reason = str(failed.failure_reason.message)
    assert reason.startswith("Check 2 of 3 failed: The command exited with code 3: echo to stdout;")
    assert reason.endswith((": to stdout", ": to stderr")), "the two pipes are read side by side"
    passed, broken = events_of(execution, CheckCompleted)
    assert (passed.passed, passed.exit_code, passed.message) == (True, 0, None)
    assert (broken.check_index, broken.passed, broken.exit_code) == (1, False, 3)
    assert sorted(broken.output.splitlines()) == ["to stderr", "to stdout"]
    assert not (execution / "agentRoot" / "never").exists()


async def test_checks_that_pass_complete_the_codon_with_what_they_changed(tmp_path: Path) -> None:
    """Files that a check writes are in the codon's last checkpoint, and are not user edits."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), checks=checks("grep -q a a.txt && echo ok > seen.txt")),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    (done,) = state(execution).runs[0].codons
    assert isinstance(done, CompletedCodon)
    files = GitWitness(execution).files(done.completion_checkpoint)
    assert files == {"a.txt": b"a", "seen.txt": b"ok\n"}


async def test_a_failed_check_is_tried_again_from_the_files_before(tmp_path: Path) -> None:
    """onFailure retry: the next attempt starts with the files of the first, and is counted."""
    once = f"test -e {tmp_path}/second || {{ touch {tmp_path}/second; exit 1; }}"
    step = {"run": "echo line >> a.txt"}
    policy = {"onFailure": "retry", "retryConfig": {"delayMs": 0}}
    hank = write_hank(tmp_path / "hank", codon("one", step, checks=checks(once), **policy))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert [each.failure_reason.type for each in events_of(execution, CodonRetrying)] == [
        "check-failed"
    ]
    assert [codon.attempt for codon in state(execution).runs[0].codons] == [1, 2]
    assert (execution / "agentRoot" / "a.txt").read_text() == "line\n"


async def test_a_failed_check_can_be_gone_on_from(tmp_path: Path, execution: Path) -> None:
    """onFailure ignore runs the next codon; with allowFailure a check's failure is reported."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", checks=checks("false"), onFailure="ignore"),
        codon("two", checks=checks("false", allowFailure=True)),
    )
    assert await run_headless(hank, execution) == 0

    one, two = state(execution).runs[0].codons
    assert isinstance(one, FailedCodon)
    assert isinstance(two, CompletedCodon)
    assert [each.ignored for each in events_of(execution, CheckCompleted)] == [False, True]


async def test_a_check_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """A timeout is a failure without an exit code; no process of the check survives."""
    line = f"echo $$ > {tmp_path}/pid; sleep 600 & wait"
    slow = checks(line, timeoutSeconds=0.5)
    hank = write_hank(tmp_path / "hank", codon("one", checks=slow))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    (late,) = events_of(execution, CheckCompleted)
    assert (late.passed, late.exit_code) == (False, None)
    assert "took more than 0.5 s" in str(late.message)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


async def test_a_codon_can_be_ended_in_its_checks(tmp_path: Path, execution: Path) -> None:
    """forceStop ends the check's processes; the codon fails as stopped."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", checks=checks("echo $$ > new; mv new pid.txt; sleep 600 & wait")),
    )
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await client.send(CodonNext())
        pid = execution / "agentRoot" / "pid.txt"
        await appears(pid)
        await client.send(CodonForceStop(reason="enough"))
        await idle(client, "stopped")
        assert not Path("/proc", pid.read_text().strip()).exists()

    (ended,) = state(execution).runs[0].codons
    assert isinstance(ended, FailedCodon)
    assert ended.failure_reason.message == "enough"


async def test_files_do_not_go_back_under_a_check(tmp_path: Path, execution: Path) -> None:
    """A rollback that would freeze the codon is refused while its checks run.

    Its agent has ended, so nothing could pause the check or be told of the rollback.
    """
    wait = f"touch {tmp_path}/begun; while ! test -e {tmp_path}/on; do sleep 0.05; done; test -e b"
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a", "a"), writes("b", "b"), checks=checks(wait))
    )
    async with served(hank, execution, "--headless", since_seq=0) as (server, client):
        await appears(tmp_path / "begun")
        tools = (await client.send(ListCheckpoints(kinds=("tool",)))).checkpoints
        back = RollbackToCheckpoint(checkpoint_sha=tools[-1].sha, on_running="pause")
        with pytest.raises(CommandRefused, match="being checked and cannot be paused"):
            await client.send(back)

        (tmp_path / "on").touch()
        assert await server.ended() == 0


async def test_an_agent_has_so_long_and_no_longer(tmp_path: Path, execution: Path) -> None:
    """timeoutSeconds ends an agent that works too long; the codon fails as timed out.

    Architect parses the field and never uses it (A4, timeout).
    """
    hank = write_hank(tmp_path / "hank", codon("one", {"wait": 600}, timeoutSeconds=0.5))
    assert await run_headless(hank, execution) == 1

    (failed,) = state(execution).runs[0].codons
    assert isinstance(failed, FailedCodon)
    assert failed.failure_reason.type == "timeout"
    assert "total time limit" in str(failed.failure_reason.message)
