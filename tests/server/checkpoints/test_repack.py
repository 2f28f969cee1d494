"""Many small packs become few, and at no moment is an object missing."""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pruning import Housekeeping
from hankweave_server.git import repack
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError
from hankweave_server.git.objects import PackWriter, StagedPack
from hankweave_server.git.pack_merge import Unpackable, merged
from hankweave_server.git.pack_reader import read_index
from hankweave_server.git.repack import FRESH_PACKS, Pace, Repacking
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import StoreFiles
from support.calls import failing
from support.crashes import crash_after

never = Pace(lambda: False)
"""The pace of a repack that is not asked to stop."""


def after(steps: int) -> Pace:
    """Return the pace of a repack that is asked to stop after that many steps."""
    asked = iter(range(steps))
    return Pace(lambda: next(asked, None) is None)


def grow(lab, count: int, unchanged: int = 0) -> list[Sha]:
    """Make one-file checkpoints in a tree of 200 files, then some without a change."""
    for number in range(0 if lab.exists("f0") else 200):
        lab.write(f"f{number}", f"{number}\n" * 100)

    made = []
    for number in range(count):
        lab.write(f"f{number % 7}", os.urandom(20).hex() + "\n" * number + "same\n" * 50)
        made.append(lab.checkpoint().sha)

    return made + [lab.checkpoint().sha for _ in range(unchanged)]


def copies(lab) -> Counter[bytes]:
    """Return how many copies of each object are stored."""
    folder = lab.layout.shadow_repository / "objects"
    found = Counter(r.digest for index in folder.glob("pack/*.idx") for r in read_index(index))
    found.update(bytes.fromhex(p.parent.name + p.name) for p in folder.glob("[0-9a-f][0-9a-f]/*"))
    return found


# Results of a repack


def test_every_object_is_still_there(lab, housekeeping):
    """The git program finds the same objects and content before and after."""
    shas = grow(lab, 40, unchanged=10)
    before, listed = lab.archives(shas), lab.objects()

    done = housekeeping.consolidate(never)

    assert (lab.archives(shas), lab.objects()) == (before, listed)
    assert done.finished
    assert (done.packs_before, done.loose_before) == (40, 10)
    assert (done.packs_after, done.loose_after) == (len(lab.packs()), 0)
    assert done.packs_after < 5
    assert max(copies(lab).values()) == 1
    assert lab.leftovers() == []
    lab.assert_sound()


def test_a_repack_shrinks_edits_of_one_file_to_a_tenth(lab, housekeeping):
    """One-file checkpoints of a file that is edited again and again shrink to a tenth."""
    grow(lab, 1)
    housekeeping.consolidate(never)
    start = housekeeping.size().bytes_on_disk
    grow(lab, 64)
    unpacked = housekeeping.size().bytes_on_disk - start

    housekeeping.consolidate(never)

    assert (housekeeping.size().bytes_on_disk - start) * 10 <= unpacked
    assert unpacked <= 64 * 25_000


def test_the_engine_notices_nothing(lab, housekeeping):
    """An engine with the old packs open still reads, checkpoints and rolls back."""
    shas = grow(lab, 35)
    pictures = {}
    for sha in (shas[0], shas[20]):
        lab.rollback(sha)
        pictures[sha] = lab.picture()

    housekeeping.consolidate(never)

    for sha, picture in pictures.items():
        lab.rollback(sha)
        assert lab.picture() == picture

    assert [facts.sha for facts in lab.engine.commits()][-1] == shas[0]
    assert lab.engine.housekeeping.fsck().damages == {}
    grow(lab, 3)
    lab.assert_sound()


def test_the_disk_gets_its_bytes_back(lab):
    """No removed pack stays open, so that its blocks are freed."""
    shas = grow(lab, 34)
    lab.engine.close()
    gc.collect()  # Closes the engine's own files, which would be mistaken for leaks.
    housekeeping = lab.housekeeping()
    assert housekeeping.fsck(shas).is_sound

    housekeeping.consolidate(never)

    held = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if "(deleted)" in line
    ]
    assert [line for line in held if str(lab.layout.shadow_repository) in line] == []
    lab.engine = CheckpointEngine.open(lab.layout)


