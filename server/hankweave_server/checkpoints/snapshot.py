"""A checkpoint opened for restoring: its tree and its manifest, asked as one thing."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.model import PathEntry
from hankweave_server.checkpoints.shadow_repo import ShadowRepo
from hankweave_server.checkpoints.trees import (
    FOLDER,
    LINK,
    Entry,
    entry_at,
    files_below,
    folder_at,
    parsed,
)
from hankweave_server.workspace.names import is_within, joined


@dataclass(frozen=True)
class Snapshot:
    """What one checkpoint says of every path."""

    repo: ShadowRepo
    sha: Sha
    tree: bytes
    manifest: Manifest

    def files(self) -> Iterator[tuple[bytes, Entry]]:
        return files_below(self.repo.read_tree, self.tree)

    def entry(self, path: bytes) -> Entry | None:
        return entry_at(self.repo.read_tree, self.tree, path)

    def permissions(self, path: bytes, git_mode: int) -> int:
        return self.manifest.permissions(path, git_mode)

    def described(self, path: bytes, entry: Entry) -> PathEntry:
        """Describes a file of the checkpoint as stat would."""
        kind = stat.S_IFLNK if entry.mode == LINK else stat.S_IFREG
        mode = kind | self.permissions(path, entry.mode)
        return PathEntry(path, self.repo.size(entry.digest), mode)

    def has_folder(self, path: bytes) -> bool:
        """Tells whether the checkpoint has that folder, be it an empty one."""
        if any(is_within(empty, frozenset({path})) for empty in self.manifest.empty_folders):
            return True

        return folder_at(self.repo.read_tree, self.tree, path) is not None

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
