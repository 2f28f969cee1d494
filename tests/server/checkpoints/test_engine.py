"""The normal operation of the engine: checkpoints, branches, history and rollbacks."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.errors import CheckpointNotFound, PathNotInCheckpoint
from hankweave_server.checkpoints.model import WorkTreeChange
from server.checkpoints.conftest import EVERYTHING

LONG_AFTER_NS = 2**62
"""A time at which no file is racy."""


def test_a_checkpoint_holds_every_tracked_file(lab):
    """A checkpoint's tree is the tracked files, byte for byte."""
    lab.write("a.txt", "one")
    lab.write("src/deep/b.txt", "two")

    made = lab.checkpoint()

    assert lab.names(made.sha) == {b"a.txt", b"src/deep/b.txt"}
    assert lab.git("show", f"{made.sha}:src/deep/b.txt") == "two"
    assert made.files == 2
    assert not made.partial
    lab.assert_sound()


def test_the_tree_is_the_one_git_would_write(lab):
    """The tree equals the one that `git write-tree` makes, in every name and mode."""
    lab.write("a", "x")
    lab.write("a.b/c", "y")
    lab.write("a0/c", "z", 0o755)
    lab.link("l", "a")

    made = lab.checkpoint()

    lab.git("add", "-A")
    assert lab.git("write-tree").strip() == made.tree


def test_what_a_rollback_wrote_is_settled_by_reading_it_once(lab, monkeypatch):
    """After that, the next checkpoint reads none of it; a file changed meanwhile is found."""
    for number in range(20):
        lab.write(f"f{number}", "one")

    first = lab.checkpoint()
    for number in range(20):
        lab.write(f"f{number}", "two")

    lab.rollback(first.sha)
    lab.write("f3", "foe")
    monkeypatch.setattr(lab.engine._memory.scan, "_now_ns", lambda: LONG_AFTER_NS)

    while lab.engine.prove_unchanging(7):
        pass

    pending = lab.engine._memory.refresh(lab.engine.head(), ["**"])
    assert [file.path for file in pending] == [b"f3"]
    assert [change.path for change in lab.checkpoint().changed] == [b"f3"]


def test_what_a_rollback_wrote_is_read_before_other_files_are_compared(lab, monkeypatch):
    """Passing over all of it for each of the others would take longer than reading it."""
    for number in range(20):
        lab.write(f"f{number}", "one")

    first = lab.checkpoint()
    for number in range(20):
        lab.write(f"f{number}", "two")

    lab.rollback(first.sha)
    scan, left = lab.engine._memory.scan, []
    monkeypatch.setattr(scan, "_now_ns", lambda: LONG_AFTER_NS)
    monkeypatch.setattr(scan, "prove", lambda _at_most: left.append(len(scan._racy)) or 0)
    while lab.engine.prove_unchanging(7):
        pass

    assert left == [0]


def test_a_file_that_becomes_executable_is_one_for_git(lab):
    """A change of the mode alone is a change of the tree."""
    lab.write("tools/script", "x")
    lab.checkpoint()
    os.chmod(lab.path("tools/script"), 0o755)

    made = lab.checkpoint()

    assert made.changed == (WorkTreeChange(b"tools/script", "modified", 1),)
    assert lab.git("ls-tree", "-r", made.sha).startswith("100755 blob")


@pytest.mark.parametrize("year", [1902, 1969, 2263, 2300, 2445])
def test_a_file_of_any_date_is_checkpointed_and_restored(lab, year):
    """A date before 1970 or after 2262 is no obstacle, also for the next server."""
    seconds = round(datetime(year, 6, 1, tzinfo=UTC).timestamp())
    lab.write("a", "before")
    os.utime(lab.path("a"), (seconds, seconds))
    first = lab.checkpoint()
    lab.reopen()
    assert lab.checkpoint().changed == ()

    lab.write("a", "afterwards")
    os.utime(lab.path("a"), (seconds, seconds))
    assert lab.checkpoint().changed == (WorkTreeChange(b"a", "modified", 10),)

    lab.rollback(first.sha)
    assert lab.read("a") == b"before"
    lab.assert_sound()


def test_a_checkpoint_is_made_even_if_nothing_changed(lab):
    """Two checkpoints of one state are two commits with one tree (seed 000, `--allow-empty`)."""
    lab.write("a", "x")
    first, second = lab.checkpoint(), lab.checkpoint()

    assert first.sha != second.sha
    assert first.tree == second.tree
    assert second.changed == ()
    assert lab.git("rev-parse", f"{second.sha}^").strip() == first.sha


