"""Path lookups in trees: the results, and how often a folder is read."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

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


def test_nested_folders_are_read_once_each_however_deep() -> None:
    """A pass over a chain of folders takes linear time, in order or backwards."""
    trees = Trees()
    top = trees.add({b"f": a_file(1)})
    for _ in range(500):
        top = trees.add({b"d": Entry(FOLDER, top)})

    chain = [b"/".join([b"d"] * depth) for depth in range(1, 501)]
    lookup = Lookup(trees.read)
    assert all(lookup.entry(top, path) is None for path in chain)
    assert all(lookup.folder(top, path) is not None for path in chain)
    assert lookup.entry(top, chain[-1] + b"/f") == a_file(1)
    assert max(trees.reads.values()) <= 2
    assert all(lookup.folder(top, path) is not None for path in reversed(chain))
    assert max(trees.reads.values()) <= 3


def test_the_order_of_lookups_changes_no_result() -> None:
    """A lookup that continues from the last one finds what a new one finds, in any tree."""
    trees = Trees()
    deep = trees.add({b"c": a_file(1), b"d": Entry(FOLDER, trees.add({b"e": a_file(2)}))})
    other = trees.add({b"c": Entry(FOLDER, deep)})
    tops = [
        trees.add({b"a": Entry(FOLDER, deep), b"ab": Entry(FOLDER, other), b"a.": a_file(3)}),
        trees.add({b"a": Entry(FOLDER, other), b"ab": a_file(4)}),
        None,
    ]
    names = (b"a", b"ab", b"a.", b"c", b"d", b"e")
    paths = [b"/".join(each) for length in (1, 2, 3, 4) for each in product(names, repeat=length)]
    asked = [(top, path) for top in tops for path in paths]
    Random(0).shuffle(asked)
    lookup = Lookup(trees.read)
    for top, path in asked:
        new = Lookup(trees.read)
        assert lookup.folder(top, path) == new.folder(top, path)
        assert lookup.entry(top, path) == Lookup(trees.read).entry(top, path)
