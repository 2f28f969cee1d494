"""The files that a scan visits and those that it skips."""

from __future__ import annotations

import errno
import inspect
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from hankweave_server.worktree import scan as scan_module
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import is_out_of_bounds, is_reserved, is_within
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import RACY_WINDOW_NS, WorkTreeScan
from hankweave_server.worktree.stat_index import StatIndex, signature_of
from support.calls import noted

EVERYTHING = UnifiedFileResolver(["**"])
FAR_AHEAD = 10_000_000_000  # Ten seconds: long after every write of the test.
DEEP = 300


@pytest.fixture
def tree(tmp_path):
    """Return a small work tree, a scan of it, and a clock the test may move."""
    root = tmp_path / "tree"
    (root / "d").mkdir(parents=True)
    (root / "a").write_text("1")
    (root / "d" / "b").write_text("1")
    descent = Descent(root)
    clock = SimpleNamespace(ahead=FAR_AHEAD)
    now = os.stat(root).st_ctime_ns
    scan = WorkTreeScan(descent, StatIndex(), now_ns=lambda: now + clock.ahead)
    yield SimpleNamespace(root=root, scan=scan, clock=clock)
    descent.close()


def read_all(tree, pending):
    """Mark every file as read, as capture does."""
    for file in pending:
        status = os.lstat(os.path.join(os.fsencode(tree.root), file.path))
        tree.scan.remember(file, signature_of(status), b"x" * 20, 0o100644, 0o644)


def paths(pending):
    return sorted(file.path for file in pending)


def test_an_unchanged_tree_is_not_listed_again(tree, monkeypatch):
    """The second scan lists no folder and reports no file."""
    read_all(tree, tree.scan.refresh(EVERYTHING))
    listed = noted(monkeypatch, os, "scandir")

    assert tree.scan.refresh(EVERYTHING) == []
    assert listed == []


def test_only_the_folder_that_changed_is_listed(tree, monkeypatch):
    """A new name is found by listing only its folder."""
    read_all(tree, tree.scan.refresh(EVERYTHING))
    (tree.root / "d" / "new").write_text("1")
    listed = noted(monkeypatch, os, "scandir")

    assert paths(tree.scan.refresh(EVERYTHING)) == [b"d/new"]
    assert len(listed) == 1


def test_a_file_written_in_the_tick_it_was_read_is_read_again(tree):
    """Racy stat data proves nothing: the next scan reports the file although nothing differs."""
    tree.clock.ahead = 0
    read_all(tree, tree.scan.refresh(EVERYTHING))

    assert paths(tree.scan.refresh(EVERYTHING)) == [b"a", b"d/b"]
    tree.clock.ahead = FAR_AHEAD
    pending = tree.scan.refresh(EVERYTHING)
    assert paths(pending) == [b"a", b"d/b"]
    read_all(tree, pending)
    assert tree.scan.refresh(EVERYTHING) == []


def test_a_file_that_is_read_again_later_need_not_be_read_by_the_next_scan(tree):
    """Read again after the tick of its last change, and still as it was, it is settled.

    One that differs, or is read in that tick again, is left to the next scan.
    """
    tree.clock.ahead = 0
    read_all(tree, tree.scan.refresh(EVERYTHING))
    assert tree.scan.settle_racy(lambda file: file.signature, 10) == 0

    tree.clock.ahead = FAR_AHEAD
    assert tree.scan.settle_racy(lambda file: file.signature, 1) == 1
    assert paths(tree.scan.settled_files()) == [b"a"]
    assert tree.scan.settle_racy(lambda file: None, 10) == 0
    assert paths(tree.scan.refresh(EVERYTHING)) == [b"d/b"]


def test_a_racy_file_that_was_not_read_stays_racy(tree):
    """A scan whose files were not read does not make the next one trust them."""
    tree.clock.ahead = 0
    read_all(tree, tree.scan.refresh(EVERYTHING))
    tree.clock.ahead = FAR_AHEAD
    tree.scan.refresh(EVERYTHING)

    assert paths(tree.scan.refresh(EVERYTHING)) == [b"a", b"d/b"]


def test_stat_data_of_the_last_ticks_proves_nothing(tree):
    """The kernel's clock ticks every few milliseconds: a time is judged with that tolerance."""
    tree.clock.ahead = RACY_WINDOW_NS // 2
    read_all(tree, tree.scan.refresh(EVERYTHING))

    assert tree.scan.table.top.signature is None
    assert paths(tree.scan.recheck([b"a"])) == [b"a"]
    assert list(tree.scan.settled_files()) == []
    assert paths(tree.scan.refresh(EVERYTHING)) == [b"a", b"d/b"]

    tree.clock.ahead = RACY_WINDOW_NS * 2
    read_all(tree, tree.scan.refresh(EVERYTHING))
    assert tree.scan.recheck([b"a"]) == []
    assert paths(tree.scan.settled_files()) == [b"a", b"d/b"]
    assert tree.scan.refresh(EVERYTHING) == []


def test_a_folder_listed_in_the_tick_it_changed_is_listed_again(tree, monkeypatch):
    """A name made in the same tick as the listing is not missed."""
    tree.clock.ahead = 0
    read_all(tree, tree.scan.refresh(EVERYTHING))

    assert tree.scan.table.top.signature is None
    tree.clock.ahead = RACY_WINDOW_NS * 2
    tree.scan.refresh(EVERYTHING)
    assert tree.scan.table.top.signature is not None


