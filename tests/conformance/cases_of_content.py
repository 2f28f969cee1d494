"""Bytes and sizes: a file's content is restored exactly, even where git would convert it."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import (
    OUTSIDE,
    chmod,
    delete,
    edit_in_disguise,
    hard_link,
    rename,
    sparse,
    touch,
    write,
)

EVERY_BYTE = bytes(range(256)) * 17
LARGE = bytes(range(256)) * (64 << 12)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"

CASES = (
    Case("every_byte_value", (write("a", EVERY_BYTE),), (write("a", EVERY_BYTE[::-1]),)),
    Case("an_empty_file", (write("a", b""),), (write("a", b"no more"),)),
    Case("a_file_that_was_emptied", (write("a", b"full"),), (write("a", b""),)),
    Case("line_ends_of_every_system", (write("a.txt", b"1\r\n2\n3\r4\n\r"),), (delete("a.txt"),)),
    Case("no_newline_at_the_end", (write("a.txt", b"one\ntwo"),), (write("a.txt", b"one\ntwo\n"),)),
    Case(
        "byte_order_marks_and_no_utf8",
        (
            write("bom", b"\xef\xbb\xbfx"),
            write("wide", "wide".encode("utf-16")),
            write("l1", b"\xe9"),
        ),
        (delete("bom", "wide", "l1"),),
    ),
    Case("nul_bytes", (write("a", b"\0" * 5000 + b"x"),), (write("a", b"\0" * 5001),)),
    Case("an_ident_keyword", (write("a", b"$Id$ $Id: 12 $"),), (write("a", b"$Id$"),)),
    Case(
        "attributes_that_convert_line_ends",
        (
            write(".gitattributes", b"* text=auto eol=crlf\n*.bat text eol=lf\n"),
            write("a.txt", b"1\n2\r\n"),
            write("b.bat", b"1\r\n"),
        ),
        (write("a.txt", b"1\r\n2\r\n"), write("b.bat", b"1\n")),
    ),
    Case(
        "attributes_that_expand_and_encode",
        (
            write(".gitattributes", b"a ident\nb text working-tree-encoding=UTF-16\n"),
            write("a", b"$Id$"),
            write("b", "plain".encode("utf-16")),
        ),
        (write("a", b"$Id: 1 $"), write("b", b"plain")),
    ),
    Case(
        "attributes_that_name_a_filter",
        (write(".gitattributes", b"* filter=lfs diff=lfs merge=lfs -text\n"), write("a", POINTER)),
        (write("a", b"the real thing"), delete(".gitattributes")),
    ),
    Case(
        "attributes_that_come_later",
        (write("a", b"1\n"), write("sub/b", b"1\r\n")),
        (write(".gitattributes", b"* eol=crlf\n"), write("a", b"1\r\n"), delete("sub/b")),
    ),
    Case(
        "a_configuration_file_of_the_agent",
        (write(".gitconfig", b"[core]\n\tautocrlf = true\n"), write("a", b"1\r\n")),
        (write("a", b"1\n"), delete(".gitconfig")),
    ),
    Case(
        "an_edit_of_equal_size_with_its_mtime_put_back",
        (write("a", b"one"), touch("a", 1_000_000_000)),
        (edit_in_disguise("a", b"two"),),
    ),
    Case(
        "two_files_that_change_places",
        (write("a", b"left"), write("b", b"right")),
        (rename("a", "c"), rename("b", "a"), rename("c", "b")),
    ),
    Case(
        "many_files_of_one_content",
        tuple(write(f"d{i % 7}/f{i}", b"same") for i in range(300)),
        (delete("d0", "d1"), write("d2/f2", b"other")),
    ),
    Case(
        "two_names_of_one_file",
        (write("a", b"one"), hard_link("a", "b")),
        (write("a", b"two"),),
    ),
    Case(
        "a_name_outside_of_a_file_inside",
        (write("a", b"one"),),
        (write("a", b"two"), hard_link("a", OUTSIDE + "/other-name")),
    ),
    Case(
        "files_that_did_not_change_are_not_written",
        (*(write(f"still/{i}", b"%d" % i) for i in range(50)), write("a", b"1"), touch("a", 9)),
        (write("still/7", b"moved"), touch("still/8", 5)),
    ),
    Case("nothing_changed", (write("a"), write("d/b"), touch("a", 7)), ()),
    Case("an_empty_tree", (), (write("a"), write("d/e/f"))),
    Case("everything_deleted", (write("a"), write("d/e/f", b"2", 0o600)), (delete("a", "d"),)),
    Case(
        "a_file_of_git_modules",
        (write(".gitmodules", b'[submodule "x"]\n\turl = -u./evil\n'),),
        (delete(".gitmodules"),),
    ),
    Case(
        "a_readable_file_made_private_with_the_same_content",
        (write("key", b"secret", 0o644),),
        (chmod("key", 0o600),),
    ),
)

LARGE_CASES = (
    Case("a_sparse_file", (sparse("holes", 48 << 20),), (delete("holes"),)),
    Case("a_large_file", (write("large", LARGE),), (write("large", LARGE[:-1]),)),
)
