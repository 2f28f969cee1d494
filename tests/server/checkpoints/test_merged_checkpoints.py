"""A merge as a checkpoint: what it holds besides a tree, and what making it leaves alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import CheckpointMade
from hankweave_server.domain.path_merge import ConflictKind, ConflictPolicy
from hankweave_server.paths import Layout
from support.merges import git

from .conftest import Lab

Edit = Callable[[], object]
Shas = tuple[Sha, Sha, Sha]


def versions(lab: Lab, ours: Edit, theirs: Edit) -> Shas:
    """Checkpoint the work tree as it is, and after each of two edits of it."""
    base = lab.checkpoint().sha
    theirs()
    their_sha = lab.checkpoint().sha
    lab.rollback(base)
    ours()
    return base, lab.checkpoint().sha, their_sha


def adopted(
    lab: Lab,
    shas: Shas,
    paths: frozenset[bytes] | None = None,
    policy: ConflictPolicy = ConflictPolicy.ASK,
    source: Layout | None = None,
) -> CheckpointMade:
    with lab.engine.merge(*shas, paths=paths, policy=policy, source=source) as merged:
        assert merged.merged.conflicts == ()
        return lab.engine.commit_merge(lab.request("manual", codon=None), merged)


def conflicts(
    lab: Lab, shas: Shas, policy: ConflictPolicy = ConflictPolicy.ASK
) -> dict[bytes, ConflictKind]:
    with lab.engine.merge(*shas, policy=policy) as merged:
        found = {each.path: each.conflict for each in merged.merged.conflicts}
        return {path: kind for path, kind in found.items() if kind is not None}


def permissions(lab: Lab, name: str, mode: int) -> Edit:
    return lambda: os.chmod(lab.path(name), mode)


def nothing() -> None:
    """Edit nothing."""


# --- the checkpoint -------------------------------------------------------------------------------


def test_a_restore_of_a_merge_has_the_changes_of_both_sides(lab: Lab) -> None:
    """The work tree then has what both changed, and git finds the repository sound."""
    lab.write("both", "1\n2\n3\n")
    lab.write("kept", "k")
    lab.write("removed", "r")

    def ours() -> None:
        lab.write("both", "one\n2\n3\n")
        lab.write("ours/new", "o")

    def theirs() -> None:
        lab.write("both", "1\n2\nthree\n")
        lab.delete("removed")
        lab.write("theirs/new", "t", mode=0o755)

    made = adopted(lab, versions(lab, ours, theirs))
    lab.rollback(made.sha)
    assert {path: seen[2] for path, seen in lab.picture().items() if seen[0] == "file"} == {
        b"both": b"one\n2\nthree\n",
        b"kept": b"k",
        b"ours/new": b"o",
        b"theirs/new": b"t",
    }
    assert lab.mode("theirs/new") == 0o755
    lab.assert_sound()


def test_committing_a_merge_moves_nothing(lab: Lab) -> None:
    """HEAD, the run's branch and the work tree are as before; one ref names the new commit."""
    lab.write("a", "1")
    shas = versions(lab, lambda: lab.write("b", "ours"), lambda: lab.write("a", "2"))
    lab.write("a", "edited since")
    before = lab.picture(), lab.git("for-each-ref"), lab.git("rev-parse", "HEAD")
    made = adopted(lab, shas)
    new = lab.git("for-each-ref").replace(
        f"{made.sha} commit\trefs/hankweave/safety/{made.sha}\n", ""
    )
    assert (lab.picture(), new, lab.git("rev-parse", "HEAD")) == before
    assert lab.git("rev-parse", f"{made.sha}^").strip() == shas[1]


def test_the_report_names_what_changed_against_ours(lab: Lab) -> None:
    """Files are counted, and each change has its kind and new size."""
    for name in ("changed", "removed", "same"):
        lab.write(name, "1")

    def theirs() -> None:
        lab.write("changed", "22")
        lab.delete("removed")
        lab.write("new", "333")

    shas = versions(lab, lambda: lab.write("ours", "o"), theirs)
    made = adopted(lab, shas)
    assert {(each.path, each.kind, each.size) for each in made.changed} == {
        (b"changed", "modified", 2),
        (b"new", "created", 3),
        (b"removed", "deleted", 0),
    }
    assert made.files == len(lab.names(made.sha)) == 4
    lab.reopen(forget=True)
    assert adopted(lab, shas).files == 4


