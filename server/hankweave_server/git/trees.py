"""Git trees as bytes: written from the stat index, parsed, and compared.

libgit2's tree builder rejects names that are not UTF-8 and takes ten times as long. The format is
`mode SP name NUL digest`, sorted as if a folder's name ended in `/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from hankweave_server.worktree.names import joined, name_of, parent_of, parents_of
from hankweave_server.worktree.stat_index import Folder, Signature, StatIndex

REGULAR = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
FOLDER = 0o040000

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

ReadTree = Callable[[bytes], bytes]
"""Return the raw content of a tree object; raise KeyError when it cannot be read."""


class Entry(NamedTuple):
    """A tree's entry for one name."""

    mode: int
    digest: bytes


class Difference(NamedTuple):
    """A path at which a tree and the stat index differ; None where there is no file or link."""

    path: bytes
    before: Entry | None
    after: Entry | None
    signature: Signature | None
    """The stat data of the present file, or None if it must be read again."""


_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_SEPARATORS = len(b" \0")


def raw_entries(content: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return mode, name and digest of a tree's entries; raise ValueError if it is not a tree."""
    found = _ENTRY.findall(content)
    if len(b"".join(chain.from_iterable(found))) + _SEPARATORS * len(found) != len(content):
        raise ValueError("not a tree")

    return found


def parsed(content: bytes) -> Iterator[tuple[bytes, Entry]]:
    """Yield a tree's names and entries in order; raise ValueError if it is not a tree."""
    for mode, name, digest in raw_entries(content):
        yield name, Entry(int(mode, 8), digest)


def entry_named(content: bytes, name: bytes) -> Entry | None:
    """Return a tree's entry of one name, without parsing the others."""
    if content.find(b" %s\0" % name) < 0:
        return None  # Most trees that are asked for a name in vain.

    at = 0
    while at < len(content):
        end = content.index(b"\0", at)
        space = content.index(b" ", at)
        if end - space - 1 == len(name) and content[space + 1 : end] == name:
            return Entry(int(content[at:space], 8), content[end + 1 : end + 21])

        at = end + 21

    return None


def encoded(entries: Mapping[bytes, Entry]) -> bytes:
    """Encode a tree from its names and entries."""
    return _written({_key(name, entry): entry for name, entry in entries.items()})


def _key(name: bytes, entry: Entry) -> bytes:
    """Return the sort key of a name: git sorts a folder's name as if it ended in `/`."""
    return name + b"/" if entry.mode == FOLDER else name


def _written(keyed: Mapping[bytes, Entry]) -> bytes:
    return b"".join(
        b"%o %s\0%s" % (mode, key[:-1] if mode == FOLDER else key, digest)
        for key, (mode, digest) in sorted(keyed.items())
    )


def write_trees(table: StatIndex, add: Callable[[bytes], bytes]) -> bytes:
    """Write the trees above every change, children first; return the root's name."""
    waiting = [table.top] if table.top.tree is None else []
    while waiting:
        folder = waiting[-1]
        unwritten = [child for child in folder.folders.values() if child.tree is None]
        if unwritten:
            waiting += unwritten
            continue

        entries = _entries_of(folder)
        folder.tree = add(_written(entries)) if entries else b""
        waiting.pop()

    return table.top.tree or add(b"")


def _entries_of(folder: Folder) -> dict[bytes, Entry]:
    """Return the captured entries of a folder, keyed by their sort keys."""
    entries = {name: Entry(git_mode, digest) for name, git_mode, _, digest in folder.captured()}
    for name, child in folder.folders.items():
        if child.tree:
            entries[name + b"/"] = Entry(FOLDER, child.tree)

    return entries


def changes(table: StatIndex, read: ReadTree, before: bytes | None) -> Iterator[Difference]:
    """Compare a tree (None: empty) with the stat index, whose trees are written; in path order.

    Trees of the stat index are never read: their entries are in memory. Raises KeyError when a
    differing tree cannot be read.
    """
    tops = _as_folder(before), _as_folder(table.top.tree)
    waiting: list[tuple[bytes, Entry | None, Entry | None, Folder | int | None]] = []
    if tops[0] != tops[1]:
        waiting.append((b"", *tops, table.top))

    while waiting:
        path, old, new, there = waiting.pop()
        if FOLDER not in (old and old.mode, new and new.mode):
            known = table.slots.signature(there) if isinstance(there, int) else None
            yield Difference(path, old, new, known)
            continue

        folder = there if isinstance(there, Folder) else None
        left, right = _sides(read, old, folder)
        for key in sorted(_differing(left, right), reverse=True):
            below = joined(path, key.rstrip(b"/"))
            waiting.append((below, left.get(key), right.get(key), _at(folder, key)))


def count_changes(table: StatIndex, read: ReadTree, before: bytes | None) -> int:
    """Return the number of what `changes` yields, in a fraction of its time; raise as it does."""
    count = 0
    waiting: list[tuple[Entry | None, Folder | None]] = []
    if before != (table.top.tree or None):
        waiting.append((_as_folder(before), table.top))

    while waiting:
        old, folder = waiting.pop()
        left, right = _sides(read, old, folder)
        for key in _differing(left, right):
            if key.endswith(b"/"):
                there = _at(folder, key) if key in right else None
                waiting.append((left.get(key), there if isinstance(there, Folder) else None))
            else:
                count += 1

    return count


def _sides(
    read: ReadTree, old: Entry | None, folder: Folder | None
) -> tuple[dict[bytes, Entry], dict[bytes, Entry]]:
    """Return the entries of a folder in a tree and in the stat index, by their sort keys."""
    left = {_key(*item): item[1] for item in parsed(read(old.digest))} if old else {}
    return left, {} if folder is None else _entries_of(folder)


def _differing(left: Mapping[bytes, Entry], right: Mapping[bytes, Entry]) -> list[bytes]:
    return [key for key in left.keys() | right.keys() if left.get(key) != right.get(key)]


def _at(folder: Folder | None, key: bytes) -> Folder | int | None:
    """Return the stat index's entry in a folder: a folder, or the slot of a file."""
    if folder is None:
        return None

    return folder.folders.get(key[:-1]) if key.endswith(b"/") else folder.files.get(key)


def _as_folder(tree: bytes | None) -> Entry | None:
    return Entry(FOLDER, tree) if tree else None


def files_below(read: ReadTree, tree: bytes, folder: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
    """Yield every file and link of a tree."""
    waiting = [(folder, tree)]
    while waiting:
        above, digest = waiting.pop()
        for name, entry in parsed(read(digest)):
            path = joined(above, name)
            if entry.mode == FOLDER:
                waiting.append((path, entry.digest))
            else:
                yield path, entry


def folders_below(read: ReadTree, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield every folder of a tree and its own tree; the nameless top comes first."""
    waiting = [(b"", tree)]
    while waiting:
        folder, digest = waiting.pop()
        yield folder, digest
        entries = parsed(read(digest))
        waiting += [(joined(folder, n), e.digest) for n, e in entries if e.mode == FOLDER]


FOLDERS_AT_HAND = 32


class Lookup:
    """A lookup of paths in trees; for paths in sorted order, each folder is read once.

    Use an instance for one pass: it caches the entries of the folders read last, which can be
    large. A lookup begins at the deepest folder that it shares with the one before, so that a pass
    over nested folders takes linear time.
    """

    def __init__(self, read: ReadTree, at_hand: int = FOLDERS_AT_HAND) -> None:
        self._read = read
        self._most = at_hand
        self._at_hand: dict[bytes, dict[bytes, Entry]] = {}
        self._top: bytes | None = None
        self._trail: list[tuple[bytes, bytes]] = []
        """Paths and trees of the folders on the way to the last one, below `_top`."""

    def entry(self, tree: bytes | None, path: bytes) -> Entry | None:
        """Return the file or link that a tree has at a path; None if there is none."""
        folder, _, name = path.rpartition(b"/")
        entry = self._named(self.folder(tree, folder), name)
        return None if entry is None or entry.mode == FOLDER else entry

    def folder(self, tree: bytes | None, path: bytes) -> bytes | None:
        """Return the tree of a folder; None when there is no folder of that name."""
        if not tree:
            return None

        if tree != self._top:
            self._top = tree
            self._trail.clear()

        trail = self._trail
        while trail and trail[-1][0] != path and not path.startswith(trail[-1][0] + b"/"):
            trail.pop()

        above, tree = trail[-1] if trail else (b"", tree)
        for name in filter(None, path[len(above) :].split(b"/")):
            found = self._named(tree, name)
            if found is None or found.mode != FOLDER:
                return None

            above, tree = joined(above, name), found.digest
            trail.append((above, tree))

        return tree

    def _named(self, tree: bytes | None, name: bytes) -> Entry | None:
        if not tree:
            return None

        entries = self._at_hand.pop(tree, None)
        if entries is None:
            entries = dict(parsed(self._read(tree)))

        self._at_hand[tree] = entries
        if len(self._at_hand) > self._most:
            del self._at_hand[next(iter(self._at_hand))]

        return entries.get(name)


def differences(
    read: ReadTree, old: bytes | None, new: bytes | None
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Return the files that differ between two trees (None means empty).

    Equal subtrees are never read.
    """
    found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
    waiting = [(b"", _as_folder(old), _as_folder(new))] if old != new else []
    while waiting:
        above, *trees = waiting.pop()
        left, right = (_entries_as_stored(read, tree) for tree in trees)
        before, after = _files_and_folders(left - right), _files_and_folders(right - left)
        for name, is_folder in sorted(before.keys() | after.keys()):
            path, key = joined(above, name), (name, is_folder)
            if is_folder:
                waiting.append((path, before.get(key), after.get(key)))
            elif before.get(key) != after.get(key):
                found[path] = (before.get(key), after.get(key))

    return found


def with_changes(
    read: ReadTree,
    add: Callable[[bytes], bytes],
    tree: bytes | None,
    changes: Mapping[bytes, Entry | None],
) -> bytes:
    """Write the trees that a tree becomes with some files changed; return the root's name.

    None removes a file. Only folders with a change at or below them are read and written; one that
    is left empty vanishes. The changes must fit together: no file lies in the place of a folder.
    """
    changed: dict[bytes, dict[bytes, Entry | None]] = {b"": {}}
    for path, entry in changes.items():
        changed.setdefault(parent_of(path), {})[name_of(path)] = entry
        for folder in parents_of(path):
            changed.setdefault(folder, {})

    outer_first = sorted(changed, key=lambda folder: folder.count(b"/") + bool(folder))
    before: dict[bytes, dict[bytes, Entry]] = {}
    for folder in outer_first:
        digest = tree
        if folder:
            found = before[parent_of(folder)].get(name_of(folder))
            digest = found.digest if found is not None and found.mode == FOLDER else None

        before[folder] = dict(parsed(read(digest))) if digest else {}

    for folder in reversed(outer_first):
        entries = dict(before[folder])
        for name, entry in changed[folder].items():
            if entry is None:
                entries.pop(name, None)
            else:
                entries[name] = entry

        if not folder:
            return add(encoded(entries))

        above, name = changed[parent_of(folder)], name_of(folder)
        if entries:
            above[name] = Entry(FOLDER, add(encoded(entries)))
        elif before[folder]:
            above.setdefault(name, None)

    raise AssertionError("the root is the last folder")


def _entries_as_stored(read: ReadTree, tree: Entry | None) -> set[tuple[bytes, bytes, bytes]]:
    return set() if tree is None else set(raw_entries(read(tree.digest)))


def _files_and_folders(
    entries: Iterable[tuple[bytes, bytes, bytes]],
) -> dict[tuple[bytes, bool], Entry]:
    """Return entries by name; a file and a folder of one name are different ones."""
    found = ((name, Entry(int(mode, 8), digest)) for mode, name, digest in entries)
    return {(name, entry.mode == FOLDER): entry for name, entry in found}
