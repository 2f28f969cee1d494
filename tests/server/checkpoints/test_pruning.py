"""Checkpoints that a policy selects are pruned completely, and nothing else is removed."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.errors import CheckpointNotFound
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pins import Pins
from hankweave_server.checkpoints.pruning import Housekeeping, PruningOutdated
from hankweave_server.domain.retention import RetentionPolicy
from hankweave_server.git.repack import Pace
from hankweave_server.git.repo import ShadowRepo
from support.crashes import crash_after
from support.git_facts import GitWitness

FIRST = RunId("1736000000000-aaaaaa-aaaaaa")
SECOND = RunId("1736000000001-bbbbbb-bbbbbb")
EVERYTHING_OLD = RetentionPolicy(max_age=timedelta(0))
NOTHING = RetentionPolicy()
NONE: frozenset[Sha] = frozenset()


def never() -> bool:
    return False


@pytest.fixture
def pins(lab) -> Pins:
    return Pins(ShadowRepo(lab.layout.shadow_repository))


def later(lab):
    return lab.request().timestamp + timedelta(days=1)


class Past:
    """A run of four checkpoints that was rolled back to its first, and a second run after it."""

    def __init__(self, lab) -> None:
        lab.write("stays", "s")
        lab.write("secret", "s", 0o600)
        self.base = self._checkpoint(lab, "completed", FIRST)
        self.tail = []
        for number in range(3):
            lab.write("grows", os.urandom(50_000))
            lab.write(f"only/{number}", os.urandom(1000), 0o640)
            self.tail.append(self._checkpoint(lab, "tool", FIRST))

        lab.engine.plan_restore(self.base, ("**",))
        self.safety = self._checkpoint(lab, "safety", FIRST)
        lab.engine.restore(self.base, self.safety, detaches=True)
        lab.write("new", "n", 0o600)
        self.now = self._checkpoint(lab, "tool", SECOND)

    @property
    def abandoned(self) -> list[Sha]:
        return [*self.tail, self.safety]

    def _checkpoint(self, lab, kind: str, run: RunId) -> Sha:
        return lab.checkpoint(kind=kind, run=run).sha


@pytest.fixture
def past(lab) -> Past:
    return Past(lab)


def prune(lab, housekeeping, policy=EVERYTHING_OLD, keep=NONE):
    return housekeeping.prune(housekeeping.prunable(policy, later(lab), keep), never)


def content(lab, *shas: Sha) -> dict[Sha, str]:
    notes = {sha: lab.git("notes", "--ref=hankweave", "show", sha) for sha in shas}
    return {sha: lab.git("archive", "--format=tar", sha) + notes[sha] for sha in shas}


def stored(lab) -> set[str]:
    listed = lab.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(listed.split())


def needed(lab) -> set[str]:
    return {line[:40] for line in lab.git("rev-list", "--objects", "--all", "HEAD").splitlines()}


# What is pruned and what stays


def test_a_dry_run_touches_nothing(lab, past, housekeeping):
    """A dry run changes no ref and no object."""
    refs, objects = lab.git("for-each-ref"), stored(lab)
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)

    assert [facts.sha for facts in pruning.checkpoints] == past.abandoned[::-1]
    assert pruning.kept == 2
    assert pruning.bytes_freed > 3 * 50_000
    assert (lab.git("for-each-ref"), stored(lab)) == (refs, objects)


def test_an_abandoned_tail_goes_and_the_rest_is_as_it_was(lab, past, housekeeping):
    """Pruned checkpoints leave no blob and no note; the others keep their shas."""
    before = content(lab, past.base, past.now)
    size = housekeeping.size().bytes_on_disk

    pruned = prune(lab, housekeeping)

    assert pruned.finished
    assert set(pruned.checkpoints) == set(past.abandoned)
    assert pruned.bytes_before == size
    assert pruned.bytes_after == housekeeping.size().bytes_on_disk < size - 3 * 50_000
    assert content(lab, past.base, past.now) == before
    assert stored(lab).isdisjoint(past.abandoned)
    assert lab.git("rev-parse", f"run-{FIRST}").strip() == past.base
    noted = {line.split()[1] for line in lab.git("notes", "--ref=hankweave").splitlines()}
    assert noted == {past.base, past.now}
    folders = lab.git("ls-tree", "--name-only", "refs/notes/hankweave").split()
    assert set(folders) == {past.base[:2], past.now[:2]}
    lab.assert_sound()


def test_what_went_is_not_found_any_more(lab, past):
    """The pruning process itself does not return pruned commits from its caches."""
    repo = ShadowRepo(lab.layout.shadow_repository)
    assert repo.commit(past.tail[0]) is not None

    prune(lab, Housekeeping(repo, Notes(repo), lab.layout))

    assert repo.commit(past.tail[0]) is None
    assert repo.commit(past.base) is not None


def test_the_estimate_is_near_the_truth(lab, past, housekeeping):
    """The estimate of a dry run is within a fifth, plus some blocks, of the freed space."""
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
    pruned = housekeeping.prune(pruning, never)
    freed = pruned.bytes_before - pruned.bytes_after
    assert abs(freed - pruning.bytes_freed) < freed / 5 + 10 * 4096


def test_nothing_goes_by_default(lab, past, housekeeping):
    """Without a policy only garbage is removed: here, notes that newer notes have replaced."""
    refs = lab.git("for-each-ref")
    assert prune(lab, housekeeping, NOTHING).checkpoints == ()
    assert lab.git("for-each-ref") == refs
    assert needed(lab) <= stored(lab)


def test_garbage_of_crashes_goes(lab, past, housekeeping):
    """Objects that no ref needs are removed even if no checkpoint is pruned."""
    lab.git("hash-object", "-w", "--stdin-paths", check=False)
    lab.write("loose", "never recorded")
    garbage = lab.git("hash-object", "-w", str(lab.tree / "loose")).strip()
    assert garbage in stored(lab)

    prune(lab, housekeeping, NOTHING)

    assert garbage not in stored(lab)
    assert set(past.abandoned) < stored(lab)


@pytest.mark.parametrize("name", [None, "before the migration"])
def test_a_pinned_checkpoint_stays_with_its_ancestors(lab, past, pins, housekeeping, name):
    """A pin keeps a checkpoint and all its ancestors, on a branch or not."""
    pins.pin(past.tail[1], name)
    before = content(lab, *past.tail[:2])

    pruned = prune(lab, housekeeping)

    assert set(pruned.checkpoints) == {past.tail[2], past.safety}
    assert content(lab, *past.tail[:2]) == before
    lab.assert_sound()


def test_what_the_caller_needs_stays(lab, past, housekeeping):
    """The journal's undo target is kept, even if no rule of the policy keeps it."""
    pruned = prune(lab, housekeeping, keep=frozenset({past.tail[0]}))
    assert past.tail[0] not in pruned.checkpoints
    assert set(pruned.checkpoints) == {*past.tail[1:], past.safety}


