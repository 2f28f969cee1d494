"""Claims about a watched scan: its comparisons, what a proof takes off, when it sees everything."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hankweave_server.worktree import inotify
from hankweave_server.worktree import watch as watch_module
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex, signature_of
from support.small_disk import small_disk
from support.waiting import LIMIT, eventually_blocking

EVERYTHING = UnifiedFileResolver(["**"])
LONG_AFTER_NS = 2**62
"""A time at which no file is racy."""


@pytest.fixture
def tree(tmp_path):
    """Return a small work tree and a watched scan of it, with every file read and proven."""
    root = tmp_path / "tree"
    (root / "d" / "deep").mkdir(parents=True)
    (root / "e").mkdir()
    for path in ("a", "b", "d/a", "d/deep/a", "e/a"):
        (root / path).write_text("1")

    (root / "link").symlink_to("a")
    descent = Descent(root)
    scan = WorkTreeScan(descent, StatIndex(), watches=True, now_ns=lambda: LONG_AFTER_NS)
    found = SimpleNamespace(root=root, outside=tmp_path, scan=scan, table=scan.table)
    settle(found)
    yield found
    scan.close()
    descent.close()


def settle(tree):
    """Read whatever a scan reports until nothing is left to compare."""
    read(tree, refresh(tree))
    tree.scan.prove(1000)
    refresh(tree)


def refresh(tree):
    return tree.scan.refresh(EVERYTHING)


def read(tree, pending):
    for file in pending:
        status = os.lstat(os.path.join(os.fsencode(tree.root), file.path))
        tree.scan.remember(file, signature_of(status), b"x" * 20, 0o100644, 0o644)


def paths(pending):
    return sorted(file.path for file in pending)


def unproven(tree):
    files = tree.table.unproven.files
    return sorted(
        os.path.join(folder.path, name) for folder, names in files.items() for name in names
    )


def test_an_unchanged_tree_costs_nothing(tree):
    """After a proof, a scan compares no file at all."""
    assert refresh(tree) == []
    assert tree.scan.state.compared == 0
    assert tree.scan.state.reason is None


def write(tree):
    (tree.root / "a").write_text("2")


def append(tree):
    with open(tree.root / "a", "a") as file:
        file.write("2")


def truncate(tree):
    os.truncate(tree.root / "a", 0)


def change_mode(tree):
    (tree.root / "a").chmod(0o600)


def set_times_back(tree):
    before = (tree.root / "a").stat()
    (tree.root / "a").write_text("2")
    os.utime(tree.root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(tree):
    (tree.outside / "spare").write_text("2")
    os.replace(tree.outside / "spare", tree.root / "a")


def change_owner_to_the_same(tree):
    os.chown(tree.root / "a", os.getuid(), os.getgid())


@pytest.mark.parametrize(
    "change",
    [write, append, truncate, change_mode, set_times_back, replace, change_owner_to_the_same],
    ids=lambda change: change.__name__,
)
def test_each_kind_of_change_is_reported(tree, change):
    """The changed file alone is compared and reported, and again until it was read."""
    change(tree)

    assert paths(refresh(tree)) == [b"a"]
    assert tree.scan.state.compared == 1
    assert paths(refresh(tree)) == [b"a"]
    settle(tree)
    assert (refresh(tree), tree.scan.state.compared) == ([], 0)


def test_new_and_vanished_names_are_found(tree):
    """A new file is reported, a removed one dropped, and a renamed one is both."""
    (tree.root / "new").write_text("1")
    (tree.root / "b").unlink()
    (tree.root / "d" / "a").rename(tree.root / "e" / "b")

    assert paths(refresh(tree)) == [b"e/b", b"new"]
    assert {b"b", b"d/a"} <= tree.table.gone


def test_a_moved_folder_is_followed_to_its_new_place(tree):
    """Changes in it are reported there, also those made before the scan that found the move."""
    (tree.root / "d").rename(tree.root / "f")
    (tree.root / "f" / "deep" / "a").write_text("2")
    assert paths(refresh(tree)) == [b"f/a", b"f/deep/a"]
    settle(tree)

    (tree.root / "f" / "deep" / "a").write_text("3")
    assert paths(refresh(tree)) == [b"f/deep/a"]
    assert tree.scan.state.compared == 1


def test_swapped_folders_are_distinguished(tree):
    """After an exchange each path means the other folder, with its own watch."""
    (tree.root / "d").rename(tree.root / "x")
    (tree.root / "e").rename(tree.root / "d")
    (tree.root / "x").rename(tree.root / "e")
    assert paths(refresh(tree)) == [b"d/a", b"e/a", b"e/deep/a"]
    settle(tree)

    (tree.root / "d" / "a").write_text("2")
    assert paths(refresh(tree)) == [b"d/a"]


def test_a_folder_that_left_the_tree_is_no_longer_watched(tree):
    """Its watch is removed, and what happens to it means nothing."""
    (tree.root / "d").rename(tree.outside / "d")
    refresh(tree)
    watched = len(tree.scan._watch)
    (tree.outside / "d" / "a").write_text("2")

    assert (refresh(tree), tree.scan.state.compared) == ([], 0)
    assert watched == len(tree.table.folders) == 2


def test_a_folder_moved_in_is_watched_with_all_below(tree):
    """The files are new, and later changes to them are reported."""
    (tree.outside / "new" / "deep").mkdir(parents=True)
    (tree.outside / "new" / "deep" / "a").write_text("1")
    (tree.outside / "new").rename(tree.root / "new")
    assert paths(refresh(tree)) == [b"new/deep/a"]
    settle(tree)

    (tree.root / "new" / "deep" / "a").write_text("2")
    assert paths(refresh(tree)) == [b"new/deep/a"]


def test_a_writer_through_a_mapping_is_compared_until_it_has_gone(tree):
    """A mapped file stays unproven although no event tells of the writes."""
    with open(tree.root / "a", "r+b") as file:
        view = mmap.mmap(file.fileno(), 0)

    settle(tree)
    assert unproven(tree) == [b"a"]
    view[0] = 50
    assert paths(refresh(tree)) == [b"a"]
    view.close()
    settle(tree)
    assert unproven(tree) == []


def test_a_file_opened_before_the_move_into_the_tree_is_not_proven(tree):
    """No event tells that it is open; the lease does."""
    with open(tree.outside / "new", "w") as file:
        os.rename(tree.outside / "new", tree.root / "new")
        settle(tree)
        assert unproven(tree) == [b"new"]
        file.write("2")
        file.flush()
        assert paths(refresh(tree)) == [b"new"]


def test_a_second_link_in_the_tree_keeps_both_names_unproven(tree):
    """A write through either name is reported for both."""
    os.link(tree.root / "a", tree.root / "e" / "second")
    settle(tree)
    assert unproven(tree) == [b"a", b"e/second"]

    (tree.root / "e" / "second").write_text("2")
    assert paths(refresh(tree)) == [b"a", b"e/second"]


def test_a_link_from_outside_makes_a_file_unproven(tree):
    """A write through it sends no event; the link itself does."""
    os.link(tree.root / "a", tree.outside / "second")
    (tree.outside / "second").write_text("2")
    assert paths(refresh(tree)) == [b"a"]
    settle(tree)
    assert unproven(tree) == [b"a"]

    (tree.outside / "second").unlink()
    settle(tree)
    assert unproven(tree) == []


def test_a_link_that_came_and_went_is_noticed(tree):
    """A write through the link is reported, although the file has one link again."""
    os.link(tree.root / "a", tree.outside / "second")
    (tree.outside / "second").write_text("2")
    (tree.outside / "second").unlink()
    assert paths(refresh(tree)) == [b"a"]


def test_files_beyond_the_share_of_watches_are_always_compared(tree, monkeypatch):
    """They stay unproven, and the watch of the folders goes on."""
    monkeypatch.setattr(watch_module, "_user_watches", lambda: 2)
    tree.scan.close()
    tree.scan.state.stop("start")
    refresh(tree)
    settle(tree)
    assert len(unproven(tree)) == len(tree.scan.table.files) - 2, "one file, and the symbolic link"
    assert tree.scan.state.reason is None


def test_a_verification_of_a_tree_in_motion_reports_nothing(tree):
    """A change with an event is not missed, even if no scan has read the event yet."""
    write(tree)
    (tree.root / "d").rename(tree.root / "f")

    assert tree.scan.verify() == []
    assert paths(refresh(tree)) == [b"a", b"f/a", b"f/deep/a"]


def test_a_distrusted_watch_is_not_used_again(tree):
    """Every further scan is full, and says why."""
    tree.scan.require_full_scans()
    write(tree)

    assert paths(refresh(tree)) == [b"a"]
    assert refresh(tree) != []
    assert tree.scan.state.reason == "distrusted"
    assert tree.scan.state.full_scans == 3


def test_a_proof_gives_up_when_a_name_changed_meanwhile(tree, monkeypatch):
    """The open file is not the one that its name means by now."""
    write(tree)
    read(tree, refresh(tree))
    real = watch_module.TreeWatch._open

    def renamed(self, *args):
        descriptor = real(self, *args)
        replace(tree)
        return descriptor

    monkeypatch.setattr(watch_module.TreeWatch, "_open", renamed)
    assert tree.scan.prove(1000) == 0
    assert paths(refresh(tree)) == [b"a"]


def test_a_writer_that_breaks_the_lease_neither_fails_nor_kills_us(tree):
    """A lease is broken with a signal that does nothing, and its file is proven no more."""
    reader = os.open(tree.root / "a", os.O_RDONLY)
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    with subprocess.Popen(["sh", "-c", f"echo 2 > '{tree.root}/a'"]) as writer:
        eventually_blocking(lambda: fcntl.fcntl(reader, fcntl.F_GETLEASE) == fcntl.F_UNLCK)
        assert writer.poll() is None
        fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        assert writer.wait(LIMIT) == 0

    os.close(reader)
    assert paths(refresh(tree)) == [b"a"]


def test_a_changed_gitignore_is_found_although_it_is_not_tracked(tree):
    """Its folder is listed with the new rules."""
    only_text = UnifiedFileResolver(["**/*.txt"])
    (tree.root / ".gitignore").write_text("*.txt")
    (tree.root / "new.txt").write_text("1")
    assert paths(tree.scan.refresh(only_text)) == []
    (tree.root / ".gitignore").write_text("")
    assert paths(tree.scan.refresh(only_text)) == [b"new.txt"]


# --- reasons for a full scan ---------------------------------------------------------------------


def test_an_overflow_leads_to_one_full_scan(tree, monkeypatch):
    """Nothing is missed, and the scan after it is watched again."""
    monkeypatch.setattr(inotify, "_BACKLOG", 4096)
    for number in range(300):
        (tree.root / f"new{number}").write_text("1")

    assert len(refresh(tree)) == 300
    assert tree.scan.state.full_scans == 2
    monkeypatch.undo()
    settle(tree)
    assert (tree.scan.state.full_scans, tree.scan.state.reason) == (2, None)


def test_an_overflow_of_the_kernels_queue_is_noticed(tree):
    """The queue is full while its reader is held up."""
    inotify = tree.scan._watch._inotify
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    one, other = tree.root / "a", tree.root / "b"
    with inotify._lock:
        for _ in range(limit // 2 + 100):
            os.close(os.open(one, os.O_RDONLY))
            os.close(os.open(other, os.O_RDONLY))

        write(tree)

    assert paths(refresh(tree)) == [b"a"]
    assert tree.scan.state.full_scans == 2


def test_a_replaced_work_tree_gets_new_watches(tree):
    """The old folder's events would say nothing about the new one."""
    tree.root.rename(tree.outside / "old")
    tree.root.mkdir()
    (tree.root / "b").write_text("1")

    assert paths(refresh(tree)) == [b"b"]
    assert b"a" in tree.table.gone
    assert (tree.scan.state.full_scans, tree.scan.state.reason) == (2, None)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_exhausted_watches_leave_full_scans(tree, monkeypatch, number):
    """The scan that needs one watch too many is full, and so are all later ones."""
    monkeypatch.setattr(
        inotify.Inotify, "add", lambda *_: (_ for _ in ()).throw(inotify.failure_of(number))
    )
    (tree.root / "new").mkdir()
    (tree.root / "new" / "a").write_text("1")

    assert paths(refresh(tree)) == [b"new/a"]
    write(tree)
    assert paths(refresh(tree)) == [b"a", b"new/a"]
    assert (tree.scan.state.reason, tree.scan.state.watched_scans) == ("exhausted", 1)


