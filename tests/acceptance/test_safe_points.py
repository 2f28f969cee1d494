"""Automatic checkpoints on a real server: before a tool, after it, and each of them disabled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.commands import CheckpointCreate, ListCheckpoints
from hankweave_protocol.events import RigSetupCompleted
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.state import CompletedCodon
from support.command_line import hankweave
from support.git_facts import GitWitness
from support.running_server import appears, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import after_plan, events_of, idle, started, taken

RIG = [{"type": "command", "command": {"run": "echo rig > rig.txt"}}]


def asking(name: str, *steps: Any, **fields: Any) -> dict[str, Any]:
    """Return a codon whose agent requests permission before each tool that changes files."""
    script = json.dumps({"steps": list(steps), "asks": True})
    return {**codon(name, **fields), "promptText": script}


async def all_taken(
    tmp_path: Path, hank: Path, *options: str, **env: str
) -> tuple[GitWitness, list[CheckpointRecord]]:
    """Run a hank to its end; return its checkpoints, oldest first."""
    execution = tmp_path / "execution"
    async with after_plan(hank, execution, *options, env=env) as (_, client):
        page = await client.send(ListCheckpoints())

    GitWitness(execution).assert_sound()
    return GitWitness(execution), list(reversed(page.checkpoints))


# --- before a tool --------------------------------------------------------------------------------


async def test_before_a_tool_what_there_is_is_saved_and_what_it_does_is_not(tmp_path: Path) -> None:
    """The agent waits for its answer until the checkpoint exists, then it continues."""
    hank = write_hank(
        tmp_path / "hank",
        asking("one", writes("a.txt", "a"), writes("b.txt", "b"), writes("a.txt", "c")),
    )
    git, records = await all_taken(tmp_path, hank, "--safe-points", "before-tool")
    found = [(each.kind, each.summary, git.files(each.sha)) for each in records]
    assert found == [
        ("initial", "the beginning", {}),
        ("tool", "Write a.txt +1", {"a.txt": b"a"}),
        ("tool", "Write b.txt +1", {"a.txt": b"a", "b.txt": b"b"}),
        ("completed", "codon completed · a.txt +1 −1", {"a.txt": b"c", "b.txt": b"b"}),
    ]
    assert {each.label for each in records} == {None}


async def test_before_a_tool_nothing_is_taken_that_there_is_already(tmp_path: Path) -> None:
    """If each tool's change has a checkpoint, the request before the next tool adds none."""
    hank = write_hank(tmp_path / "hank", asking("one", writes("a.txt", "a"), writes("b.txt", "b")))
    _, records = await all_taken(tmp_path, hank)
    assert [(each.kind, each.label) for each in records] == [
        ("initial", None),
        ("tool", None),
        ("tool", None),
        ("completed", None),
    ]


async def test_what_a_person_did_meanwhile_is_saved_before_a_tool_can_overwrite_it(
    tmp_path: Path,
) -> None:
    """An edit between two tool calls is in the checkpoint that precedes the second."""
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    hank = write_hank(
        tmp_path / "hank",
        asking("one", writes("a.txt", "agent"), waits_for(gate), writes("a.txt", "agent again")),
    )
    async with served(hank, execution, since_seq=0) as (_, client):
        await started(client, "one")
        await appears(execution / "agentRoot" / "a.txt")
        await taken(client, "tool")
        (execution / "agentRoot" / "a.txt").write_text("a person's")
        gate.touch()
        await idle(client)
        page = await client.send(ListCheckpoints())

    (before,) = [record for record in page.checkpoints if record.summary == "a.txt +1 −1"]
    assert GitWitness(execution).files(before.sha) == {"a.txt": b"a person's"}
    assert tree(execution / "agentRoot") == {"a.txt": b"agent again"}