def test_a_folder_that_takes_long_to_list_is_racy_all_the_same(tree, monkeypatch):
    """A listed folder's time is judged by when it was read, not by when the listing ended."""
    tree.clock.ahead = 0
    real = os.scandir

    def slow(folder):
        tree.clock.ahead = FAR_AHEAD
        return real(folder)

    monkeypatch.setattr(scan_module.os, "scandir", slow)
    tree.scan.refresh(EVERYTHING)
    assert tree.scan.table.top.signature is None


def test_other_patterns_scan_everything_again(tree):
    """New patterns adopt old names, and names once tracked stay."""
    read_all(tree, tree.scan.refresh(UnifiedFileResolver(["/a"])))

    assert paths(tree.scan.refresh(UnifiedFileResolver(["d"]))) == [b"d/b"]
    assert sorted(tree.scan.table.files) == [b"a", b"d/b"]


def test_a_changed_ignore_file_reaches_folders_with_one_of_their_own(tree):
    """The inner file is unchanged, but the rules that it adds to are not."""
    (tree.root / "d" / ".gitignore").write_text("inner\n")
    read_all(tree, tree.scan.refresh(EVERYTHING))
    (tree.root / ".gitignore").write_text("outer\n")
    for name in ("inner", "outer", "neither"):
        (tree.root / "d" / name).write_text("1")

    assert paths(tree.scan.refresh(EVERYTHING)) == [b".gitignore", b"d/neither"]


def test_a_file_that_cannot_be_read_is_not_taken_for_deleted(tree, monkeypatch):
    """Only an error that says so means that nothing is there."""
    read_all(tree, tree.scan.refresh(EVERYTHING))
    refused = [(0, b"a", errno.EACCES)]
    real = scan_module.differing
    monkeypatch.setattr(
        scan_module,
        "differing",
        lambda root, groups, block: (
            refused if groups[0][1].keys() == {b"a"} else real(root, groups, block)
        ),
    )
    assert paths(tree.scan.refresh(EVERYTHING)) == [b"a"]
    assert b"a" in tree.scan.table.files


def test_vanished_files_and_folders_are_dropped(tree):
    """Vanished files and folders are removed from the index."""
    read_all(tree, tree.scan.refresh(EVERYTHING))
    (tree.root / "a").unlink()
    (tree.root / "d" / "b").unlink()
    (tree.root / "d").rmdir()

    assert tree.scan.refresh(EVERYTHING) == []
    assert tree.scan.table.files == {}
    assert tree.scan.table.gone == {b"a", b"d/b"}
    assert list(tree.scan.table.folders) == [b""]


@contextmanager
def at_most(*, frames: int, descriptors: int) -> Iterator[None]:
    """Limit the stack frames, and the descriptors beside those that are open, during the block."""
    used = max(map(int, os.listdir("/proc/self/fd")))
    before, (soft, hard) = sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    sys.setrecursionlimit(frames)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        sys.setrecursionlimit(before)


def test_very_deep_trees_are_walked(tree):
    """Hundreds of nested folders use neither a frame nor a descriptor each."""
    descriptor = os.open(tree.root, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("x", dir_fd=descriptor)
        inner = os.open("x", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner

    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    with at_most(frames=len(inspect.stack(context=0)) + DEEP // 2, descriptors=DEEP // 2):
        found = paths(tree.scan.refresh(EVERYTHING))

    assert b"/".join([b"x"] * DEEP + [b"leaf"]) in found


def test_a_work_tree_that_is_gone_is_an_error(tree):
    """An absent work tree is not an empty one."""
    read_all(tree, tree.scan.refresh(EVERYTHING))
    for name in ("a", "d/b"):
        (tree.root / name).unlink()

    (tree.root / "d").rmdir()
    tree.root.rmdir()

    with pytest.raises(FileNotFoundError):
        tree.scan.refresh(EVERYTHING)


@pytest.mark.parametrize(
    ("path", "is_out"),
    [
        (b"a/b", False),
        (b"a/.git/b", True),
        (b".hankweave/x", True),
        (b"x/.hankweavecheckpoints", True),
        (b"rigArchive/x", True),
        (b"x/rigArchive", False),
        (b"../x", True),
        (b"/x", True),
        (b"x//y", True),
        (b"", True),
        (b"x/GIT~1/y", True),
    ],
)
def test_bounds_hold_at_every_component(path, is_out):
    """No path leads out of the tree, into a `.git`, or into the product's own folders."""
    assert is_out_of_bounds(path) is is_out


@pytest.mark.parametrize(
    "name",
    [b".GIT", b".git ", b".git...", b"git~1", b".git::$DATA", b"a\\.git", ".gI\u200dt".encode()],
)
def test_names_for_dot_git_elsewhere_are_reserved(name):
    """Every name that another file system would treat as `.git` is refused."""
    assert is_reserved(name)


@pytest.mark.parametrize("name", [b".gitignore", b"git~2", b".gitx", b"x.git", b"\xff.git", b"git"])
def test_names_that_merely_resemble_it_are_not(name):
    """Ordinary names with git in them are captured."""
    assert not is_reserved(name)


def test_a_selection_covers_what_is_below_it():
    """A selected folder selects its files; a name with the same prefix is not selected."""
    assert is_within(b"src/a", frozenset({b"src"}))
    assert not is_within(b"srcs", frozenset({b"src"}))
    assert is_within(b"anything", None)
