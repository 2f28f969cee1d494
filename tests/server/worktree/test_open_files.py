"""The files that processes have open for writing, as /proc reports them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hankweave_server.worktree.open_files import (
    OpenFiles,
    Writer,
    files_open_for_writing,
    writers_of,
)

OURSELVES = (os.getpid(),)


@contextmanager
def mapped(path: Path, **how: int) -> Iterator[mmap.mmap]:
    with path.open("rb" if how else "r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0, **how)

    with mapping:
        yield mapping


def test_a_descriptor_that_can_write_counts_and_one_that_reads_does_not(tmp_path: Path) -> None:
    """The file is named by its path below the work tree, which may hold a line end or a space."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for name in ("read", "sub/odd \n name", "appended"):
        (tree / name).write_text("x")

    (tmp_path / "outside").write_text("x")
    with (
        (tree / "read").open("rb"),
        (tree / "sub/odd \n name").open("r+b"),
        (tree / "appended").open("ab"),
        (tmp_path / "outside").open("wb"),
    ):
        found = files_open_for_writing(OURSELVES, tree)

    assert found == OpenFiles(open=frozenset({b"sub/odd \n name", b"appended"}))
    assert files_open_for_writing(OURSELVES, tree) == OpenFiles()


def test_a_shared_mapping_that_can_write_counts_as_one(tmp_path: Path) -> None:
    """A private mapping or a read-only one cannot change the file."""
    for name in ("shared \n one", "private", "read"):
        (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)

    with (
        mapped(tmp_path / "shared \n one"),
        mapped(tmp_path / "private", access=mmap.ACCESS_COPY),
        mapped(tmp_path / "read", access=mmap.ACCESS_READ),
    ):
        found = files_open_for_writing(OURSELVES, tmp_path)

    both = frozenset({b"shared \n one"})
    assert found == OpenFiles(open=both, mapped=both)


def test_a_process_that_is_gone_has_nothing_open(tmp_path: Path) -> None:
    """A work tree that is reached through a link is the same work tree."""
    done = subprocess.Popen([sys.executable, "-S", "-c", ""])
    done.wait()
    (tmp_path / "tree").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    with (tmp_path / "tree" / "a").open("w"):
        found = files_open_for_writing((done.pid, *OURSELVES), tmp_path / "link")

    assert found.open == {b"a"}


def test_a_process_of_another_user_is_passed_over(tmp_path: Path) -> None:
    """A process that may not be inspected counts as having nothing open, and is no error."""
    if os.geteuid() == 0:
        pytest.skip("root may look at every process")

    assert files_open_for_writing((1,), tmp_path) == OpenFiles()


HOLDER = """
import mmap, sys
files = [open(path, "r+b") for path in sys.argv[1:]]
mapping = mmap.mmap(files[-1].fileno(), 0)
files.pop().close()
print("ready", flush=True)
sys.stdin.read()
"""


def test_every_process_that_can_write_to_a_file_is_named(tmp_path: Path) -> None:
    """Any process counts, by descriptor or mapping; other files and readers do not."""
    names = ("open \n one", "sub/mapped", "other", "read")
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)

    held = [tmp_path / "open \n one", tmp_path / "other", tmp_path / "sub/mapped"]
    with (
        subprocess.Popen(
            [sys.executable, "-S", "-c", HOLDER, *held],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder,
        (tmp_path / "read").open("rb"),
        (tmp_path / "open \n one").open("ab"),
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        wanted = (b"open \n one", b"sub/mapped", b"read", b"missing", b"nul\0")
        found = writers_of(wanted, tmp_path)
        holder.stdin.close()

    ours, theirs = (Path("/proc/self/comm").read_text().strip(), found[-1].program)
    assert set(found) == {
        Writer(b"open \n one", os.getpid(), ours, is_mapping=False),
        Writer(b"open \n one", holder.pid, theirs, is_mapping=False),
        Writer(b"sub/mapped", holder.pid, theirs, is_mapping=True),
    }
    assert theirs.startswith("python")
    assert writers_of(wanted, tmp_path) == ()


def test_a_file_with_the_name_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    """The inode decides, so a path that has another file by now has no writer."""
    (tmp_path / "a").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_text("x")
    with (tmp_path / "a").open("ab"):
        assert writers_of((b"sub/a",), tmp_path) == ()
        (tmp_path / "sub/a").replace(tmp_path / "a")
        assert writers_of((b"a",), tmp_path) == ()
