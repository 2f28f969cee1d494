"""Rollback, undo and redo on a real server: paths, people's edits and live agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol.commands import (
    CheckpointCreate,
    CheckpointPin,
    CodonNext,
    ListCheckpoints,
    RollbackPreview,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToLastSuccess,
    RollbackUndo,
)
from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import (
    CheckpointRollback,
    RollbackCompleted,
    RollbackTold,
    WorkspaceInvalidated,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import FailedCodon
from hankweave_server.domain.execution_thread import thread
from hankweave_server.domain.reducer import fold
from support.git_facts import GitWitness
from support.running_server import appears, journal, running_server, served, state, tree
from support.scripted_hank import codon, waits_for, write_hank, writes
from support.watching import after_plan, events_of, idle, listed, refused, started, taken, to_end_of

THREE = (
    codon("one", writes("a.txt", "one")),
    codon("two", writes("a.txt", "two"), writes("d/b.txt", "two")),
    codon("three", writes("c.txt", "three")),
)


def on_thread(execution: Path) -> list[str]:
    return [entry.codon.codon_id for entry in thread(state(execution))]


def paths(files: tuple[Any, ...]) -> set[str]:
    return {file.path for file in files}


def holds_together(execution: Path) -> None:
    """Assert that the state is the fold of the journal, and that git finds no fault."""
    folded, saved = fold(journal(execution)), state(execution)
    assert (folded.undo, folded.redo, folded.edits) == (saved.undo, saved.redo, saved.edits)
    GitWitness(execution).assert_sound()


# --- undo and redo --------------------------------------------------------------------------------


@pytest.mark.command("rollback.undo", "rollback.redo")
@pytest.mark.story("A rollback can be undone and redone, with the files and the place in the plan.")
async def test_an_undo_brings_back_files_and_place_and_a_redo_goes_forward_again(tmp_path):
    """Rollback, undo, redo: each time the work tree and thread are exactly the expected ones."""
    execution = tmp_path / "execution"
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        (execution / "agentRoot" / "mine.txt").write_text("a person's, unsaved")
        before, on = tree(execution / "agentRoot"), on_thread(execution)
        await client.send(to_end_of("one"))
        back = tree(execution / "agentRoot")
        assert (back, on_thread(execution)) == ({"a.txt": b"one"}, ["one"])

        report = await client.send(RollbackUndo())
        assert tree(execution / "agentRoot") == before
        assert on_thread(execution) == on
        assert paths(report.added) >= {"c.txt", "d/b.txt"}

        await client.send(RollbackRedo())
        assert tree(execution / "agentRoot") == back
        assert on_thread(execution) == ["one"]
        await client.send(CodonNext())
        await idle(client, "all-codons-completed")

    assert [done.direction for done in events_of(execution, RollbackCompleted)] == [
        "back",
        "undo",
        "redo",
    ]
    assert tree(execution / "agentRoot")["c.txt"] == b"three"
    holds_together(execution)


async def test_undo_and_redo_outlive_the_server(tmp_path, execution):
    """The undo history is in the state: another server undoes, and a third redoes."""
    hank = write_hank(tmp_path / "hank", *THREE)
    async with after_plan(hank, execution) as (server, client):
        before = tree(execution / "agentRoot")
        await client.send(to_end_of("one"))
        back = tree(execution / "agentRoot")
        server.kill()

    for command, expected in ((RollbackUndo(), before), (RollbackRedo(), back)):
        async with served(hank, execution, "--no-autostart") as (_, client):
            await client.send(command)
            assert tree(execution / "agentRoot") == expected

    holds_together(execution)


async def test_several_rollbacks_are_undone_one_by_one(tmp_path, execution):
    """The newest is undone first; with nothing left to undo or redo, the command is refused."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        for command in (RollbackUndo(), RollbackRedo(), RollbackPreview(direction="undo")):
            nothing = await refused(client, command)
            assert nothing.code == ErrorCode.NOTHING_TO_UNDO

        seen = [tree(execution / "agentRoot")]
        for name in ("two", "one"):
            await client.send(to_end_of(name))
            seen.append(tree(execution / "agentRoot"))

        for expected in (seen[1], seen[0]):
            await client.send(RollbackUndo())
            assert tree(execution / "agentRoot") == expected

        with pytest.raises(CommandRefused):
            await client.send(RollbackUndo())

        for expected in (seen[1], seen[2]):
            await client.send(RollbackRedo())
            assert tree(execution / "agentRoot") == expected

    holds_together(execution)


# --- selected paths -------------------------------------------------------------------------------


