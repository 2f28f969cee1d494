"""Claims about rollbacks, labels and branches over a real socket that fit no other module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointPin,
    ExecutionBranch,
    RollbackUndo,
    StoreGc,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CheckpointRollback,
    RollbackCompleted,
    WorkspaceInvalidated,
)
from support.copies import copy_execution
from support.git_facts import GitWitness
from support.running_server import journal, served, state, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import eventually
from support.watching import after_plan, events_of, listed, refused, to_end_of

THREE = (
    codon("one", writes("a.txt", "one")),
    codon("two", writes("a.txt", "two")),
    codon("three", writes("c.txt", "three")),
)


async def test_auto_restart_runs_the_rest_of_the_plan_without_autostart(tmp_path: Path) -> None:
    """The rollback requested the restart, so the plan continues past one codon."""
    execution = tmp_path / "execution"
    hank = write_hank(tmp_path / "hank", *THREE)
    async with after_plan(hank, execution):
        pass

    async with served(hank, execution, "--no-autostart") as (_, client):
        await client.send(to_end_of("one", auto_restart=True))

        def continued() -> bool:
            return [each.codon_id for each in state(execution).runs[0].codons] == ["two", "three"]

        await eventually(continued)


async def test_a_rollback_right_after_the_start_keeps_the_plan_from_beginning(
    tmp_path: Path, execution: Path
) -> None:
    """With autostart, too: a client that rolls back decides what runs next."""
    hank = write_hank(tmp_path / "hank", *THREE)
    async with after_plan(hank, execution) as (server, client):
        assert await server.stop() == 0

    for k in range(3):
        again = tmp_path / f"again-{k}"
        copy_execution(execution, again)
        async with served(hank, again) as (server, client):
            await client.send(to_end_of("one"))
            assert await server.stop() == 0

        assert state(again).runs[0].codons == ()
        assert tree(again / "agentRoot") == {"a.txt": b"one"}


async def test_a_full_rollback_publishes_checkpoint_rollback_as_well(tmp_path: Path) -> None:
    """Source and target are its causes; `rollback.completed` follows and has the report."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        await client.send(to_end_of("one"))
        await client.send(RollbackUndo())

    events = [e for e in journal(execution) if isinstance(e.data, CheckpointRollback)]
    completed = events_of(execution, RollbackCompleted)
    assert [e.data.operation_id for e in events] == [each.operation_id for each in completed]
    assert [e.data.direction for e in events] == ["back", "undo"]
    for event, done in zip(events, completed, strict=True):
        assert isinstance(event.data, CheckpointRollback)
        assert (event.data.report, event.data.paths) == (None, None)
        assert event.data.checkpoint == done.checkpoint
        assert {event.data.source.event_seq, event.data.target.event_seq} - {0} <= set(event.causes)

    kinds = (CheckpointRollback, RollbackCompleted, WorkspaceInvalidated)
    order = [type(e.data) for e in journal(execution) if isinstance(e.data, kinds)]
    assert order == list(kinds) * 2


async def test_a_label_has_a_limit(tmp_path: Path, execution: Path) -> None:
    """500 characters are accepted; one more is refused with a code and its path."""
    async with after_plan(write_hank(tmp_path / "hank", THREE[0]), execution) as (_, client):
        before = len(await listed(client))
        made = await client.send(CheckpointCreate(label="x" * 500))
        assert made.label == "x" * 500
        error = await refused(client, CheckpointCreate(label="x" * 501))
        assert error.code == ErrorCode.INVALID_COMMAND
        assert error.path == "$.data.label"
        assert len(await listed(client)) == before + 1


async def test_secrets_in_labels_reach_no_commit_and_no_event(
    tmp_path: Path, execution: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels and pin names are redacted: known formats and the server's secret variables."""
    known, format_ = "correct-horse-battery", "sk-" + "a1B2c3D4" * 4
    monkeypatch.setenv("DEPLOY_TOKEN", known)
    async with after_plan(write_hank(tmp_path / "hank", THREE[0]), execution) as (_, client):
        label = f"with {known} and {format_} in it"
        made = await client.send(CheckpointCreate(label=label))
        assert made.label == "with [redacted:DEPLOY_TOKEN] and [redacted:openai-key] in it"
        await client.send(
            CheckpointPin(checkpoint_sha=made.sha, name=f"pin {known}", pinned=True),
        )

    git = GitWitness(execution)
    messages = git.run("log", "--all", "--format=%B") + git.run(
        "cat-file", "tag", f"refs/pins/{made.sha}"
    )
    raw = (execution / ".hankweave" / "events" / "events.jsonl").read_text()
    for secret in (known, format_):
        assert secret not in messages
        assert secret not in raw


async def test_a_branch_is_never_made_through_a_link_in_the_work_tree(tmp_path: Path) -> None:
    """A place behind an agent's link is refused, and the link's target stays empty.

    The link may be direct or behind another link.
    """
    execution, outside = tmp_path / "execution", tmp_path / "outside"
    outside.mkdir()
    async with after_plan(write_hank(tmp_path / "hank", THREE[0]), execution) as (_, client):
        link = execution / "agentRoot" / "link"
        link.symlink_to(outside)
        (tmp_path / "chain").symlink_to(link)
        sha = (await listed(client))[0].sha
        for place in (link / "new", tmp_path / "chain" / "new"):
            error = await refused(client, ExecutionBranch(checkpoint_sha=sha, path=str(place)))
            assert error.code == ErrorCode.INVALID_PATH
            assert error.path == "$.data.path"

        assert os.listdir(outside) == []
        (tmp_path / "mine").symlink_to(outside)
        made = await client.send(
            ExecutionBranch(checkpoint_sha=sha, path=str(tmp_path / "mine" / "new"))
        )
        assert made.execution_path == str(outside / "new")


async def test_a_branch_without_a_place_needs_no_folder_of_executions(tmp_path: Path) -> None:
    """In a person's project it goes to the executions root, which is created if needed."""
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    hank = write_hank(tmp_path / "hank", THREE[0])
    async with after_plan(hank, project, place="--workspace", env={"HOME": str(home)}) as (
        _,
        client,
    ):
        made = await client.send(ExecutionBranch(checkpoint_sha=(await listed(client))[0].sha))

    root = home / ".hankweave-executions"
    assert Path(made.execution_path).parent == root
    assert tree(Path(made.execution_path) / "agentRoot") == {"a.txt": b"one"}


async def test_undo_goes_as_deep_as_gc_leaves_it(tmp_path: Path, execution: Path) -> None:
    """A dry run says how many undos go; afterwards the others work, and then none is left."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        for index in range(3):
            (execution / "agentRoot" / "a.txt").write_text(f"edit {index}")
            await client.send(to_end_of("one"))

        before = state(execution).undo
        assert len(before) == 3
        dry = await client.send(StoreGc(dry_run=True, max_count=0))
        done = await client.send(StoreGc(max_count=0))
        assert dry.undos_lost == done.undos_lost > 0
        left = 3 - done.undos_lost
        assert len(state(execution).undo) == left > 0
        for _ in range(left):
            await client.send(RollbackUndo())

        nothing = await refused(client, RollbackUndo())
        assert nothing.code == ErrorCode.NOTHING_TO_UNDO
