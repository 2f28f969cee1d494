"""Permissions of files and folders, and empty folders."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import chmod, delete, folder, rename, write

CASES = (
    Case(
        "private_files_stay_private",
        (write("secret", b"1", 0o600), write("read-only", b"1", 0o444), write("own", b"1", 0o400)),
        (delete("secret", "own"), chmod("read-only", 0o644)),
    ),
    Case("an_exec_bit_taken", (write("run", b"#!", 0o755),), (chmod("run", 0o644),)),
    Case("an_exec_bit_given", (write("text", b"1", 0o644),), (chmod("text", 0o755),)),
    Case(
        "exec_bits_of_some_only",
        (write("user", b"1", 0o744), write("group", b"1", 0o654), write("others", b"1", 0o645)),
        (delete("user", "group", "others"),),
    ),
    Case(
        "all_permissions_at_once",
        tuple(
            write(f"{mode:o}", b"1", mode) for mode in (0o640, 0o660, 0o664, 0o666, 0o700, 0o777)
        ),
        tuple(chmod(f"{mode:o}", 0o604) for mode in (0o640, 0o660, 0o664, 0o666, 0o700, 0o777)),
    ),
    Case(
        "a_read_only_file_that_was_rewritten",
        (write("a", b"one", 0o444),),
        (delete("a"), write("a", b"two", 0o644)),
    ),
    Case(
        "special_bits_of_the_same_owner",
        (write("tool", b"1", 0o4755), write("shared", b"1", 0o2755)),
        (delete("tool", "shared"),),
    ),
    Case(
        "an_empty_folder_removed",
        (folder("empty"), folder("deep/er/est")),
        (delete("empty", "deep"),),
    ),
    Case("an_empty_folder_made", (write("a"),), (folder("new"), folder("new-and/deep"))),
    Case("an_empty_folder_filled", (folder("empty"),), (write("empty/a"), write("empty/b/c"))),
    Case("a_full_folder_emptied", (write("d/a"), write("d/b/c")), (delete("d/a", "d/b"),)),
    Case(
        "an_empty_private_folder",
        (folder("empty", 0o700), folder("odd", 0o711)),
        (delete("empty", "odd"),),
    ),
    Case(
        "a_private_folder",
        (write("vault/a"), folder("vault", 0o700)),
        (delete("vault"),),
    ),
    Case(
        "a_folder_opened_to_all",
        (write("vault/a"), folder("vault", 0o700)),
        (chmod("vault", 0o777),),
    ),
    Case(
        "a_read_only_folder",
        (write("frozen/a"), write("frozen/b"), folder("frozen", 0o555)),
        (chmod("frozen", 0o755), delete("frozen/a"), write("frozen/b", b"2"), write("frozen/c")),
    ),
    Case(
        "a_folder_made_read_only_later",
        (write("d/a"), write("d/b")),
        (write("d/a", b"2"), write("d/c"), chmod("d", 0o555)),
    ),
    Case(
        "a_folder_renamed", (write("old/a"), write("old/b/c", b"2", 0o600)), (rename("old", "new"),)
    ),
    Case(
        "a_tree_forty_folders_deep",
        (write("/".join(["deep"] * 40) + "/a", b"down here"),),
        (delete("deep"), write("deep/not-so/a")),
    ),
    Case(
        "a_path_of_four_thousand_bytes",
        (write("/".join(["x" * 100] * 36) + "/a"),),
        (delete("x" * 100),),
    ),
)
