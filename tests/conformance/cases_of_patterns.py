"""Files that no pattern matches are neither captured nor changed nor deleted."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import OUTSIDE, delete, folder, link, pipe, write

PATTERNS = ("src/**", "*.md", "!src/private/**", "!*.key")

CASES = (
    Case(
        "untracked_files_beside_tracked_ones",
        (write("src/a"), write("notes.txt"), write("b.md"), write("data/x")),
        (write("src/a", b"2"), write("notes.txt", b"2"), delete("b.md", "data"), write("new.txt")),
        untracked=("notes.txt", "data", "new.txt"),
    ),
    Case(
        "files_that_a_pattern_takes_back",
        (write("src/private/a"), write("src/own.key"), write("src/a")),
        (write("src/private/a", b"2"), write("src/own.key", b"2"), write("src/a", b"2")),
        untracked=("src/private", "src/own.key"),
    ),
    Case(
        "untracked_files_in_a_folder_that_must_go",
        (write("a.md"),),
        (write("src/late"), write("src/private/later"), write("other/b.md"), write("other/c")),
        stays=("src/private/later", "other/c"),
    ),
    Case(
        "an_untracked_link_in_place_of_a_folder",
        (write("d/f.md", b"inside"), write("a.md")),
        (delete("d"), link("d", OUTSIDE), write("a.md", b"2")),
    ),
    Case(
        "an_untracked_file_in_place_of_a_folder",
        (write("d/f.md", b"inside"),),
        (delete("d"), write("d", b"untracked")),
    ),
    Case(
        "untracked_files_in_place_of_a_file",
        (write("d.md", b"a file"),),
        (delete("d.md"), write("d.md/x.txt", b"untracked")),
    ),
    Case(
        "an_untracked_pipe_beside_tracked_files",
        (write("src/a"), pipe("pipe")),
        (write("src/a", b"2"), pipe("another")),
        untracked=("pipe", "another"),
    ),
    Case(
        "untracked_empty_folders",
        (write("src/a"), folder("empty")),
        (write("src/a", b"2"), delete("empty"), folder("another")),
        untracked=("empty", "another"),
    ),
)
