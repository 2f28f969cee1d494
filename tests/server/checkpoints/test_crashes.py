"""States after a crash, a full disk or tampering, and how the next start handles them."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server import wal
from hankweave_server.checkpoints import capture, repo_init
from hankweave_server.checkpoints import engine as engine_module
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.git import objects
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.paths import Layout
from hankweave_server.worktree import tree_writer
from support.calls import failing, noted
from support.crashes import crash_after
from support.damage import unpack
from support.waiting import eventually_blocking

NAMES = ("mkdir", "rename", "replace", "unlink", "rmdir", "symlink", "fsync", "fchmod", "open")
CHANGES = [(os, name) for name in NAMES]
"""The calls that change the disk."""


def test_a_crash_anywhere_in_creation_leaves_a_startable_state(tmp_path):
    """Wherever repository creation is cut off, the next start makes a working repository."""
    survived = 0
    for number in range(60):
        root = tmp_path / str(number)
        (root / "agentRoot").mkdir(parents=True)
        layout = Layout.of_execution(root)
        with crash_after(number, *CHANGES) as crash:
            repo_init.make_ready(layout)

        survived += not crash.happened
        CheckpointEngine.open(layout).close()
        assert [path.name for path in layout.checkpoints.iterdir() if ".new" in path.name] == []

    assert survived > 0


def test_a_crash_anywhere_in_a_checkpoint_loses_nothing(lab):
    """Wherever a checkpoint is cut off, the earlier ones survive and the next start cleans up."""
    lab.write("a", "1")
    first = lab.checkpoint()
    finished = 0
    for number in range(40):
        lab.write("a", f"content {number}")
        lab.write("secret", f"content {number}", 0o600)
        head = lab.engine.head()
        with crash_after(number, *CHANGES) as crash:
            lab.checkpoint()

        finished += not crash.happened
        lab.reopen(forget=True)
        assert first.sha in [facts.sha for facts in lab.engine.commits()]
        assert lab.engine.head() == head or lab.engine.facts(lab.engine.head()).parents == (head,)
        assert not lab.leftovers()
        assert not list(lab.layout.shadow_repository.rglob("*.lock"))

    lab.assert_sound()
    assert finished > 0
    assert all(lab.engine.verify(facts.sha) == [] for facts in lab.engine.commits())


def test_a_crash_anywhere_in_a_restore_is_healed_by_doing_it_again(lab):
    """Wherever a restore is cut off, repeating it ends in exactly the target."""
    lab.write("a", "1", 0o600)
    lab.write("d/e/f", "1")
    lab.link("l", "a")
    os.mkdir(lab.path("empty"))
    target = lab.checkpoint()
    then = lab.picture()
    finished = 0
    for number in range(60):
        for name in ("a", "d", "l", "empty"):
            if lab.exists(name):
                lab.delete(name)

        lab.link("d", "elsewhere")
        lab.write("l/inner", "2")
        lab.write("later/x", "2")
        lab.write("a", "2")
        safety = lab.checkpoint(kind="safety", codon=None)
        with crash_after(number, *CHANGES) as crash:
            lab.engine.restore(target.sha, safety.sha)

        finished += not crash.happened
        lab.reopen(forget=number % 2 == 0)
        lab.engine.restore(target.sha, safety.sha)
        assert lab.picture() == then

    assert finished > 0


def test_leftovers_of_a_dead_process_are_cleared_and_named(lab):
    """Locks, temporary files and partial packs do not stop the next start, which names them."""
    lab.checkpoint()
    repository = lab.layout.shadow_repository
    planted = [
        "HEAD.lock",
        "index.lock",
        "objects/12/tmp_obj_x",
        "objects/pack/pack-1234.pack",
        "objects/pack/tmp_pack_x",
        "refs/heads/run-x.lock",
    ]
    for name in planted:
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(b"")

    engine = lab.reopen()

    assert sorted(engine.leftovers) == planted
    lab.checkpoint()
    lab.assert_sound()


def test_files_get_their_names_after_the_one_flush_and_the_branch_comes_last(lab, monkeypatch):
    """One record of the log holds objects and branch; then pack, index and branch are renamed."""
    lab.write("a", "0")
    lab.checkpoint()
    order: list[str] = []
    flush, rename = os.fdatasync, Path.rename

    def noting_flush(descriptor):
        order.append("flush")
        flush(descriptor)

    def noting_rename(self, target):
        order.append(Path(target).suffix or Path(target).parent.name)
        return rename(self, target)

    monkeypatch.setattr(os, "fdatasync", noting_flush)
    monkeypatch.setattr(os, "fsync", noting_flush)
    monkeypatch.setattr(Path, "rename", noting_rename)
    lab.write("a", "1")

    lab.checkpoint()

    assert order == ["flush", ".pack", ".idx", "heads"]


def test_a_full_disk_is_reported_and_leaves_nothing(lab, monkeypatch):
    """ENOSPC while objects are written is InsufficientSpace; no ref moves and no file remains."""
    lab.write("a", "1")
    first = lab.checkpoint()
    lab.write("a", "2")
    lab.write("big", random.Random(1).randbytes(9 << 20))
    monkeypatch.setattr(wal, "flush_and_rename", failing(errno.ENOSPC))
    with pytest.raises(InsufficientSpace):
        lab.checkpoint()

    monkeypatch.undo()
    assert lab.engine.head() == first.sha
    assert not lab.leftovers()
    assert lab.names(lab.checkpoint().sha) == {b"a", b"big"}
    lab.assert_sound()


def test_a_fault_of_the_store_is_not_taken_for_a_missing_file(lab, monkeypatch):
    """ENOENT from the repository fails the checkpoint instead of recording the file as deleted."""
    monkeypatch.setattr(objects.ObjectStaging, "blob", failing(errno.ENOENT))
    lab.write("a", "1")

    with pytest.raises(ShadowRepositoryError):
        lab.checkpoint()


def test_a_restore_needs_room_before_it_starts(lab, monkeypatch):
    """Without space for the target nothing is changed, and the error has the numbers."""
    lab.write("a", "x" * 5000)
    made = lab.checkpoint()
    lab.write("a", "y")
    monkeypatch.setattr(engine_module, "free_bytes", lambda place: 4000)

    with pytest.raises(InsufficientSpace) as refusal:
        lab.engine.plan_restore(made.sha, ("**",))

    assert refusal.value.free == 4000
    assert refusal.value.need > 5000
    assert lab.read("a") == b"y"


def test_content_without_a_checkpoint_is_never_overwritten(lab):
    """An edit after the safety checkpoint stays, and the restore is reported as incomplete."""
    lab.write("a", "1")
    lab.write("b", "1")
    made = lab.checkpoint()
    lab.write("a", "2")
    lab.write("b", "2")
    lab.write("c", "2")
    safety = lab.checkpoint(kind="safety", codon=None)
    lab.write("a", "edited since")
    lab.write("c", "edited since")

    report = lab.engine.restore(made.sha, safety.sha)

    assert set(report.unrestored) == {Skipped(b"a", "changed"), Skipped(b"c", "changed")}
    assert [lab.read(name) for name in "abc"] == [b"edited since", b"1", b"edited since"]
    again = lab.checkpoint(kind="safety", codon=None)
    lab.engine.restore(made.sha, again.sha)
    assert lab.read("a") == b"1"
    assert not lab.exists("c")


def test_a_full_disk_in_mid_restore_is_reported(lab, monkeypatch):
    """ENOSPC while files are written is InsufficientSpace, and a repeated restore completes."""
    lab.write("a", "1")
    made = lab.checkpoint()
    lab.write("a", "2")
    safety = lab.checkpoint(kind="safety", codon=None)
    monkeypatch.setattr(tree_writer, "write_sparsely", failing(errno.ENOSPC))
    with pytest.raises(InsufficientSpace):
        lab.engine.restore(made.sha, safety.sha)

    assert lab.read("a") == b"2"
    monkeypatch.undo()
    lab.engine.restore(made.sha, safety.sha)
    assert lab.read("a") == b"1"


# Damage


def object_file(lab, name: str) -> Path:
    """Unpack all objects, so that one can be damaged, and return its file."""
    unpack(lab.layout.shadow_repository)
    sha = lab.git("rev-parse", name).strip()
    return lab.layout.shadow_repository / "objects" / sha[:2] / sha[2:]


@pytest.mark.parametrize("which", ["a", "dir", "dir/b"])
def test_a_damaged_object_is_named_with_the_checkpoints_it_hits(lab, which):
    """`verify` names object, path and every checkpoint that needs it; others are intact."""
    lab.write("a", "one")
    lab.write("dir/b", "one too")
    first = lab.checkpoint()
    second = lab.checkpoint()
    lab.write("a", "two")
    lab.write("dir/b", "two")
    third = lab.checkpoint()
    broken = object_file(lab, f"{first.sha}:{which}")
    broken.chmod(0o600)
    broken.write_bytes(broken.read_bytes()[:-4] + b"rot!")
    lab.reopen()

    (damage,) = lab.engine.verify(first.sha)

    assert damage.path == which.encode()
    assert damage.kind == ("tree" if which == "dir" else "blob")
    assert set(damage.checkpoints) == {first.sha, second.sha}
    assert lab.engine.verify(third.sha) == []


def test_a_rollback_to_a_damaged_checkpoint_is_refused_before_anything_moves(lab):
    """One missing blob makes the plan fail; the work tree is unchanged."""
    lab.write("a", "one")
    lab.write("b", "one too")
    made = lab.checkpoint()
    lab.write("a", "two")
    lab.write("b", "two too")
    lab.checkpoint()
    object_file(lab, f"{made.sha}:b").unlink()
    lab.reopen()

    with pytest.raises(CheckpointDamaged) as refusal:
        lab.engine.plan_restore(made.sha, ("**",))

    assert [damage.path for damage in refusal.value.damages] == [b"b"]
    assert lab.read("a") == b"two"
    with pytest.raises(CheckpointDamaged):
        lab.engine.read_file(made.sha, b"b")


def _two_states(lab, count: int = 30) -> tuple[Sha, Sha]:
    """Return a checkpoint with many files, and a later one in which `a` and `dir/b` differ."""
    lab.write("a", "one")
    lab.write("dir/b", "one too")
    for number in range(count):
        lab.write(f"dir/other{number}", f"content {number}")

    first = lab.checkpoint()
    lab.write("a", "two")
    lab.write("dir/b", "two too")
    return first.sha, lab.checkpoint().sha


def _flip_in_packs(lab, digests: set[str]) -> None:
    """Damage these objects where they lie in a pack of stock git."""
    lab.engine.close()
    lab.git("config", "pack.window", "0")
    lab.git("repack", "-a", "-d", "-q", "-f")
    (pack,) = (lab.layout.shadow_repository / "objects" / "pack").glob("*.pack")
    content = bytearray(pack.read_bytes())
    for line in lab.git("verify-pack", "-v", str(pack.with_suffix(".idx"))).splitlines():
        words = line.split()
        if words[0] in digests:
            content[int(words[4]) + int(words[3]) // 2] ^= 0x55

    pack.chmod(0o600)
    pack.write_bytes(content)
    lab.layout.scan_cache.unlink()
    lab.engine = CheckpointEngine.open(lab.layout)


def _blobs(lab, sha: Sha) -> dict[str, str]:
    """Return the blob of each path, as git lists them."""
    lines = lab.git("ls-tree", "-r", sha).splitlines()
    return {line.split("\t")[1]: line.split()[2] for line in lines}


@pytest.mark.parametrize("are_packed", [True, False])
def test_a_rollback_reads_no_blob_that_it_does_not_write(lab, are_packed):
    """With every other blob of the target damaged, a rollback of two files is right.

    A rollback that would write one of the damaged blobs is refused, with all damages.
    """
    first, _ = _two_states(lab)
    blobs = _blobs(lab, first)
    others = {path: blob for path, blob in blobs.items() if path not in {"a", "dir/b"}}
    if are_packed:
        _flip_in_packs(lab, set(others.values()))
    else:
        for path in others:
            object_file(lab, f"{first}:{path}").write_bytes(b"rotten")

        lab.reopen(forget=True)

    lab.delete("dir/other7")
    before = lab.picture()
    with pytest.raises(CheckpointDamaged) as refusal:
        lab.engine.plan_restore(first, ("**",))

    assert {damage.path.decode() for damage in refusal.value.damages} == others.keys()
    assert lab.picture() == before
    lab.write("dir/other7", "content 7")
    lab.reopen(forget=True)
    lab.rollback(first)

    assert (lab.read("a"), lab.read("dir/b")) == (b"one", b"one too")
    assert {damage.path.decode() for damage in lab.engine.verify(first)} == others.keys()


@pytest.mark.parametrize("path", ["a", "dir/b", "dir"])
def test_a_damaged_object_that_a_rollback_needs_refuses_it(lab, path):
    """One damaged object in a pack: the plan is refused and nothing has changed."""
    first, second = _two_states(lab)
    _flip_in_packs(lab, {lab.git("rev-parse", f"{first}:{path}").strip()})
    before = lab.picture()

    with pytest.raises(CheckpointDamaged) as refusal:
        lab.engine.plan_restore(first, ("**",))

    assert [damage.path for damage in refusal.value.damages] == [path.encode()]
    assert lab.picture() == before
    assert lab.engine.head() == second


def test_a_missing_object_refuses_a_rollback_that_does_not_write_it(lab):
    """A plan finds out for the whole target whether the blobs exist."""
    first, _ = _two_states(lab)
    object_file(lab, f"{first}:dir/other3").unlink()
    lab.reopen()

    with pytest.raises(CheckpointDamaged) as refusal:
        lab.engine.plan_restore(first, ("**",))

    assert [damage.path for damage in refusal.value.damages] == [b"dir/other3"]


def test_a_restore_without_a_plan_reads_what_it_writes_first(lab):
    """It fails before its first change: after a crash, or if a file changed after the plan."""
    first, _ = _two_states(lab)
    object_file(lab, f"{first}:dir/other3").write_bytes(b"rotten")
    lab.write("dir/other3", "a person's edit")
    lab.reopen()
    safety = lab.checkpoint(kind="safety")
    before = lab.picture()

    with pytest.raises(CheckpointDamaged):
        lab.engine.restore(first, safety.sha)

    assert lab.picture() == before


def test_a_damaged_past_does_not_forbid_new_checkpoints(lab):
    """If the parent's tree cannot be read, the next checkpoint is still made."""
    lab.write("a", "one")
    made = lab.checkpoint()
    object_file(lab, f"{made.sha}^{{tree}}").unlink()
    lab.reopen(forget=True)
    lab.write("a", "two")

    again = lab.checkpoint()

    assert lab.engine.verify(made.sha)[0].kind == "tree"
    assert lab.engine.verify(again.sha) == []
    assert again.files == 1


