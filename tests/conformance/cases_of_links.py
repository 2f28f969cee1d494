"""Links are text: they are stored and restored as such, and never lead out of the tree."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import OUTSIDE, delete, folder, link, rename, write

CASES = (
    Case("a_link_to_a_file", (write("a"), link("to", "a")), (delete("to"),)),
    Case(
        "a_link_to_a_folder", (write("d/a"), link("to", "d")), (delete("to"), write("to/a", b"2"))
    ),
    Case("a_dangling_link", (link("to", "nowhere"),), (delete("to"), write("nowhere"))),
    Case(
        "an_absolute_link", (link("to", "/etc/passwd"),), (delete("to"), link("to", "/etc/group"))
    ),
    Case(
        "a_link_to_itself",
        (link("self", "self"), link("ping", "pong"), link("pong", "ping")),
        (delete("self", "ping"),),
    ),
    Case("a_link_upwards", (link("d/up", ".."), link("root", ".")), (delete("d", "root"),)),
    Case("a_link_of_odd_text", (link(b"to", b"caf\xe9\n\\ "),), (delete("to"),)),
    Case("a_link_of_4095_bytes", (link("to", "x/" * 2047 + "x"),), (delete("to"),)),
    Case("a_link_that_points_elsewhere", (link("to", "a"),), (delete("to"), link("to", "b"))),
    Case("a_link_out_of_the_tree", (link("to", OUTSIDE),), (delete("to"),)),
    Case(
        "a_file_replaced_by_a_link_outwards",
        (write("f", b"inside"),),
        (delete("f"), link("f", OUTSIDE + "/f")),
    ),
    Case(
        "a_folder_replaced_by_a_link_outwards",
        (write("d/f", b"inside"), write("d/g", b"inside")),
        (delete("d"), link("d", OUTSIDE)),
    ),
    Case(
        "a_parent_far_up_replaced_by_a_link_outwards",
        (write("a/b/c/f", b"inside"), folder("a/b/empty")),
        (rename("a/b", "kept"), link("a/b", OUTSIDE)),
    ),
    Case(
        "an_empty_folder_replaced_by_a_link_outwards",
        (folder("empty"), folder("in/empty")),
        (delete("empty", "in"), link("empty", OUTSIDE), link("in", OUTSIDE)),
    ),
    Case(
        "a_file_to_remove_below_a_link_outwards",
        (write("a"),),
        (write("d/f", b"later"), rename("d", "e"), link("d", OUTSIDE)),
    ),
    Case(
        "a_link_outwards_that_becomes_a_folder",
        (link("d", OUTSIDE),),
        (delete("d"), write("d/f", b"mine")),
    ),
    Case(
        "a_folder_replaced_by_a_link_to_its_twin",
        (write("d/f", b"one"), write("twin/f", b"two")),
        (delete("d"), link("d", "twin")),
    ),
)
