"""Where lost objects may still be found: other repositories, and packs that were set aside.

Every source is a function from a digest to kind and content that raises KeyError; what it returns
is held against the digest, so that no source can put anything wrong into the store.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.file_reader import Captured
from hankweave_server.checkpoints.reading import read_all
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.git.loose import whole_loose
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.pack_reader import PackReader
from hankweave_server.git.repo import ShadowRepo, reader_of
from hankweave_server.git.trees import write_trees
from hankweave_server.paths import Layout

Source = Callable[[bytes], tuple[str, bytes]]

_PLAIN = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_PACK_HEADER = 12
_PACK_TRAILER = 20


class NoRepository(Exception):
    """A path that was named as a source has no git objects."""


def repository_source(place: Path) -> Source:
    """Return a source that reads a repository: a git directory, a clone, or an execution.

    Raises NoRepository where the path is none of these.
    """
    layout = Layout.of_execution(place)
    candidates = (place, place / ".git", layout.shadow_repository)
    objects = next((each / "objects" for each in candidates if (each / "objects").is_dir()), None)
    if objects is None:
        raise NoRepository(f"{place} is no git repository and no execution directory")

    return objects_source(objects)


def objects_source(objects: Path) -> Source:
    """Return a source that reads a folder of git objects, loose ones and packs."""
    packs, deltas = PackReader(objects), reader_of(objects)

    def read(digest: bytes) -> tuple[str, bytes]:
        found = packs.read(digest)
        if found is not None:
            return found

        try:
            return whole_loose(objects, digest)
        except (ValueError, OSError):
            return deltas(digest)

    return read


def scanned_source(packs: Iterable[Path], wanted: frozenset[bytes]) -> Source:
    """Return a source that reads packs from their first byte to their last, without an index.

    Only objects in `wanted` are kept in memory; deltas are passed over.
    """
    found = {
        digest: (kind, data)
        for pack in packs
        for digest, kind, data in _scanned(pack)
        if digest in wanted
    }

    def read(digest: bytes) -> tuple[str, bytes]:
        return found[digest]

    return read


def _scanned(pack: Path) -> Iterator[tuple[bytes, str, bytes]]:
    """Return the plain objects of a pack up to the first byte that makes no sense."""
    try:
        content = pack.read_bytes()
    except OSError:
        return

    at, end = _PACK_HEADER, len(content) - _PACK_TRAILER
    while at < end:
        header = _header(content, at)
        if header is None:
            return

        kind, at = header
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(content[at:])
        except zlib.error:
            return

        if not inflate.eof:
            return

        at = len(content) - len(inflate.unused_data)
        name = _PLAIN.get(kind)
        if name is not None:
            yield digest_of(name, data), name, data


def _header(content: bytes, at: int) -> tuple[int, int] | None:
    """Return an object's kind and where its deflated data begins; None beyond the end."""
    try:
        byte = content[at]
        kind = byte >> 4 & 7
        at += 1
        while byte & 0x80:
            byte, at = content[at], at + 1

        if kind == 6:  # A delta against an earlier offset.
            byte, at = content[at], at + 1
            while byte & 0x80:
                byte, at = content[at], at + 1
        elif kind == 7:  # A delta against a named object.
            at += 20
    except IndexError:
        return None

    return kind, at


def first_of(sources: Iterable[Source], digest: bytes) -> tuple[str, bytes] | None:
    """Return what the first source that has the object says of it."""
    for source in sources:
        try:
            kind, data = source(digest)
        except KeyError:
            continue

        if digest_of(kind, data) == digest:
            return kind, data

    return None


def write_wanted(
    repo: ShadowRepo,
    memory: WorkTreeMemory,
    parent: Sha | None,
    patterns: tuple[str, ...],
    wanted: frozenset[bytes],
) -> None:
    """Read the work tree as a checkpoint upon `parent` would, and store what of it is wanted."""
    staging = ObjectStaging(repo.path / "objects", lambda digest: digest not in wanted)
    try:
        pending = memory.refresh(parent, patterns)
        with memory.descent.fresh() as descent:
            for file, seen in read_all(pending, descent, staging, None):
                if isinstance(seen, Captured):
                    memory.scan.remember(
                        file, seen.signature, seen.digest, seen.git_mode, seen.permissions
                    )
                else:
                    memory.table.lose(file)

        write_trees(memory.table, lambda data: staging.add("tree", data))
        staging.settle()
    finally:
        staging.abandon()