async def test_a_tool_that_only_reads_needs_no_checkpoint(tmp_path: Path) -> None:
    """A request to read is answered at once, and nothing is saved."""
    hank = write_hank(
        tmp_path / "hank",
        asking("one", writes("a.txt", "a"), {"ask": {"tool": "Read"}}, {"ask": {"tool": "Edit"}}),
    )
    _, records = await all_taken(tmp_path, hank, "--safe-points", "before-tool")
    assert [each.summary for each in records if each.kind == "tool"] == ["Write a.txt +1"]


# --- on and off -----------------------------------------------------------------------------------

EVERY_POINT = asking("one", writes("a.txt", "a"), {"ask": {"tool": "Edit"}}, rigSetup=RIG)
"""With the rig and tool safe points off, each request finds something to save."""


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("all", ["rig-setup", "tool"]),
        ("none", []),
        ("rig-setup", ["rig-setup"]),
        ("tool", ["tool"]),
        ("before-tool", ["tool", "tool"]),
        ("turn", ["turn"]),
        ("rig-setup, tool", ["rig-setup", "tool"]),
    ],
)
@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.story(
    "`--safe-points` selects which checkpoints are taken.", cases=("option-rig-setup-expected2",)
)
async def test_each_safe_point_is_on_or_off_by_setting(
    tmp_path: Path, points: str, expected: list[str], how: str
) -> None:
    """The command line or HANKWEAVE_RUNTIME_SAFE_POINTS names the enabled ones."""
    hank = write_hank(tmp_path / "hank", EVERY_POINT)
    options = ("--safe-points", points) if how == "option" else ()
    env = {"HANKWEAVE_RUNTIME_SAFE_POINTS": points} if how == "environment" else {}
    git, records = await all_taken(tmp_path, hank, *options, **env)
    unasked = [each for each in records if each.kind in ("rig-setup", "tool", "turn")]
    assert [each.kind for each in unasked] == expected
    (end,) = [each for each in records if each.kind == "completed"]
    assert git.files(end.sha) == {"a.txt": b"a", "rig.txt": b"rig\n"}
    (completed,) = events_of(git.execution, RigSetupCompleted)
    assert completed.created_checkpoint == ("rig-setup" in expected)
    done = state(git.execution).runs[0].codons[-1]
    assert isinstance(done, CompletedCodon)
    assert (done.rig_setup_checkpoint is not None) == ("rig-setup" in expected)


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.parametrize("text", ["tools", "", "rig-setup,", "all,tool", "none,none,x"])
def test_a_safe_point_that_there_is_not_is_refused(tmp_path: Path, text: str, how: str) -> None:
    """An unknown safe point is a usage or configuration error that lists the valid names.

    No execution starts.
    """
    hank = write_hank(tmp_path / "hank", codon("one"))
    options = ("--safe-points", text) if how == "option" else ()
    env = {"HANKWEAVE_RUNTIME_SAFE_POINTS": text} if how == "environment" else {}
    if how == "environment" and not text:
        pytest.skip("an empty variable is none")

    words = ("run", str(hank), "--execution", str(tmp_path / "execution"), *options)
    done = hankweave(*words, code=2 if how == "option" else 78, **env)
    assert "is not a safe point" in done.stderr
    assert "before-tool" in done.stderr
    assert not (tmp_path / "execution").exists()


async def test_a_checkpoint_of_nothing_new_makes_no_new_tree(tmp_path: Path) -> None:
    """Two requests with no change between make two commits of one tree, and no other object."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", codon("one", writes("d/a.txt", "a")))
    async with after_plan(hank, execution) as (_, client):
        first = await client.send(CheckpointCreate())
        before = _objects(execution)
        second = await client.send(CheckpointCreate())

    git = GitWitness(execution)
    assert git.run("rev-parse", f"{first.sha}^{{tree}}") == git.run(
        "rev-parse", f"{second.sha}^{{tree}}"
    )
    assert _objects(execution) - before == {second.sha}


def _objects(execution: Path) -> set[str]:
    return set(
        GitWitness(execution)
        .run("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        .split()
    )
