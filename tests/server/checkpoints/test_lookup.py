"""Path lookups in trees: the results, and how often a folder is read."""

from __future__ import annotations

from collections import Counter

from hankweave_server.git.trees import FOLDER, Entry, Lookup, encoded

FILE = 0o100644


def a_file(number: int) -> Entry:
    return Entry(FILE, number.to_bytes(20, "big"))


class Trees:
    """Trees with artificial digests that count how often each is read."""

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.reads: Counter[bytes] = Counter()

    def add(self, entries: dict[bytes, Entry]) -> bytes:
        digest = (1 << 100 | len(self.contents)).to_bytes(20, "big")
        self.contents[digest] = encoded(entries)
        return digest

    def read(self, digest: bytes) -> bytes:
        self.reads[digest] += 1
        return self.contents[digest]


def test_files_and_folders_are_found_by_their_paths() -> None:
    """A folder is not found as a file, and a missing path, also one below a file, is None."""
    trees = Trees()
    deep = trees.add({b"c": a_file(3)})
    top = trees.add({b"a": a_file(1), b"b": Entry(FOLDER, deep)})
    lookup = Lookup(trees.read)
    assert lookup.entry(top, b"a") == a_file(1)
    assert lookup.entry(top, b"b/c") == a_file(3)
    assert [lookup.entry(top, path) for path in (b"b", b"x", b"a/x", b"b/c/d")] == [None] * 4
    assert (lookup.folder(top, b"b"), lookup.folder(top, b"a")) == (deep, None)
    assert lookup.entry(None, b"a") is None


def test_a_large_folder_is_read_once_for_all_its_files() -> None:
    """Ten thousand paths of one folder read that folder and its parent once each."""
    trees = Trees()
    files = {b"%05d" % number: a_file(number) for number in range(10_000)}
    many = trees.add(files)
    top = trees.add({b"many": Entry(FOLDER, many)})
    lookup = Lookup(trees.read)
    assert all(lookup.entry(top, b"many/" + name) == entry for name, entry in files.items())
    assert set(trees.reads.values()) == {1}


def test_many_folders_in_order_are_read_once_each() -> None:
    """In sorted order, a folder evicted from the cache is not needed again."""
    trees = Trees()
    below = {b"%03d" % n: Entry(FOLDER, trees.add({b"f": a_file(n)})) for n in range(500)}
    top = trees.add(below)
    lookup = Lookup(trees.read)
    assert all(lookup.entry(top, folder + b"/f") is not None for folder in sorted(below))
    assert set(trees.reads.values()) == {1}
