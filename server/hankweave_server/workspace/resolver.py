"""Which paths a set of `trackedFiles` patterns means, and which ones `.gitignore` hides.

Patterns read as lines of a `.gitignore` do, only that they choose instead of hide: `*.ts` at any
depth, `**`, `!` to take back, a bare folder name for everything below it. Braces are ours:
`{a,b}` is written out before the library sees it (DESIGN 13).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec, PathSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from hankweave_server.workspace.names import joined

EXPANSION_LIMIT = 1024  # `{a,b}` ten times over; more is a mistake or an attack.

_INNERMOST_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_WILDCARD = re.compile(r"[*?\[\\]")

# The library's `.` and `$` treat a newline specially; a name may hold one, a pattern cannot.
_STAND_IN_FOR_NEWLINE = "\ue00a"


_STARS = re.compile(r"(?:\[\^/\]\*)+")
_STAR_AND_MORE = re.compile(
    r"""
    \[\^/\]\*                                   # a star, as the library writes it
    ((?: \\.                                    # and what it has to find next: a plain character,
       | \[\^/\](?!\*)                           # a question mark,
       | \[(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_.,])+\]    # one of a few
       | [^\\\[\](){}*+?|^$./]
    )+)
    (?=\[\^/\]\*)                               # up to the next star
    """,
    re.VERBOSE | re.DOTALL,
)
_LOOSE_STARS = 3
"""So many stars that may each be tried everywhere one part of a path can have."""


class _IgnorePattern(GitIgnoreSpecPattern):
    """A line of a .gitignore that no name takes long to be compared with.

    An agent writes the line and the names. Where a star is followed by another one, the first place
    at which it fits is as good as any: the regular expression need not come back to try the others,
    which for `*a*a*a*a*a*b` would take for ever.
    """

    @classmethod
    def pattern_to_regex(cls, pattern: str) -> tuple[str | None, bool | None]:  # type: ignore[override]
        regex, include = super().pattern_to_regex(pattern)
        if regex is None:
            return regex, include

        regex = _STAR_AND_MORE.sub(r"(?>[^/]*?\1)", _STARS.sub("[^/]*", regex))
        loose = regex.replace("[^/]*?", "").replace("[^/]*", "\0").replace("[^/]", "")
        if any(part.count("\0") > _LOOSE_STARS for part in loose.split("/")):
            raise ValueError("it has too many stars")

        return regex, include


class UnsupportedPattern(ValueError):
    """A pattern that means nothing, or too much."""


class UnifiedFileResolver:
    """Says which paths are tracked (seeds 000 and 001, "UnifiedFileResolver")."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        lines = [_from_the_top(line) for pattern in self.patterns for line in expanded(pattern)]
        try:
            # The plain rule, by which the last match decides: `!node_modules/` takes back all that
            # is below it, where a .gitignore would take back the folder and not its files.
            self._spec = PathSpec.from_lines("gitignore", lines)
        except (ValueError, re.error) as problem:
            raise UnsupportedPattern(str(problem)) from problem

        self._beginnings = [_beginning(line) for line in lines if not line.startswith("!")]

    def wants(self, path: bytes) -> bool:
        """Tells whether a file of that name would be tracked."""
        return bool(self._spec.check_file(_as_text(path)).include)

    def wants_folder(self, path: bytes) -> bool:
        """Tells whether the folder itself is tracked, so that it is kept even when empty."""
        return bool(self._spec.check_file(_as_text(path) + "/").include)

    def could_hold(self, folder: bytes) -> bool:
        """Tells whether anything below the folder might be tracked; False saves the walk."""
        components = _as_text(folder).split("/")
        return any(_meet(beginning, components) for beginning in self._beginnings)


class IgnoreRules:
    """The `.gitignore` of one folder, on top of those of the folders above it."""

    def __init__(
        self, outer: IgnoreRules | None, folder: bytes, content: bytes, *, above: bytes = b""
    ) -> None:
        """`above` is for rules from outside: where the work tree lies below their folder."""
        self._outer = outer
        self._above = above
        self._below = len(folder) + 1 if folder else 0
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        usable = _usable(os.fsdecode(line) for line in lines)
        self._spec = GitIgnoreSpec.from_lines(usable, _IgnorePattern, backend="simple")

    def hide(self, path: bytes, *, is_folder: bool) -> bool:
        """Tells whether the path is ignored; the nearest `.gitignore` with an opinion decides.

        Only the path itself is asked about: a walk that never enters an ignored folder gives
        the rule that nothing below it can be taken back.
        """
        text = _as_text(joined(self._above, path[self._below :]))
        verdict = self._spec.check_file(text + "/" if is_folder else text).include
        if verdict is not None:
            return verdict

        return self._outer is not None and self._outer.hide(path, is_folder=is_folder)

    def hide_the_root(self) -> bool:
        """Tells whether rules from outside ignore the work tree itself, and so all of it."""
        above = self._above.split(b"/")
        folders = (b"/".join(above[:depth]) for depth in range(1, len(above) + 1))
        if any(self._spec.check_file(_as_text(folder) + "/").include for folder in folders):
            return True

        return self._outer is not None and self._outer.hide_the_root()


def expanded(pattern: str) -> list[str]:
    """Writes out `{a,b}`, inner braces first; braces without a comma are plain characters."""
    finished: list[str] = []
    waiting = [pattern]
    while waiting:
        line = waiting.pop()
        braces = _INNERMOST_BRACES.search(line)
        if braces is None:
            finished.append(line)
            continue

        before, after = line[: braces.start()], line[braces.end() :]
        waiting += [before + choice + after for choice in reversed(braces[1].split(","))]
        if len(waiting) + len(finished) > EXPANSION_LIMIT:
            raise UnsupportedPattern(f"{pattern!r} stands for more than {EXPANSION_LIMIT} patterns")

    return finished


def _from_the_top(line: str) -> str:
    """Reads `./x` as `/x`: both mean x in the work tree itself."""
    negation, line = ("!", line[1:]) if line.startswith("!") else ("", line)
    while line.startswith("./"):
        line = "/" + line[2:].lstrip("/")

    return negation + line


def _beginning(line: str) -> list[str] | None:
    """Gives the literal folders a pattern starts with, or None when it may match at any depth."""
    line = line.rstrip()
    if "/" not in line.rstrip("/"):
        return None

    literal: list[str] = []
    for component in line.strip("/").split("/"):
        if _WILDCARD.search(component):
            break

        literal.append(component)

    return literal


def _meet(beginning: list[str] | None, components: list[str]) -> bool:
    if beginning is None:
        return True

    return all(ours == theirs for ours, theirs in zip(beginning, components, strict=False))


def _usable(lines: Iterable[str]) -> list[str]:
    """Drops the lines git itself would pass over in silence, such as a lone `!`."""
    usable: list[str] = []
    for line in lines:
        line = line.removesuffix("\r")
        try:
            _IgnorePattern(line)
        except (ValueError, re.error):
            continue

        usable.append(line)

    return usable


def _as_text(path: bytes) -> str:
    return os.fsdecode(path).replace("\n", _STAND_IN_FOR_NEWLINE)
