"""A `.gitignore` that an agent wrote to keep the server busy for ever."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from hankweave_server.workspace.resolver import IgnoreRules
from intruders.test_fuzz import often

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
@pytest.mark.timeout(60)
def test_no_line_and_name_take_long(line: bytes, name: bytes) -> None:
    """A line full of stars and a name made for it: whoever tries all ways needs years."""
    rules = IgnoreRules(None, b"", line + b"\n")
    for path in (name, b"x/y/" + name):
        rules.hide(path, is_folder=False)
        rules.hide(path, is_folder=True)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@often
@given(
    line=st.text("aab*?/.![]0-9", min_size=1, max_size=12),
    paths=st.lists(st.text("aab./0", min_size=1, max_size=10), min_size=1, max_size=5),
)
def test_a_line_means_what_it_meant(line: str, paths: list[str]) -> None:
    """A line of few stars hides what it hides by the library's own reading, or nothing."""
    rules = IgnoreRules(None, b"", line.encode())
    found = [rules.hide(path.encode(), is_folder=False) for path in paths]
    try:
        plain = GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        assert not any(found), "a line that git passes over hides nothing"
        return

    expected = [bool(plain.check_file(path).include) for path in paths]
    assert found == expected or line.count("*") > 3
