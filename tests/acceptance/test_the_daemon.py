"""The daemon's promises: one owner, orderly ends, and clear errors for bad input."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import (
    CodonForceStop,
    CodonNext,
    CodonRedo,
    CodonSkip,
    CodonStart,
    GetServerStatus,
    ListCheckpoints,
    RollbackToCheckpoint,
    RollbackToLastSuccess,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import CodonCompletedEvent
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, FailedCodon, SkippedCodon
from support.command_line import hankweave
from support.git_facts import GitWitness
from support.running_server import (
    appears,
    journal,
    run_headless,
    running_server,
    served,
    state,
)
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.small_disk import small_disk
from support.watching import idle, refused, started, to_end_of


def written(execution: Path) -> dict[Path, int]:
    """Return when each file was last written."""
    files = (path for path in execution.rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.story(
    "A second server on the same directory exits with 75, names the owner and touches nothing."
)
async def test_a_second_server_names_the_owner_and_touches_nothing(tmp_path: Path) -> None:
    """The second start exits 75 with the first one's pid, and no file has changed."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    execution = tmp_path / "execution"
    async with running_server(hank, None, execution, "--no-autostart") as server:
        async with server.client(since_seq=0) as client:
            await idle(client, "startup")

        os.kill(server.pid, signal.SIGSTOP)  # From now on only the second one writes.
        try:
            before = written(execution)
            words = ("run", str(hank), "--execution", str(execution), "--headless")
            second = hankweave(*words, code=75)
            after = written(execution)
        finally:
            os.kill(server.pid, signal.SIGCONT)

        assert str(server.pid) in second.stderr
        assert after == before


@pytest.mark.story(
    "A server that is terminated during a codon leaves a checkpoint of the work and no lock."
)
async def test_sigterm_in_mid_work_leaves_an_exit_checkpoint_and_no_lock(tmp_path: Path) -> None:
    """The agent is gone, there is an `exit` commit, and the lock is removed."""
    gate = tmp_path / "gate"
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "half"), waits_for(gate)))
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (server, client):
        await started(client, "one")
        await appears(execution / "agentRoot" / "a.txt")
        assert await server.stop() == 0

    final = state(execution)
    assert final.current_run_id is None
    failed = final.runs[0].codons[-1]
    assert isinstance(failed, FailedCodon)
    git = GitWitness(execution)
    assert git.subjects()[0].startswith("exit:one ")
    assert git.blob("HEAD", "a.txt") == b"half"
    assert failed.error_checkpoint == git.run("rev-parse", "HEAD").strip()
    assert not (execution / ".hankweave" / "runtime.lock").exists()