def test_an_unknown_checkpoint_is_damage_to_verify(lab):
    """A recorded sha whose commit is gone is reported as a damaged commit."""
    (damage,) = lab.engine.verify(Sha("ab" * 20))

    assert damage.kind == "commit"


# The cache


@pytest.mark.parametrize("harm", ["delete", "garble", "truncate", "garbage"])
def test_the_scan_cache_is_only_a_cache(lab, harm):
    """A deleted or corrupt scan cache only makes files be read again; no checkpoint changes."""
    lab.write("a", "1")
    lab.write("b", "1")
    lab.checkpoint()
    lab.engine.close()
    cache = lab.layout.scan_cache
    content = cache.read_bytes()
    cache.unlink()
    if harm != "delete":
        cache.write_bytes(
            {"garble": content[:-2] + b"xx", "truncate": content[:20], "garbage": b"\0" * 99}[harm]
        )

    lab.engine = CheckpointEngine.open(lab.layout)
    lab.write("a", "2")

    assert [change.path for change in lab.checkpoint().changed] == [b"a"]


def test_the_scan_cache_saves_reading(lab, monkeypatch):
    """After a restart, files with unchanged stat data are not read again."""
    lab.write("a", "1")
    lab.checkpoint()
    read = noted(monkeypatch, capture.FileReader, "read")

    def is_saved() -> bool:
        lab.reopen()
        read.clear()
        assert lab.checkpoint().files == 1
        return not read

    # Stat data proves nothing until the last write is older than a clock tick.
    eventually_blocking(is_saved)


def test_a_cache_of_another_repository_is_not_believed(lab):
    """A scan cache written for a shadow repository that was deleted is ignored."""
    lab.write("a", "1")
    lab.checkpoint()
    lab.engine.close()
    shutil.rmtree(lab.layout.shadow_repository)
    lab.engine = CheckpointEngine.open(lab.layout)

    made = lab.checkpoint()

    assert lab.git("show", f"{made.sha}:a") == "1"
    lab.assert_sound()
