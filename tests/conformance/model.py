"""A work tree in memory: the expected result of a rollback, without a file system or git.

Folders are dicts; everything else is a leaf. Names that end in `.ign` are ignored.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

IGNORED = b".ign"


@dataclass(frozen=True)
class Leaf:
    kind: Literal["file", "link"]
    content: bytes
    permissions: int


Folder = dict[bytes, "Leaf | Folder"]
Flat = dict[bytes, tuple[str, int, bytes]]


class Model:
    """One tree, changed by the same operations as the real one."""

    def __init__(self) -> None:
        self.root: Folder = {}

    def put(self, path: bytes, node: Leaf | Folder) -> None:
        """Put a node at a path, replacing anything in the way."""
        *folders, name = path.split(b"/")
        here = self.root
        for part in folders:
            below = here.get(part)
            if not isinstance(below, dict):
                below = here[part] = {}

            here = below

        here[name] = node

    def take(self, path: bytes) -> Leaf | Folder | None:
        """Remove a node and return it; return None if there is none."""
        *folders, name = path.split(b"/")
        here = self.root
        for part in folders:
            below = here.get(part)
            if not isinstance(below, dict):
                return None

            here = below

        return here.pop(name, None)

    def at(self, path: bytes) -> Leaf | Folder | None:
        here: Leaf | Folder | None = self.root
        for part in path.split(b"/"):
            here = here.get(part) if isinstance(here, dict) else None

        return here

    def flat(self) -> Flat:
        """Return every path with its kind, permissions and content."""
        found: Flat = {}
        _flatten(self.root, b"", found)
        return found

    def captured(self) -> Model:
        """Return the part that a checkpoint contains: no ignored leaf, no folder of only those."""
        kept = Model()
        kept.root = _captured(self.root)
        return kept

    def rolled_back(self, target: Model) -> Model:
        """Return the target with the currently ignored leaves, unless a leaf is in the way."""
        result = copy.deepcopy(target)
        for path, leaf in _ignored(self.root, b""):
            if not any(isinstance(result.at(above), Leaf) for above in _above(path)):
                result.put(path, leaf)

        return result


def _flatten(folder: Folder, top: bytes, found: Flat) -> None:
    for name, node in folder.items():
        if isinstance(node, Leaf):
            found[top + name] = (node.kind, node.permissions, node.content)
        else:
            found[top + name] = ("folder", 0o755, b"")
            _flatten(node, top + name + b"/", found)


def _captured(folder: Folder) -> Folder:
    kept: Folder = {}
    for name, node in folder.items():
        if isinstance(node, Leaf):
            if not name.endswith(IGNORED):
                kept[name] = node

            continue

        below = _captured(node)
        if below or not node:
            kept[name] = below

    return kept


def _ignored(folder: Folder, top: bytes) -> list[tuple[bytes, Leaf]]:
    found = []
    for name, node in folder.items():
        if not isinstance(node, Leaf):
            found.extend(_ignored(node, top + name + b"/"))
        elif name.endswith(IGNORED):
            found.append((top + name, node))

    return found


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]
