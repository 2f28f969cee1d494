"""The meaning of trackedFiles patterns (seeds 000 and 001)."""

from __future__ import annotations

import pytest

from hankweave_server.worktree.patterns import UnifiedFileResolver, UnsupportedPattern, expanded


@pytest.mark.parametrize(
    ("patterns", "wanted", "unwanted"),
    [
        (["*.ts"], [b"a.ts", b"x/y/a.ts"], [b"a.tsx", b"ts"]),
        (["/*.ts"], [b"a.ts"], [b"x/a.ts"]),
        (["./notes/*.md"], [b"notes/a.md"], [b"x/notes/a.md", b"notes/a.txt"]),
        (["src/**/*.ts"], [b"src/a.ts", b"src/x/y/a.ts"], [b"a.ts", b"x/src/a.ts"]),
        (["**/*"], [b"a", b"x/y/.hidden"], []),
        (["src"], [b"src/a", b"src/x/y", b"deep/src/a"], [b"srcs/a"]),
        (["docs/"], [b"docs/a"], [b"docs"]),
        (["**", "!node_modules/"], [b"a", b"x/a"], [b"node_modules/a", b"x/node_modules/y/z"]),
        (["*.{ts,md}", "{a,b}/{c,d}"], [b"x.ts", b"x.md", b"a/d", b"b/c"], [b"a/e", b"x.{ts,md}"]),
        ([], [], [b"a"]),
        (["*"], [b"new\nline/in\nside", b"\xff"], []),
        (["a*b"], [b"a\nb", b"a\xffb"], [b"a\nbc", b"a/b/c"]),
        (["*.ts"], [], [b"a.ts\n"]),
    ],
)
def test_patterns_choose_paths(patterns, wanted, unwanted):
    """Patterns read as lines of a .gitignore that select instead of hide."""
    resolver = UnifiedFileResolver(patterns)

    assert [path for path in wanted if not resolver.wants(path)] == []
    assert [path for path in unwanted if resolver.wants(path)] == []


@pytest.mark.parametrize(
    ("patterns", "folder", "could"),
    [
        (["src/**/*.ts"], b"src/deep", True),
        (["src/**/*.ts"], b"node_modules", False),
        (["src/a/*.ts"], b"src", True),
        (["src/a/*.ts"], b"src/b", False),
        (["*.ts"], b"anything/at/all", True),
        (["!src/x", "docs/*"], b"src", False),
        (["/src"], b"src/below", True),
        ([], b"src", False),
    ],
)
def test_folders_that_cannot_hold_a_match_are_not_walked(patterns, folder, could):
    """A folder is entered only where some pattern might match below it."""
    assert UnifiedFileResolver(patterns).could_match_below(folder) is could


def test_braces_are_written_out():
    """Braces may nest; an escaped brace, or one without a comma, is literal."""
    assert set(expanded("a{b,c{d,e}}f")) == {"abf", "acdf", "acef"}
    assert expanded("{a}") == ["{a}"]
    assert expanded(r"\{a,b}") == [r"\{a,b}"]
    assert set(expanded("{,x}y")) == {"y", "xy"}


def test_a_bomb_of_braces_is_refused():
    """Patterns that expand to thousands of others are an error, not a hang."""
    with pytest.raises(UnsupportedPattern):
        expanded("{a,b}" * 30)


@pytest.mark.parametrize("pattern", ["!", "\\"])
def test_a_pattern_without_meaning_is_refused(pattern):
    """A line that is invalid in a .gitignore is no pattern either."""
    with pytest.raises(UnsupportedPattern):
        UnifiedFileResolver([pattern])
