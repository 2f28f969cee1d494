"""Claims about the comparison of lines: it is libgit2's, at the cost of what differs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hankweave_server.git import line_changes
from hankweave_server.git.line_changes import changed_lines, compared

WORDS = (b"", b"}", b"    return x", b"    }", b"if a:", b"    pass", b"def f():", b"# note")
PAIRS = 3_000


def some_lines(draw: random.Random, most: int) -> list[bytes]:
    """Return lines of which many are alike, so that it matters which of them counts as added."""
    share = draw.choice((0.3, 0.6, 0.95))
    return [
        draw.choice(WORDS) if draw.random() < share else b"    line %d" % draw.randrange(200)
        for _ in range(draw.randrange(most))
    ]


def edited(draw: random.Random, lines: list[bytes]) -> list[bytes]:
    lines = list(lines)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        start = draw.randrange(len(lines) + 1)
        end = min(len(lines), start + draw.choice((0, 0, 1, 2, 5, 30)))
        match draw.randrange(4):
            case 0:
                lines[start:end] *= 2
            case 1:
                lines[start:start] = lines[end : end + 8]
            case 2:
                del lines[start:end]
            case _:
                lines[start:end] = some_lines(draw, 8)

    return lines


def pairs(seed: int) -> Iterator[tuple[bytes, bytes]]:
    draw = random.Random(seed)  # Reproducible, not secret.
    for _ in range(PAIRS):
        old = some_lines(draw, draw.choice((5, 60, 400)))
        both = [
            b"\n".join(lines) + (b"\n" if draw.random() < 0.8 and lines else b"")
            for lines in (old, edited(draw, old))
        ]
        draw.shuffle(both)
        yield both[0], both[1]


def test_the_lines_are_those_of_a_whole_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting off equal ends makes no difference; most pairs need no libgit2."""
    asked: list[bytes] = []

    def counted(old: bytes, new: bytes, start: int = 0, whole: bytes = b"") -> object:
        asked.append(old)
        return compared(old, new, start, whole)

    monkeypatch.setattr(line_changes, "compared", counted)
    for old, new in pairs(1):
        cut = line_changes._without_common_end(old, new)
        assert changed_lines(old, new) == compared(*cut), (old, new)

    assert len(asked) < PAIRS * 2 / 3


def test_an_edit_of_a_long_file_is_compared_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """libgit2 gets no line for a replaced one, and few for one that was added among equal ones."""
    lines = [b"%d\n" % number for number in range(1000)]
    replaced = [*lines[:500], b"new\n", *lines[501:]]
    doubled = [*lines[:500], b"499\n", *lines[500:]]
    asked: list[int] = []

    def counted(old: bytes, new: bytes, start: int = 0, whole: bytes = b"") -> object:
        asked.append(old.count(b"\n"))
        return compared(old, new, start, whole)

    monkeypatch.setattr(line_changes, "compared", counted)
    assert changed_lines(b"".join(lines), b"".join(replaced)) == [(500, 501, 500, 501)]
    assert changed_lines(b"".join(lines), b"".join(doubled)) == [(500, 500, 500, 501)]
    assert changed_lines(b"".join(lines), b"".join(lines)) == []
    assert len(asked) == 1
    assert asked[0] < 60
