"""Which files of the work tree a list of paths and globs means, as they lie there now.

A plain path means exactly that file or folder. A glob reads as in `trackedFiles`: without a slash
it fits at any depth. What no checkpoint may hold is not found either, but for the `.git` of a
folder that is chosen itself: it goes where its folder goes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from hankweave_server.worktree.dirfd import GONE, Descent
from hankweave_server.worktree.names import OUR_PREFIX, joined
from hankweave_server.worktree.patterns import UnifiedFileResolver

_GLOB = re.compile(r"[*?\[\\{]")
_SPECIAL = re.compile(r"([*?\[\]{}\\! ])")


@dataclass(slots=True)
class Chosen:
    """What was found; names are bytes, relative to the work tree."""

    files: list[bytes] = field(default_factory=list)
    """All that is no folder: files, links, and special files."""
    folders: list[bytes] = field(default_factory=list)
    """Folders that are chosen themselves, the inner ones first."""
    empty: list[bytes] = field(default_factory=list)
    """Those of them that hold nothing."""
    failed: dict[bytes, str] = field(default_factory=dict)
    """What could not be looked at, and why."""


def literally(path: str) -> str:
    """Gives the pattern that means one path, whatever characters it has."""
    return "/" + _SPECIAL.sub(r"\\\1", path.removeprefix("./").strip("/"))


def choose(descent: Descent, patterns: Iterable[str]) -> Chosen:
    """Finds what the patterns mean; no link is followed. Raises UnsupportedPattern."""
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
        self.found = Chosen()

    def enter(self, folder: bytes, *, is_chosen: bool) -> None:
        names = self._names(folder)
        for name in names or ():
            if not self._is_ours(folder, name, is_chosen=is_chosen):
                self._look(joined(folder, name))

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

    def _look(self, path: bytes) -> None:
        status = self._descent.status(path)
        if status is None:
            return

        if stat.S_ISDIR(status.st_mode):
            is_chosen = self._resolver.wants_folder(path)
            if is_chosen or self._resolver.could_hold(path):
                self.enter(path, is_chosen=is_chosen)
        elif self._resolver.wants(path):
            self.found.files.append(path)
