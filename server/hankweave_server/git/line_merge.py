"""Merge the lines of three contents with libgit2, whatever their bytes are.

libgit2 merges blobs of a repository. The repository here has no files: its blobs are those of the
merge that is under way, in memory, so that neither a merge nor its preview writes an object.

The binding returns a merged content as text in UTF-8, up to the first NUL. Contents are therefore
translated from Latin-1 to UTF-8 and back, which is possible for all bytes. Lines stay lines, and
equal ones stay equal, so the merge is the same. Content with a NUL is refused: git finds most of it
binary as well.

The binding also fails for an empty result, and libgit2 leaves out the name of an empty side. A
first line that is the same in all contents prevents both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pygit2
from pygit2.enums import FileMode, ObjectType

from hankweave_server.git.errors import named_by_libgit2

NUL = b"\0"
_FIRST_CRLF = re.compile(rb"[^\n]*\r\n")
_FIRST_LINE = b"\x01 all sides \x02"


class Sides(NamedTuple):
    """The three sides of a merge."""

    base: bytes
    ours: bytes
    theirs: bytes


class SideNames(NamedTuple):
    """The names of the sides in conflict markers; the base does not appear there."""

    ours: str
    theirs: str


USUAL_NAMES = SideNames("ours", "theirs")


class MergedLines(NamedTuple):
    """The lines of both sides, with markers around those that conflict."""

    content: bytes
    is_clean: bool


class LineMerger:
    """A merger of lines; use it in one thread at a time."""

    def __init__(self) -> None:
        # One store for all merges: the binding never frees a backend.
        self._blobs = _Blobs()
        store = pygit2.Odb()
        store.add_backend(self._blobs, 1)
        self._repo = pygit2.Repository()
        self._repo.set_odb(store)

    def merge(self, sides: Sides, names: SideNames = USUAL_NAMES) -> MergedLines:
        """Merge both sides' changes to the base; lines that both changed differently conflict.

        Raise ValueError for content with a NUL, and ShadowRepositoryError if libgit2 fails.
        """
        if any(NUL in side for side in sides):
            raise ValueError("content with a NUL has no lines")

        # libgit2 ends the lines of markers like the line above, so this one ends like the next.
        first_line = _FIRST_LINE + (b"\r\n" if _FIRST_CRLF.match(sides.ours) else b"\n")

        def entry(name: str, side: bytes) -> pygit2.IndexEntry:
            return pygit2.IndexEntry(name, self._blobs.add(first_line + side), FileMode.BLOB)

        try:
            merged = self._repo.merge_file_from_index(
                entry("base", sides.base),
                entry(names.ours, sides.ours),
                entry(names.theirs, sides.theirs),
            )
        except pygit2.GitError as problem:
            raise named_by_libgit2(problem) from problem
        finally:
            self._blobs.clear()

        content = merged.contents.encode("latin-1").removeprefix(first_line)
        return MergedLines(content, merged.automergeable)


class _Blobs(pygit2.OdbBackend):
    """The blobs of one merge; the names of the methods are the binding's."""

    def __init__(self) -> None:
        super().__init__()
        self._contents: dict[pygit2.Oid, bytes] = {}

    def add(self, content: bytes) -> pygit2.Oid:
        text = content.decode("latin-1").encode()
        name = pygit2.hash(text)
        self._contents[name] = text
        return name

    def clear(self) -> None:
        self._contents.clear()

    def exists_cb(self, name: pygit2.Oid) -> bool:
        return name in self._contents

    def read_cb(self, name: pygit2.Oid) -> tuple[int, bytes]:
        return ObjectType.BLOB, self._contents[name]
