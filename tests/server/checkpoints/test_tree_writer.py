"""Restored files that cannot be renamed into place, and folders that cannot be removed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.worktree import tree_writer
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.stat_index import Signature, signature_of
from hankweave_server.worktree.tree_writer import (
    DisplacedFile,
    IsHeld,
    NewFile,
    Placing,
    TemporaryFiles,
)
from support.calls import failing


@pytest.fixture
def on_another_disk(monkeypatch):
    """Make every folder appear to be on another disk than the private folder."""
    for method in ("put", "put_link", "take"):
        real = getattr(TemporaryFiles, method)

        def elsewhere(self, folder, *words, real=real):
            if self._folder != folder:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

            return real(self, folder, *words)

        monkeypatch.setattr(TemporaryFiles, method, elsewhere)


def temporary_files(lab) -> list[str]:
    return [name for _, _, names in os.walk(lab.tree) for name in names if "hankweave" in name]


def test_a_file_on_another_disk_is_written_beside_its_place(lab, on_another_disk):
    """Content and permissions equal the checkpoint's, and no temporary file stays."""
    lab.write("d/a", "one", 0o640)
    made = lab.checkpoint()
    then = lab.picture()
    lab.write("d/a", "two, and longer", 0o600)

    lab.rollback(made.sha)

    assert lab.picture() == then
    assert temporary_files(lab) == []


def test_a_write_that_fails_beside_its_place_leaves_the_old_file(lab, on_another_disk, monkeypatch):
    """The error is raised, the old file is unchanged, and the temporary file is removed."""
    lab.write("d/a", "one")
    made = lab.checkpoint()
    lab.write("d/a", "two")
    safety = lab.checkpoint(kind="safety", codon=None)
    monkeypatch.setattr(tree_writer, "write_sparsely", failing(errno.ENOSPC))

    with pytest.raises(InsufficientSpace):
        lab.engine.restore(made.sha, safety.sha)

    assert lab.read("d/a") == b"two"
    assert temporary_files(lab) == []


def test_errors_other_than_exdev_are_raised(lab, monkeypatch):
    """Errors other than EXDEV are raised without a second attempt."""
    lab.write("a", "one")
    made = lab.checkpoint()
    lab.write("a", "two")
    safety = lab.checkpoint(kind="safety", codon=None)
    monkeypatch.setattr(TemporaryFiles, "put", failing(errno.EIO))

    with pytest.raises(ShadowRepositoryError, match="Input/output"):
        lab.engine.restore(made.sha, safety.sha)

    assert lab.read("a") == b"two"


