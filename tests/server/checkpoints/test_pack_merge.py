"""Packs are merged while the store is used, and whatever happens no object is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.contents import (
    StoreVersions,
    Verification,
    Verified,
    store_listing,
)
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.git import repack
from hankweave_server.git.pack_reader import PackReader, read_index
from hankweave_server.git.repack import FRESH_PACKS, Pace, Repacking, StepInterrupted
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.store_files import StoreFiles
from support.crashes import crash_after

never = Pace(lambda: False)
MOST_PACKS = 64


class Writer:
    """Edits three lines of a long file, and other files, and takes checkpoints."""

    def __init__(self, lab) -> None:
        self.lab = lab
        self._chance = random.Random(7)  # Reproducible, not secret.
        self._lines = [self._line() for _ in range(400)]
        self._count = 0
        self.taken: list[Sha] = []

    def _line(self) -> str:
        return f"{self._chance.getrandbits(192):048x}\n"

    def checkpoint(self) -> Sha:
        self._count += 1
        for _ in range(3):
            self._lines[self._chance.randrange(400)] = self._line()

        self.lab.write("long/file.txt", "".join(self._lines))
        self.lab.write(f"d{self._count % 3}/e/f{self._count % 5}", f"{self._count}\n" * 30)
        self.taken.append(self.lab.checkpoint().sha)
        return self.taken[-1]

    def checkpoints(self, count: int) -> list[Sha]:
        return [self.checkpoint() for _ in range(count)]


@pytest.fixture
def writer(lab) -> Writer:
    return Writer(lab)


def most_copies(lab) -> int:
    indexes = (lab.layout.shadow_repository / "objects" / "pack").glob("*.idx")
    found = [record.digest for index in indexes for record in read_index(index)]
    return max(found.count(digest) for digest in set(found))


def repacking(lab) -> Repacking:
    return Repacking(ShadowRepo(lab.layout.shadow_repository))


# What a merge makes


def test_the_versions_of_a_file_are_stored_as_differences(lab, writer):
    """Checkpoints take an eighth of what they took, and the newest version is whole."""
    shas = writer.checkpoints(32)
    before, listed = lab.archives(shas[::10]), lab.objects()
    size = sum(pack.size for pack in StoreFiles(lab.layout.shadow_repository).packs())

    lab.engine.housekeeping.consolidate(never)

    (merged,) = StoreFiles(lab.layout.shadow_repository).packs()
    assert 8 * merged.size < size
    assert (lab.archives(shas[::10]), lab.objects()) == (before, listed)
    reader = PackReader(lab.layout.shadow_repository / "objects")
    newest = bytes.fromhex(lab.git("rev-parse", f"{shas[-1]}:long/file.txt").strip())
    assert reader.read(newest) is not None, "the next checkpoint's base is read without a detour"
    lab.assert_sound()


def test_an_old_version_is_a_few_steps_away(lab, writer, monkeypatch):
    """Chains of deltas are short, however long the history is."""
    monkeypatch.setattr(repack, "STEP_OBJECTS", 60)
    writer.checkpoints(60)
    lab.engine.housekeeping.consolidate(never)

    listing = "".join(lab.git("verify-pack", "-v", str(pack)) for pack in lab.packs())

    lengths = [int(length) for length in re.findall(r"chain length = (\d+)", listing)]
    assert 1 < max(lengths) <= 12


def test_what_was_merged_is_compared_again(lab, writer, monkeypatch):
    """Of merged packs, too, all but the newest version of a path become differences."""
    monkeypatch.setattr(repack, "STEP_OBJECTS", 40)
    shas = writer.checkpoints(50)
    before = lab.archives(shas[::10])
    reader = PackReader(lab.layout.shadow_repository / "objects")
    names = "".join(f"{sha}:long/file.txt\n" for sha in shas)
    lab.write("names", names)
    with (lab.tree / "names").open("rb") as stdin:
        listing = subprocess.run(
            ["git", "cat-file", "--batch-check=%(objectname)"],
            cwd=lab.layout.shadow_repository,
            stdin=stdin,
            capture_output=True,
            check=True,
            text=True,
        ).stdout

    blobs = listing.split()

    lab.engine.housekeeping.consolidate(never)

    reader.forget()
    whole = [blob for blob in blobs if reader.size(bytes.fromhex(blob)) is not None]
    assert len(whole) == len(lab.packs()) < 6
    assert lab.archives(shas[::10]) == before
    lab.assert_sound()


def test_packs_of_git_are_merged_in_one_piece(lab, writer):
    """Deltas that name their bases by a distance stay valid."""
    shas = writer.checkpoints(12)
    lab.git("repack", "-q", "-a", "-d")
    for sha in writer.checkpoints(12):
        shas.append(sha)

    lab.git("repack", "-q", "-d")
    files = StoreFiles(lab.layout.shadow_repository)
    before, listed = lab.archives(shas), lab.objects()
    repacking(lab)._merge(files.packs(), never)

    assert len(lab.packs()) == 1
    assert (lab.archives(shas), lab.objects()) == (before, listed)
    lab.assert_sound()


def test_a_tag_is_copied(lab, writer):
    """An object that is neither commit, tree nor blob is merged as it is."""
    shas = writer.checkpoints(3)
    lab.git("tag", "-a", "-m", "mine", "mine", shas[0])
    listed = lab.objects()

    lab.engine.housekeeping.consolidate(never)

    assert lab.objects() == listed
    assert StoreFiles(lab.layout.shadow_repository).size().loose_objects == 0
    lab.assert_sound()


# Beside the engine


def test_the_number_of_packs_stays_small_while_checkpoints_follow_each_other(lab, writer):
    """A step whenever it is worth while is enough."""
    work = lab.engine.housekeeping
    pace = Pace(lambda: False, fresh=FRESH_PACKS)
    most = 0
    for _ in range(10):
        writer.checkpoints(FRESH_PACKS)
        most = max(most, len(lab.packs()))
        assert work.needs_consolidation()
        assert work.consolidate(pace).finished

    assert most <= MOST_PACKS // 2
    assert len(list(lab.engine.commits())) == 10 * FRESH_PACKS
    lab.assert_sound()


def test_the_engine_is_used_at_every_rest(lab, writer):
    """Checkpoints and rollbacks in the midst of a merge, with the old packs open, are right."""
    shas = writer.checkpoints(20)
    lab.rollback(shas[3])
    picture = lab.picture()
    turns = itertools.count()

    def rest() -> None:
        match next(turns):
            case 1 | 41 | 81:
                lab.rollback(shas[3])
                assert lab.picture() == picture
            case 21 | 61 | 101:
                writer.checkpoint()

    lab.engine.housekeeping.consolidate(Pace(lambda: False, rest))

    assert next(turns) > 101
    assert {facts.sha for facts in lab.engine.commits()} >= set(writer.taken)
    for sha in (shas[0], shas[3], shas[-1], writer.taken[-1]):
        assert lab.engine.verify(sha) == []

    lab.assert_sound()


def test_an_interrupted_merge_leaves_nothing_behind(lab, writer):
    """The server's end does not wait for a merge: it is given up, wherever it is."""
    shas = writer.checkpoints(4)
    before, listed = lab.packs(), lab.objects()
    for count in itertools.count(1):
        left = iter(range(count))

        def rest(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise StepInterrupted

        if lab.engine.housekeeping.consolidate(Pace(lambda: False, rest)).finished:
            break

        assert lab.packs() == before
        assert not lab.leftovers()

    assert count > 10
    assert lab.objects() == listed
    assert lab.engine.verify(shas[0]) == []


def test_what_was_verified_stays_verified(lab, writer):
    """A merge does not make the whole history be read again; damage does."""
    shas = writer.checkpoints(20)
    repo = ShadowRepo(lab.layout.shadow_repository, superseded=lab.engine.superseded)
    verified = Verified()
    assert Verification(repo, Notes(repo), verified).unreadable(shas[-1]) == []
    known = set(verified.intact)
    lab.engine.housekeeping.consolidate(never)

    assert Verification(repo, Notes(repo), verified).unreadable(shas[-1]) == []
    assert verified.intact >= known > set()

    (pack,) = lab.packs()
    pack.chmod(0o600)
    os.truncate(pack, 100)
    assert Verification(repo, Notes(repo), verified).unreadable(shas[-1]) != []
    repo.close()


def test_what_happened_to_each_file_of_the_store_is_found(tmp_path):
    """Lost files are named, another version of a file is noticed once, and new ones are no news."""
    folder, versions = tmp_path / "pack", StoreVersions()
    folder.mkdir()
    names = [folder / name for name in ("one.pack", "two.pack", "tmp_three")]
    for name in names:
        name.write_text("1")

    assert versions.refresh(tmp_path) == ([], False)
    for known in (names[0], names[1]):
        known.write_text("22")
        assert versions.refresh(tmp_path) == ([], True)
        assert versions.refresh(tmp_path) == ([], False)

    names[2].rename(folder / "three.pack")
    assert versions.refresh(tmp_path) == ([], False)
    names[0].unlink()
    (folder / "three.pack").unlink()
    gone, is_other = versions.refresh(tmp_path)
    assert (set(gone), is_other) == ({str(names[0]), str(folder / "three.pack")}, False)

    shutil.rmtree(folder)
    assert versions.refresh(tmp_path) == ([str(names[1])], False)
    assert versions.refresh(tmp_path) == ([], False)


def test_the_store_is_listed_while_a_merged_pack_is_removed(lab, writer, monkeypatch):
    """Removal of the files runs beside the engine: one that vanishes in the midst is gone."""
    writer.checkpoints(3)
    objects_folder = lab.layout.shadow_repository / "objects"
    before = store_listing(objects_folder)
    removed = lab.packs()[1]
    listed = os.scandir

    def removing(path):
        entries = list(listed(path))
        if os.path.basename(path) == "pack":
            removed.unlink()

        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", removing)

    after = store_listing(objects_folder)
    assert before.keys() - after.keys() == {f"pack/{removed.name}"}


# Crashes


NAMES = ("mkdir", "rename", "unlink", "fsync", "utime", "chmod", "rmdir", "pwrite", "write", "open")


def test_a_crash_before_any_call_of_a_merge_loses_nothing(lab, writer):
    """All objects are there after it, and the next repack leaves one copy of each."""
    shas = writer.checkpoints(3)
    lab.engine.close()
    repository = lab.layout.shadow_repository
    original = lab.layout.root / "original"
    shutil.copytree(repository, original)
    before, listed = lab.archives(shas), lab.objects()
    for count in itertools.count():
        shutil.rmtree(repository)
        shutil.copytree(original, repository)
        work = repacking(lab)
        with crash_after(count, *((os, name) for name in NAMES)) as crash:
            assert work.run(never).finished

        CheckpointEngine.open(lab.layout).close()
        assert not list(repository.rglob("tmp_*"))
        if not crash.happened:
            break

        assert lab.objects() == listed, count
        assert repacking(lab).run(never).finished
        assert most_copies(lab) == 1, count

    assert count > 20
    lab.engine = CheckpointEngine.open(lab.layout)
    assert lab.archives(shas) == before
    lab.assert_sound()


def test_packs_that_the_log_brings_back_are_removed_again(lab, writer):
    """A replay after a crash restores checkpoints' packs that were merged: they are copies."""
    shas = writer.checkpoints(6)
    before = lab.archives(shas)
    old = lab.packs()
    lab.engine.housekeeping.consolidate(never)
    assert len(lab.packs()) == 1

    crashed, lab.engine = lab.engine, CheckpointEngine.open(lab.layout)

    assert set(old) < set(lab.packs()), "the log still had them"
    lab.engine.housekeeping.consolidate(never)
    assert len(lab.packs()) == 1
    assert most_copies(lab) == 1
    assert lab.archives(shas) == before
    lab.assert_sound()
    del crashed