def test_a_repack_is_needed_after_many_packs(lab, housekeeping):
    """Sixteen new packs require a repack; after it none is required."""
    grow(lab, FRESH_PACKS - 1)
    assert not housekeeping.needs_consolidation()

    grow(lab, 1)
    assert housekeeping.needs_consolidation()

    housekeeping.consolidate(never)
    assert not housekeeping.needs_consolidation()


def test_a_repack_is_needed_after_many_loose_objects(lab, housekeeping, monkeypatch):
    """Checkpoints without a change require a repack, too."""
    monkeypatch.setattr(repack, "LOOSE_OBJECTS", 5)
    grow(lab, 1, unchanged=4)
    assert not housekeeping.needs_consolidation()

    grow(lab, 0, unchanged=1)
    assert housekeeping.needs_consolidation()

    assert housekeeping.consolidate(never).loose_after == 0
    assert not housekeeping.needs_consolidation()


def test_what_was_consolidated_is_not_rewritten(lab, housekeeping):
    """A second repack, by another process too, has nothing to do."""
    grow(lab, 40)
    housekeeping.consolidate(never)
    before = {path: path.stat().st_ino for path in lab.packs()}

    lab.housekeeping().consolidate(never)

    assert {path: path.stat().st_ino for path in lab.packs()} == before


def test_packs_of_a_like_size_are_joined(lab, housekeeping, monkeypatch):
    """Four repacked packs are joined by copying, and git verifies the new index."""
    monkeypatch.setattr(repack, "STEP_OBJECTS", 8)
    shas = grow(lab, 70)
    before = lab.archives(shas)

    housekeeping.consolidate(never)

    assert len(lab.packs()) < 20
    assert any(len(read_index(pack.with_suffix(".idx"))) > 16 * 4 for pack in lab.packs())
    for pack in lab.packs():
        lab.git("verify-pack", str(pack))

    assert lab.archives(shas) == before
    lab.assert_sound()


def test_new_packs_are_for_the_owner_alone(lab, housekeeping):
    """New packs are readable only by the owner, like the rest."""
    grow(lab, 33)
    housekeeping.consolidate(never)

    assert [p for p in lab.layout.checkpoints.rglob("*") if p.lstat().st_mode & 0o077] == []


# Packs and objects that stay


def test_a_large_blob_stays_loose(lab, housekeeping):
    """A file that was streamed into the store stays loose, so that it can be streamed again."""
    lab.write("large", bytes(9 << 20))
    sha = lab.checkpoint().sha
    blob = lab.git("rev-parse", f"{sha}:large").strip()
    grow(lab, 33)

    assert housekeeping.consolidate(never).loose_after == 1

    assert (lab.layout.shadow_repository / "objects" / blob[:2] / blob[2:]).exists()
    assert not housekeeping.needs_consolidation()


def test_a_large_pack_is_not_rewritten(lab, housekeeping):
    """The pack of a large first checkpoint stays as it was written."""
    for number in range(20):
        lab.write(f"random{number}", os.urandom(100_000))

    lab.checkpoint()
    (large,) = lab.packs()
    inode = large.stat().st_ino
    grow(lab, 40)
    housekeeping.consolidate(never)

    assert large.stat().st_ino == inode


def test_a_kept_pack_stays(lab, housekeeping):
    """A pack that a user marked with `.keep` is not replaced."""
    grow(lab, 34)
    kept = lab.packs()[5]
    kept.with_suffix(".keep").touch()

    housekeeping.consolidate(never)

    assert kept.exists()
    lab.assert_sound()


def test_a_damaged_pack_stays_and_blocks_no_repack(lab, housekeeping):
    """An unreadable pack is neither copied nor removed, and not retried forever."""
    shas = grow(lab, 40)
    (damaged,) = [
        pack
        for pack in lab.packs()
        if bytes.fromhex(shas[7]) in {r.digest for r in read_index(pack.with_suffix(".idx"))}
    ]
    flip_a_bit(damaged)

    assert housekeeping.consolidate(never).finished

    assert damaged.exists()
    assert len(lab.packs()) < 6
    assert not housekeeping.needs_consolidation()
    named = set(lab.housekeeping().fsck().damages)
    assert shas[7] in named
    assert named <= set(shas[7:14]), "the file is another from there on"


