"""Checkpoints after every n steps of an agent (seed 003, every_n_steps)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.execution.codon.event_recorder import AgentSteps
from support.git_facts import GitWitness
from support.running_server import served
from support.scripted_hank import codon, write_hank, writes
from support.watching import idle, listed

LAST = 21


@pytest.mark.parametrize("safe_points", ["all", "none"])
async def test_a_checkpoint_follows_every_n_steps(tmp_path: Path, safe_points: str) -> None:
    """Every second step of an agent has a labelled checkpoint with the files of that moment.

    This holds however fast the agent is, with any safe points: it waits before its next step.
    """
    steps = [writes("a.txt", str(number)) for number in range(1, LAST + 1)]
    hank = write_hank(
        tmp_path / "hank", codon("one", *steps), overrides={"checkpointEverySteps": 2}
    )
    execution = tmp_path / "execution"
    flags = ("--safe-points", safe_points)
    async with served(hank, execution, *flags, since_seq=0) as (_, client):
        await idle(client, "all-codons-completed")
        labelled = {r.label: r for r in await listed(client) if r.label is not None}

    due = range(2, LAST + 1, 2)
    assert set(labelled) == {f"architect:checkpoint:step-{number}" for number in due}
    git = GitWitness(execution)
    for number in due:
        record = labelled[f"architect:checkpoint:step-{number}"]
        assert record.kind == "turn"
        assert git.blob(record.sha, "a.txt") == str(number).encode()


async def test_steps_that_change_nothing_leave_no_checkpoint(tmp_path: Path) -> None:
    """A step without a change has no checkpoint, as in seed 003 (CheckpointManager)."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "a"), {"run": "true"}, {"run": "true"}),
        overrides={"checkpointEverySteps": 1},
    )
    execution = tmp_path / "execution"
    async with served(hank, execution, since_seq=0) as (_, client):
        await idle(client, "all-codons-completed")
        labels = [record.label for record in await listed(client) if record.label]

    assert labels == ["architect:checkpoint:step-1"]


async def test_without_the_setting_no_step_is_labelled(tmp_path: Path, execution: Path) -> None:
    """Steps are counted only if the hank requests it."""
    hank = write_hank(tmp_path / "hank", codon("one", writes("a.txt", "a")))
    async with served(hank, execution, since_seq=0) as (_, client):
        await idle(client, "all-codons-completed")
        assert not [record for record in await listed(client) if record.label]


def test_an_answer_with_several_tools_is_one_step() -> None:
    """A step ends when all tools called in an answer have returned."""
    steps = AgentSteps(every=1)
    for call in ("a", "b", "c"):
        steps.called(call)

    assert [steps.returned(call) for call in ("b", "a", "c")] == [
        None,
        None,
        "architect:checkpoint:step-1",
    ]


def test_a_tool_that_never_returns_holds_up_one_step_only() -> None:
    """An unanswered call is dropped at the next answer."""
    steps = AgentSteps(every=1)
    steps.called("lost")
    steps.note_message()
    steps.called("b")
    assert steps.returned("b") == "architect:checkpoint:step-1"