@pytest.mark.story(
    "After kill -9 during a codon, the next start restores the last success and continues."
)
async def test_killed_in_mid_codon_it_restores_the_last_success_and_goes_on(
    tmp_path: Path, execution: Path
) -> None:
    """The incomplete file of the killed codon is gone before the codon runs again."""
    gate = tmp_path / "gate"
    seen = "test -e half.txt && echo half > seen.txt || echo clean > seen.txt"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a")),
        codon("two", {"run": seen}, writes("half.txt", "half"), waits_for(gate)),
    )
    async with running_server(hank, None, execution) as server:
        await appears(execution / "agentRoot" / "half.txt")
        agent = state(execution).runs[0].codons[-1]
        server.kill()
        await server.ended()

    gate.touch()
    assert await run_headless(hank, execution) == 0

    assert (execution / "agentRoot" / "seen.txt").read_text() == "clean\n"
    runs = state(execution).runs
    assert [run.status for run in runs] == ["completed", "crashed"]
    assert isinstance(runs[1].codons[-1], FailedCodon)
    assert [codon.codon_id for codon in runs[0].codons] == ["two"]
    pid = getattr(agent, "claude_pid", None)
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.command("codon.next", "codon.skip", "codon.redo", "codon.forceStop")
@pytest.mark.story("A running codon can be skipped, stopped and run again.")
async def test_skip_redo_and_force_stop_end_a_codon_as_they_say(tmp_path: Path) -> None:
    """skip: skipped; forceStop: failed; redo: the newest codon again, in a run of its own."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), waits_for(gate)),
        codon("two", writes("b.txt", "b")),
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, "--no-autostart", since_seq=0) as (_, client):
        await client.send(CodonNext())
        await started(client, "one")
        await client.send(CodonForceStop(reason="enough"))
        await idle(client, "stopped")
        assert isinstance(state(execution).runs[0].codons[-1], FailedCodon)
        await client.send(CodonRedo())
        await started(client, "one")
        await client.send(CodonSkip())
        await idle(client, "codon-completed")
        assert isinstance(state(execution).runs[0].codons[-1], SkippedCodon)
        await client.send(CodonNext())
        await idle(client, "all-codons-completed")
        assert isinstance(state(execution).runs[0].codons[-1], CompletedCodon)


REFUSALS: list[tuple[Callable[[], Any], ErrorCode, str | None]] = [
    (lambda: CodonStart(codon_id=CodonId("two")), ErrorCode.CODON_RUNNING, None),
    (lambda: CodonNext(), ErrorCode.CODON_RUNNING, None),
    (lambda: CodonRedo(), ErrorCode.CODON_RUNNING, None),
    (lambda: RollbackToLastSuccess(), ErrorCode.CODON_RUNNING, None),
    (
        lambda: RollbackToCheckpoint(checkpoint_sha="0123456789"),
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.checkpointSha",
    ),
    (
        lambda: RollbackToCheckpoint(checkpoint_sha="../../x"),
        ErrorCode.CHECKPOINT_NOT_FOUND,
        "$.data.checkpointSha",
    ),
    (lambda: to_end_of("nobody"), ErrorCode.UNKNOWN_CODON, "$.data.codonId"),
    (
        lambda: RollbackToLastSuccess(expected_run_id="another"),  # type: ignore[arg-type]
        ErrorCode.STALE_RUN,
        "$.data.expectedRunId",
    ),
    (
        lambda: ListCheckpoints(run_id="nobody"),  # type: ignore[arg-type]
        ErrorCode.UNKNOWN_RUN,
        "$.data.runId",
    ),
]


async def test_what_cannot_be_done_is_refused_with_a_code_and_leaves_no_trace(
    tmp_path: Path, execution: Path
) -> None:
    """Each impossible command has its own code and path, and adds nothing to the journal."""
    gate = tmp_path / "gate"
    hank = write_hank(
        tmp_path / "hank", codon("one", writes("a.txt", "a")), codon("two", waits_for(gate))
    )
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "two")
        status = await client.send(GetServerStatus())
        for make, code, path in REFUSALS:
            error = await refused(client, make())
            assert (error.code, error.path) == (code, path), make()

        assert (await client.send(GetServerStatus())).last_event_seq == status.last_event_seq


@pytest.mark.story("A broken hank is reported with all its errors at once and exit code 2.")
def test_a_broken_hank_reports_all_its_errors_and_exits_2(tmp_path: Path) -> None:
    """Two faults give two lines and a suggestion, no traceback, and nothing is created."""
    hank = tmp_path / "hank.json"
    broken = codon("one") | {"continuatonMode": "fresh", "maxExtensions": 0}
    hank.write_text(json.dumps({"hank": [broken]}))
    done = hankweave(
        "run", str(hank), HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=str(tmp_path / "executions"), code=2
    )
    assert "continuatonMode" in done.stderr
    assert "continuationMode" in done.stderr
    assert "maxExtensions" in done.stderr
    assert not (tmp_path / "executions").exists()


async def test_a_missing_agent_program_fails_its_codon_with_a_sentence(tmp_path: Path) -> None:
    """Without the check at the start the failure names the program; the exit code is 1."""
    broken = codon("one") | {"agent": {"type": "command", "command": ["no-such-program-here"]}}
    hank = write_hank(tmp_path / "hank", broken)
    execution = tmp_path / "execution"
    async with running_server(hank, None, execution, "--headless", "--no-agent-check") as server:
        assert await server.ended() == 1

    failed = state(execution).runs[0].codons[-1]
    assert isinstance(failed, FailedCodon)
    assert "no-such-program-here" in (failed.failure_reason.message or "")
    assert not any("Traceback" in line for line in server.output)
    done = [e.data for e in journal(execution) if isinstance(e.data, CodonCompletedEvent)]
    assert [event.success for event in done] == [False]


@pytest.mark.parametrize(
    ("place", "code"), [("file", 2), ("missing-hank", 66), ("missing-data", 66)]
)
@pytest.mark.story(
    "Input that does not exist is one sentence and exit code 66.", cases=("missing-hank-66",)
)
def test_a_wrong_path_is_one_sentence_and_an_exit_code(
    tmp_path: Path, place: str, code: int
) -> None:
    """The path is a file in place of the execution, or a missing hank or data."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    (tmp_path / "file").write_text("not a directory")
    words = {
        "file": [str(hank), "--execution", str(tmp_path / "file")],
        "missing-hank": [str(tmp_path / "nowhere.json")],
        "missing-data": [str(hank), str(tmp_path / "nowhere")],
    }[place]
    done = hankweave("run", *words, "--headless", code=code)
    assert done.stderr.startswith("hankweave: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    """Missing permission gives exit code 74 or 77 and no traceback."""
    hank = write_hank(tmp_path / "hank", codon("one"))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    done = hankweave("run", str(hank), "--execution", str(locked / "execution"))
    assert done.returncode in (74, 77)


@pytest.mark.parametrize("kilobytes", [60, 200, 300])
@pytest.mark.story("A disk error is one sentence and exit code 74.", cases=("200",))
def test_a_full_disk_is_one_sentence_and_exit_code_74(tmp_path: Path, kilobytes: int) -> None:
    """Wherever the space runs out, the output is a readable message without a traceback."""
    with small_disk(tmp_path / "disk", f"size={kilobytes}k") as disk:
        noise = {"run": "head -c 2000000 /dev/urandom | base64 -w 2000 | head -c 250000"}
        hank = write_hank(tmp_path / "hank", codon("one", *[{"say": "x" * 9000}] * 30, noise))
        words = ("run", str(hank), "--execution", str(disk / "execution"), "--headless")
        done = hankweave(*words, code=74)

    assert done.stderr.startswith("hankweave: ")
