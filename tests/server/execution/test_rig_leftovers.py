"""Files that rigs leave in the work tree when a rollback passes their codons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.commands import RollbackPreview, RollbackRedo, RollbackToCodon, RollbackUndo
from hankweave_protocol.events import RollbackRigCleanup
from hankweave_protocol.hank import CopySpec, RigCopy
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import EMPTY_STATE, PlanEntry
from hankweave_protocol.transitions import EditsNoticed
from hankweave_server.domain.undo import leftovers
from support.histories import a_plan, a_run, completed
from support.running_server import tree
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan, events_of, transitions


def copies(to: str) -> dict[str, Any]:
    return {"rigSetup": [{"type": "copy", "copy": {"from": "kit", "to": to}}]}


def a_hank(folder: Path, *codons: dict[str, Any]) -> Path:
    (folder / "kit" / "inner").mkdir(parents=True)
    (folder / "kit" / "tool.sh").write_text("true")
    (folder / "kit" / "inner" / "data.txt").write_text("data")
    return write_hank(folder, *codons)


def back_to_one(**options: Any) -> RollbackToCodon:
    return RollbackToCodon(codon_id=CodonId("one"), checkpoint_type="end", **options)


TWO = (
    codon("one", writes("a.txt", "one"), tracked=["a.txt"]),
    codon("two", writes("kit/made.bin", "made"), tracked=["a.txt"], **copies("kit")),
)


async def test_what_a_passed_rig_left_untracked_goes_and_comes_back(tmp_path: Path) -> None:
    """Everything below the rig's target is removed, also the agent's files; the safety checkpoint
    has it, so an undo restores it and a redo removes it again."""
    execution = tmp_path / "execution"
    work_tree = execution / "agentRoot"
    async with after_plan(a_hank(tmp_path / "hank", *TWO), execution, since_seq=0) as (_, client):
        before = tree(work_tree)
        assert "kit/inner/data.txt" in before
        await client.send(back_to_one())
        assert tree(work_tree) == {"a.txt": b"one"}
        assert not (work_tree / "kit").exists()
        await client.send(RollbackUndo())
        assert tree(work_tree) == before
        await client.send(RollbackRedo())
        assert tree(work_tree) == {"a.txt": b"one"}

    cleanups = events_of(execution, RollbackRigCleanup)
    assert [each.status for each in cleanups[:2]] == ["started", "completed"]
    assert cleanups[1].successful_cleanups == ("kit",)


async def test_a_preview_names_what_rigs_have_left(tmp_path: Path, execution: Path) -> None:
    """A preview lists them as removed files and not as user edits."""
    async with after_plan(a_hank(tmp_path / "hank", *TWO), execution, since_seq=0) as (_, client):
        seen = await client.send(RollbackPreview(codon_id=CodonId("one"), checkpoint_type="end"))
        report = await client.send(back_to_one(keep_edits=True))

    paths = ["kit/inner/data.txt", "kit/made.bin", "kit/tool.sh"]
    for answer in (seen, report):
        assert [file.path for file in answer.removed] == paths
        assert not answer.conflicts

    assert not (execution / "agentRoot" / "kit").exists()
    edited = [path for each in transitions(execution, EditsNoticed) for path in each.edits]
    assert edited == []


async def test_what_is_not_the_rigs_stays(tmp_path: Path, execution: Path) -> None:
    """Untracked files beside the target and files hidden by the checkpoint's `.gitignore` stay."""
    codons = (
        codon(
            "one",
            writes("a.txt", "one"),
            writes(".gitignore", "*.log\n"),
            tracked=["a.txt", ".gitignore"],
        ),
        codon("two", tracked=["a.txt"], **copies("deep/kit")),
    )
    work_tree = execution / "agentRoot"
    hank = a_hank(tmp_path / "hank", *codons)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        (work_tree / "deep" / "kit" / "huge.log").write_text("hidden")
        (work_tree / "deep" / "mine.bin").write_text("a person's")
        await client.send(back_to_one())
        left = tree(work_tree)

    assert left == {
        ".gitignore": b"*.log\n",
        "a.txt": b"one",
        "deep/kit/huge.log": b"hidden",
        "deep/mine.bin": b"a person's",
    }
    assert events_of(execution, RollbackRigCleanup)[1].status == "partial"


async def test_the_target_of_a_codon_that_stays_is_left_alone(tmp_path: Path) -> None:
    """Files there may belong to that codon, and no checkpoint could restore them exactly."""
    codons = (
        codon("one", writes("a.txt", "one"), tracked=["a.txt"], **copies("kit")),
        codon("two", writes("kit/made.bin", "made"), tracked=["a.txt"], **copies("kit")),
    )
    execution = tmp_path / "execution"
    hank = a_hank(tmp_path / "hank", *codons)
    async with after_plan(hank, execution, since_seq=0) as (_, client):
        await client.send(back_to_one())

    assert (execution / "agentRoot" / "kit" / "tool.sh").read_text() == "true"


async def test_a_rollback_of_some_paths_touches_no_rig(tmp_path: Path, execution: Path) -> None:
    """Only files change in such a rollback, so it passes no codon."""
    async with after_plan(a_hank(tmp_path / "hank", *TWO), execution, since_seq=0) as (_, client):
        (execution / "agentRoot" / "a.txt").write_text("edited")
        await client.send(back_to_one(paths=("a.txt",)))

    assert (execution / "agentRoot" / "kit" / "tool.sh").exists()
    assert (execution / "agentRoot" / "a.txt").read_text() == "one"


@pytest.mark.parametrize(
    ("stays", "passed", "found"),
    [
        ("", "kit", ("kit",)),
        ("", "./deep//kit/", ("deep/kit",)),
        ("kit", "kit", ()),
        ("kit", "kit/inner", ()),
        ("kit/inner", "kit", ()),
        ("kit", "kit-2", ("kit-2",)),
    ],
)
def test_a_target_is_left_over_unless_it_overlaps_one_that_stays(
    stays: str, passed: str, found: tuple[str, ...]
) -> None:
    """Overlap is checked by whole path components, not by characters."""
    before, after = planned("one", stays), planned("two", passed)
    state = msgspec.structs.replace(
        EMPTY_STATE,
        runs=(a_run(codons=(completed("one"), completed("two"))),),
        execution_plan=(before, after),
    )
    assert leftovers(state, {CodonId("two")}) == found


def planned(name: str, to: str) -> PlanEntry:
    rig = (RigCopy(copy=CopySpec(source="kit", to=to)),) if to else ()
    (entry,) = a_plan(name)
    codon = msgspec.structs.replace(entry.codon, rig_setup=rig)
    return msgspec.structs.replace(entry, codon=codon)
