"""What changed in the tracked files and was not told yet: each change is told once, none never."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hankweave_server.checkpoints.capture import kind_of_change
from hankweave_server.checkpoints.file_reader import Captured, Refused
from hankweave_server.checkpoints.model import CheckpointMade, CheckpointRequest, FileChange
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import Entry, Lookup
from hankweave_server.worktree.stat_index import TrackedFile


class Untold:
    """Follows looks at the work tree and checkpoints of it, in the order in which they are made."""

    def __init__(self, repo: ShadowRepo, memory: WorkTreeMemory) -> None:
        self._repo = repo
        self._memory = memory
        self._told: dict[bytes, Entry | None] = {}
        """How a file was when it was looked at, where the last checkpoint may have it otherwise."""
        self._basis: tuple[bytes | None, tuple[str, ...]] | None = None
        """What the last look compared with, a checkpoint's tree, and what was tracked then."""

    def look(
        self, last: bytes | None, patterns: tuple[str, ...], pending: Iterable[TrackedFile]
    ) -> Iterator[FileChange]:
        """Gives what changed since the last checkpoint and was not given before.

        The memory must be fresh; `pending` are the files that it has found to differ.
        """
        self._basis = last, patterns
        recorded_in = Lookup(self._repo.read_tree)
        suspects = {file.path for file in pending} | self._memory.table.gone
        for path in sorted(suspects | self._told.keys()):
            seen = self._memory.observer.at(path)
            if isinstance(seen, Refused):
                continue

            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, Captured) else None
            recorded = recorded_in.entry(last, path)
            before = self._told.get(path, recorded)
            if now != before:
                size = seen.size if isinstance(seen, Captured) else 0
                yield FileChange(path, kind_of_change(before, now), size)

            self._told[path] = now

    def follow(
        self, request: CheckpointRequest, parent: bytes | None, made: CheckpointMade
    ) -> None:
        """Measures from a new checkpoint, made upon one with the tree `parent`.

        What it took in between the last look and its own stays to be told: an agent does not wait.
        But what is tracked anew is nobody's change; and after a safety checkpoint all may be moved.
        """
        if parent is None or request.kind == "safety" or self._basis != (parent, request.patterns):
            self._told, self._basis = {}, None
            return

        tree, recorded_in = bytes.fromhex(made.tree), Lookup(self._repo.read_tree)
        taken_in = sorted({change.path for change in made.changed} | self._told.keys())
        last = {
            path: self._told[path] if path in self._told else recorded_in.entry(parent, path)
            for path in taken_in
        }
        taken = {path: recorded_in.entry(tree, path) for path in taken_in}
        self._told = {path: entry for path, entry in last.items() if entry != taken[path]}
        self._basis = tree, request.patterns
