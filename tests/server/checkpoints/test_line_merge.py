"""Merging lines agrees with `git merge-file`, for all bytes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from hankweave_server.git.line_merge import LineMerger, SideNames, Sides

NAMES = SideNames("the present", "attempt 3")
PIECES = (
    b"a\n",
    b"b\n",
    b"a\r\n",
    b"\xff\n",
    b"\xc3\xa9\n",
    b"\n",
    b"  a\n",
    b"\x1a\x01\n",
    b"ab\n",
)
CASES = 600


def merged_by_git(folder: Path, sides: Sides, names: SideNames) -> tuple[bytes, bool]:
    for name, content in zip(sides._fields, sides, strict=True):
        (folder / name).write_bytes(content)

    labels = ["-L", names.ours, "-L", "base", "-L", names.theirs]
    words = ["git", "merge-file", "-p", *labels, "ours", "base", "theirs"]
    done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
    assert 0 <= done.returncode < 128, done.stderr
    return done.stdout, done.returncode == 0


def random_sides(random: Random) -> Sides:
    base = random.choices(PIECES, k=random.randint(0, 12))
    return Sides(ended(random, base), *(ended(random, edited(random, base)) for _ in range(2)))


def edited(random: Random, lines: Sequence[bytes]) -> list[bytes]:
    made = list(lines)
    for _ in range(random.randint(0, 3)):
        at = random.randint(0, len(made))
        made[at : at + random.randint(0, 2)] = random.choices(PIECES, k=random.randint(0, 2))

    return made


def ended(random: Random, lines: Sequence[bytes]) -> bytes:
    content = b"".join(lines)
    return content.removesuffix(b"\n") if random.random() < 0.2 else content


def test_clean_merges_are_those_of_git(tmp_path: Path) -> None:
    """Random edits of repetitive lines merge cleanly where git merges them, to the same bytes."""
    random, lines = Random(1), LineMerger()
    clean = 0
    for _ in range(CASES):
        sides = random_sides(random)
        content, is_clean = merged_by_git(tmp_path, sides, NAMES)
        merged = lines.merge(sides, NAMES)
        assert merged.is_clean == is_clean, sides
        if is_clean:
            clean += 1
            assert merged.content == content, sides

    assert CASES // 5 < clean < CASES - CASES // 5


def test_markers_name_the_sides() -> None:
    """Lines that both sides changed are between markers with the names of the sides."""
    merged = LineMerger().merge(Sides(b"1\n2\n3\n", b"1\n\xff\n3\n", b"1\nb\n3\n4\n"), NAMES)
    assert merged == (
        b"1\n<<<<<<< the present\n\xff\n=======\nb\n>>>>>>> attempt 3\n3\n4\n",
        False,
    )


def test_an_empty_side_and_an_empty_result_merge() -> None:
    """An empty side conflicts under its name; a result may be empty."""
    merged = LineMerger().merge(Sides(b"1\n", b"", b"2\n"), NAMES)
    assert merged == (b"<<<<<<< the present\n=======\n2\n>>>>>>> attempt 3\n", False)
    assert LineMerger().merge(Sides(b"1\n2\n3\n", b"", b"")) == (b"", True)


def test_markers_end_as_the_lines_around_them() -> None:
    """In a file with CR and LF at the ends of its lines, so do the markers, the first included."""
    merged = LineMerger().merge(Sides(b"1\r\n", b"2\r\n", b"3\r\n"), NAMES)
    assert merged.content.count(b"\r\n") == merged.content.count(b"\n") == 5


def test_every_byte_but_nul_is_kept() -> None:
    """A clean merge keeps all bytes of both sides; content with a NUL is refused."""
    middle = bytes(range(1, 256)) + b"\n"
    sides = Sides(b"x\n" + middle + b"y\n", b"X\n" + middle + b"y\n", b"x\n" + middle + b"Y\n")
    assert LineMerger().merge(sides) == (b"X\n" + middle + b"Y\n", True)
    with pytest.raises(ValueError, match="NUL"):
        LineMerger().merge(Sides(b"a\n", b"a\0", b"b\n"))


def test_a_merger_keeps_nothing_of_earlier_merges() -> None:
    """A thousand merges by one merger, of other contents each, are independent."""
    lines = LineMerger()
    for number in range(1000):
        word = b"%d" % number
        sides = Sides(b"a\nb\nc\n", b"a" + word + b"\nb\nc\n", b"a\nb\nc" + word + b"\n")
        assert lines.merge(sides) == (b"a" + word + b"\nb\nc" + word + b"\n", True)