def test_what_the_caller_needs_stays_on_no_ref_at_all(lab, past, housekeeping):
    """A commit that only the journal names keeps all its objects."""
    lab.git("update-ref", "-d", f"refs/heads/run-{FIRST}")
    before = lab.git("archive", "--format=tar", past.tail[1])
    prune(lab, housekeeping, keep=frozenset({past.tail[1], Sha("1" * 40)}))
    assert lab.git("archive", "--format=tar", past.tail[1]) == before
    assert past.safety not in stored(lab)


def test_where_head_has_gone_since_stays(lab, past, housekeeping):
    """A commit on no ref at which HEAD was detached after the dry run is kept."""
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
    made = lab.git("commit-tree", f"{past.now}^{{tree}}", "-p", past.now, "-m", "mine").strip()
    lab.git("update-ref", "--no-deref", "HEAD", made)
    housekeeping.prune(pruning, never)
    assert made in stored(lab)
    lab.assert_sound()


def test_the_current_thread_stays(lab, past, housekeeping):
    """Everything reachable from HEAD is kept, whatever its kind and age."""
    lab.detach(past.tail[1])
    pruned = prune(lab, housekeeping)
    assert set(pruned.checkpoints) == {past.tail[2], past.safety, past.now}
    assert lab.git("for-each-ref", f"refs/heads/run-{SECOND}") == ""
    lab.assert_sound()


