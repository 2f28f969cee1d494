"""Files that a codon or loop moves to the rig archive, and how they are restored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hankweave_client.client import Client
from hankweave_client.errors import ConnectionLost
from hankweave_protocol.commands import (
    CodonNext,
    ExecutionBranch,
    ListCheckpoints,
    RollbackRedo,
    RollbackToCheckpoint,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import (
    ArchiveCompleted,
    ArchivePartial,
    FileUpdated,
    LoopIterationCompleted,
    RollbackArchiveRestore,
)
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import ArchiveManifest
from support.git_facts import GitWitness
from support.invariants import Acknowledged, violations
from support.nth_call import Strike, why_not
from support.running_server import (
    command,
    environment,
    journal,
    run_headless,
    running_server,
    state,
    tree,
)
from support.scripted_hank import codon, loop, shell, write_hank, writes
from support.struck import process_of, session
from support.watching import after_plan, events_of, idle

LEAVES = writes("notes/a.md", "a"), writes("notes/b.md", "b"), writes("kept.md", "kept")


def manifest(execution: Path) -> ArchiveManifest:
    """Return the manifest as Hankweave parses it."""
    path = execution / ".hankweave" / "archive-manifest.json"
    return msgspec.json.decode(path.read_bytes(), type=ArchiveManifest)


def three_codons(folder: Path, **fields: Any) -> Path:
    """Write a hank whose second of three codons archives a tracked and an untracked file."""
    scratch = writes("scratch/seen.txt", "seen"), writes("scratch/log.bin", "log")
    texts = ("*.txt",)
    return write_hank(
        folder,
        codon("one", writes("one.txt", "1"), tracked=texts),
        codon("two", *scratch, tracked=texts, archiveOnSuccess=["scratch"], **fields),
        codon("three", writes("three.txt", "3"), tracked=texts),
    )


def end_of(name: str) -> RollbackToCodon:
    return RollbackToCodon(codon_id=CodonId(name), checkpoint_type="completed")


@asynccontextmanager
async def archived(tmp_path: Path) -> AsyncIterator[tuple[Client, Path]]:
    """Serve a plan that has archived, and check its execution after the server's end."""
    hank, execution = three_codons(tmp_path / "hank"), tmp_path / "execution"
    async with after_plan(hank, execution, since_seq=0) as (server, client):
        yield client, execution
        await server.stop()

    assert violations(execution, Acknowledged()) == []


DONE = {"one.txt": b"1", "three.txt": b"3"}
ARCHIVED = {"two/scratch/seen.txt": b"seen", "two/scratch/log.bin": b"log"}


