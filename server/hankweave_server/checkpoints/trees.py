"""Git trees as bytes: written from the table, read back, and compared.

libgit2's tree builder refuses names that are not UTF-8 and costs ten times as much; the format is
`mode SP name NUL digest`, sorted as if a folder's name ended in `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hankweave_server.workspace.names import joined
from hankweave_server.workspace.table import Folder, Table

REGULAR = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
FOLDER = 0o040000

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

ReadTree = Callable[[bytes], bytes]
"""Gives the raw content of a tree object; raises KeyError when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a tree says of one name."""

    mode: int
    digest: bytes


def parsed(content: bytes) -> Iterator[tuple[bytes, Entry]]:
    """Reads a tree's names and entries in their order."""
    position = 0
    while position < len(content):
        space = content.index(b" ", position)
        end = content.index(b"\0", space)
        digest = content[end + 1 : end + 21]
        yield content[space + 1 : end], Entry(int(content[position:space], 8), digest)
        position = end + 21


def encoded(entries: dict[bytes, Entry]) -> bytes:
    """Writes a tree from its names and entries."""

    def git_order(item: tuple[bytes, Entry]) -> bytes:
        name, entry = item
        return name + b"/" if entry.mode == FOLDER else name

    return b"".join(
        b"%o %s\0%s" % (entry.mode, name, entry.digest)
        for name, entry in sorted(entries.items(), key=git_order)
    )


def write_trees(table: Table, add: Callable[[bytes], bytes]) -> bytes:
    """Writes the trees above everything that changed, children first, and names the whole."""
    if table.top.tree is None:
        # Parents come before children in the table, so backwards every child is ready.
        for folder in reversed(table.folders.values()):
            if folder.tree is None:
                entries = _entries_of(folder)
                folder.tree = add(encoded(entries)) if entries else b""

    return table.top.tree or add(b"")


def _entries_of(folder: Folder) -> dict[bytes, Entry]:
    entries = {name: Entry(git_mode, digest) for name, git_mode, _, digest in folder.captured()}
    for name, child in folder.folders.items():
        if child.tree:
            entries[name] = Entry(FOLDER, child.tree)

    return entries


def files_below(read: ReadTree, tree: bytes, folder: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
    """Walks every file and link of a tree."""
    waiting = [(folder, tree)]
    while waiting:
        above, digest = waiting.pop()
        for name, entry in parsed(read(digest)):
            path = joined(above, name)
            if entry.mode == FOLDER:
                waiting.append((path, entry.digest))
            else:
                yield path, entry


def entry_at(read: ReadTree, tree: bytes | None, path: bytes) -> Entry | None:
    """Looks one path up in a tree; None when no file or link of that name is in it."""
    folder, _, name = path.rpartition(b"/")
    entry = _named(read, folder_at(read, tree, folder), name)
    return None if entry is None or entry.mode == FOLDER else entry


def folder_at(read: ReadTree, tree: bytes | None, path: bytes) -> bytes | None:
    """Gives the tree of a folder; None when there is no folder of that name."""
    for name in filter(None, path.split(b"/")):
        found = _named(read, tree, name)
        tree = found.digest if found is not None and found.mode == FOLDER else None

    return tree


def _named(read: ReadTree, tree: bytes | None, name: bytes) -> Entry | None:
    return dict(parsed(read(tree))).get(name) if tree else None


def differences(
    read: ReadTree, old: bytes | None, new: bytes | None
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Compares two trees (None is none) and gives the files that differ.

    Equal subtrees are never read.
    """
    found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
    waiting: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", old, new)]
    while waiting:
        folder, left_tree, right_tree = waiting.pop()
        if left_tree == right_tree:
            continue

        left = dict(parsed(read(left_tree))) if left_tree else {}
        right = dict(parsed(read(right_tree))) if right_tree else {}
        for name in left.keys() | right.keys():
            before, after = left.get(name), right.get(name)
            if before == after:
                continue

            path = joined(folder, name)
            file_before, folder_before = _apart(before)
            file_after, folder_after = _apart(after)
            if file_before != file_after:
                found[path] = (file_before, file_after)

            if folder_before or folder_after:
                waiting.append((path, folder_before, folder_after))

    return found


def _apart(entry: Entry | None) -> tuple[Entry | None, bytes | None]:
    """Tells a file's entry from a folder's."""
    if entry is None:
        return None, None

    return (None, entry.digest) if entry.mode == FOLDER else (entry, None)