def test_a_tag_of_the_users_keeps_what_it_names(lab, past, housekeeping):
    """A tag made with stock git keeps its commit and the ancestors."""
    lab.git("tag", "mine", past.tail[1])
    assert set(prune(lab, housekeeping).checkpoints) == {past.tail[2], past.safety}


def test_a_tag_may_name_anything(lab, past, housekeeping):
    """An annotated tag keeps a file that is in no checkpoint."""
    lab.write("loose", "never recorded")
    blob = lab.git("hash-object", "-w", str(lab.tree / "loose")).strip()
    lab.git("tag", "-a", "-m", "mine", "mine", blob)
    prune(lab, housekeeping)
    assert blob in stored(lab)
    lab.assert_sound()


def test_a_commit_of_the_users_keeps_what_it_stands_on(lab, past, housekeeping):
    """A branch made with stock git keeps the checkpoints below its commits."""
    lab.git("config", "--file", str(lab.layout.git_config), "--list")
    made = lab.git("commit-tree", f"{past.tail[0]}^{{tree}}", "-p", past.tail[0], "-m", "mine")
    lab.git("update-ref", "refs/tags/elsewhere", made.strip())
    assert past.tail[0] not in prune(lab, housekeeping).checkpoints


def test_pruning_after_consolidation(lab, past, housekeeping):
    """Kept objects stored as deltas against pruned ones are stored anew."""
    for number in range(40):
        lab.write("stays", f"{number}\n" * 300)
        lab.checkpoint(kind="completed", run=SECOND)

    housekeeping.consolidate(Pace(never))
    before = content(lab, past.base, past.now, lab.engine.head())

    prune(lab, housekeeping)

    assert content(lab, past.base, past.now, lab.engine.head()) == before
    assert stored(lab).isdisjoint(past.abandoned)
    assert stored(lab) == needed(lab)
    lab.assert_sound()


def test_the_engine_continues_after_pruning(lab, past, housekeeping):
    """A pruned object that reappears is stored again, and a rollback to a kept checkpoint works."""
    lab.rollback(past.tail[2])
    picture = lab.picture()
    lab.rollback(past.now)
    prune(lab, housekeeping)
    lab.reopen(forget=True)
    for path, (kind, _, data) in picture.items():
        if kind == "file":
            lab.write(path, data)

    again = lab.checkpoint().sha
    assert lab.engine.verify(again) == []
    lab.rollback(past.base)
    assert lab.read("stays") == b"s"
    lab.assert_sound()


def test_an_index_of_a_pruned_checkpoint_is_rewritten(lab, past, housekeeping):
    """The index is rewritten if it names a pruned blob."""
    lab.write_index(past.tail[2])
    prune(lab, housekeeping)
    lab.assert_sound()
    assert lab.git("diff", "--cached", "--name-only") == ""


def test_a_commit_graph_of_stock_git_does_not_outlive_its_commits(lab, past, housekeeping):
    """A commit graph that git maintenance wrote is removed with the commits that it lists."""
    lab.git("commit-graph", "write", "--reachable")
    prune(lab, housekeeping)
    lab.assert_sound()


def test_packed_refs_move_and_go_too(lab, past, housekeeping):
    """Refs that stock git packed into one file are pruned like loose refs."""
    lab.detach(past.tail[0])
    lab.git("pack-refs", "--all")
    prune(lab, housekeeping)
    assert lab.git("for-each-ref", f"refs/heads/run-{SECOND}") == ""
    assert lab.git("rev-parse", f"run-{FIRST}").strip() == past.tail[0]
    lab.assert_sound()


# Changes between the dry run and the pruning


def test_a_decision_is_not_carried_out_when_the_branch_moved(lab, past, housekeeping):
    """A checkpoint made since the dry run makes the pruning refuse, and nothing changes."""
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
    lab.checkpoint(run=FIRST)
    refs = lab.git("for-each-ref")
    with pytest.raises(PruningOutdated):
        housekeeping.prune(pruning, never)

    assert lab.git("for-each-ref") == refs


