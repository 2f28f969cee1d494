"""The files that a `.gitignore` hides, compared with the git program."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_server.worktree.gitignore import IgnoreRules

NAMES = ("a", "b", "ab", "foo", "foobar", "x.c", "\u00e9", "*", "]", "a b", "\\", "#a", "!a", "-")
PIECES = (
    *("a", "b", "ab", "foo", "x.c", "\u00e9", "*", "**", "?", "*.c", "a*", "*b*", "?*", "foo*"),
    *("[ab]", "[!a]", "[^a]", "[a-b]", "[b-a]", "[\u00e9]", "[]a]", "[a-]", "[\\]]", "[[:alpha:]]"),
    *("[[:punct:]]", "[[:space:]]", "[![:alnum:]]", "[[:none:]]", "[[:a]", "[", "[a", "]", "\\"),
    *("\\*", "\\a", "\\ ", "a ", "***", "a**", "**a", "#a", "\\#a", "\\!a", "", "-"),
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return a line of a `.gitignore`, sensible or not."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
    ends = st.sampled_from(["", "", "", "/", "/**", " ", "\r"])
    starts = st.sampled_from(["", "", "/", "!", "!/", "**/"])
    return draw(starts) + "/".join(pieces) + draw(ends)


paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    if shutil.which("git") is None:
        pytest.skip("there is no git program to ask")

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        yield Path(folder)


@settings(max_examples=2_000 if "HANKWEAVE_LONG_TIER" in os.environ else 200)
@given(content=st.lists(lines(), min_size=1, max_size=4), asked=st.lists(paths, min_size=10))
def test_lines_hide_what_they_hide_for_git(
    repository: Path, content: list[str], asked: list[str]
) -> None:
    """For any lines and any files, the result is the same as git's."""
    text = "\n".join(content).encode() + b"\n"
    wanted = {path.encode() for path in asked}
    found = {path for path in wanted if hidden(IgnoreRules(None, b"", text), path)}
    assert found == ignored_by_git(repository, text, wanted)


@pytest.mark.parametrize(
    ("text", "path", "is_hidden"),
    [
        (b"*\n!/a/\n", b"a/b", True),
        (b"/a/*\n!/a/b/\n", b"a/b/c", False),
        (b"?\n", "\u00e9".encode(), False),
        (b"??\n", "\u00e9".encode(), True),
        (b"a/**/b\n", b"a/b", True),
        (b"a**/b\n", b"ax/y/b", True),
        (b"[[:digit:]]\n", b"7", True),
        (b"[a\n", b"[a", False),
    ],
)
def test_a_line_is_read_as_git_reads_it(
    repository: Path, text: bytes, path: bytes, is_hidden: bool
) -> None:
    """Lines that other libraries read differently are read as git does."""
    assert hidden(IgnoreRules(None, b"", text), path) is is_hidden
    assert ignored_by_git(repository, text, {path}) == ({path} if is_hidden else set())


def hidden(rules: IgnoreRules, path: bytes) -> bool:
    """Return True if a walk from the top would not reach a file."""
    names = path.split(b"/")
    above = (b"/".join(names[:depth]) for depth in range(1, len(names)))
    return any(rules.hide(folder, is_folder=True) for folder in above) or rules.hide(
        path, is_folder=False
    )


def ignored_by_git(repository: Path, text: bytes, asked: set[bytes]) -> set[bytes]:
    (repository / ".gitignore").write_bytes(text)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=repository,
        env={"PATH": os.environ["PATH"], "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"},
        input=b"".join(path + b"\0" for path in sorted(asked)),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return set(filter(None, done.stdout.split(b"\0")))


def test_the_nearest_ignore_file_decides():
    """Inner rules override outer ones, and do not apply outside their folder."""
    top = IgnoreRules(None, b"", b"*.log\n/build/\n")
    sub = IgnoreRules(top, b"sub", b"!keep.log\n/local\r\n")

    assert top.hide(b"sub/keep.log", is_folder=False)
    assert not sub.hide(b"sub/keep.log", is_folder=False)
    assert sub.hide(b"sub/x.log", is_folder=False)
    assert sub.hide(b"sub/local", is_folder=False)
    assert not sub.hide(b"sub/x/local", is_folder=False)
    assert top.hide(b"build", is_folder=True)
    assert not top.hide(b"build", is_folder=False)


def test_nonsense_in_an_ignore_file_is_passed_over():
    """A bad line does not spoil the others, nor do bytes that are not UTF-8."""
    rules = IgnoreRules(None, b"", b"\xef\xbb\xbf*.a\n!\n\\\n\xff*\n\x00\n")

    assert rules.hide(b"x.a", is_folder=False)
    assert rules.hide(b"\xffx", is_folder=False)
    assert not rules.hide(b"x.b", is_folder=False)
