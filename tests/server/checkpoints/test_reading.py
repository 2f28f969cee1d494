"""Capturing many files: on threads, in order, in bounded memory, and atomically."""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
import threading
import zlib
from contextlib import closing

import pytest

from hankweave_server.checkpoints import capture
from hankweave_server.checkpoints.file_reader import CapturedFile
from hankweave_server.git import loose, objects
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.stat_index import StatIndex


def _many(lab, count: int) -> dict[bytes, bytes]:
    contents = {f"d{n % 7}/f{n}".encode(): b"content %d\n" % n * (n % 50) for n in range(count)}
    for name, content in contents.items():
        lab.write(name, content)

    return contents


def test_many_files_are_captured_as_git_sees_them(lab):
    """500 files, deflated on threads, make the same tree as git's, and are restored."""
    contents = _many(lab, 500)

    made = lab.checkpoint()

    assert made.files == len(made.changed) == 500
    assert {change.path: change.size for change in made.changed} == {
        name: len(content) for name, content in contents.items()
    }
    lab.git("add", "--all")
    assert lab.git("write-tree").strip() == made.tree
    lab.assert_sound()
    lab.delete("d3")
    lab.rollback(made.sha)
    assert all(lab.read(name) == content for name, content in contents.items())


def test_what_is_read_comes_in_the_order_it_was_asked_for(lab, monkeypatch):
    """Results are in the order of the files, whatever is deflated first."""
    monkeypatch.setattr(capture, "BATCH_SIZE", 20_000)
    chance = os.urandom
    for number in range(300):
        lab.write(f"f{number}", chance(30_000 if number % 40 == 0 else number))

    table = StatIndex()
    files = [table.track(f"f{number}".encode()) for number in reversed(range(300))]
    store = lab.layout.shadow_repository / "objects"
    staging = objects.ObjectStaging(store, lambda digest: False)
    with closing(Descent(lab.tree)) as descent:
        seen = list(capture.read_all(files, descent, staging, None))

    staging.abandon()
    assert [file.path for file, _ in seen] == [file.path for file in files]
    assert all(isinstance(observation, CapturedFile) for _, observation in seen)
    assert not list(store.rglob("tmp_*"))


def test_few_files_start_no_thread(lab, monkeypatch):
    """A checkpoint of few files starts no thread."""
    started: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda self: (started.append(self.name), start(self))[1]
    )
    _many(lab, capture.FEW)
    lab.checkpoint()

    assert not [name for name in started if name.startswith("checkpoint")]
    _many(lab, capture.FEW + 200)
    lab.checkpoint()
    assert [name for name in started if name.startswith("checkpoint")]


def test_content_that_is_there_already_is_not_stored_again(lab):
    """Equal files are one object, within and across checkpoints, with any number of threads."""
    for number in range(200):
        lab.write(f"a{number}", f"one of {number % 3}")

    lab.checkpoint()
    for number in range(200):
        lab.write(f"b{number}", f"one of {number % 4}")

    lab.checkpoint()

    listed = lab.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
    assert listed.split().count("blob") == 4
    counted = dict(line.split(": ") for line in lab.git("count-objects", "-v").splitlines())
    assert int(counted["in-pack"]) + int(counted["count"]) == len(listed.split())


def test_a_pack_that_grows_too_large_is_followed_by_another(lab, monkeypatch):
    """Above the size limit a second pack is started; git finds all objects in both."""
    monkeypatch.setattr(objects, "PACK_LIMIT", 10_000)
    for number in range(100):
        lab.write(f"f{number}", os.urandom(500))

    made = lab.checkpoint()

    assert len(list(lab.layout.shadow_repository.glob("objects/pack/*.pack"))) > 3
    assert lab.engine.verify(made.sha) == []
    lab.assert_sound()


def test_many_large_files_are_flushed_and_come_back(lab):
    """Files above the pack limit are streamed, and flushed with one call."""
    contents = {
        f"big{n}": os.urandom(1000) * (objects.STREAMED_FROM // 1000 + n) for n in range(40)
    }
    for name, content in contents.items():
        lab.write(name, content)

    made = lab.checkpoint()
    lab.delete("big7")
    lab.rollback(made.sha)

    assert lab.read("big7") == contents["big7"]
    assert lab.engine.verify(made.sha) == []


def test_a_full_disk_while_reading_fails_the_checkpoint(lab, monkeypatch):
    """ENOSPC is InsufficientSpace; no ref moves, no file or thread remains."""
    _many(lab, 10)
    first = lab.checkpoint()
    _many(lab, 400)
    lab.write("d0/big", bytes(objects.STREAMED_FROM))
    claim, left = objects.ObjectStaging.claim, [150]

    def full(self, digest):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "no space")

        return claim(self, digest)

    monkeypatch.setattr(objects.ObjectStaging, "claim", full)
    with pytest.raises(InsufficientSpace):
        lab.checkpoint()

    monkeypatch.undo()
    assert lab.engine.head() == first.sha
    assert not lab.leftovers()
    assert not [t for t in threading.enumerate() if t.name.startswith("checkpoint")]
    assert lab.checkpoint().files == 401


def test_a_ref_that_git_holds_is_not_moved(lab):
    """While another git process has the branch locked, a checkpoint fails and moves no ref."""
    lab.write("a", "1")
    first = lab.checkpoint()
    (branch,) = (lab.layout.shadow_repository / "refs" / "heads").iterdir()
    lock = branch.with_name(branch.name + ".lock")
    lock.touch()
    with pytest.raises(ShadowRepositoryError):
        lab.checkpoint()

    assert lab.engine.head() == first.sha
    lock.unlink()
    assert lab.engine.facts(lab.checkpoint().sha).parents == (first.sha,)


def test_changes_come_in_the_order_of_paths(lab):
    """git's diff of two commits equals the reported changes, for every change of kind."""
    for name in ("a/b", "a-b", "a.b", "c", "d/e/f", "gone/x", "same/y"):
        lab.write(name, "1")

    lab.checkpoint()
    lab.delete("a")
    lab.write("a", "file now")
    lab.delete("c")
    lab.write("c/below", "folder now")
    lab.write("d/e/f", "longer now")
    lab.delete("gone")
    made = lab.checkpoint()

    paths = [change.path for change in made.changed]
    listed = lab.git("diff", "--name-status", "--no-renames", f"{made.sha}^", made.sha)
    letters = {"created": "A", "modified": "M", "deleted": "D"}
    assert paths == sorted(paths)
    assert {f"{letters[c.kind]}\t{c.path.decode()}" for c in made.changed} == set(
        listed.splitlines()
    )
    assert {c.path: c.size for c in made.changed}[b"d/e/f"] == len("longer now")


def test_without_isal_the_streams_are_the_same_to_read(monkeypatch):
    """A stream that one library compresses is readable by the other, whole or in pieces."""
    monkeypatch.setitem(sys.modules, "isal", None)
    found = importlib.util.spec_from_file_location("deflate_by_zlib", loose.__file__)
    assert found is not None
    assert found.loader is not None
    plain = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, plain)
    found.loader.exec_module(plain)
    data = os.urandom(100) * 5000

    assert plain.isal_zlib is None
    for one, other in ((plain, loose), (loose, plain)):
        assert other.decompress(one.compress(data), len(data)) == data
        stream = one.compressobj()
        pieces = [stream.compress(data[:1000]), stream.compress(data[1000:]), stream.flush()]
        assert other.decompressobj().decompress(b"".join(pieces)) == data
        assert one.crc32(data) == zlib.crc32(data)
        with pytest.raises(other.DeflateError):
            other.decompress(b"no stream at all", 1)
