"""Line counts without a comparison agree with git."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_server.checkpoints.diff import line_counts

LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"ab"]), max_size=6)
CONTENT = st.tuples(LINES, st.sampled_from([b"", b"\n", b"x"])).map(
    lambda made: b"\n".join(made[0]) + made[1]
)


def counted_by_git(folder, old: bytes, new: bytes) -> tuple[int, int]:
    (folder / "old").write_bytes(old)
    (folder / "new").write_bytes(new)
    words = ["git", "diff", "--no-index", "--numstat", "--minimal", "old", "new"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        return 0, 0

    added, removed, _ = done.stdout.split(maxsplit=2)
    return int(added), int(removed)


@settings(max_examples=150)
@given(CONTENT, CONTENT)
def test_what_is_counted_is_what_git_counts(tmp_path_factory, old, new):
    """Every returned count equals git's, also for empty lines and a missing final line end."""
    counts = line_counts(old, new)
    if counts is not None:
        assert counts == counted_by_git(tmp_path_factory.mktemp("diff"), old, new)


@settings(max_examples=150)
@given(LINES, LINES, LINES)
def test_lines_put_in_at_one_place_are_always_counted(before, put_in, after):
    """Lines inserted or removed at one place are counted without libgit2."""
    whole = [line + b"\n" for line in before + put_in + after]
    less = [line + b"\n" for line in before + after]

    assert line_counts(b"".join(less), b"".join(whole)) == (len(put_in), 0)
    assert line_counts(b"".join(whole), b"".join(less)) == (0, len(put_in))


@pytest.mark.parametrize(
    ("old", "new"), [(b"a\n", b"a"), (b"a\0\n", b"b\n"), (b"x\ny\n", b"x\nz\n")]
)
def test_what_needs_a_comparison_is_left_to_it(old, new):
    """A lost final line end, binary content or a changed line gives None, so libgit2 compares."""
    assert line_counts(old, new) is None
