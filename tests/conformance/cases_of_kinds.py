"""Files, folders and links that replace each other, and special files that are none of these."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import Step, delete, device, folder, link, pipe, unix_socket, write

THINGS: dict[str, tuple[Step, ...]] = {
    "file": (write("x", b"a file"),),
    "folder": (write("x/in/side", b"a folder"), folder("x/empty")),
    "link": (link("x", "a link"),),
}

SWAPS = tuple(
    Case(f"a_{old}_replaced_by_a_{new}", before, (delete("x"), *after))
    for old, before in THINGS.items()
    for new, after in THINGS.items()
    if old != new
)

SPECIALS: dict[str, tuple[Step, str]] = {
    "pipe": (pipe("x"), "fifo"),
    "socket": (unix_socket("x"), "socket"),
    "device": (device("x"), "device"),
}

PRESENT = tuple(
    Case(
        f"a_{name}_at_the_checkpoint",
        (make, write("a")),
        (write("a", b"2"),),
        untracked=("x",),
        unsaved={"x": reason},
        needs_root=name == "device",
    )
    for name, (make, reason) in SPECIALS.items()
)

IN_THE_WAY = tuple(
    Case(
        f"a_{name}_in_the_way_of_a_{thing}",
        before,
        (delete("x"), make),
        needs_root=name == "device",
    )
    for name, (make, _) in SPECIALS.items()
    for thing, before in THINGS.items()
)

CASES = (
    *SWAPS,
    *PRESENT,
    *IN_THE_WAY,
    Case(
        "a_pipe_made_later",
        (write("d/a"),),
        (pipe("d/pipe"), write("e/x"), pipe("e/pipe")),
        stays=("d/pipe", "e/pipe"),
    ),
    Case(
        "a_file_where_folders_are_needed",
        (write("a/b/c/d", b"deep"),),
        (delete("a/b"), write("a/b", b"flat")),
    ),
    Case(
        "a_pipe_where_folders_are_needed",
        (write("a/b/c/d", b"deep"), folder("a/b/empty")),
        (delete("a/b"), pipe("a/b")),
    ),
    Case(
        "a_deep_folder_where_a_file_is_needed",
        (write("x", b"file"),),
        (delete("x"), *(write(f"x/{i}/{i}/{i}") for i in range(9)), folder("x/empty/too")),
    ),
)