async def test_a_rig_is_archived_when_its_codon_has_succeeded(tmp_path: Path) -> None:
    """`archiveOnSuccess: true` moves the copied folder, with the agent's files in it, to
    rigArchive/{codonId}; the codon's end checkpoint has it, the next codon does not."""
    source = tmp_path / "hank" / "template"
    source.mkdir(parents=True)
    (source / "main.py").write_text("print()")
    rig = {"type": "copy", "copy": {"from": "template", "to": "src"}, "archiveOnSuccess": True}
    hank = write_hank(
        tmp_path / "hank",
        codon("build", writes("src/made.txt", "made"), writes("out.txt", "out"), rigSetup=[rig]),
        codon("next", writes("more.txt", "more")),
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    assert tree(execution / "agentRoot") == {"out.txt": b"out", "more.txt": b"more"}
    archived = {"build/src/main.py": b"print()", "build/src/made.txt": b"made"}
    assert tree(execution / "rigArchive") == archived
    (event,) = events_of(execution, ArchiveCompleted)
    assert event.codon_id == "build"
    assert event.archived_paths == ("src/made.txt", "src/main.py")
    entries = manifest(execution).entries
    build = state(execution).runs[0].codons[0]
    assert manifest(execution).version == "1.0.0"
    assert {entry.archive_path for entry in entries} == {f"rigArchive/{name}" for name in archived}
    assert {entry.checkpoint_sha for entry in entries} == {build.completion_checkpoint}  # type: ignore[union-attr]
    git = GitWitness(execution)
    assert "src/made.txt" in git.run("ls-tree", "-r", "--name-only", entries[0].checkpoint_sha)
    assert git.files("HEAD") == tree(execution / "agentRoot")
    assert violations(execution, Acknowledged()) == []


async def test_archived_files_are_not_taken_for_a_persons_deletion(tmp_path: Path) -> None:
    """The archived files are reported as archived, and HEAD no longer has them; they are not user
    edits, although a tracked file was moved."""
    hank = write_hank(
        tmp_path / "hank", codon("one", *LEAVES, archiveOnSuccess=["notes"]), codon("two")
    )
    execution = tmp_path / "execution"
    assert await run_headless(hank, execution) == 0
    deleted = [each for each in events_of(execution, FileUpdated) if each.action == "deleted"]
    assert [(each.path, each.source.kind) for each in deleted] == [
        ("notes/a.md", "archive"),
        ("notes/b.md", "archive"),
    ]
    assert state(execution).edits == {}


async def test_what_a_loop_leaves_lies_by_iteration_and_at_its_end(tmp_path: Path) -> None:
    """A codon of a loop archives to {loop}-{iteration}/{codon}; the loop itself archives once,
    after its last iteration, to {loop}-loop."""
    step = codon(
        "step", writes("round.txt", "r"), writes("kept.log", "k"), archiveOnSuccess=["round.txt"]
    )
    refine = loop("refine", step, limit=2, archiveOnSuccess=["*.log"])
    execution = tmp_path / "execution"
    assert await run_headless(write_hank(tmp_path / "hank", refine), execution) == 0
    assert tree(execution / "rigArchive") == {
        "refine-0/step-0/round.txt": b"r",
        "refine-1/step-1/round.txt": b"r",
        "refine-loop/kept.log": b"k",
    }
    assert tree(execution / "agentRoot") == {}
    order = [
        getattr(event.data, "codon_id", "iteration")
        for event in journal(execution)
        if isinstance(event.data, ArchiveCompleted | LoopIterationCompleted)
    ]
    assert order == ["step#0", "iteration", "step#1", "iteration", "refine"]
    places = [entry.loop_context for entry in manifest(execution).entries]
    assert [(each.loop_id, each.iteration) for each in places if each is not None] == [
        ("refine", 0),
        ("refine", 1),
        ("refine", 1),
    ]


async def test_only_success_archives(tmp_path: Path, execution: Path) -> None:
    """A failed codon leaves its files in place for inspection."""
    fails = codon("one", archiveOnSuccess=["notes"]) | shell("mkdir notes; exit 3")
    hank = write_hank(tmp_path / "hank", fails)
    assert await run_headless(hank, execution) == 1

    assert (execution / "agentRoot" / "notes").is_dir()
    assert events_of(execution, ArchiveCompleted) == []
    assert not (execution / ".hankweave" / "aftermath.intent").exists()


async def restored(client: Client, execution: Path, command: Any) -> list[Any]:
    """Roll back, and return the archive events of the rollback."""
    seq = journal(execution)[-1].seq
    await client.send(command)
    kinds = (RollbackArchiveRestore, ArchiveCompleted)
    return [
        each.data for each in journal(execution) if each.seq > seq and isinstance(each.data, kinds)
    ]


async def test_a_rollback_brings_back_only_what_was_archived_after_its_target(
    tmp_path: Path,
) -> None:
    """A rollback to a codon's end restores its files: tracked ones from the checkpoint, others from
    the archive.

    A later target moves nothing (Hankweave 0.10 restored everything).
    """
    async with archived(tmp_path) as (client, execution):
        assert tree(execution / "rigArchive") == ARCHIVED
        assert await restored(client, execution, end_of("three")) == []
        assert tree(execution / "agentRoot") == DONE
        (event,) = await restored(client, execution, end_of("two"))
        assert (event.restored_paths, event.status) == (("scratch/log.bin",), "completed")
        assert tree(execution / "agentRoot") == {
            "one.txt": b"1",
            "scratch/seen.txt": b"seen",
            "scratch/log.bin": b"log",
        }
        (left,) = manifest(execution).entries
        assert left.source_path == "scratch/seen.txt"


async def test_a_target_has_no_archived_file_that_it_did_not_have(tmp_path: Path) -> None:
    """A rollback to before a tracked file existed does not restore it from the archive.

    Untracked files are restored, and an undo archives them again.
    """
    async with archived(tmp_path) as (client, execution):
        await client.send(end_of("one"))
        went_back = {"one.txt": b"1", "scratch/log.bin": b"log"}
        assert tree(execution / "agentRoot") == went_back
        (event,) = await restored(client, execution, RollbackUndo())
        assert event.archived_paths == ("scratch/log.bin",)
        assert tree(execution / "agentRoot") == DONE
        assert not (execution / "agentRoot" / "scratch").exists()
        assert tree(execution / "rigArchive") == ARCHIVED
        assert {each.source_path for each in manifest(execution).entries} == {
            "scratch/log.bin",
            "scratch/seen.txt",
        }
        (event,) = await restored(client, execution, RollbackRedo())
        assert event.restored_paths == ("scratch/log.bin",)
        assert tree(execution / "agentRoot") == went_back


async def test_a_rollback_overwrites_nothing_from_the_archive(tmp_path: Path) -> None:
    """If a file is in the place of an archived one, both are kept, and the event reports it."""
    execution = tmp_path / "execution"
    async with after_plan(three_codons(tmp_path / "hank"), execution, since_seq=0) as (_, client):
        mine = execution / "agentRoot" / "scratch" / "log.bin"
        mine.parent.mkdir()
        mine.write_text("mine")
        (event,) = await restored(client, execution, end_of("one"))
        assert (event.status, event.restored_paths) == ("failed", ())
        assert event.failed_paths[0].path == "scratch/log.bin"
        assert mine.read_text() == "mine"
        assert tree(execution / "rigArchive") == ARCHIVED
        assert len(manifest(execution).entries) == 2


async def test_what_came_back_is_archived_again_before_the_next_codon(tmp_path: Path) -> None:
    """After a rollback to a codon's end the next codon starts with the same tree as the first time;
    the archive gets the new files and keeps older ones under a suffix."""
    async with archived(tmp_path) as (client, execution):
        await client.send(end_of("two"))
        (execution / "agentRoot" / "scratch" / "log.bin").write_text("longer log")
        await client.send(CodonNext())
        await idle(client)
        assert tree(execution / "agentRoot") == DONE
        assert tree(execution / "rigArchive") == {
            "two/scratch/seen.txt": b"seen",
            "two/scratch/seen.txt~1": b"seen",
            "two/scratch/log.bin": b"longer log",
        }
        paths = {each.archive_path for each in manifest(execution).entries}
        assert paths == {f"rigArchive/{name}" for name in tree(execution / "rigArchive")}


async def test_the_checkpoint_after_archiving_can_be_gone_back_to(tmp_path: Path) -> None:
    """It has the tree that the next codon started with, and the plan continues with that codon."""
    execution = tmp_path / "execution"
    async with after_plan(three_codons(tmp_path / "hank"), execution, since_seq=0) as (_, client):
        page = await client.send(ListCheckpoints())
        labels = {each.sha: each.label or "" for each in page.checkpoints}
        (sha,) = [sha for sha, label in labels.items() if "after archiving" in label]
        assert await restored(client, execution, RollbackToCheckpoint(checkpoint_sha=sha)) == []
        assert tree(execution / "agentRoot") == {"one.txt": b"1"}
        assert (await client.send(CodonNext())).codon_id == "three"
        await idle(client)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(
    ("group", "at"),
    [("rename", 1), ("rename", 2), ("rename", 3), ("rename", 4), ("unlink", 1), ("unlink", 2)],
)
async def test_a_crash_while_archiving_is_made_good(tmp_path: Path, group: str, at: int) -> None:
    """After a crash at any move, at the manifest, or before the intent is removed, the next start
    has each file in one place, once in the manifest, and reported once."""
    execution = tmp_path / "execution"
    hank = three_codons(tmp_path / "hank")
    strike = Strike(
        group=group,
        below=str(execution),
        report=str(tmp_path / "report"),
        at=at,
        switch=str(execution / ".hankweave" / "archive.intent"),
    )
    run = command("run", str(hank), "--execution", str(execution), "--headless", "--json")
    argv = [*strike.argv(), "--", *run]
    done = await anyio.run_process(argv, env=environment(), check=False)
    assert strike.was_met, done
    assert (execution / ".hankweave" / "archive.intent").exists() or group == "unlink"
    assert await run_headless(hank, execution) == 0
    assert tree(execution / "agentRoot") == DONE
    assert tree(execution / "rigArchive") == ARCHIVED
    assert len(manifest(execution).entries) == 2
    assert len(events_of(execution, ArchiveCompleted)) == 1
    assert events_of(execution, ArchivePartial) == []
    assert state(execution).edits == {}
    assert violations(execution, Acknowledged()) == []


async def test_a_branch_knows_what_its_archive_holds(tmp_path: Path, execution: Path) -> None:
    """A branch includes the archive with its manifest."""
    async with after_plan(three_codons(tmp_path / "hank"), execution, since_seq=0) as (_, client):
        last = state(execution).runs[0].codons[-1]
        made = await client.send(
            ExecutionBranch(checkpoint_sha=last.completion_checkpoint)  # type: ignore[union-attr]
        )

    branch = Path(made.execution_path)
    assert tree(branch / "rigArchive") == ARCHIVED
    assert manifest(branch).entries == manifest(execution).entries


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("at", [2, 3, 4])
async def test_a_crash_while_the_archive_comes_back_is_made_good(tmp_path: Path, at: int) -> None:
    """After a crash at the move, at the manifest or later, the next start restores the same files
    and reports them as the whole rollback would have."""
    execution = tmp_path / "execution"
    hank = three_codons(tmp_path / "hank")
    assert await run_headless(hank, execution) == 0
    strike = Strike(
        group="rename",
        below=str(execution),
        report=str(tmp_path / "report"),
        at=at,
        switch=str(execution / ".hankweave" / "rollback.intent"),
    )
    options = ("--execution", str(execution), "--json", "--no-autostart")
    argv = [*strike.argv(), "--", *command("run", str(hank), *options)]
    async with process_of(argv) as traced:
        assert await traced.until('"server.ready"')
        async with session(execution) as client:
            with pytest.raises(ConnectionLost):
                await client.send(end_of("two"))

        await traced.to_its_end()

    assert strike.was_met
    async with running_server(hank, None, execution, "--no-autostart") as server:
        assert await server.stop() == 0

    assert tree(execution / "agentRoot") == {
        "one.txt": b"1",
        "scratch/seen.txt": b"seen",
        "scratch/log.bin": b"log",
    }
    (event,) = events_of(execution, RollbackArchiveRestore)
    assert event.restored_paths == ("scratch/log.bin",)
    assert [each.source_path for each in manifest(execution).entries] == ["scratch/seen.txt"]
    assert violations(execution, Acknowledged()) == []