def test_a_pack_that_was_damaged_later_is_not_joined(lab, housekeeping, monkeypatch):
    """Joining verifies every record against the checksum in its index."""
    monkeypatch.setattr(repack, "STEP_OBJECTS", 8)
    grow(lab, 31)
    housekeeping.consolidate(never)
    damaged = min(lab.packs(), key=lambda pack: pack.stat().st_size)
    flip_a_bit(damaged)
    grow(lab, 60)

    assert lab.housekeeping().consolidate(never).finished

    assert damaged.exists()


def test_good_copies_of_a_damaged_pack_stay(lab, housekeeping):
    """Of two copies after a crash, one is removed only if the other is readable."""
    shas = grow(lab, 33)
    before = lab.archives(shas)
    folder = lab.layout.shadow_repository / "objects" / "pack"
    aside = lab.layout.root / "aside"
    shutil.copytree(folder, aside)
    housekeeping.consolidate(never)
    (new,) = [pack for pack in lab.packs() if not (aside / pack.name).exists()]
    shutil.copytree(aside, folder, dirs_exist_ok=True)
    flip_a_bit(new)
    new.chmod(0o400)

    # Whether this is refused depends on the copy that libgit2 finds first.
    with contextlib.suppress(ShadowRepositoryError):
        lab.housekeeping().consolidate(never)

    assert lab.archives(shas) == before


def test_a_pack_is_not_replaced_by_nothing(lab, housekeeping):
    """A new pack identical to one of the old ones is kept when the old ones are removed."""
    shas = grow(lab, 2)
    repo = ShadowRepo(lab.layout.shadow_repository)
    files = StoreFiles(repo.path)
    pack, _ = files.packs()

    Repacking(repo)._replace([pack], merged(files.pack_folder, [pack]), never)

    assert pack.index.exists()
    assert lab.archives(shas)
    lab.assert_sound()


def test_a_new_pack_that_cannot_be_read_is_given_up(lab, housekeeping, monkeypatch):
    """If the disk stores wrong bytes, the new pack is discarded and the old ones stay."""
    shas = grow(lab, 33)
    before = lab.archives(shas)
    finish = PackWriter.finish

    def damaged(writer: PackWriter) -> StagedPack:
        staged = finish(writer)
        flip_a_bit(staged.pack)
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(PackWriter, "finish", damaged)
        with pytest.raises(ShadowRepositoryError):
            housekeeping.consolidate(never)

    assert len(lab.packs()) == 33
    assert lab.leftovers() == []
    assert lab.archives(shas) == before


def test_packs_with_a_common_delta_are_not_joined(lab, housekeeping):
    """Of two deltas of one object, each could become the base of the other."""
    grow(lab, 3)
    housekeeping.consolidate(never)
    files = StoreFiles(lab.layout.shadow_repository)
    (pack,) = files.packs()
    with pytest.raises(Unpackable):
        merged(files.pack_folder, [pack, pack])


def test_an_index_that_belongs_to_other_bytes_is_not_copied(lab):
    """Joining trusts an index only if each checksum matches its record."""
    grow(lab, 1)
    files = StoreFiles(lab.layout.shadow_repository)
    (pack,) = files.packs()
    content = bytearray(pack.index.read_bytes()[:-20])
    content[8 + 1024 + 20 * len(pack.records())] ^= 1
    pack.index.write_bytes(content + hashlib.sha1(content, usedforsecurity=False).digest())
    with pytest.raises(Unpackable):
        merged(files.pack_folder, [pack])


