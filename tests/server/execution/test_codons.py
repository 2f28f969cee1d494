"""Codons of a real server: rigs, sessions, failure policies and interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    ServerShutdown,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    RigOutput,
    RigSetupCompleted,
    RigSetupFailed,
    StateTransition,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, FailedCodon, SkippedCodon
from support.git_facts import GitWitness
from support.running_server import appears, run_headless, served, state
from support.scripted_hank import codon, rig_command, shell, waits_for, write_hank, writes
from support.waiting import LIMIT
from support.watching import after_plan, events_of, idle, refused, started

# --- Rigs -----------------------------------------------------------------------------------------


async def test_a_failed_rig_fails_its_codon_before_an_agent_starts(tmp_path: Path) -> None:
    """The codon fails in `preparing`, retriably, with the rig's output; no agent ran."""
    rig = [
        rig_command("echo first >> rig.txt"),
        rig_command("echo broken >&2; exit 3"),
        rig_command("echo never"),
    ]
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a"), rigSetup=rig))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    failed = state(execution).runs[0].codons[-1]
    assert isinstance(failed, FailedCodon)
    assert (failed.failed_during, failed.failure_reason.retriable) == ("preparing", True)
    assert failed.failure_reason.message
    assert not (execution / "agentRoot" / "a.txt").exists()
    (broken,) = events_of(execution, RigSetupFailed)
    assert (broken.command_index, broken.exit_code, broken.ignored) == (1, 3, False)
    assert {(line.stream, line.line) for line in events_of(execution, RigOutput)} == {
        ("stderr", "broken")
    }
    assert GitWitness(execution).blob(failed.error_checkpoint or "", "rig.txt") == b"first\n"


async def test_a_rig_operation_that_may_fail_is_gone_on_from(tmp_path: Path) -> None:
    """allowFailure: the failure is reported as ignored; the rest of the rig and the agent run."""
    rig = [rig_command("exit 3", allowFailure=True), rig_command("echo second > rig.txt")]
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a"), rigSetup=rig))
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0

    assert [fault.ignored for fault in events_of(execution, RigSetupFailed)] == [True]
    assert len(events_of(execution, RigSetupCompleted)) == 1
    done = state(execution).runs[0].codons[-1]
    assert isinstance(done, CompletedCodon)
    assert GitWitness(execution).files(done.rig_setup_checkpoint or "") == {"rig.txt": b"second\n"}


@pytest.mark.parametrize("command", [CodonSkip(), CodonForceStop(reason="enough")])
async def test_a_codon_can_be_ended_in_its_rig(tmp_path: Path, command: Any) -> None:
    """skip and forceStop end the rig's processes; the codon ends in `preparing`."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", rigSetup=[rig_command("echo $$ > new; mv new pid.txt; sleep 600 & wait")]),
        codon("two"),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await client.send(CodonNext())
        pid = execution / "agentRoot" / "pid.txt"
        await appears(pid)
        await client.send(command)
        skipped = isinstance(command, CodonSkip)
        await idle(client, "codon-completed" if skipped else "stopped")
        assert not Path("/proc", pid.read_text().strip()).exists()

    ended = state(execution).runs[0].codons[-1]
    match ended:
        case SkippedCodon(skipped_during=during) | FailedCodon(failed_during=during):
            assert during == "preparing"
        case _:
            raise AssertionError(ended)

    assert events_of(execution, CodonStartedEvent) == []


@pytest.mark.command("codon.start")
async def test_skipping_the_rig_on_request_runs_the_agent_alone(tmp_path: Path) -> None:
    """codon.start with skipPreCommands starts the agent on the current files."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), rigSetup=[rig_command("touch rig.txt")]),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await client.send(CodonStart(codon_id=CodonId("one"), skip_pre_commands=True))
        await idle(client)

    assert (execution / "agentRoot" / "a.txt").exists()
    assert not (execution / "agentRoot" / "rig.txt").exists()


# --- Sessions -------------------------------------------------------------------------------------


async def test_continue_previous_resumes_the_session_before(tmp_path: Path) -> None:
    """The agent resumes the preceding codon's session, also when it is redone."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"say": "hello"}),
        codon("two", {"say": "again"}, continuationMode="continue-previous"),
    )
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        await client.send(CodonRedo())
        await idle(client)

    one, two, again = events_of(execution, CodonStartedEvent)
    assert (two.session_id, two.previous_session_id) == (one.session_id, one.session_id)
    assert (again.codon_id, again.session_id) == ("two", one.session_id)


async def test_continue_previous_without_a_session_fails_with_the_reason(tmp_path: Path) -> None:
    """After an ignored failure there is no session; the codon fails before its agent starts."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"fail": {"message": "no"}}, onFailure="ignore"),
        codon("two", continuationMode="continue-previous"),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 1

    failed = state(execution).runs[0].codons[-1]
    assert isinstance(failed, FailedCodon)
    assert (failed.codon_id, failed.failed_during) == ("two", "starting")
    assert failed.failure_reason.retriable is False
    assert "previous session" in (failed.failure_reason.message or "")


