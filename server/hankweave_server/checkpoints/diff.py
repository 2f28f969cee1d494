"""What differs between two checkpoints, or between a checkpoint and the work tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from hankweave_server.checkpoints.capture import kind_of_change
from hankweave_server.checkpoints.file_reader import Capture, Captured, Refused
from hankweave_server.checkpoints.line_counts import line_counts
from hankweave_server.checkpoints.model import FileDiff
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.git.objects import HashOnly, pieces
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import Entry, Lookup, differences, files_below
from hankweave_server.worktree.names import is_within

LINES_LIMIT = 256 << 10
"""Bytes above which files are not compared by lines: libgit2 keeps the interpreter meanwhile, for
some 12 ms where two such files have nothing in common."""

Change = tuple[bytes, Entry | None, Entry | None]


class Comparing:
    """Compares trees with trees and with the disk."""

    def __init__(self, repo: ShadowRepo, memory: WorkTreeMemory) -> None:
        self._repo = repo
        self._memory = memory

    def trees(
        self, old: bytes, new: bytes, selection: frozenset[bytes] | None, *, patch: bool
    ) -> tuple[FileDiff, ...]:
        found = differences(self._repo.read_tree, old, new)
        return tuple(
            self._described((path, before, after), {}, patch=patch)
            for path, (before, after) in sorted(found.items())
            if is_within(path, selection)
        )

    def with_work_tree(
        self, old: bytes, selection: frozenset[bytes] | None, *, patch: bool
    ) -> tuple[FileDiff, ...]:
        """Compares a tree with the disk; the memory must be fresh."""
        recorded = dict(files_below(self._repo.read_tree, old))
        found: list[FileDiff] = []
        for path in sorted(recorded.keys() | self._memory.table.files.keys()):
            seen = self._memory.observer.at(path)
            if not is_within(path, selection) or isinstance(seen, Refused):
                continue

            before = recorded.get(path)
            after = Entry(seen.git_mode, seen.digest) if isinstance(seen, Captured) else None
            if before != after:
                content = self._content_now(path) if after is not None else {}
                found.append(self._described((path, before, after), content, patch=patch))

        return tuple(found)

    def towards(self, target: bytes, paths: Iterable[bytes]) -> tuple[FileDiff, ...]:
        """Compares files as they are with those of a tree: what going there would do to them."""
        found: list[FileDiff] = []
        wanted_in = Lookup(self._repo.read_tree)
        for path in sorted(paths):
            seen = self._memory.observer.at(path)
            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, Captured) else None
            then = wanted_in.entry(target, path)
            content = self._content_now(path) if now is not None else {}
            found.append(self._described((path, now, then), content, patch=True))

        return tuple(found)

    def _content_now(self, path: bytes) -> Mapping[bytes, bytes]:
        keeper = _Keeper()
        Capture(self._memory.descent, keeper, LINES_LIMIT).read(path)
        return keeper.content

    def _described(
        self, change: Change, at_hand: Mapping[bytes, bytes], *, patch: bool
    ) -> FileDiff:
        path, before, after = change
        kind = kind_of_change(before, after)
        old, new = self._text(before, at_hand), self._text(after, at_hand)
        if (old is None) != (before is None) or (new is None) != (after is None):
            return FileDiff(path, kind, 0, 0, b"" if patch else None)

        counts = None if patch else line_counts(old or b"", new or b"")
        if counts is not None:
            return FileDiff(path, kind, *counts, None)

        lines = self._repo.line_diff(os.fsdecode(path), old, new, patch_wanted=patch)
        return FileDiff(path, kind, lines.added, lines.removed, lines.patch if patch else None)

    def _text(self, entry: Entry | None, at_hand: Mapping[bytes, bytes]) -> bytes | None:
        """Gives the content to compare; None also when it is too long for that."""
        if entry is None:
            return None

        if entry.digest in at_hand:
            return at_hand[entry.digest]

        try:
            if self._repo.size(entry.digest) > LINES_LIMIT:
                return None

            return self._repo.read_blob(entry.digest)
        except KeyError:
            return None


class _Keeper(HashOnly):
    """Keeps what was read: the work tree's content is not in the repository."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}

    def blob(self, data: bytes) -> bytes:
        digest = super().blob(data)
        self.content[digest] = data
        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Keeps it too: the limit of what is read for a diff bounds the memory."""
        data = b"".join(pieces(descriptor, size))
        return self.blob(data) if len(data) == size else None