def test_a_folder_that_fills_in_the_last_moment_stays(lab, monkeypatch):
    """A file created in a folder that is about to be removed keeps the folder."""
    made = lab.checkpoint()
    lab.write("d/a", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    real = tree_writer.Placing.remove

    def remove(self, path, seen, is_held):
        real(self, path, seen, is_held)
        lab.write("d/late", "in the last moment")

    monkeypatch.setattr(tree_writer.Placing, "remove", remove)
    lab.engine.restore(made.sha, safety.sha)

    assert lab.read("d/late") == b"in the last moment"
    assert not lab.exists("d/a")


def test_folders_that_another_process_removed_count_as_removed(lab, monkeypatch):
    """Folders that another process removes meanwhile are not an error."""
    made = lab.checkpoint()
    lab.write("d/e/a", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    real = tree_writer.Placing.remove

    def remove(self, path, seen, is_held):
        real(self, path, seen, is_held)
        os.removedirs(lab.path("d/e"))
        os.makedirs(lab.tree, exist_ok=True)

    monkeypatch.setattr(tree_writer.Placing, "remove", remove)

    report = lab.engine.restore(made.sha, safety.sha)

    assert not lab.exists("d")
    assert report.skipped == ()


def refusing(monkeypatch, call: str, name: bytes, error: int) -> None:
    """Make the system refuse one call for one name."""
    real = getattr(os, call)

    def maybe(path, *words, **more):
        if path == name:
            raise OSError(error, os.strerror(error))

        return real(path, *words, **more)

    monkeypatch.setattr(os, call, maybe)


def test_a_file_that_cannot_be_removed_is_reported(lab, monkeypatch):
    """A file whose folder's protection cannot be lifted is reported, and the others are removed."""
    made = lab.checkpoint()
    lab.write("d/a", "new")
    lab.write("d/b", "new")
    safety = lab.checkpoint(kind="safety", codon=None)
    refusing(monkeypatch, "rename", b"a", errno.EPERM)

    report = lab.engine.restore(made.sha, safety.sha)

    assert report.unrestored == (Skipped(b"d/a", "os-error", errno.EPERM),)
    assert lab.read("d/a") == b"new"
    assert not lab.exists("d/b")


@pytest.mark.parametrize(("call", "then"), [("rmdir", "removed"), ("mkdir", "made")])
def test_a_disk_that_breaks_under_a_folder_ends_the_restore(lab, monkeypatch, call, then):
    """A disk error is not an error of one path, so it ends the restore."""
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


class Place:
    """A work tree, and the objects with which a restore writes to it."""

    def __init__(self, top: Path) -> None:
        (top / "tree").mkdir()
        (top / "spares").mkdir()
        self.tree = top / "tree"
        self.spares = os.open(top / "spares", os.O_RDONLY)
        self.placing = Placing(Descent(self.tree), self.spares)

    def seen(self, name: str) -> Signature:
        return signature_of((self.tree / name).lstat())

    def act(
        self, what: str, seen: Signature | None, is_held: IsHeld = lambda folder, name: True
    ) -> None:
        """Write a file or link over `a`, or remove it."""
        if what == "file":
            self.placing.put_file(b"a", NewFile(lambda: [b"restored"], 8, 0o644), seen, is_held)
        elif what == "link":
            self.placing.put_link(b"a", b"elsewhere", seen, is_held)
        else:
            self.placing.remove(b"a", seen, is_held)

    def contents(self) -> dict[str, bytes]:
        """Return all files, after removal of the temporary ones."""
        self.placing.clear()
        assert os.listdir(self.spares) == []
        return {path.name: path.read_bytes() for path in self.tree.iterdir()}


@pytest.fixture(params=["spares", "beside", "old kernel"])
def place(request, tmp_path, monkeypatch):
    """Return a place for each of the three ways to put a file in its place."""
    if request.param == "beside":
        request.getfixturevalue("on_another_disk")
    elif request.param == "old kernel":
        monkeypatch.setattr(tree_writer, "_renameat2", None)

    return Place(tmp_path)


@pytest.mark.parametrize("newer", [b"newer, and longer", b"new"], ids=["longer", "as long"])
@pytest.mark.parametrize("what", ["file", "link", "removal"])
def test_what_was_not_seen_is_neither_replaced_nor_removed(place, what, newer):
    """A file written after the check stays unchanged, whatever the operation and its size."""
    (place.tree / "a").write_bytes(b"old")
    seen = place.seen("a")
    (place.tree / "a").write_bytes(newer)
    # The clock of the kernel may not have moved since.
    os.utime(place.tree / "a", ns=(seen.mtime_ns, seen.mtime_ns + 1))

    with pytest.raises(DisplacedFile):
        place.act(what, seen)

    assert place.contents() == {"a": newer}


@pytest.mark.parametrize("what", ["file", "link", "removal"])
@pytest.mark.parametrize("is_readable", [True, False], ids=["other content", "unreadable"])
def test_what_is_not_saved_is_put_back_whatever_its_stat_data_says(place, what, is_readable):
    """The displaced content decides; if it cannot be read, it is not known to be saved."""
    (place.tree / "a").write_bytes(b"old")
    seen, asked = place.seen("a"), []

    def is_held(folder, name):
        if not is_readable:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

        descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
        asked.append(os.read(descriptor, 10))
        os.close(descriptor)
        return False

    with pytest.raises(DisplacedFile):
        place.act(what, seen, is_held)

    assert asked == [b"old"] * is_readable
    assert place.contents() == {"a": b"old"}


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_file_that_appears_where_nothing_was_stays(place, what):
    """A path that was free at the check must still be free at the write."""
    (place.tree / "a").write_bytes(b"appeared")

    with pytest.raises(DisplacedFile):
        place.act(what, None)

    assert place.contents() == {"a": b"appeared"}


@pytest.mark.parametrize("what", ["file", "link", "removal"])
def test_what_was_seen_is_replaced_or_removed(place, what):
    """Files and links take each other's place, and a missing file counts as removed."""
    (place.tree / "elsewhere").write_bytes(b"the target")
    for make in (lambda path: path.write_bytes(b"old"), lambda path: path.symlink_to("old")):
        make(place.tree / "a")
        place.act(what, place.seen("a"))
        if what == "removal":
            place.act(what, Signature(0, 0, 0, 0, stat.S_IFREG))
            assert not (place.tree / "a").exists()
        else:
            assert (place.tree / "a").read_bytes() == (
                b"restored" if what == "file" else b"the target"
            )
            (place.tree / "a").unlink()

    assert place.contents() == {"elsewhere": b"the target"}


@pytest.mark.parametrize("way", ["spares", "beside"])
def test_two_edits_in_the_last_moment_both_stay(tmp_path, monkeypatch, request, way):
    """The first edit is displaced by the removal, and the second is written before it returns."""
    if way == "beside":
        request.getfixturevalue("on_another_disk")

    place = Place(tmp_path)
    (place.tree / "a").write_bytes(b"old")
    seen = place.seen("a")
    moved, real = [], tree_writer._is_seen

    def meddled(status, expected):
        moved.append(status)
        if len(moved) == 1:  # The file is as expected, and changes right afterwards.
            (place.tree / "a").write_bytes(b"the first edit")
            return True

        (place.tree / "a").write_bytes(b"the second edit")
        return real(status, expected)

    monkeypatch.setattr(tree_writer, "_is_seen", meddled)
    with pytest.raises(DisplacedFile):
        place.act("removal", seen)

    assert place.contents() == {"a": b"the second edit", "a~1": b"the first edit"}


@pytest.mark.parametrize("what", ["file", "link", "removal"])
def test_a_pipe_gives_way_and_a_file_in_its_place_does_not(place, what):
    """A pipe holds no content, whatever was written through it meanwhile."""
    os.mkfifo(place.tree / "a")
    seen = place.seen("a")
    os.utime(place.tree / "a")
    place.act(what, seen)
    assert not (place.tree / "a").is_fifo()
    (place.tree / "a").unlink(missing_ok=True)
    (place.tree / "a").write_bytes(b"content")
    with pytest.raises(DisplacedFile):
        place.act(what, seen)

    assert place.contents() == {"a": b"content"}