def test_an_unknown_file_system_is_not_watched(tree, monkeypatch):
    """A new scan of it says so and is full."""
    monkeypatch.setattr(watch_module, "_FILE_SYSTEMS", {})
    descent = Descent(tree.root)
    scan = WorkTreeScan(descent, StatIndex(), watches=True)
    assert len(scan.refresh(EVERYTHING)) == 6
    assert (scan.state.reason, scan.state.full_scans) == ("file-system", 1)
    descent.close()


def test_a_clock_that_was_set_leads_to_one_full_scan(tree, monkeypatch):
    """The racy window is measured with that clock."""
    real = time.time_ns
    monkeypatch.setattr(watch_module.time, "time_ns", lambda: real() + 60_000_000_000)
    write(tree)

    assert paths(refresh(tree)) == [b"a"]
    assert (tree.scan.state.full_scans, tree.scan.state.reason) == (2, None)


def test_a_mount_inside_the_tree_leads_to_full_scans_until_it_has_gone(tree):
    """The mounted file system is scanned like everything else."""
    with small_disk(tree.root / "e", "size=1m"):
        (tree.root / "e" / "new").write_text("1")
        assert paths(refresh(tree)) == [b"e/new"]
        assert tree.scan.state.reason == "mount"

    assert paths(refresh(tree)) == [b"e/a"]
    assert tree.scan.state.reason is None


def test_a_failed_scan_is_followed_by_a_full_one(tree, monkeypatch):
    """Its events were read, so only a full scan can find what they told."""
    write(tree)
    monkeypatch.setattr(WorkTreeScan, "_changed_files", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        refresh(tree)

    monkeypatch.undo()
    assert paths(refresh(tree)) == [b"a"]
    assert tree.scan.state.full_scans == 2