def test_an_empty_work_tree_can_be_checkpointed(lab):
    """The initial checkpoint of an empty work tree is a valid commit of the empty tree."""
    made = lab.checkpoint(kind="initial", codon=None)

    assert made.files == 0
    assert lab.names(made.sha) == set()
    lab.assert_sound()


def test_changes_are_named_against_the_parent(lab):
    """A checkpoint lists created, modified and deleted files with their sizes."""
    lab.write("same", "s")
    lab.write("old", "o")
    lab.write("gone/file", "g")
    lab.checkpoint()
    lab.write("old", "longer")
    lab.write("new", "n")
    lab.delete("gone")

    made = lab.checkpoint()

    assert made.changed == (
        WorkTreeChange(b"gone/file", "deleted", 0),
        WorkTreeChange(b"new", "created", 1),
        WorkTreeChange(b"old", "modified", 6),
    )


def test_a_rollback_brings_back_every_byte_and_removes_what_came_later(lab):
    """After a rollback the work tree equals that of the checkpoint."""
    lab.write("kept", "k")
    lab.write("edited", "before")
    lab.write("deleted/file", "d")
    then = lab.picture()
    made = lab.checkpoint()
    lab.write("edited", "after")
    lab.delete("deleted")
    lab.write("later/x/y", "new")

    report = lab.rollback(made.sha)

    assert lab.picture() == then
    assert [entry.path for entry in report.added] == [b"deleted/file"]
    assert [entry.path for entry in report.updated] == [b"edited"]
    assert [entry.path for entry in report.removed] == [b"later/x/y"]


def test_a_rollback_can_be_taken_back(lab):
    """Restoring the safety checkpoint brings back exactly what the rollback replaced."""
    lab.write("a", "1")
    first = lab.checkpoint()
    lab.write("a", "2")
    lab.write("b", "new")
    now = lab.picture()
    lab.rollback(first.sha)
    safety = next(facts.sha for facts in lab.engine.commits() if facts.kind == "safety")

    lab.rollback(safety)

    assert lab.picture() == now


def test_checkpoints_of_one_second_are_in_the_order_of_their_events(lab):
    """Also those on refs of their own, whose order git does not know."""
    lab.write("a", "")
    made = [lab.checkpoint().sha]
    moment = lab.request().timestamp
    for number in range(8):
        lab.write("a", str(number))
        plan = lab.engine.plan_restore(made[0], EVERYTHING)
        request = lab.request("safety", codon=None, before=plan)
        made.append(lab.engine.checkpoint(replace(request, timestamp=moment)).sha)

    assert [facts.sha for facts in lab.engine.commits()] == made[::-1]


def test_files_that_do_not_differ_are_not_touched(lab):
    """A rollback keeps inode and mtime of every file that is already right."""
    lab.write("same", "s")
    lab.write("other", "1")
    made = lab.checkpoint()
    before = os.lstat(lab.path("same"))
    lab.write("other", "2")

    lab.rollback(made.sha)

    after = os.lstat(lab.path("same"))
    assert (before.st_ino, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_ino,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )


def test_a_restore_can_be_done_twice(lab):
    """Repeating a restore, as after a crash, changes and reports nothing."""
    lab.write("a", "1")
    lab.write("d/e", "1")
    made = lab.checkpoint()
    lab.write("a", "2")
    lab.delete("d")
    lab.write("n", "2")
    safety = lab.checkpoint(kind="safety", codon=None)
    lab.engine.restore(made.sha, safety.sha)
    picture = lab.picture()
    engine = lab.reopen()

    report = engine.restore(made.sha, safety.sha)

    assert lab.picture() == picture
    assert (report.added, report.updated, report.removed) == ((), (), ())


def test_single_paths_can_be_restored(lab):
    """A restore of chosen paths changes only those files and folders."""
    lab.write("src/a", "1")
    lab.write("src/b", "1")
    lab.write("top", "1")
    made = lab.checkpoint()
    for name in ("src/a", "src/b", "top"):
        lab.write(name, "2")

    lab.rollback(made.sha, paths=frozenset({b"src"}))

    assert [lab.read(name) for name in ("src/a", "src/b", "top")] == [b"1", b"1", b"2"]


def test_kept_paths_stay_as_they_are(lab):
    """Paths that the caller keeps are reported, and neither overwritten nor deleted."""
    lab.write("mine", "1")
    lab.write("theirs", "1")
    made = lab.checkpoint()
    lab.write("mine", "edited by hand")
    lab.write("theirs", "2")
    lab.write("new", "by hand")

    report = lab.rollback(made.sha, keep=frozenset({b"mine", b"new"}))

    assert lab.read("mine") == b"edited by hand"
    assert lab.read("new") == b"by hand"
    assert lab.read("theirs") == b"1"
    assert [entry.path for entry in report.kept] == [b"mine", b"new"]


