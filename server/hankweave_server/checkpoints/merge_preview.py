"""Show a merge before it is stored: what it changes in our files, and its conflicts as files.

`changes` describes each file that the result changes, as `checkpoint.diff` does. `write_conflicts`
writes the versions of each conflicting file into a new folder, outside of the work tree:

- `base/`, `ours/` and `theirs/` have the file as the three sides have it, where they have one; of a
  link, they have a text with its target.
- `merged/` has the file with both sides' lines and conflict markers, if it has lines that can be
  merged.

Nothing there is a link, and nothing is executable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.checkpoints.diff import LINES_LIMIT, described
from hankweave_server.checkpoints.merge import MergeObjects, TreeMerge, lines_of
from hankweave_server.checkpoints.model import FileDiff
from hankweave_server.domain.path_merge import ConflictKind, Decision, Entry
from hankweave_server.fsutil import PRIVATE_DIRECTORY, PRIVATE_FILE, write_all
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.line_merge import LineMerger, SideNames
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import Entry as TreeEntry
from hankweave_server.worktree.names import is_out_of_bounds, parent_of, shown

WITH_MARKERS = frozenset({ConflictKind.BOTH_CHANGED, ConflictKind.BOTH_ADDED})
"""Kinds of conflicts of which both sides have a file that may have lines."""

_REGULAR = frozenset({0o100644, 0o100755})


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How much a merge changes; lines of binary and very long files are not counted."""

    files_added: int
    files_updated: int
    files_removed: int
    lines_added: int
    lines_removed: int


@dataclass(frozen=True, slots=True)
class ConflictFiles:
    """The versions of a conflicting file that were written into the preview folder."""

    path: bytes
    kind: ConflictKind
    files: tuple[Path, ...]


def changes(merge: TreeMerge, repo: ShadowRepo, *, patch: bool = False) -> tuple[FileDiff, ...]:
    """Describe what a merge changes in our files, in the order of their paths.

    Raise KeyError if an object cannot be read.
    """

    def text(entry: TreeEntry) -> bytes | None:
        if merge.objects.size(entry.digest) > LINES_LIMIT:
            return None

        return merge.objects.read_blob(entry.digest)

    return tuple(
        described(repo, (each.path, _entry(each.ours), _entry(each.result)), text, patch=patch)
        for each in merge.merged.decisions
        if each.changes_ours
    )


def counts(changed: Iterable[FileDiff]) -> ChangeCounts:
    """Count changed files and lines."""
    found = tuple(changed)
    kinds = [each.status for each in found]
    return ChangeCounts(
        files_added=kinds.count("created"),
        files_updated=kinds.count("modified"),
        files_removed=kinds.count("deleted"),
        lines_added=sum(each.added for each in found),
        lines_removed=sum(each.removed for each in found),
    )


def write_conflicts(
    merge: TreeMerge, folder: Path, names: SideNames, lines: LineMerger
) -> tuple[ConflictFiles, ...]:
    """Write the versions of each conflicting file into a folder that does not exist yet.

    `names` are those of the sides in conflict markers. Files are not flushed. Raise OSError,
    FileExistsError included, and KeyError if an object cannot be read; the folder is then
    incomplete.
    """
    folder.mkdir(mode=PRIVATE_DIRECTORY)
    conflicts = merge.merged.conflicts
    return tuple(_written(each, merge.objects, folder, names, lines) for each in conflicts)


def _written(
    conflict: Decision, objects: MergeObjects, folder: Path, names: SideNames, lines: LineMerger
) -> ConflictFiles:
    if is_out_of_bounds(conflict.path):
        raise ShadowRepositoryError(f"{shown(conflict.path)} is no path of a work tree")

    written: list[Path] = []
    versions = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}
    for side, entry in versions.items():
        if entry is not None:
            written.append(_write(folder / side, conflict.path, objects.pieces(entry[1])))

    content = _with_markers(conflict, objects, names, lines)
    if content is not None:
        written.append(_write(folder / "merged", conflict.path, [content]))

    assert conflict.conflict is not None, "a conflict is of a kind"
    return ConflictFiles(conflict.path, conflict.conflict, tuple(written))


def _with_markers(
    conflict: Decision, objects: MergeObjects, names: SideNames, lines: LineMerger
) -> bytes | None:
    """Return both sides' lines with conflict markers; None if the file has no such lines."""
    modes = {entry[0] for entry in (conflict.ours, conflict.theirs) if entry is not None}
    if conflict.conflict not in WITH_MARKERS or not modes <= _REGULAR:
        return None

    sides = lines_of(conflict, objects)
    return None if isinstance(sides, ConflictKind) else lines.merge(sides, names).content


def _write(folder: Path, path: bytes, content: Iterable[bytes]) -> Path:
    """Write a new file below a folder that only this process writes to."""
    top = os.fsencode(folder)
    target = os.path.join(top, path)
    os.makedirs(os.path.join(top, parent_of(path)), PRIVATE_DIRECTORY, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target, flags, PRIVATE_FILE)
    try:
        for piece in content:
            write_all(descriptor, piece)
    finally:
        os.close(descriptor)

    return Path(os.fsdecode(target))


def _entry(entry: Entry | None) -> TreeEntry | None:
    return None if entry is None else TreeEntry(*entry)
