"""The shadow repository of a branch: its contents, its omissions, and its cleanup."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hankweave_protocol.ids import RunId, Sha
from hankweave_server import fsutil
from hankweave_server.checkpoints import worktree_index
from hankweave_server.checkpoints.clone import (
    Interrupted,
    copy_repository,
    fill_work_tree,
    plan_clone,
)
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.session_snapshots import SessionSnapshots
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.paths import Layout
from hankweave_server.worktree.stat_index import signature_of
from support.damage import lose_object

OTHER = RunId("1736000000001-abc123-def456")


def clone_of(lab, target: Sha, root: Path) -> Layout:
    """Clone the repository in the way a branch does."""
    layout = Layout.of_execution(root)
    fsutil.make_private_directory(layout.checkpoints)
    layout.work_tree.mkdir()
    copy_repository(plan_clone(lab.layout, target), layout, should_stop=lambda: False)
    fill_work_tree(target, layout)
    return layout


def git(lab, layout: Layout, *words: str) -> str:
    """Run the git program on another repository."""
    ours, lab.layout = lab.layout, layout
    try:
        return lab.git(*words)
    finally:
        lab.layout = ours


def stored(lab) -> dict[str, bytes]:
    repository = lab.layout.shadow_repository
    return {
        str(path.relative_to(repository)): path.read_bytes()
        for path in repository.rglob("*")
        if path.is_file()
    }


def test_the_first_checkpoint_of_a_branch_reads_no_file_again(lab, tmp_path):
    """The scan cache has every restored file, with the stat data that the disk shows."""
    lab.write("a", "1", 0o600)
    lab.write("folder/b", "2")
    target = lab.checkpoint()
    layout = clone_of(lab, target.sha, tmp_path / "branch")

    saved = worktree_index.load(layout.scan_cache)
    assert saved is not None
    known = {each.path: each.signature for block in saved.files() for each in block}
    assert set(known) == {b"a", b"folder/b"}
    for path, signature in known.items():
        assert signature == signature_of((layout.work_tree / os.fsdecode(path)).lstat())


def test_the_line_comes_along_and_nothing_else(lab, tmp_path):
    """A clone has the ancestors, their notes and run branches up to the target, and no more."""
    lab.write("a", "1", 0o600)
    first = lab.checkpoint()
    lab.write("b", "2", 0o640)
    target = lab.checkpoint()
    lab.write("c", "3")
    lab.checkpoint()
    lab.detach(first.sha)
    lab.write("d", "4", 0o604)
    lab.checkpoint(run=OTHER)
    before = stored(lab)

    layout = clone_of(lab, target.sha, tmp_path / "branch")

    assert stored(lab) == before
    engine = CheckpointEngine.open(layout)
    try:
        assert [facts.sha for facts in engine.commits()] == [target.sha, first.sha]
        assert engine.housekeeping.fsck().damages == {}
    finally:
        engine.close()

    refs = git(lab, layout, "for-each-ref", "--format=%(refname) %(objectname)").split("\n")
    assert f"refs/heads/run-{lab.request().run_id} {target.sha}" in refs
    notes = git(lab, layout, "notes", "--ref=hankweave", "list").split("\n")[:-1]
    assert {line.split()[1] for line in notes} == {first.sha, target.sha}
    git(lab, layout, "fsck", "--full", "--strict")
    assert os.stat(layout.work_tree / "a").st_mode & 0o777 == 0o600
    assert sorted(os.listdir(layout.work_tree)) == ["a", "b"]


def test_the_next_checkpoint_of_a_clone_reads_no_file_again(lab, tmp_path):
    """The clone's stat index is complete: an unchanged tree is recognised without reading."""
    for number in range(50):
        lab.write(f"f{number}", str(number))

    target = lab.checkpoint()
    layout = clone_of(lab, target.sha, tmp_path / "branch")
    engine = CheckpointEngine.open(layout)
    try:
        assert engine.scan_changes(("**",)) == ()
        made = engine.checkpoint(lab.request(run=OTHER))
        assert made.tree == target.tree
        assert made.changed == ()
    finally:
        engine.close()


def test_a_clone_works_where_no_empty_tree_was_ever_stored(in_place_lab, tmp_path):
    """The empty tree may be missing if a project's first checkpoint contains files."""
    lab = in_place_lab
    lab.write("a", "1")
    target = lab.checkpoint()
    layout = clone_of(lab, target.sha, tmp_path / "branch")
    assert (layout.work_tree / "a").read_bytes() == b"1"


def test_a_copy_that_is_to_stop_says_so(lab, tmp_path):
    """An interrupted clone raises Interrupted, and the source is unchanged."""
    lab.write("a", "1")
    target = lab.checkpoint()
    before = stored(lab)
    layout = Layout.of_execution(tmp_path / "branch")
    fsutil.make_private_directory(layout.checkpoints)
    with pytest.raises(Interrupted):
        copy_repository(plan_clone(lab.layout, target.sha), layout, should_stop=lambda: True)

    assert stored(lab) == before


def test_what_cannot_be_read_is_not_cloned(lab, tmp_path):
    """A damaged target is refused with its damage; a damaged ancestor does not matter."""
    lab.write("old", "old")
    first = lab.checkpoint()
    lab.delete("old")
    lab.write("new", "new")
    target = lab.checkpoint()
    lose_object(lab.layout.shadow_repository, lab.git("rev-parse", f"{first.sha}:old").strip())

    with pytest.raises(CheckpointDamaged) as damaged:
        plan_clone(lab.layout, first.sha)

    assert [each.path for each in damaged.value.damages] == [b"old"]
    layout = clone_of(lab, target.sha, tmp_path / "branch")
    assert (layout.work_tree / "new").read_bytes() == b"new"
    engine = CheckpointEngine.open(layout)
    try:
        assert list(engine.housekeeping.fsck().damages) == [first.sha]
    finally:
        engine.close()

    with pytest.raises(CheckpointNotFound):
        plan_clone(lab.layout, Sha("f" * 40))


def test_what_was_remembered_at_the_time_comes_along_and_no_more(lab, tmp_path):
    """All files of session snapshots that cloned checkpoints name are copied, no later ones."""
    store, history = ShadowRepo(lab.layout.shadow_repository), tmp_path / "history"
    epochs = SessionSnapshots(store)
    lab.write("a", "1")
    numbers = []
    for text in ("first", "second", "third"):
        history.write_text(text)
        numbers.append(epochs.save({"watcher": history}, beyond=0))
        store.publish(None, {})
        made = lab.engine.checkpoint(replace(lab.request(), memory_epoch=numbers[-1]))
        if text == "second":
            target = made.sha

    store.close()
    layout = clone_of(lab, target, tmp_path / "branch")
    git(lab, layout, "fsck", "--full", "--strict")
    copy = ShadowRepo(layout.shadow_repository)
    try:
        for number, text in zip(numbers[:2], ("first", "second"), strict=True):
            found = tmp_path / f"found-{number}"
            assert SessionSnapshots(copy).rewind(number, lambda _, path=found: path, ()) == ()
            assert found.read_text() == text

        lost = SessionSnapshots(copy).rewind(numbers[2], lambda _: tmp_path / "never", ())
        assert [skipped.reason for skipped in lost] == ["memory-lost"]
    finally:
        copy.close()