def test_an_untracked_file_in_the_way_is_saved_first(lab):
    """A file that a rollback must overwrite, tracked or not, is in the safety checkpoint."""
    lab.write("a.md", "tracked then")
    made = lab.checkpoint("*.md")
    lab.delete("a.md")
    lab.checkpoint("*.txt", run=RunId("other"))
    lab.write("a.md", "untracked now")

    lab.rollback(made.sha, patterns=("*.txt",))

    assert lab.read("a.md") == b"tracked then"
    (safety,) = lab.git("for-each-ref", "--format=%(refname)", "refs/hankweave/safety").split()
    assert lab.git("show", f"{safety}:a.md") == "untracked now"


def test_what_was_tracked_stays_so_without_patterns(lab):
    """Without patterns no new file is tracked, and tracked files stay tracked."""
    lab.write("a", "1")
    lab.checkpoint()
    lab.write("a", "2")
    lab.write("b", "2")

    made = lab.engine.checkpoint(lab.request(patterns=()))

    assert lab.names(made.sha) == {b"a"}
    assert lab.git("show", f"{made.sha}:a") == "2"


def test_a_run_has_its_branch_and_rollback_detaches(lab):
    """Each run commits to `run-{runId}`; after a rollback HEAD is detached and no branch moved."""
    lab.write("a", "1")
    first = lab.checkpoint(run=RunId("r1"))
    lab.write("a", "2")
    second = lab.checkpoint(run=RunId("r1"))
    lab.detach(first.sha)

    assert lab.git("rev-parse", "run-r1").strip() == second.sha
    assert lab.engine.tip(RunId("r1")) == second.sha
    assert lab.engine.head() == first.sha
    assert "not a symbolic ref" in lab.git("symbolic-ref", "HEAD", check=False)


def test_a_new_branch_begins_at_the_rollback_point(lab):
    """The first checkpoint after a rollback has the target as its parent, on a new branch."""
    lab.write("a", "1")
    first = lab.checkpoint(run=RunId("r1"))
    lab.write("a", "2")
    second = lab.checkpoint(run=RunId("r1"))
    lab.detach(first.sha)

    third = lab.checkpoint(run=RunId("r2"))

    assert lab.engine.facts(third.sha).parents == (first.sha,)
    assert lab.git("symbolic-ref", "HEAD").strip() == "refs/heads/run-r2"
    assert {facts.sha for facts in lab.engine.commits()} == {first.sha, second.sha, third.sha}


def test_commits_come_newest_first_with_their_facts(lab):
    """Kind, codon, run, session and label of each commit are read back, newest first."""
    lab.checkpoint(kind="initial", codon=None, name="Start")
    made = lab.checkpoint(kind="manual", codon="review#1", name="Review", label="before lunch")

    newest, oldest = list(lab.engine.commits())

    assert newest.sha == made.sha
    assert (newest.kind, newest.codon_id, newest.codon_name) == ("manual", "review#1", "Review")
    assert (newest.session_id, newest.memory_epoch, newest.label) == (
        "session-1",
        2,
        "before lunch",
    )
    assert (newest.event_seq, newest.operation_id, newest.duration_ms) == (2, "op-2", 45000)
    assert oldest.kind == "initial"
    assert oldest.codon_id is None


def test_only_a_commit_is_a_checkpoint(lab):
    """A tree, or a sha of nothing, does not exist as a checkpoint."""
    lab.write("a", "1")
    made = lab.checkpoint()

    assert lab.engine.exists(made.sha)
    assert not lab.engine.exists(Sha("0" * 40))
    assert not lab.engine.exists(made.tree)
    with pytest.raises(CheckpointNotFound):
        lab.engine.facts(made.tree)


def test_one_file_of_an_old_checkpoint_can_be_read(lab):
    """A file is read from a checkpoint with its mode; a missing file is reported as missing."""
    lab.write("s.sh", "echo", 0o700)
    made = lab.checkpoint()
    lab.delete("s.sh")

    content = lab.engine.read_file(made.sha, b"s.sh")

    assert (content.data, content.mode) == (b"echo", 0o100700)
    assert lab.engine.tree(made.sha)[0].size == 4
    with pytest.raises(PathNotInCheckpoint):
        lab.engine.read_file(made.sha, b"none")