@pytest.mark.command("checkpoint.list")
@pytest.mark.story("A rollback of single paths changes these and nothing else.")
async def test_a_rollback_of_paths_moves_these_and_nothing_else(tmp_path, execution):
    """One file and one folder are restored; the rest, the run and the branch stay; undo works."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        run, head = state(execution).runs[0].run_id, GitWitness(execution).run("rev-parse", "HEAD")
        before = tree(execution / "agentRoot")
        report = await client.send(to_end_of("one", paths=("a.txt", "d"), reason="try"))
        after = {"a.txt": b"one", "c.txt": b"three"}
        assert tree(execution / "agentRoot") == after
        assert (paths(report.updated), paths(report.removed)) == ({"a.txt"}, {"d/b.txt"})
        assert state(execution).runs[0].run_id == run
        await client.send(RollbackUndo())
        assert tree(execution / "agentRoot") == before
        await client.send(RollbackRedo())
        assert tree(execution / "agentRoot") == after
        page = await client.send(ListCheckpoints(kinds=("completed",)))
        assert len(page.checkpoints) == 3

    done = events_of(execution, CheckpointRollback)
    assert [(each.direction, each.paths) for each in done] == [
        ("back", ("a.txt", "d")),
        ("undo", ("a.txt", "d")),
        ("redo", ("a.txt", "d")),
    ]
    assert done[0].reason == "try"
    assert done[0].source is not None
    assert events_of(execution, RollbackCompleted) == []
    assert {"a.txt", "d/b.txt"} == set(events_of(execution, WorkspaceInvalidated)[0].paths)
    assert GitWitness(execution).run("merge-base", "--is-ancestor", head.strip(), "HEAD") == ""
    holds_together(execution)


async def test_a_path_that_is_none_is_refused(tmp_path, execution):
    """An unknown, outside or invalid path has a code and a path, and nothing is touched."""
    outside = ("nowhere.txt", "../outside", "/etc/passwd", ".git/config", "d/../a.txt")
    codes = dict.fromkeys(outside, ErrorCode.INVALID_PATH) | {"": ErrorCode.INVALID_COMMAND}
    async with after_plan(write_hank(tmp_path / "hank", THREE[0]), execution) as (_, client):
        before = tree(execution / "agentRoot")
        for path, code in codes.items():
            error = await refused(client, to_end_of("one", paths=("a.txt", path)))
            assert (error.code, error.path) == (code, "$.data.paths[1]"), path

        assert tree(execution / "agentRoot") == before


# --- people's edits -------------------------------------------------------------------------------


async def edited(execution: Path, client: Client) -> None:
    """Make three files by agents; a person changes two, one before a checkpoint of their own."""
    await idle(client)
    (execution / "agentRoot" / "a.txt").write_text("a person's")
    await client.send(CheckpointCreate(label="mine"))
    (execution / "agentRoot" / "d" / "b.txt").write_text("a person's too")


async def test_edits_by_people_are_distinguished_from_the_agents(tmp_path, execution):
    """Preview and report name a person's edits as conflicts, saved or not, and no other file."""
    async with served(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        await edited(execution, client)
        preview = await client.send(RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end"))
        assert paths(preview.conflicts) == {"a.txt", "d/b.txt"}
        report = await client.send(to_end_of("one"))
        assert paths(report.conflicts) == {"a.txt", "d/b.txt"}
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        kept = GitWitness(execution).run("show", f"{report.safety.checkpoint_sha}:d/b.txt")
        assert kept == "a person's too"
        page = await client.send(ListCheckpoints(kinds=("safety",)))
        assert "holds 2 edits by people" in (page.checkpoints[0].label or "")
        assert state(execution).edits == {}

        await client.send(RollbackUndo())
        assert tree(execution / "agentRoot")["a.txt"] == b"a person's"
        assert state(execution).edits.keys() == {"a.txt", "d/b.txt"}

    holds_together(execution)


@pytest.mark.story("A rollback lists files that people edited, and keeps them if asked.")
async def test_keep_edits_leaves_them_alone(tmp_path, execution):
    """The agents' files are restored, the person's are kept, and the report lists the latter."""
    async with served(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        await edited(execution, client)
        report = await client.send(to_end_of("one", keep_edits=True))
        assert paths(report.kept) == paths(report.conflicts) == {"a.txt", "d/b.txt"}
        assert paths(report.removed) == {"c.txt"}
        assert tree(execution / "agentRoot") == {
            "a.txt": b"a person's",
            "d/b.txt": b"a person's too",
        }

    holds_together(execution)


async def test_a_file_an_agent_writes_again_is_the_agents(tmp_path, execution):
    """A person's edit before a codon is noticed, and superseded when the codon writes the file."""
    hank = write_hank(tmp_path / "hank", *THREE)
    async with served(hank, execution, "--no-autostart") as (_, client):
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        (execution / "agentRoot" / "a.txt").write_text("a person's")
        (execution / "agentRoot" / "e.txt").write_text("a person's")
        await client.send(CodonNext())
        await idle(client, "codon-completed")
        assert state(execution).edits.keys() == {"e.txt"}
        report = await client.send(to_end_of("one"))
        assert paths(report.conflicts) == {"e.txt"}

    holds_together(execution)


# --- previews -------------------------------------------------------------------------------------


async def test_a_preview_shows_the_lines(tmp_path, execution):
    """On request it has unified diffs from the current files to the restored files."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        before = tree(execution / "agentRoot")
        ask = RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end", patch=True)
        preview = await client.send(ask)
        diffs = {diff.path: diff for diff in preview.diffs}
        assert diffs.keys() == {"a.txt", "d/b.txt", "c.txt"}
        assert "-two" in diffs["a.txt"].patch
        assert "+one" in diffs["a.txt"].patch
        assert (diffs["c.txt"].status, diffs["c.txt"].removed) == ("deleted", 1)
        assert tree(execution / "agentRoot") == before


NAMES = st.sampled_from(["a.txt", "d/b.txt", "d/e", "f", "g.ign"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=4)),
        st.tuples(st.just("delete"), NAMES, st.just(b"")),
        st.tuples(st.just("checkpoint"), st.just(""), st.just(b"")),
    ),
    max_size=8,
)


async def test_a_rollback_does_what_its_preview_said(tmp_path, execution):
    """A rollback matches its preview for any edits, checkpoint and paths.

    This holds with and without keepEdits.
    """
    root = execution / "agentRoot"
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        (root / ".gitignore").write_text("*.ign\n")

        async def once(steps: Any, pick: int, chosen: Any, keep: bool) -> None:
            for kind, name, content in steps:
                if kind == "checkpoint":
                    await client.send(CheckpointCreate())
                elif kind == "write":
                    (root / name).parent.mkdir(exist_ok=True)
                    (root / name).write_bytes(content)
                else:
                    (root / name).unlink(missing_ok=True)

            known = await listed(client)
            target = known[pick % len(known)].sha
            fields: dict[str, Any] = {"paths": chosen, "keep_edits": keep}
            try:
                previewed = await client.send(RollbackPreview(checkpoint_sha=target, **fields))
            except CommandRefused:
                with pytest.raises(CommandRefused):
                    await client.send(RollbackToCheckpoint(checkpoint_sha=target, **fields))

                return

            done = await client.send(RollbackToCheckpoint(checkpoint_sha=target, **fields))
            for part in ("added", "updated", "removed", "kept", "conflicts", "skipped"):
                assert getattr(done, part) == getattr(previewed, part), part

        for example in _examples():
            await once(*example)

    holds_together(execution)


def _examples() -> list[Any]:
    """Return forty situations by Hypothesis; one server goes through them in turn."""
    found: list[Any] = []

    @settings(
        max_examples=40,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        STEPS,
        st.integers(0, 30),
        st.none()
        | st.lists(
            st.sampled_from(["a.txt", "d", "d/e", "f"]), min_size=1, max_size=2, unique=True
        ).map(tuple),
        st.booleans(),
    )
    def collect(steps: Any, pick: int, chosen: Any, keep: bool) -> None:
        found.append((steps, pick, chosen, keep))

    collect()
    return found


# --- live agents ----------------------------------------------------------------------------------


@pytest.mark.story("Paths can be restored while an agent is paused, and the agent is told.")
async def test_a_frozen_agent_goes_on_and_is_informed(tmp_path, execution):
    """A frozen agent's files are restored, no run ends, and its next step gets the notice."""
    middle, gate = tmp_path / "middle", tmp_path / "gate"
    work = codon(
        "work",
        writes("a.txt", "first"),
        waits_for(middle),
        writes("a.txt", "second"),
        waits_for(gate),
        {"say": "going on"},
        writes("b.txt", "after"),
    )
    async with served(write_hank(tmp_path / "hank", THREE[0], work), execution) as (_, client):
        await started(client, "work")
        first = (await taken(client, "tool")).sha
        middle.touch()
        await taken(client, "tool")
        run = state(execution).runs[0].run_id
        error = await refused(client, RollbackToCheckpoint(checkpoint_sha=first))
        assert error.code == ErrorCode.CODON_RUNNING
        back = RollbackToCheckpoint(
            checkpoint_sha=first, on_running="pause", reason="The second was wrong."
        )
        report = await client.send(back)
        assert paths(report.updated) == {"a.txt"}
        assert report.conflicts == ()
        assert (execution / "agentRoot" / "a.txt").read_text() == "first"
        gate.touch()
        await idle(client)
        assert state(execution).runs[0].run_id == run

    assert tree(execution / "agentRoot") == {"a.txt": b"first", "b.txt": b"after"}
    (word,) = events_of(execution, RollbackTold)
    assert word.how == "live"
    assert "The second was wrong." in word.text
    assert state(execution).notice is None
    holds_together(execution)


async def test_a_paused_codon_ends_where_the_target_is_before_it(tmp_path):
    """The agent is notified, and its codon fails with all its output in a checkpoint.

    The execution is at the target, and the plan runs the codon again; the next agent is notified as
    well.
    """
    gate, execution = tmp_path / "gate", tmp_path / "execution"
    work = codon("work", writes("a.txt", "half"), writes("b.txt", "whole"), waits_for(gate))
    async with served(write_hank(tmp_path / "hank", THREE[0], work), execution) as (_, client):
        await started(client, "work")
        await appears(execution / "agentRoot" / "b.txt")
        report = await client.send(to_end_of("one", on_running="pause", reason="Too far."))
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        assert paths(report.removed) == {"b.txt"}
        ended = state(execution).runs[1].codons[-1]
        assert isinstance(ended, FailedCodon)
        assert on_thread(execution) == ["one"]
        notices = list(execution.rglob("*notices*"))
        assert any("Too far." in path.read_text() for path in notices if path.is_file())
        gate.touch()
        await client.send(CodonNext())
        await idle(client)
        assert tree(execution / "agentRoot") == {"a.txt": b"half", "b.txt": b"whole"}
        await client.send(RollbackUndo())

    saved = GitWitness(execution).run("show", f"{ended.error_checkpoint}:b.txt")
    assert saved == "whole"
    assert [word.how for word in events_of(execution, RollbackTold)] == ["prompt"]
    holds_together(execution)


async def test_rollbacks_in_a_row_leave_one_run(tmp_path, execution):
    """Eight rollbacks between two checkpoints leave one run waiting and move no branch.

    Each can be undone, and the next codon runs in that run, after a restart, too.
    """
    hank = write_hank(tmp_path / "hank", *THREE)
    async with after_plan(hank, execution) as (server, client):
        branches = GitWitness(execution).run("for-each-ref", "refs/heads")
        before = tree(execution / "agentRoot")
        for name in ("one", "two") * 4:
            await client.send(to_end_of(name))

        assert [len(run.codons) for run in state(execution).runs] == [0, 3]
        assert GitWitness(execution).run("for-each-ref", "refs/heads") == branches
        assert len(state(execution).undo) == 8
        for _ in range(8):
            await client.send(RollbackUndo())

        assert tree(execution / "agentRoot") == before
        await client.send(to_end_of("two"))
        assert [len(run.codons) for run in state(execution).runs] == [0, 3]
        await server.stop()

    waiting = state(execution).runs[0].run_id
    seen = journal(execution)[-1].seq
    async with after_plan(hank, execution, since_seq=seen):
        pass

    runs = state(execution).runs
    assert runs[0].run_id == waiting
    assert [[each.codon_id for each in run.codons] for run in runs] == [
        ["three"],
        ["one", "two", "three"],
    ]
    holds_together(execution)


async def test_a_rollback_to_where_one_is_changes_nothing(tmp_path, execution):
    """A rollback to the current place makes no run, branch, checkpoint or undo.

    The client gets a success reply.

    A rollback that moves only the plan takes no safety checkpoint.
    """
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        refs, runs = GitWitness(execution).run("for-each-ref"), state(execution).runs
        for command in (to_end_of("three"), RollbackToLastSuccess()):
            report = await client.send(command)
            assert (report.safety, report.added, report.updated) == (None, (), ())
            assert report.note is not None

        assert (state(execution).runs, state(execution).undo) == (runs, ())
        assert GitWitness(execution).run("for-each-ref") == refs
        done = events_of(execution, RollbackCompleted)
        assert [each.from_run == each.to_run for each in done] == [True, True]

        await client.send(to_end_of("one"))
        undo, refs = state(execution).undo, GitWitness(execution).run("for-each-ref")
        await client.send(to_end_of("one"))
        assert state(execution).undo == undo
        assert GitWitness(execution).run("for-each-ref") == refs

    holds_together(execution)


async def test_an_agent_that_begins_after_a_rollback_is_informed(tmp_path, execution):
    """The agent's prompt names the target and the reason, once, and the journal has it."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        report = await client.send(to_end_of("one", reason="Start over."))
        await client.send(CodonNext())
        await idle(client)

    (word,) = events_of(execution, RollbackTold)
    assert (word.how, word.codon_id, word.target) == ("prompt", "two", report.target)
    assert "Start over." in word.text
    holds_together(execution)


# --- external effects -----------------------------------------------------------------------------


async def test_files_that_a_codon_tracks_anew_are_nobodys_edits(tmp_path, execution):
    """Output of an earlier codon that was not tracked then is not taken for a person's work."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "one"), writes("b.md", "one"), tracked=["*.txt"]),
        codon("two", writes("b.md", "two"), tracked=["*.md"]),
    )
    async with after_plan(hank, execution) as (_, client):
        assert state(execution).edits == {}
        report = await client.send(to_end_of("one", paths=("b.md",)))
        assert report.conflicts == ()


async def test_what_a_dead_server_left_is_not_called_a_persons(tmp_path, execution):
    """The agent's changed files are saved and restored, and do not count as a person's edits."""
    gate = tmp_path / "gate"
    work = codon("work", writes("a.txt", "half"), writes("b.txt", "whole"), waits_for(gate))
    hank = write_hank(tmp_path / "hank", THREE[0], work)
    async with served(hank, execution) as (server, client):
        await started(client, "work")
        await appears(execution / "agentRoot" / "b.txt")
        server.kill()

    async with running_server(hank, None, execution, "--no-autostart") as server:
        (back,) = events_of(execution, RollbackCompleted)
        assert back.report.conflicts == ()
        async with server.client() as client:
            page = await client.send(ListCheckpoints(kinds=("safety",)))
            assert "edits by people" not in (page.checkpoints[0].label or "")


async def test_a_file_that_a_person_deleted_is_an_edit_as_well(tmp_path, execution):
    """A rollback would restore it, and says so; with keepEdits it stays deleted."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        (execution / "agentRoot" / "a.txt").unlink()
        ask = RollbackPreview(codon_id=CodonId("two"), checkpoint_type="end")
        preview = await client.send(ask)
        assert paths(preview.conflicts) == {"a.txt"}
        report = await client.send(to_end_of("two", keep_edits=True))
        assert paths(report.conflicts) == paths(report.kept) == {"a.txt"}
        assert tree(execution / "agentRoot") == {"d/b.txt": b"two"}
        report = await client.send(to_end_of("one"))
        assert paths(report.conflicts) == {"a.txt"}
        assert tree(execution / "agentRoot") == {"a.txt": b"one"}
        await client.send(RollbackUndo())
        assert tree(execution / "agentRoot") == {"d/b.txt": b"two"}

    holds_together(execution)


async def test_the_list_of_checkpoints_can_be_rebuilt_from_git_alone(tmp_path, execution):
    """Coordinates, labels, pins and missing ones: another server reads the same from commits."""
    hank = write_hank(tmp_path / "hank", *THREE)
    lists = []
    async with after_plan(hank, execution) as (_, client):
        os.mkfifo(execution / "agentRoot" / "pipe")
        made = await client.send(CheckpointCreate(label="mine"))
        await client.send(CheckpointPin(checkpoint_sha=made.sha, name="good", pinned=True))
        await client.send(to_end_of("one"))
        lists.append(await listed(client))

    assert [each.label for each in lists[0] if each.pinned] == ["mine"]
    assert any(each.skipped for each in lists[0])
    async with served(hank, execution, "--no-autostart") as (_, client):
        lists.append(await listed(client))

    assert {each.sha: each for each in lists[0]} == {each.sha: each for each in lists[1]}


async def test_events_of_a_rollback_have_source_and_target_for_their_causes(tmp_path, execution):
    """The events of a rollback have its source, its target and the command as causes."""
    async with after_plan(write_hank(tmp_path / "hank", *THREE), execution) as (_, client):
        report = await client.send(to_end_of("one"))

    moments = {report.source.event_seq, report.target.event_seq}
    rollback_events = [
        e for e in journal(execution) if e.type.startswith(("rollback.", "workspace."))
    ]
    assert len(rollback_events) > 3
    assert all(moments <= set(event.causes) for event in rollback_events)
    assert all(any(isinstance(cause, str) for cause in event.causes) for event in rollback_events)
