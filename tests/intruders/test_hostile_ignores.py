"""A `.gitignore` that an agent writes to keep the server busy forever."""

from __future__ import annotations

import pytest

from hankweave_server.worktree.gitignore import IgnoreRules

LONG = b"a" * 255


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"*a" * 20 + b"*b", LONG),
        (b"*?a" * 20 + b"*b", LONG),
        (b"*[ab]" * 20 + b"*c", LONG),
        (b"*[0-9]" * 20 + b"*c", b"1" * 255),
        (b"*[!b]" * 20 + b"*c", LONG),
        (b"*[+-9]" * 20 + b"*c", b"1" * 255),
        (b"*[]a]" * 20 + b"*c", LONG),
        (b"*" * 200 + b"b", LONG),
        (b"*a" * 20 + b"/" + b"*a" * 20 + b"*b", LONG + b"/" + LONG),
        ("*é*é*é*é*é*é*é*é*ü".encode(), "é".encode() * 127),
        (b"*\\*" * 20 + b"*b", b"*" * 255),
        (b"*." * 20 + b"*b", b"." * 255),
    ],
    ids=lambda value: value[:12],
)
def test_no_line_and_name_take_long(line: bytes, name: bytes) -> None:
    """Matching is fast, though a search of all alternatives for such a line would take years."""
    rules = IgnoreRules(None, b"", line + b"\n")
    for path in (name, b"x/y/" + name):
        assert not rules.hide(path, is_folder=False)
        assert not rules.hide(path, is_folder=True)