def test_a_merge_outlives_a_restart_and_a_collection_of_garbage(lab: Lab) -> None:
    """Its commit is protected like a safety checkpoint, and git's own gc keeps it as well."""
    lab.write("a", "1")
    made = adopted(lab, versions(lab, nothing, lambda: lab.write("b", "2")))
    lab.reopen()
    lab.git("gc", "--quiet", "--prune=now")
    lab.reopen(forget=True)
    assert [each.path for each in lab.engine.tree(made.sha)] == [b"a", b"b"]
    assert made.sha in {facts.sha for facts in lab.engine.commits()}


def test_a_merge_of_missing_or_damaged_checkpoints_is_refused(lab: Lab) -> None:
    """The refusal names the checkpoint, and nothing is written."""
    lab.write("a", "1\n2\n3\n")
    shas = versions(
        lab, lambda: lab.write("a", "one\n2\n3\n"), lambda: lab.write("a", "1\n2\nthree\n")
    )
    base, ours, theirs = shas
    missing = Sha("0" * 40)
    for wrong in ((missing, ours, theirs), (base, missing, theirs), (base, ours, missing)):
        with pytest.raises(CheckpointNotFound), lab.engine.merge(*wrong):
            pass

    _lose(lab, lab.git("rev-parse", f"{theirs}:a").strip())
    lab.reopen()
    with pytest.raises(CheckpointDamaged) as refusal, lab.engine.merge(*shas):
        pass

    assert refusal.value.sha == theirs


def _lose(lab: Lab, blob: str) -> None:
    """Unpack all objects, and remove one of them."""
    objects = lab.layout.shadow_repository / "objects"
    for pack in sorted((objects / "pack").glob("*.pack")):
        outside = pack.rename(lab.layout.root / pack.name)
        pack.with_suffix(".idx").unlink()
        git(lab.layout.shadow_repository, "unpack-objects", "-q", stdin=outside.read_bytes())

    (objects / blob[:2] / blob[2:]).unlink()


# --- another execution ----------------------------------------------------------------------------


def test_theirs_may_be_a_checkpoint_of_another_execution(lab: Lab, tmp_path: Path) -> None:
    """Its repository is read and not changed, also while its own server has it open."""
    lab.write("a", "1")
    lab.write("b", "1")
    base = lab.checkpoint().sha
    attempt = _copy_of(lab, tmp_path / "attempt")
    attempt.write("a", "2")
    attempt.write("private", "secret", mode=0o600)
    theirs = attempt.checkpoint().sha
    lab.write("b", "ours")
    ours = lab.checkpoint().sha
    before = attempt.git("for-each-ref"), sorted(attempt.layout.shadow_repository.rglob("*"))
    made = adopted(lab, (base, ours, theirs), source=attempt.layout)
    after = attempt.git("for-each-ref"), sorted(attempt.layout.shadow_repository.rglob("*"))
    assert after == before
    attempt.engine.close()
    lab.rollback(made.sha)
    assert (lab.read("a"), lab.read("b"), lab.read("private")) == (b"2", b"ours", b"secret")
    assert lab.mode("private") == 0o600
    lab.assert_sound()


def _copy_of(lab: Lab, root: Path) -> Lab:
    """Return an execution whose repository has the objects of another one."""
    copy = Lab(root)
    sha = lab.engine.head()
    copy.git("fetch", "--quiet", str(lab.layout.shadow_repository), f"{sha}:refs/heads/origin")
    copy.reopen()
    assert sha is not None
    copy.detach(sha)
    copy.rollback(sha)
    return copy