# --- Failures -------------------------------------------------------------------------------------


async def test_an_ignored_failure_is_published_and_the_plan_continues(
    tmp_path: Path, execution: Path
) -> None:
    """onFailure ignore: the codon stays failed, the plan continues, the run completes."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", {"fail": {"message": "no", "exitCode": 4}}, onFailure="ignore"),
        codon("two", writes("b.txt", "b")),
    )
    assert await run_headless(hank, execution) == 0

    one, two = events_of(execution, CodonCompletedEvent)
    assert (one.success, one.failure_ignored, one.exit_status.code) == (False, True, 4)
    assert (two.success, two.failure_ignored) == (True, None)
    (run,) = state(execution).runs
    assert run.status == "completed"
    assert [type(each) for each in run.codons] == [FailedCodon, CompletedCodon]


async def test_a_failed_codon_is_started_again_in_a_run_of_its_own(tmp_path: Path) -> None:
    """The failed run ends as failed; codon.next tries again and continues to the end."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one") | shell("test -e ok && exit 0; touch ok; exit 7"),
        codon("two"),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (_, client):
        failure = await idle(client, "codon-failed")
        assert "one" in failure.data.message  # type: ignore[attr-defined]
        await client.send(CodonNext())
        await idle(client)

    assert [run.status for run in state(execution).runs] == ["completed", "failed"]
    conditions = state(execution).runs[0].starting_conditions
    assert conditions.reason == "retry"  # type: ignore[union-attr]
    failed = state(execution).runs[1].codons[-1]
    assert isinstance(failed, FailedCodon)
    assert failed.exit_code == 7


# --- Commands at unusual moments ------------------------------------------------------------------


async def test_a_stop_right_after_a_start_is_obeyed(tmp_path: Path, execution: Path) -> None:
    """A skip or forceStop that arrives while the agent is being started still ends it."""
    hank = write_hank(tmp_path / "hank", codon("one", waits_for(tmp_path / "never")), codon("two"))
    async with served(hank, execution, "--no-autostart", since_seq=0) as (server, client):
        await client.send(CodonNext())
        await client.until(
            StateTransition,
            lambda event: getattr(event.data, "transition_type", "") == "CodonStarted",
            timeout=LIMIT,
        )
        await client.send(CodonSkip())
        await idle(client, "codon-completed")
        assert isinstance(state(execution).runs[0].codons[-1], SkippedCodon)
        await client.send(CodonRedo())
        assert await server.stop() == 0

    final = state(execution)
    assert final.current_run_id is None
    assert all(hasattr(each, "end_time") for run in final.runs for each in run.codons)


async def test_orders_that_make_no_sense_now_are_refused(tmp_path: Path, execution: Path) -> None:
    """Nothing to skip, redo or run, and an unknown codon, each have an error code."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        for command, code in (
            (CodonSkip(), ErrorCode.NO_CODON_RUNNING),
            (CodonForceStop(), ErrorCode.NO_CODON_RUNNING),
            (CodonRedo(), ErrorCode.NOTHING_TO_RUN),
            (CodonStart(codon_id=CodonId("nobody")), ErrorCode.UNKNOWN_CODON),
        ):
            error = await refused(client, command)
            assert error.code == code

        await client.send(CodonNext())
        await idle(client)
        error = await refused(client, CodonNext())
        assert error.code == ErrorCode.NOTHING_TO_RUN


async def test_a_server_shut_down_over_the_wire_ends_in_order(tmp_path: Path) -> None:
    """server.shutdown in a codon: exit 0, an `exit` checkpoint, closed run, lock removed."""
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a"), waits_for(tmp_path / "never"))
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (server, client):
        await started(client, "one")
        await appears(execution / "agentRoot" / "a.txt")
        await client.send(ServerShutdown())
        assert await server.ended() == 0

    assert state(execution).current_run_id is None
    assert GitWitness(execution).subjects()[0].startswith("exit:one ")
    assert not (execution / ".hankweave" / "runtime.lock").exists()