@pytest.mark.parametrize("how", ["pin", "detach", "branch", "move"])
def test_a_decision_is_not_carried_out_when_its_checkpoints_are_needed(
    lab, past, pins, housekeeping, how
):
    """If a checkpoint was pinned or restored since the dry run, the pruning is refused."""
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
    if how == "pin":
        pins.pin(past.tail[0], None)
    elif how == "detach":
        lab.detach(past.tail[0])
    elif how == "move":
        lab.git("update-ref", f"refs/heads/run-{FIRST}", past.tail[1])
    else:
        lab.git("update-ref", "refs/heads/run-1736000000002-cccccc-cccccc", past.tail[0])

    with pytest.raises(PruningOutdated):
        housekeeping.prune(pruning, never)


def test_damage_keeps_every_object(lab, past, housekeeping):
    """While a needed object cannot be read, checkpoints leave the refs but no object is removed;
    the report names the damage."""
    tree = lab.git("rev-parse", f"{past.now}^{{tree}}").strip()
    for index in pack_folder(lab).glob("*.idx"):
        if tree in listed(lab, index):
            lose(lab, index, tree)

    before = stored(lab)
    pruned = prune(lab, lab.housekeeping())
    assert (pruned.unreadable, pruned.finished) == (tree, True)
    assert pruned.checkpoints
    assert before <= stored(lab)


def test_nothing_is_pruned_whose_parent_is_lost(lab, past):
    """If the history has a gap, everything after the gap is kept, with its branch."""
    for index in pack_folder(lab).glob("*.idx"):
        if past.tail[1] in listed(lab, index):
            lose(lab, index, past.tail[1])

    pruning = lab.housekeeping().prunable(EVERYTHING_OLD, later(lab), NONE)
    going = {facts.sha for facts in pruning.checkpoints}
    assert past.tail[1] not in going
    assert not {move.new for move in pruning.moves} & {past.tail[1]}
    assert all(past.tail[1] not in facts.parents for facts in pruning.checkpoints)


def pack_folder(lab) -> Path:
    return lab.layout.shadow_repository / "objects" / "pack"


def listed(lab, index: Path) -> str:
    return lab.git("verify-pack", "-v", str(index), check=False)


def lose(lab, index: Path, sha: str) -> None:
    """Remove one object from a pack by writing all the others to separate files."""
    aside = [lab.layout.root / index.with_suffix(suffix).name for suffix in (".pack", ".idx")]
    index.with_suffix(".pack").rename(aside[0])
    index.rename(aside[1])
    with aside[0].open("rb") as stream:
        GitWitness(lab.layout.root).run("unpack-objects", "-q", stdin=stream)

    (lab.layout.shadow_repository / "objects" / sha[:2] / sha[2:]).unlink()


# Stops and crashes


def test_it_stops_between_two_steps(lab, past, housekeeping):
    """Stopped at any step, pruning leaves a valid store, and the next pruning removes the rest."""
    before = content(lab, past.base, past.now)
    for steps in range(12):
        asked = iter(range(steps))
        pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
        housekeeping.prune(pruning, lambda asked=asked: next(asked, None) is None)
        assert content(lab, past.base, past.now) == before
        lab.assert_sound()

    assert prune(lab, housekeeping, NOTHING).finished
    assert stored(lab).isdisjoint(past.abandoned)


CHANGES = (
    (Path, "rename"),
    (Path, "unlink"),
    (ShadowRepo, "point"),
    (ShadowRepo, "drop"),
    (ShadowRepo, "write_index"),
    (shutil, "rmtree"),
    (os, "fsync"),
)


@pytest.mark.parametrize("moment", range(0, 24))
def test_a_crash_leaves_what_stays_whole(lab, past, moment):
    """After a power cut, kept checkpoints are intact, and the next pruning completes."""
    before = content(lab, past.base, past.now)
    housekeeping = lab.housekeeping()
    pruning = housekeeping.prunable(EVERYTHING_OLD, later(lab), NONE)
    with crash_after(moment, *CHANGES):
        housekeeping.prune(pruning, never)

    lab.reopen()
    assert content(lab, past.base, past.now) == before
    lab.assert_sound()

    assert prune(lab, lab.housekeeping()).finished
    assert stored(lab).isdisjoint(past.abandoned)
    assert content(lab, past.base, past.now) == before
    assert not lab.leftovers()
    lab.assert_sound()


# Pins


