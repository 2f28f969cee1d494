"""`.gitignore` decides what is captured, never what is deleted."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import delete, folder, repository, write

CASES = (
    Case(
        "ignored_files",
        (write(".gitignore", b"*.log\nbuild/\n"), write("a.log"), write("build/out"), write("a")),
        (write("a.log", b"2"), write("late.log"), write("build/more"), write("a", b"2")),
        untracked=("a.log", "build", "late.log"),
    ),
    Case(
        "ignore_files_at_every_level",
        (
            write(".gitignore", b"*.log\n"),
            write("sub/.gitignore", b"!keep.log\n/here\n"),
            *(write(name) for name in ("x.log", "sub/keep.log", "sub/here", "sub/deep/here")),
        ),
        (delete("sub/keep.log", "sub/here"), write("x.log", b"2"), write("sub/deep/here", b"2")),
        untracked=("x.log", "sub/here"),
    ),
    Case(
        "an_ignore_file_that_came_later",
        (write("a"),),
        (write(".gitignore", b"data/\n"), write("data/precious", b"days of work")),
        stays=("data",),
    ),
    Case(
        "an_ignore_file_that_hid_less",
        (write(".gitignore", b"*.tmp\n"), write("a")),
        (write(".gitignore", b"*.tmp\n*.csv\n"), write("big.csv", b"days"), write("a", b"2")),
        stays=("big.csv",),
    ),
    Case(
        "an_ignore_file_that_was_deleted",
        (write(".gitignore", b"*.key\n"), write("own.key", b"secret")),
        (delete(".gitignore"),),
        untracked=("own.key",),
    ),
    Case(
        "a_tracked_file_hidden_later",
        (write("a", b"1"), write("d/b", b"1")),
        (write(".gitignore", b"*\n"), write("a", b"2"), delete("d")),
        stays=(".gitignore",),
    ),
    Case(
        "an_ignore_file_of_everything",
        (write(".gitignore", b"*\n"), write("a")),
        (write("a", b"2"), write("b")),
        untracked=(".gitignore", "a", "b"),
    ),
    Case(
        "ignored_files_in_a_folder_that_must_go",
        (write(".gitignore", b"*.log\n"),),
        (write("later/a"), write("later/b.log")),
        stays=("later/b.log",),
    ),
    Case(
        "an_ignored_folder_in_a_folder_that_came_later",
        (write(".gitignore", b"*.log\n"), write("d/a")),
        (write("d/a", b"2"), write("d/b.log"), folder("d/empty"), write("d/late")),
        stays=("d/b.log",),
    ),
    Case(
        "an_ignored_file_where_a_folder_is_needed",
        (write(".gitignore", b"cache\n"), write("d/cache/a", b"ignored"), write("d/b")),
        (delete("d/cache"), write("d/cache", b"a file now"), write("d/b", b"2")),
        untracked=("d/cache",),
    ),
    Case(
        "ignored_files_in_the_way_of_a_file",
        (write(".gitignore", b"*.log\n"), write("x", b"file")),
        (delete("x"), write("x/sub/a.log", b"ignored"), write("x/b")),
    ),
    Case(
        "an_ignore_file_in_a_repository_of_the_agent",
        (repository("sub"), write("sub/.gitignore", b"*.o\n"), write("sub/a.o"), write("sub/a.c")),
        (write("sub/a.o", b"2"), write("sub/a.c", b"2")),
        untracked=("sub/a.o",),
    ),
    Case(
        "an_ignore_file_of_odd_bytes",
        (write(".gitignore", b"\xff*\n[\n\\\n!\n\0\n#x\n*.log\n"), write("a.log"), write("a")),
        (write("a", b"2"), write("a.log", b"2")),
        untracked=("a.log",),
    ),
)
