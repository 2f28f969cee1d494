"""Unreadable files and folders are reported, and never lost."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import chmod, write

CASES = (
    Case(
        "an_unreadable_file_at_the_checkpoint",
        (write("locked", b"1", 0o000), write("a")),
        (write("a", b"2"),),
        untracked=("locked",),
        unsaved={"locked": "unreadable"},
        is_partial=True,
        needs_root=True,
    ),
    Case(
        "an_unreadable_file_that_became_readable",
        (write("locked", b"1", 0o000), write("a")),
        (chmod("locked", 0o644), write("locked", b"2"), write("a", b"2")),
        untracked=("locked",),
        unsaved={"locked": "unreadable"},
        is_partial=True,
        untouched={"locked": "unreadable"},
        needs_root=True,
    ),
    Case(
        "a_file_that_became_unreadable",
        (write("locked", b"1"), write("a")),
        (write("locked", b"2", 0o000), write("a", b"2")),
        stays=("locked",),
        untouched={"locked": "unreadable"},
        needs_root=True,
    ),
    Case(
        "a_new_unreadable_file",
        (write("a"),),
        (write("locked", b"2", 0o000), write("a", b"2")),
        stays=("locked",),
        needs_root=True,
    ),
    Case(
        "an_unreadable_folder_at_the_checkpoint",
        (write("vault/x"), chmod("vault", 0o000), write("a")),
        (write("a", b"2"),),
        untracked=("vault",),
        unsaved={"vault": "unreadable"},
        is_partial=True,
        needs_root=True,
    ),
)