def test_pins_are_refs(lab, past, pins):
    """Another process, and git, read a pin back with its name."""
    pins.pin(past.base, None)
    pins.pin(past.tail[0], "before the\nmigration – 7")

    again = Pins(ShadowRepo(lab.layout.shadow_repository))
    assert again.all() == {past.base: None, past.tail[0]: "before the migration – 7"}
    refs = lab.git("for-each-ref", "refs/pins", "--format=%(refname) %(objecttype) %(subject)")
    assert f"refs/pins/{past.tail[0]} tag before the migration – 7" in refs
    assert f"refs/pins/{past.base} commit" in refs
    assert [p for p in lab.layout.checkpoints.rglob("*") if p.lstat().st_mode & 0o077] == []
    lab.assert_sound()


def test_a_pin_may_be_renamed_and_removed(lab, past, pins):
    """The last name wins; removing a pin twice has no further effect."""
    pins.pin(past.base, "one")
    pins.pin(past.base, "two")
    assert pins.all() == {past.base: "two"}

    pins.pin(past.base, None)
    assert pins.all() == {past.base: None}

    pins.unpin(past.base)
    pins.unpin(past.base)
    assert pins.all() == {}
    lab.assert_sound()


def test_a_removed_pin_is_gone_for_good(lab, past, pins, monkeypatch):
    """The ref's folder is flushed, so that the pin does not return after a power cut."""
    pins.pin(past.base, None)
    flushed = []
    flush = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    pins.unpin(past.base)

    (folder,) = flushed
    assert (
        folder in (lab.layout.shadow_repository / "refs" / "pins").parents or folder.name == "pins"
    )


def test_only_a_checkpoint_can_be_pinned(lab, past, pins):
    """A sha that is not a commit is refused and leaves no ref."""
    tree = Sha(lab.git("rev-parse", f"{past.base}^{{tree}}").strip())
    for sha in (Sha("0" * 40), tree):
        with pytest.raises(CheckpointNotFound):
            pins.pin(sha, "x")

    assert pins.all() == {}


@pytest.mark.parametrize("name", [None, "named"])
def test_a_pinned_checkpoint_on_no_branch_is_still_listed(lab, past, pins, housekeeping, name):
    """The checkpoint of a pin is found, read and restored like any other."""
    pins.pin(past.tail[1], name)
    lab.git("update-ref", "-d", f"refs/heads/run-{FIRST}")

    found = [facts.sha for facts in lab.engine.commits()]

    assert past.tail[1] in found
    assert past.safety not in found
    assert housekeeping.fsck().checked == len(found)


@pytest.mark.parametrize("name", [None, "named"])
def test_a_pin_alone_is_enough(lab, past, pins, housekeeping, name):
    """A pinned checkpoint on no branch keeps all its objects during garbage collection."""
    pins.pin(past.tail[1], name)
    lab.git("update-ref", "-d", f"refs/heads/run-{FIRST}")
    before = content(lab, past.tail[1])

    prune(lab, housekeeping)

    assert content(lab, past.tail[1]) == before
    lab.assert_sound()


# Verification


def test_fsck_reads_everything(lab, past, housekeeping):
    """A valid store is reported as sound, with every checkpoint counted."""
    report = housekeeping.fsck([past.base, past.now])
    assert report.is_sound
    assert (report.checked, report.damages, report.missing) == (6, {}, ())


def test_fsck_names_what_is_recorded_and_missing(lab, past, housekeeping):
    """A recorded sha that is missing is named; a checkpoint on no ref is still read."""
    lab.git("update-ref", "-d", f"refs/heads/run-{FIRST}")
    nowhere = Sha("1" * 40)
    report = housekeeping.fsck([past.tail[0], nowhere])
    assert report.missing == (nowhere,)
    assert not report.is_sound
    assert report.checked == 4


def test_fsck_continues_after_a_lost_commit(lab, past, housekeeping):
    """A lost commit is named, and the other branch is read to its end."""
    for index in pack_folder(lab).glob("*.idx"):
        if past.tail[2] in listed(lab, index):
            lose(lab, index, past.tail[2])

    (damage,) = lab.housekeeping().fsck().damages[past.tail[2]]
    assert (damage.sha, damage.kind) == (past.tail[2], "commit")

    report = lab.housekeeping().fsck([past.tail[2]])
    assert report.missing == (past.tail[2],)
    assert not report.is_sound
    assert report.damages == {}
    assert past.now in lab.git("rev-list", "--all", check=False)