# --- what a tree does not record ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (0o644, 0o644, 0o600, 0o600),
        (0o644, 0o640, 0o644, 0o640),
        (0o644, 0o640, 0o600, 0o640),
        (0o600, 0o600, 0o644, 0o644),
        (0o644, 0o600, 0o755, 0o755),
        (0o755, 0o700, 0o755, 0o700),
        (0o755, 0o755, 0o700, 0o700),
    ],
)
def test_permissions_are_merged(lab: Lab, base: int, ours: int, theirs: int, expected: int) -> None:
    """Those that one side changed count; if both did, ours, unless theirs made it executable."""
    lab.write("f", "1", mode=base)
    lab.write("g", "1")
    shas = versions(lab, permissions(lab, "f", ours), permissions(lab, "f", theirs))
    lab.rollback(adopted(lab, shas).sha)
    assert lab.mode("f") == expected


def test_permissions_of_folders_and_of_new_files_are_taken(lab: Lab) -> None:
    """Private files and folders of theirs are private in the result, too."""
    lab.write("d/f", "1")

    def theirs() -> None:
        os.chmod(lab.path("d"), 0o700)
        lab.write("new/f", "2", mode=0o640)
        os.chmod(lab.path("new"), 0o750)

    shas = versions(lab, lambda: lab.write("d/f", "ours"), theirs)
    lab.rollback(adopted(lab, shas).sha)
    assert [lab.mode(name) for name in ("d", "new", "new/f")] == [0o700, 0o750, 0o640]


def test_empty_folders_are_merged(lab: Lab) -> None:
    """Those of both sides are there; one that a side filled or removed is not empty any more."""
    for name in ("kept", "filled", "removed", "filled-by-ours"):
        os.makedirs(lab.path(name))

    lab.write("f", "1")

    def ours() -> None:
        os.makedirs(lab.path("of-ours"))
        lab.write("filled-by-ours/f", "1")

    def theirs() -> None:
        os.makedirs(lab.path("of-theirs/inner"))
        os.chmod(lab.path("of-theirs/inner"), 0o700)
        lab.write("filled/f", "1")
        os.rmdir(lab.path("removed"))

    shas = versions(lab, ours, theirs)
    lab.rollback(adopted(lab, shas).sha)
    assert {path for path, seen in lab.picture().items() if seen[0] == "folder"} == {
        b"kept",
        b"filled",
        b"filled-by-ours",
        b"of-ours",
        b"of-theirs",
        b"of-theirs/inner",
    }
    assert lab.mode("of-theirs/inner") == 0o700


def test_a_restriction_holds_for_permissions_and_folders(lab: Lab) -> None:
    """Outside of the selected paths, permissions and empty folders are ours."""
    for name in ("in/f", "out/f"):
        lab.write(name, "1")

    def theirs() -> None:
        for name in ("in", "out"):
            os.chmod(lab.path(f"{name}/f"), 0o600)
            os.makedirs(lab.path(f"{name}/empty"))

    shas = versions(lab, nothing, theirs)
    lab.rollback(adopted(lab, shas, frozenset({b"in"})).sha)
    assert (lab.mode("in/f"), lab.mode("out/f")) == (0o600, 0o644)
    assert lab.exists("in/empty")
    assert not lab.exists("out/empty")


def test_what_theirs_could_not_capture_is_not_removed(lab: Lab) -> None:
    """A file that is missing in theirs because it could not be read is left alone, and named."""
    lab.write("f", "1")
    lab.write("g", "1")

    def theirs() -> None:
        lab.delete("f")
        os.mkfifo(lab.path("f"))
        lab.write("g", "2")

    shas = versions(lab, nothing, theirs)
    with lab.engine.merge(*shas) as merged:
        assert [(each.path, each.reason) for each in merged.left_out] == [(b"f", "fifo")]
        assert merged.merged.changes.keys() == {b"g"}


def test_what_ours_could_not_capture_conflicts(lab: Lab) -> None:
    """A file that ours has, but could not capture, is not overwritten: theirs cannot win."""
    lab.write("f", "1")

    def ours() -> None:
        lab.delete("f")
        os.mkfifo(lab.path("f"))

    shas = versions(lab, ours, lambda: lab.write("f", "2"))
    for policy in (ConflictPolicy.ASK, ConflictPolicy.THEIRS):
        assert conflicts(lab, shas, policy) == {b"f": ConflictKind.NOT_CAPTURED}

    made = adopted(lab, shas, policy=ConflictPolicy.OURS)
    assert [(each.path, each.reason) for each in made.skipped] == [(b"f", "fifo")]