def test_a_walk_continues_while_packs_are_replaced(lab, housekeeping):
    """Reading the history during a repack reaches the end of the history."""
    grow(lab, 34)
    repo = ShadowRepo(lab.layout.shadow_repository)
    walk = repo.commits()
    first = next(walk)

    Housekeeping(repo, Notes(repo), lab.layout).consolidate(never)

    assert len([first, *walk]) == 34


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def test_an_index_over_many_packs_does_not_mislead_git(lab, housekeeping):
    """Stock git's multi-pack-index is removed before a pack that it names."""
    shas = grow(lab, 40)
    lab.git("multi-pack-index", "write")
    before = lab.archives(shas)

    housekeeping.consolidate(never)

    assert lab.archives(shas) == before
    lab.assert_sound()


# Stops and crashes


def test_it_stops_between_two_steps(lab, housekeeping, monkeypatch):
    """A stopped repack leaves a valid store, and the next call continues."""
    monkeypatch.setattr(repack, "STEP_OBJECTS", 40)
    shas = grow(lab, 40)
    before = lab.archives(shas)

    first = housekeeping.consolidate(after(1))

    assert not first.finished
    assert first.packs_before > first.packs_after > 10
    lab.assert_sound()

    assert housekeeping.consolidate(never).finished
    assert lab.archives(shas) == before


CHANGES = (
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "chmod"),
    (shutil, "rmtree"),
    (os, "fsync"),
)


@pytest.mark.parametrize("moment", range(0, 60, 3))
def test_a_crash_loses_nothing(lab, moment, monkeypatch):
    """After a power cut every object is there, and the next start completes the repack."""
    shas = grow(lab, 12, unchanged=6)
    before, listed = lab.archives(shas), lab.objects()
    with monkeypatch.context() as patch:
        patch.setattr(repack, "STEP_OBJECTS", 40)
        housekeeping = lab.housekeeping()
        with crash_after(moment, *CHANGES) as crash:
            housekeeping.consolidate(never)

    assert crash.happened
    lab.reopen()
    assert lab.leftovers() == []
    assert (lab.archives(shas), lab.objects()) == (before, listed)
    lab.assert_sound()

    assert lab.housekeeping().consolidate(never).finished
    assert (lab.archives(shas), lab.objects()) == (before, listed)
    assert max(copies(lab).values()) == 1
    lab.assert_sound()


def test_nothing_is_removed_before_its_copy_is_durable(lab, housekeeping, monkeypatch):
    """Both new files are flushed and renamed and their folder flushed; then old ones go."""
    grow(lab, 33)
    acts: list[str] = []
    flush, rename, unlink = os.fsync, Path.rename, Path.unlink

    def flushed(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        acts.append("flush folder" if name == "pack" else f"flush {Path(name).suffix}")
        flush(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        if path.suffix:  # Else it gets its name in the staging folder, where no reader looks.
            acts.append(f"name {path.suffix}")

        return rename(path, target)

    def removed(path: Path, missing_ok: bool = False) -> None:
        acts.append("remove")
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flushed)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(Path, "unlink", removed)
        housekeeping.consolidate(never)

    first = acts.index("remove")
    assert set(acts[:2]) == {"flush .idx", "flush .pack"}
    assert acts[2:first] == ["name .pack", "name .idx", "flush folder"]


def test_a_full_disk_loses_nothing(lab, housekeeping, monkeypatch):
    """If a pack cannot be flushed, it is discarded, and no old pack is removed."""
    shas = grow(lab, 33)
    before = copies(lab)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(InsufficientSpace):
            housekeeping.consolidate(never)

    assert copies(lab) == before
    assert lab.leftovers() == []
    assert lab.archives(shas[-1:])
    assert housekeeping.consolidate(never).finished


def test_size_agrees_with_du(lab, housekeeping):
    """The size equals the allocated blocks on the disk, before and after a change."""
    grow(lab, 3, unchanged=2)
    first = housekeeping.size()
    assert (first.packs, first.loose_objects) == (3, 2)
    assert first.bytes_on_disk == blocks(lab)

    grow(lab, 2, unchanged=3)
    second = housekeeping.size()
    assert (second.packs, second.loose_objects) == (5, 5)
    assert second.bytes_on_disk == blocks(lab)


def blocks(lab) -> int:
    files = [path for path in lab.layout.shadow_repository.rglob("*") if not path.is_dir()]
    return sum(path.lstat().st_blocks * 512 for path in files)