def test_checkpoints_and_the_work_tree_can_be_compared(lab):
    """A diff has line counts and patches, between checkpoints and against the disk."""
    lab.write("a", "1\n2\n")
    first = lab.checkpoint()
    lab.write("a", "1\n3\n4\n")
    lab.write("b", "x\n")
    second = lab.checkpoint()
    lab.delete("b")
    lab.write("c", b"\0binary")

    between = lab.engine.diff(first.sha, second.sha, patch=True)
    now = lab.engine.diff(second.sha, None, patterns=("**",))

    assert [(d.path, d.status, d.added, d.removed) for d in between] == [
        (b"a", "modified", 2, 1),
        (b"b", "created", 1, 0),
    ]
    assert b"\n-2\n+3\n+4\n" in between[0].patch
    assert [(d.path, d.status) for d in now] == [(b"b", "deleted"), (b"c", "created")]


def test_a_file_that_a_scan_found_unchanged_is_not_read_again(lab, monkeypatch):
    """Right after a change, stat data proves nothing; a reading a little later settles it."""
    lab.write("a", "1")
    memory = lab.engine._memory
    monkeypatch.setattr(memory.scan, "_now_ns", lambda: 0)
    lab.checkpoint()
    head = lab.engine.head()
    monkeypatch.setattr(memory.scan, "_now_ns", lambda: LONG_AFTER_NS)

    assert [file.path for file in memory.refresh(head, ("**",))] == [b"a"]
    assert lab.engine.scan_changes(("**",)) == ()
    assert memory.refresh(head, ("**",)) == []


def test_file_changes_are_given_once(lab):
    """A scan reports what changed since the last scan or checkpoint, each change once."""
    lab.write("a", "1")
    lab.write("d", "1")
    lab.checkpoint()
    lab.write("a", "22")
    lab.write("b", "3")
    lab.delete("d")

    first = lab.engine.scan_changes(("**",))
    again = lab.engine.scan_changes(("**",))
    lab.write("a", "333")
    lab.delete("b")
    third = lab.engine.scan_changes(("**",))

    assert first == (
        WorkTreeChange(b"a", "modified", 2),
        WorkTreeChange(b"b", "created", 1),
        WorkTreeChange(b"d", "deleted", 0),
    )
    assert again == ()
    assert third == (WorkTreeChange(b"a", "modified", 3), WorkTreeChange(b"b", "deleted", 0))
    assert lab.checkpoint().changed == (
        WorkTreeChange(b"a", "modified", 3),
        WorkTreeChange(b"d", "deleted", 0),
    )
    assert lab.engine.scan_changes(("**",)) == ()


def test_changes_that_a_checkpoint_did_not_report_are_in_the_next_scan(lab):
    """Changes between a scan and the following checkpoint are reported by the next scan."""
    for name in ("a", "d", "e"):
        lab.write(name, "1")

    lab.checkpoint()
    lab.write("a", "22")
    lab.write("e", "22")
    lab.engine.scan_changes(("**",))
    lab.write("b", "3")
    lab.delete("d")
    lab.write("e", "1")  # The content is as before, so the checkpoint does not report it either.
    changed = lab.checkpoint().changed
    lab.write("a", "333")

    assert [change.path for change in changed] == [b"a", b"b", b"d"]
    assert lab.engine.scan_changes(("**",)) == (
        WorkTreeChange(b"a", "modified", 3),
        WorkTreeChange(b"b", "created", 1),
        WorkTreeChange(b"d", "deleted", 0),
        WorkTreeChange(b"e", "modified", 1),
    )
    assert lab.engine.scan_changes(("**",)) == ()


def test_changes_that_two_checkpoints_did_not_report_are_in_the_next_scan(lab):
    """Without a scan in between, the next scan reports each file's total change."""
    lab.write("a", "1")
    lab.checkpoint()
    lab.engine.scan_changes(("**",))
    lab.write("a", "22")
    lab.write("b", "3")
    lab.checkpoint()
    lab.write("c", "4")
    lab.delete("b")
    lab.checkpoint()
    assert lab.engine.scan_changes(("**",)) == (
        WorkTreeChange(b"a", "modified", 2),
        WorkTreeChange(b"c", "created", 1),
    )
    assert lab.engine.scan_changes(("**",)) == ()


def test_a_newly_tracked_file_is_not_a_change(lab):
    """Files that a checkpoint tracks only because of its wider patterns are not changes."""
    lab.write("a", "1")
    lab.write("b.txt", "1")
    lab.checkpoint("a")
    lab.engine.scan_changes(("a",))
    lab.checkpoint()
    assert lab.engine.scan_changes(("**",)) == ()


def test_the_size_on_disk_grows_with_what_is_stored(lab):
    """The reported size is the space that the repository's files occupy."""
    before = lab.engine.housekeeping.size().bytes_on_disk
    lab.write("big", os.urandom(200_000))
    lab.checkpoint()

    assert lab.engine.housekeeping.size().bytes_on_disk > before + 150_000
