"""Which paths a set of `trackedFiles` patterns means.

Patterns read as lines of a `.gitignore` do, only that they choose instead of hide: `*.ts` at any
depth, `**`, `!` to take back, a bare folder name for everything below it. Braces are ours:
`{a,b}` is written out before the library sees it (DESIGN 13).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from pathspec import PathSpec

EXPANSION_LIMIT = 1024  # `{a,b}` ten times over; more is a mistake or an attack.

_INNERMOST_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_WILDCARD = re.compile(r"[*?\[\\]")

# The library's `.` and `$` treat a newline specially; a name may hold one, a pattern cannot.
_STAND_IN_FOR_NEWLINE = "\ue00a"


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


def _as_text(path: bytes) -> str:
    return os.fsdecode(path).replace("\n", _STAND_IN_FOR_NEWLINE)
