"""The whole example: the real process, a real socket, real data, and checks by git."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    GetServerStatus,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackToLastSuccess,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CodonCompletedEvent,
    CodonStartedEvent,
    Event,
    RollbackCompleted,
    RollbackStarted,
    ServerIdle,
    ServerStarted,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, Continuation, FreshStart
from hankweave_server.domain.reducer import fold
from hankweave_server.paths import Layout
from support.git_facts import GitWitness
from support.replayed_blame import credits_by_blame, replay_of
from support.running_server import EXAMPLE, journal, running_server, state, tree
from support.waiting import limited
from support.watching import refused

CODONS = ["observe", "infer", "generate", "review#0", "review#1", "report"]
FAST = {"HANKWEAVE_EXAMPLE_PACE": "0"}


def at_rest(event: Event) -> bool:
    return isinstance(event.data, ServerIdle) and event.data.reason == "all-codons-completed"


async def wait_for_rest(client: Client, since: int = 0) -> None:
    with limited():
        async for event in client.events():
            if event.seq > since and at_rest(event):
                return


def completed(execution: Path) -> dict[str, CompletedCodon]:
    """Return the newest completed execution of each codon."""
    runs = reversed(state(execution).runs)
    return {
        codon.codon_id: codon
        for run in runs
        for codon in run.codons
        if isinstance(codon, CompletedCodon)
    }


@pytest.mark.executed
@pytest.mark.story("The example runs offline, and each of its steps is a commit that git can read.")
async def test_the_example_runs_and_every_step_is_a_commit(execution: Path) -> None:
    """The example's six codons complete in order, each with a checkpoint that git confirms.

    Blame of each file of each checkpoint is what a replay of all trees says.
    """
    async with running_server(
        EXAMPLE / "hank.json", EXAMPLE / "data", execution, "--headless", env=FAST
    ) as server:
        assert await server.ended() == 0

    events = journal(execution)
    ended = [e.data for e in events if isinstance(e.data, CodonCompletedEvent)]
    assert [(done.codon_id, done.success) for done in ended] == [(c, True) for c in CODONS]

    final = state(execution)
    assert fold(events) == final
    assert [run.status for run in final.runs] == ["completed"]
    assert isinstance(final.runs[0].starting_conditions, FreshStart)
    assert final.current_run_id is None

    git = GitWitness(execution)
    git.assert_sound()
    subjects = [subject.split(" [run:")[0] for subject in reversed(git.subjects())]
    ends = [each for each in subjects if not each.startswith(("tool:", "turn:"))]
    assert (
        ends
        == [
            "initial:-",
            "rig-setup:observe",
            "completed:observe",
            "safety:infer",  # The checkpoint from which another attempt would start.
            *(f"completed:{codon}" for codon in CODONS[1:-1]),
            "rig-setup:report",
            "completed:report",
        ]
    )
    assert len(ends) < len(subjects), "what an agent changed is a safe point in its midst, too"
    assert git.branches() == {final.runs[0].git_branch}
    last = completed(execution)["report"].completion_checkpoint
    work_tree = tree(execution / "agentRoot")
    assert git.files(last) == {name: work_tree[name] for name in git.files(last)}
    assert set(work_tree) == set(git.files(last))
    assert not (execution / ".hankweave" / "runtime.lock").exists()

    layout = Layout.of_execution(execution)
    replay = replay_of(layout)
    for sha, files in replay.credits.items():
        for path, credits in files.items():
            assert credits_by_blame(layout, sha, path) == credits, (sha, path)

    assert len(replay.credits) == len(subjects)
    schema = replay.credits[last]["schema/earthquake.schema.json"]
    assert len(set(schema)) > 1, "a review has changed a part of the schema"


@pytest.mark.command("rollback.toCheckpoint", "rollback.toCodon", "rollback.toLastSuccess")
@pytest.mark.story(
    "A rollback to a checkpoint, a codon or the last success restores exactly its files."
)
async def test_rolling_back_three_ways_restores_exactly_what_git_holds(execution: Path) -> None:
    """Last success, a codon, and a sha prefix of an old run: files, runs and plan agree."""
    git = GitWitness(execution)
    async with (
        running_server(EXAMPLE / "hank.json", EXAMPLE / "data", execution, env=FAST) as server,
        server.client(since_seq=0) as client,
    ):
        await wait_for_rest(client)
        done = completed(execution)
        first_run = state(execution).runs[0]

        # To the last success: a later edit is undone, and kept in the safety checkpoint.
        report_file = execution / "agentRoot" / "reports" / "summary.md"
        good = report_file.read_bytes()
        report_file.write_bytes(b"spoiled")
        report = await client.send(RollbackToLastSuccess())
        assert report_file.read_bytes() == good
        safety = report.safety.checkpoint_sha
        assert git.files(safety)["reports/summary.md"] == b"spoiled"
        assert git.is_detached()

        # To a codon in the middle of the loop, and on from there at once.
        seq = (await client.send(GetServerStatus())).last_event_seq
        await client.send(
            RollbackToCodon(
                codon_id=CodonId("review#0"), checkpoint_type="completed", auto_restart=True
            )
        )
        await wait_for_rest(client, since=seq)
        again = state(execution)
        assert [codon.codon_id for codon in again.runs[0].codons] == ["review#1", "report"]
        conditions = again.runs[0].starting_conditions
        assert isinstance(conditions, Continuation)
        assert conditions.source.after_codon == "review#0"
        assert conditions.source.checkpoint_sha == done["review#0"].completion_checkpoint
        plan = [entry.codon_id for entry in again.execution_plan]
        assert plan == CODONS

        # To a sha prefix: the first run's rig, which makes the first codon run again.
        rig = done["observe"].rig_setup_checkpoint
        await client.send(RollbackToCheckpoint(checkpoint_sha=rig[:10]))
        work_tree = tree(execution / "agentRoot")
        assert work_tree == git.files(rig)

        error = await refused(client, RollbackToCheckpoint(checkpoint_sha="ffffffff"))
        assert error.code == ErrorCode.CHECKPOINT_NOT_FOUND
        assert await server.stop() == 0

    git.assert_sound()
    final = state(execution)
    assert fold(journal(execution)) == final
    assert first_run.git_branch in git.branches()
    assert set(CODONS) <= {
        subject.split(" ")[0].removeprefix("completed:")
        for subject in git.subjects(first_run.git_branch)
    }


def at_codon(name: str) -> Callable[[Event], bool]:
    return lambda e: isinstance(e.data, CodonStartedEvent) and e.data.codon_id == name


MOMENTS: dict[str, Callable[[Event], bool]] = {
    "while the second codon runs": at_codon("infer"),
    "while a loop's second iteration runs": at_codon("review#1"),
    "when the first codon has just ended": (
        lambda e: isinstance(e.data, CodonCompletedEvent) and e.data.codon_id == "observe"
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_and_started_again_it_ends_as_if_nothing_had_happened(
    tmp_path: Path, moment: str
) -> None:
    """After kill -9 and a start, the crash is recorded, and the work tree ends up the same."""
    reference, execution = tmp_path / "reference", tmp_path / "execution"
    arguments = (EXAMPLE / "hank.json", EXAMPLE / "data")
    async with running_server(*arguments, reference, "--headless", env=FAST) as server:
        assert await server.ended() == 0

    slow = {"HANKWEAVE_EXAMPLE_PACE": "1"}
    async with (
        running_server(*arguments, execution, env=slow) as server,
        server.client(since_seq=0) as client,
    ):
        killed = server.pid
        with limited():
            async for event in client.events():
                if MOMENTS[moment](event):
                    server.kill()
                    break

        await server.ended()

    async with running_server(*arguments, execution, "--headless", env=FAST) as server:
        assert await server.ended() == 0

    events = journal(execution)
    final = state(execution)
    assert fold(events) == final
    assert "crashed" in {run.status for run in final.runs}
    starts = [event.data for event in events if isinstance(event.data, ServerStarted)]
    assert [start.previous_pid for start in starts] == [None, killed]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    GitWitness(execution).assert_sound()
    assert comparable(execution) == comparable(reference)


async def test_killed_in_a_rollback_it_finishes_the_rollback(execution: Path) -> None:
    """After kill -9 after rollback.started, the next start restores and reports `recovered`."""
    arguments = (EXAMPLE / "hank.json", EXAMPLE / "data")
    async with (
        running_server(*arguments, execution, env=FAST) as server,
        server.client(since_seq=0) as client,
        anyio.create_task_group() as sender,
    ):
        await wait_for_rest(client)
        target = completed(execution)["infer"].completion_checkpoint

        async def roll_back() -> None:
            with contextlib.suppress(CommandRefused, ConnectionError, OSError):
                await client.send(RollbackToCheckpoint(checkpoint_sha=target))

        sender.start_soon(roll_back)
        with limited():
            async for event in client.events():
                if isinstance(event.data, RollbackStarted):
                    server.kill()
                    break

        await server.ended()
        sender.cancel_scope.cancel()

    async with running_server(*arguments, execution, "--no-autostart") as server:
        assert tree(execution / "agentRoot") == GitWitness(execution).files(target)
        assert await server.stop() == 0

    events = journal(execution)
    assert any(isinstance(event.data, RollbackCompleted) for event in events)
    assert not (execution / ".hankweave" / "rollback.intent").exists()
    assert fold(events) == state(execution)


def comparable(execution: Path) -> dict[str, bytes]:
    """Return the work tree without what must differ: session ids and absolute paths."""
    root = str(execution).encode()
    return {
        name: content.replace(root, b"EXECUTION")
        for name, content in tree(execution / "agentRoot").items()
        if name != "notes/python-version.txt"
    }
