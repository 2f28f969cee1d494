"""A checkpoint opened for restoring: its tree and its manifest, asked as one thing."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.model import PathEntry
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import FOLDER, LINK, Entry, Lookup, files_below, parsed
from hankweave_server.worktree.gitignore import IgnoreRules
from hankweave_server.worktree.names import is_within, joined, parents_of

TREES_AT_HAND = 1000  # A few megabytes; the way through a tree of any size needs far fewer.


@dataclass(frozen=True)
class Snapshot:
    """What one checkpoint says of every path."""

    repo: ShadowRepo
    sha: Sha
    tree: bytes
    manifest: Manifest
    _rules: dict[bytes, IgnoreRules | None] = field(default_factory=dict, compare=False)
    _trees: dict[bytes, dict[bytes, Entry]] = field(default_factory=dict, compare=False)
    """The trees looked into by name, by digest: neighbours are asked for in turn."""

    def files(self) -> Iterator[tuple[bytes, Entry]]:
        return files_below(self.repo.read_tree, self.tree)

    def entry(self, path: bytes) -> Entry | None:
        """Looks up a file or link; None where there is none of that name."""
        *above, name = path.split(b"/")
        tree: bytes = self.tree
        for folder in above:
            found = self._entries(tree).get(folder)
            if found is None or found.mode != FOLDER:
                return None

            tree = found.digest

        entry = self._entries(tree).get(name)
        return None if entry is None or entry.mode == FOLDER else entry

    def _entries(self, tree: bytes) -> dict[bytes, Entry]:
        known = self._trees.get(tree)
        if known is None:
            if len(self._trees) >= TREES_AT_HAND:
                self._trees.clear()

            known = self._trees[tree] = dict(parsed(self.repo.read_tree(tree)))

        return known

    def permissions(self, path: bytes, git_mode: int) -> int:
        return self.manifest.permissions(path, git_mode)

    def described(self, path: bytes, entry: Entry) -> PathEntry:
        """Describes a file of the checkpoint as stat would."""
        kind = stat.S_IFLNK if entry.mode == LINK else stat.S_IFREG
        mode = kind | self.permissions(path, entry.mode)
        return PathEntry(path, self.repo.size(entry.digest), mode)

    def protects(self, path: bytes) -> str | None:
        """Why a rollback to this checkpoint must not remove a path that the checkpoint lacks.

        It lacks what could not be captured, and what its own `.gitignore` files hid: such a file
        may well have been there, so its absence from the tree says nothing.
        """
        return self.manifest.protects(path) or ("ignored" if self._hides(path) else None)

    def _hides(self, path: bytes) -> bool:
        above = list(reversed(parents_of(path)))
        if any(self._is_file(folder) for folder in above):
            return False  # It stands in the way of what the checkpoint does hold.

        for outer, folder in pairwise([b"", *above]):
            rules = self._rules_in(outer)
            if rules is not None and rules.hide(folder, is_folder=True):
                return True

        rules = self._rules_in(above[-1] if above else b"")
        return rules is not None and rules.hide(path, is_folder=False)

    def _is_file(self, path: bytes) -> bool:
        entry = self.entry(path)
        return entry is not None and entry.mode != FOLDER

    def _rules_in(self, folder: bytes) -> IgnoreRules | None:
        """The rules that hold in a folder of the checkpoint, those from above included."""
        if folder not in self._rules:
            outer = self._rules_in(folder.rpartition(b"/")[0]) if folder else None
            entry = self.entry(joined(folder, b".gitignore"))
            if entry is None or entry.mode in (LINK, FOLDER):
                self._rules[folder] = outer
            else:
                content = self.repo.read_blob(entry.digest)
                self._rules[folder] = IgnoreRules(outer, folder, content)

        return self._rules[folder]

    def has_folder(self, path: bytes) -> bool:
        """Tells whether the checkpoint has that folder, be it an empty one."""
        if any(is_within(empty, frozenset({path})) for empty in self.manifest.empty_folders):
            return True

        return Lookup(self.repo.read_tree).folder(self.tree, path) is not None

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """Every folder of the checkpoint, the empty ones and those above them included."""
        found = set(self.manifest.empty_folders)
        for path in self.manifest.empty_folders:
            while path := path.rpartition(b"/")[0]:
                found.add(path)

        waiting = [(b"", self.tree)]
        while waiting:
            folder, tree = waiting.pop()
            for name, entry in parsed(self.repo.read_tree(tree)):
                if entry.mode == FOLDER:
                    path = joined(folder, name)
                    found.add(path)
                    waiting.append((path, entry.digest))

        return frozenset(found)
