"""The agent's own repositories in its work tree: files are captured, `.git` is left alone."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import commit, delete, repository, write

CASES = (
    Case(
        "a_repository_without_a_commit",
        (repository("sub"), write("sub/f", b"1")),
        (write("sub/f", b"2"), write("sub/g")),
    ),
    Case(
        "a_repository_with_commits",
        (repository("sub"), write("sub/f", b"1"), commit("sub")),
        (write("sub/f", b"2"), commit("sub"), write("sub/g"), delete("sub/f")),
    ),
    Case(
        "a_repository_in_a_repository",
        (repository("a"), write("a/f"), repository("a/b"), write("a/b/f")),
        (write("a/f", b"2"), write("a/b/f", b"2"), commit("a/b")),
    ),
    Case(
        "a_repository_at_the_root",
        (repository("."), write("f", b"1"), commit(".")),
        (write("f", b"2"), write("g"), commit(".")),
    ),
    Case(
        "a_repository_initialised_later",
        (write("sub/f", b"1"),),
        (repository("sub"), write("sub/f", b"2"), write("sub/g"), commit("sub")),
    ),
    Case(
        "a_repository_cloned_later",
        (write("a"),),
        (repository("sub"), write("sub/f", b"2"), commit("sub")),
        stays=("sub/.git",),
    ),
    Case(
        "a_repository_that_was_deleted",
        (repository("sub"), write("sub/f", b"1"), commit("sub")),
        (delete("sub"),),
    ),
    Case(
        "a_git_file_of_a_worktree",
        (write("sub/.git", b"gitdir: ../elsewhere\n"), write("sub/f", b"1")),
        (write("sub/.git", b"gitdir: /nowhere\n"), write("sub/f", b"2")),
    ),
    Case(
        "a_git_file_at_the_root",
        (write(".git", b"gitdir: elsewhere\n"), write("f", b"1")),
        (write("f", b"2"), delete(".git")),
    ),
    Case(
        "a_repository_in_the_way_of_a_file",
        (write("x", b"file"), write("y", b"1")),
        (delete("x"), repository("x"), write("y", b"2")),
        stays=("x",),
        untouched={"x": "in-the-way"},
    ),
)
