"""File names: on Linux they may contain any byte but two, and every name is restored."""

from __future__ import annotations

from conformance.case import Case
from support.work_tree import delete, rename, write

LONGEST = b"x" * 255
WIDE = "\N{GRINNING FACE}" * 63
COMPOSED, DECOMPOSED = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"


def named(claim: str, *names: str | bytes) -> Case:
    """Return a case: files of these names are deleted or edited in turn, and one is added."""
    arrange = tuple(write(name, b"content of " + write_out(name)) for name in names)
    edits = tuple(
        write(name, b"edited") if turn % 2 else delete(name) for turn, name in enumerate(names)
    )
    return Case(claim, arrange, (*edits, write("new-comer")))


def write_out(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


CASES = (
    named("a_newline_in_a_name", "new\nline", "\n", "d\n/in\n"),
    named("a_tab_and_control_bytes_in_a_name", "a\tb", "\x01\x7f", "bell\a", "\r"),
    named("quotes_in_a_name", 'double"', "single'", "`back`", '"'),
    named("backslashes_in_a_name", "a\\b", "\\", "\\n", "c:\\d"),
    named("names_that_are_no_utf8", b"latin\xe9", b"\xff\xfe", b"d\xff/\xfe", b"\xed\xa0\x80"),
    named("names_of_255_bytes", LONGEST, WIDE, b"d/" + LONGEST + b"/" + LONGEST),
    named("composed_beside_decomposed", COMPOSED, DECOMPOSED, f"{COMPOSED}-d/{DECOMPOSED}"),
    named("names_that_differ_in_case", "Case", "case", "CASE", "D/a", "d/A"),
    named("spaces_at_either_end", " a", "b ", " ", "  /  "),
    named("names_like_options", "-rf", "--", "-", "--help", "@", "HEAD"),
    named("names_like_patterns", "*", "?", "[a]", "{a,b}", "!bang", "#hash", "**", "a*b/c?d"),
    named("dots", "...", ".hidden", "trailing.", "..a", ".a./.b."),
    named("names_that_sort_around_a_slash", "a", "a.b", "a-b", "a0", "ab/c", "ab.c", "ab0"),
    named("names_close_to_git", ".gitkeep", ".git-", "git", "x.git", ".gita/b", ".github/x"),
    named("names_of_other_systems", "CON", "nul", "aux.txt", "a:b", "a<b>c|d"),
    Case(
        "a_file_renamed_to_its_case_twin",
        (write("readme", b"1"),),
        (rename("readme", "README"),),
    ),
    Case(
        "names_that_other_systems_take_for_git",
        (write("git~1", b"1"), write("d/.GIT/hooks/x", b"1"), write("a", b"1")),
        (write("a", b"2"), write("git~1", b"2")),
        untracked=("git~1", "d/.GIT"),
        stays=("d",),
        unsaved={"git~1": "reserved-name", "d/.GIT": "reserved-name"},
        is_partial=True,
    ),
)
