"""A size-limited overview of the tracked files, upper levels first.

It is built from the result of the last scan; nothing is read for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hankweave_server.worktree.stat_index import Folder


@dataclass(slots=True)
class Branch:
    """A folder of the overview, and the part of its contents that is included."""

    name: bytes
    path: bytes
    folders: list[Branch] = field(default_factory=list)
    files: dict[bytes, int | None] = field(default_factory=dict)
    """Names of tracked files, and when each was last written, in nanoseconds since 1970.

    None if the last scan could not tell: the file changed the moment it was checked.
    """


@dataclass(frozen=True, slots=True)
class Outline:
    top: Branch
    omitted: int
    """Number of files, and folders with tracked files, beyond the limit."""


def outline(root: Folder, most: int) -> Outline:
    """Return at most `most` files and folders, level by level; skip folders without files."""
    top = Branch(root.name, root.path)
    left, omitted = most, 0
    waiting = deque([(root, top)])
    while waiting:
        folder, branch = waiting.popleft()
        for name in sorted(folder.files):
            if left:
                branch.files[name] = folder.modified_ns(name)
                left -= 1
            else:
                omitted += 1

        for name, below in sorted(folder.folders.items()):
            if not below.files and not below.folders:
                continue

            if left:
                child = Branch(name, below.path)
                branch.folders.append(child)
                left -= 1
                waiting.append((below, child))
            else:
                omitted += 1 + below.tracked_below()

    return Outline(top, omitted)
