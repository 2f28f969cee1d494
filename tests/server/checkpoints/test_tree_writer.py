"""Files that cannot take their place in the usual way, and folders that are in the way of it."""

from __future__ import annotations

import errno
import os

import pytest

from hankweave_server.checkpoints.errors import RestoreIncomplete
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.worktree import tree_writer
from hankweave_server.worktree.tree_writer import Spares


@pytest.fixture
def on_another_disk(monkeypatch):
    """Every folder is one that the top of the work tree cannot lend its temporary file to."""

    def put(self, folder, name, new, seen):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Spares, "put", put)


def temporary_files(lab) -> list[str]:
    return [name for _, _, names in os.walk(lab.tree) for name in names if "hankweave" in name]


def test_a_file_on_another_disk_is_written_beside_its_place(lab, on_another_disk):
    """Content and permissions are those of the checkpoint, and no temporary name stays."""
    lab.write("d/a", "one", 0o640)
    made = lab.checkpoint()
    then = lab.picture()
    lab.write("d/a", "two, and longer", 0o600)

    lab.rollback(made.sha)

    assert lab.picture() == then
    assert temporary_files(lab) == []


def test_a_write_that_fails_beside_its_place_leaves_the_old_file(lab, on_another_disk, monkeypatch):
    """The error comes out, the file is as it was, and the temporary one is gone."""
    lab.write("d/a", "one")
    made = lab.checkpoint()
    lab.write("d/a", "two")
    safety = lab.checkpoint(kind="safety", codon=None)

    def full(descriptor, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tree_writer, "write_sparsely", full)

    with pytest.raises(InsufficientSpace):
        lab.engine.restore(made.sha, safety.sha)

    assert lab.read("d/a") == b"two"
    assert temporary_files(lab) == []


def test_an_error_that_is_no_other_disk_comes_out(lab, monkeypatch):
    """A file is written beside its place only where that can help."""

    def broken(self, folder, name, new, seen):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lab.write("a", "one")
    made = lab.checkpoint()
    lab.write("a", "two")
    safety = lab.checkpoint(kind="safety", codon=None)
    monkeypatch.setattr(Spares, "put", broken)

    with pytest.raises(ShadowRepositoryError, match="Input/output"):
        lab.engine.restore(made.sha, safety.sha)

    assert lab.read("a") == b"two"


def test_a_folder_that_fills_in_the_last_moment_stays(lab, monkeypatch):
    """What somebody puts into a folder that is about to go keeps it there."""
    made = lab.checkpoint()
    lab.write("d/a", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    real = tree_writer.Placing.remove

    def remove(self, path):
        real(self, path)
        lab.write("d/late", "in the last moment")

    monkeypatch.setattr(tree_writer.Placing, "remove", remove)
    lab.engine.restore(made.sha, safety.sha)

    assert lab.read("d/late") == b"in the last moment"
    assert not lab.exists("d/a")


def test_folders_that_somebody_else_removed_are_as_good_as_removed(lab, monkeypatch):
    """A whole branch of folders that vanishes meanwhile is no fault."""
    made = lab.checkpoint()
    lab.write("d/e/a", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    real = tree_writer.Placing.remove

    def remove(self, path):
        real(self, path)
        os.removedirs(lab.path("d/e"))
        os.makedirs(lab.tree, exist_ok=True)

    monkeypatch.setattr(tree_writer.Placing, "remove", remove)

    report = lab.engine.restore(made.sha, safety.sha)

    assert not lab.exists("d")
    assert report.skipped == ()


def refusing(monkeypatch, call: str, name: bytes, error: int) -> None:
    """Lets the system refuse one call for one name."""
    real = getattr(os, call)

    def maybe(path, *words, **more):
        if path == name:
            raise OSError(error, os.strerror(error))

        return real(path, *words, **more)

    monkeypatch.setattr(os, call, maybe)


def test_a_file_that_nobody_may_remove_is_named(lab, monkeypatch):
    """No protection of its folder can be lifted; the others are done all the same."""
    made = lab.checkpoint()
    lab.write("d/a", "new")
    lab.write("d/b", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    refusing(monkeypatch, "unlink", b"a", errno.EPERM)

    with pytest.raises(RestoreIncomplete) as incomplete:
        lab.engine.restore(made.sha, safety.sha)

    assert incomplete.value.unfinished == (Skipped(b"d/a", "os-error"),)
    assert lab.read("d/a") == b"new"
    assert not lab.exists("d/b")


@pytest.mark.parametrize(("call", "then"), [("rmdir", "removed"), ("mkdir", "made")])
def test_a_disk_that_breaks_under_a_folder_ends_the_restore(lab, monkeypatch, call, then):
    """A fault of the disk is not one of the path: it comes out."""
    if then == "made":
        lab.write("d/a", "one")

    made = lab.checkpoint()
    if then == "made":
        lab.delete("d")
    else:
        lab.write("d/a", "one")

    safety = lab.checkpoint(kind="safety", codon=None)
    refusing(monkeypatch, call, b"d", errno.EIO)

    with pytest.raises(ShadowRepositoryError, match="Input/output"):
        lab.engine.restore(made.sha, safety.sha)
