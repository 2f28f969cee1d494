"""Resolve `trackedFiles` patterns, and lists of paths and globs, to files of the work tree.

Patterns have the syntax of `.gitignore` lines, but select instead of hide: `*.ts` at any depth,
`**`, `!` to exclude again, a bare folder name for everything below it. Braces are an extension:
`{a,b}` is expanded before the library sees it.

`choose` resolves patterns against the work tree as it is now. A plain path means exactly that file
or folder; a glob works as in `trackedFiles` and, without a slash, matches at any depth. Names that
checkpoints never hold are not found, with one exception: the `.git` of a folder that is chosen
itself goes where its folder goes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from pathspec import PathSpec

from hankweave_server.worktree.dirfd import GONE, Descent
from hankweave_server.worktree.names import OUR_PREFIX, joined

EXPANSION_LIMIT = 1024  # `{a,b}` ten times over; more is a mistake or an attack.

_INNERMOST_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_WILDCARD = re.compile(r"[*?\[\\]")

# The library's `.` and `$` treat a newline specially; a name may hold one, a pattern cannot.
_STAND_IN_FOR_NEWLINE = "\ue00a"


class UnsupportedPattern(ValueError):
    """A pattern that is invalid, or stands for too many patterns."""


class UnifiedFileResolver:
    """The patterns that decide which paths are tracked (seeds 000 and 001)."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        lines = [_from_the_top(line) for pattern in self.patterns for line in expanded(pattern)]
        try:
            # The plain rule, by which the last match decides: `!node_modules/` excludes everything
            # below it, whereas a .gitignore would re-include the folder and not its files.
            self._spec = PathSpec.from_lines("gitignore", lines)
        except (ValueError, re.error) as problem:
            raise UnsupportedPattern(str(problem)) from problem

        self._beginnings = [_beginning(line) for line in lines if not line.startswith("!")]

    def wants(self, path: bytes) -> bool:
        """Return whether a file of that name would be tracked."""
        return bool(self._spec.check_file(_as_text(path)).include)

    def wants_folder(self, path: bytes) -> bool:
        """Return whether the folder itself is tracked, so that it is kept even when empty."""
        return bool(self._spec.check_file(_as_text(path) + "/").include)

    def could_match_below(self, folder: bytes) -> bool:
        """Return whether anything below the folder might be tracked; False saves the walk."""
        components = _as_text(folder).split("/")
        return any(_agrees_with(beginning, components) for beginning in self._beginnings)


def expanded(pattern: str) -> list[str]:
    """Expand `{a,b}`, inner braces first; braces without a comma are plain characters."""
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
            raise UnsupportedPattern(f"{pattern!r} expands to more than {EXPANSION_LIMIT} patterns")

    return finished


def _from_the_top(line: str) -> str:
    """Replace `./x` by `/x`: both mean x in the work tree itself."""
    negation, line = ("!", line[1:]) if line.startswith("!") else ("", line)
    while line.startswith("./"):
        line = "/" + line[2:].lstrip("/")

    return negation + line


def _beginning(line: str) -> list[str] | None:
    """Return the literal folders a pattern starts with, or None if it may match at any depth."""
    line = line.rstrip()
    if "/" not in line.rstrip("/"):
        return None

    literal: list[str] = []
    for component in line.strip("/").split("/"):
        if _WILDCARD.search(component):
            break

        literal.append(component)

    return literal


def _agrees_with(beginning: list[str] | None, components: list[str]) -> bool:
    if beginning is None:
        return True

    return all(ours == theirs for ours, theirs in zip(beginning, components, strict=False))


def _as_text(path: bytes) -> str:
    return os.fsdecode(path).replace("\n", _STAND_IN_FOR_NEWLINE)


_GLOB = re.compile(r"[*?\[\\{]")
_SPECIAL = re.compile(r"([*?\[\]{}\\! ])")


@dataclass(slots=True)
class SelectedPaths:
    """The files and folders found; names are bytes, relative to the work tree."""

    files: list[bytes] = field(default_factory=list)
    """Everything except folders: files, links, and special files."""
    folders: list[bytes] = field(default_factory=list)
    """Folders that are chosen themselves, inner ones first."""
    empty: list[bytes] = field(default_factory=list)
    """Chosen folders that are empty."""
    failed: dict[bytes, str] = field(default_factory=dict)
    """Paths that could not be read, and why."""


def literally(path: str) -> str:
    """Return a pattern that matches exactly one path, whatever characters it has."""
    return "/" + _SPECIAL.sub(r"\\\1", path.removeprefix("./").strip("/"))


def choose(descent: Descent, patterns: Iterable[str]) -> SelectedPaths:
    """Find what the patterns match; no link is followed. Raises UnsupportedPattern."""
    walk = _Walk(descent, UnifiedFileResolver(map(_anchored, patterns)))
    walk.enter(b"", is_chosen=False)
    return walk.found


def is_regular(descent: Descent, path: bytes) -> bool:
    status = descent.status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _anchored(pattern: str) -> str:
    is_relative = not pattern.startswith(("/", "./", "!")) and _GLOB.search(pattern) is None
    return f"/{pattern}" if is_relative else pattern


class _Walk:
    def __init__(self, descent: Descent, resolver: UnifiedFileResolver) -> None:
        self._descent = descent
        self._resolver = resolver
        self.found = SelectedPaths()

    def enter(self, folder: bytes, *, is_chosen: bool) -> None:
        names = self._names(folder)
        for name in names or ():
            if not self._is_ours(folder, name, is_chosen=is_chosen):
                self._visit(joined(folder, name))

        if is_chosen and names is not None:
            self.found.folders.append(folder)
            if not names:
                self.found.empty.append(folder)

    def _names(self, folder: bytes) -> list[bytes] | None:
        try:
            return sorted(map(os.fsencode, os.listdir(self._descent.folder(folder))))
        except OSError as problem:
            if problem.errno not in GONE:
                self.found.failed[folder] = os.strerror(problem.errno or 0)

            return None

    def _is_ours(self, folder: bytes, name: bytes, *, is_chosen: bool) -> bool:
        if name.startswith(OUR_PREFIX) or (name == b".git" and not is_chosen):
            return True

        return not folder and name in self._descent.at_the_top

    def _visit(self, path: bytes) -> None:
        status = self._descent.status(path)
        if status is None:
            return

        if stat.S_ISDIR(status.st_mode):
            is_chosen = self._resolver.wants_folder(path)
            if is_chosen or self._resolver.could_match_below(path):
                self.enter(path, is_chosen=is_chosen)
        elif self._resolver.wants(path):
            self.found.files.append(path)
