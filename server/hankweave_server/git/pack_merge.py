"""Merge packs and loose objects into one pack, with deltas between the versions of each path.

Most of what a checkpoint stores is a new version of a few files, of the folders above them, and a
commit. So the objects of several checkpoints are put into one chain for each path, newest first,
and all but the first are stored as differences. The first is whole, because it is what the next
checkpoints and rollbacks read. The others differ from the version that is as much newer as the
lowest set bit of their place in the chain (a skip delta, as in Subversion): reading any of them
takes as many steps as the place has bits, and a chain may be long.

Objects that are deltas already are copied as they are. What is whole in packs that were merged
before is the newest version in each, so merging them again makes longer and longer chains of fewer
and fewer objects, without comparing anything twice.

Paths are found inside the packs alone: a checkpoint stores each folder above a changed file anew.
An object whose path is not found stays whole. Deltas name their bases (REF_DELTA), so they stay
valid wherever they are copied to. Git's own packs may have deltas that point back by a distance
(OFS_DELTA); such a pack is copied in one piece.

The new pack is written under a `tmp_...` folder beside the packs, laid out as an object store of
its own, flushed and read back before any reader can see it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.fsutil import sync_directory, sync_file
from hankweave_server.git import loose
from hankweave_server.git.delta import Base
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.objects import (
    PackedObject,
    PackWriter,
    digest_of,
    packed,
    packed_delta,
)
from hankweave_server.git.pack_reader import PackDamaged, header_of, read_index
from hankweave_server.git.repo import ShadowRepo, reader_of
from hankweave_server.git.store_files import (
    READ_ONLY,
    LooseFile,
    PackFile,
    Source,
    staging_folder,
)
from hankweave_server.git.trees import raw_entries

COMPARED_BYTES = 8 << 20
"""Bytes of content that one merge compares; what goes beyond is copied."""

COMPARED_OBJECT = 1 << 20

RECORDS_AT_ONCE = 200
"""Records copied between two rests: about a millisecond."""

_HEADER = 12
_CHECKSUM = 20
_TAG, _OFS_DELTA, _REF_DELTA = 4, 6, 7

Rest = Callable[[], None]
"""Called every few milliseconds: it may wait, or raise an exception, which ends the merge."""


class Unpackable(Exception):
    """A source cannot be merged: it is damaged, or holds an object that another holds as well."""

    def __init__(self, source: Source) -> None:
        super().__init__(f"{source} cannot be merged with others")
        self.source = source


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pack that was flushed and read back, and that readers cannot see yet."""

    staging: Path
    index: Path
    digests: frozenset[bytes]

    @property
    def name(self) -> str:
        return self.index.stem

    def adopt(self) -> None:
        """Rename the files to their final names, durably; pack first: git looks for indexes."""
        folder = self.staging.parent
        for file in (self.index.with_suffix(".pack"), self.index):
            file.rename(folder / file.name)

        sync_directory(folder)
        shutil.rmtree(self.staging)


def merged(pack_folder: Path, sources: Sequence[Source], rest: Rest = lambda: None) -> Replacement:
    """Merge sources, oldest first; read nothing but them.

    Each record is verified against the checksum in its index, before and after copying, and each
    object that became a delta is read back. Raises Unpackable for the first unsuitable source,
    leaving nothing behind.
    """
    records, whole = _gathered(sources, rest)
    deltas: dict[bytes, PackedObject] = {}
    for chain in _chains(whole, rest):
        deltas.update(_compared(chain, whole, records, rest))

    with _staging(pack_folder) as staging:
        writer = PackWriter(staging / "pack")
        try:
            for count, (digest, record) in enumerate(records.items(), start=1):
                writer.add(deltas.get(digest, record))
                if count % RECORDS_AT_ONCE == 0:
                    rest()

            staged = writer.finish()
        except BaseException:
            writer.abandon()
            raise

        for file in staged.files():
            file.temporary.rename(file.final)

        index = staging / "pack" / f"{staged.name}.idx"
        _date(index, sources)
        _flush(index)
        is_complete = _holds(index, {**records, **deltas}, rest)
        if not is_complete or not _all_can_be_read(reader_of(staging), deltas, rest):
            raise ShadowRepositoryError(f"{index.stem} does not contain what was copied into it")

        return Replacement(staging, index, frozenset(records))


def repacked(repo: ShadowRepo, pack_folder: Path, digests: Sequence[bytes]) -> Replacement:
    """Pack the objects with deltas between them.

    Raises ShadowRepositoryError, leaving nothing behind, when one of them cannot be read.
    """
    with _staging(pack_folder) as staging:
        repo.write_pack(digests, staging / "pack")
        (index,) = (staging / "pack").glob("*.idx")
        _flush(index)
        if not _all_can_be_read(reader_of(staging), digests):
            raise ShadowRepositoryError(f"{index.stem} does not contain what was written to it")

        return Replacement(staging, index, frozenset(digests))


def can_be_read(pack: PackFile, rest: Rest = lambda: None) -> bool:
    """Return whether every object of a pack can be read from it alone."""
    with _staging(pack.index.parent) as staging:
        for file in (pack.index, pack.index.with_suffix(".pack")):
            os.link(file, staging / "pack" / file.name)

        try:
            sound = _all_can_be_read(reader_of(staging), pack.digests(), rest)
        except (ValueError, OSError):
            sound = False

        shutil.rmtree(staging)
        return sound


@contextmanager
def _staging(pack_folder: Path) -> Iterator[Path]:
    """Create a staging folder, and remove it if the work in it fails."""
    staging = staging_folder(pack_folder)
    try:
        yield staging
    except BaseException:
        shutil.rmtree(staging)
        raise


def _holds(index: Path, records: dict[bytes, PackedObject], rest: Rest) -> bool:
    try:
        return {record.digest: record for record in _records(index, rest)} == records
    except ValueError:
        return False


def _all_can_be_read(
    read: Callable[[bytes], tuple[str, bytes]],
    digests: Iterable[bytes],
    rest: Rest = lambda: None,
) -> bool:
    try:
        for digest in digests:
            if digest_of(*read(digest)) != digest:
                return False

            rest()
    except KeyError:
        return False

    return True


def _date(index: Path, sources: Sequence[Source]) -> None:
    """Give a pack the age of its newest source: packs are merged in the order of their age."""
    newest = max(source.modified_ns for source in sources)
    os.utime(index.with_suffix(".pack"), ns=(newest, newest))


def _flush(index: Path) -> None:
    for file in (index, index.with_suffix(".pack")):
        file.chmod(READ_ONLY)
        sync_file(file)


# What the sources hold


@dataclass(frozen=True, slots=True)
class _Whole:
    """An object that is stored whole."""

    kind: str
    data: bytes


def _gathered(
    sources: Sequence[Source], rest: Rest
) -> tuple[dict[bytes, PackedObject], dict[bytes, _Whole]]:
    """Return all records, and the contents of those that may become deltas."""
    records: dict[bytes, PackedObject] = {}
    whole: dict[bytes, _Whole] = {}
    left = COMPARED_BYTES
    for source in sources:
        try:
            found, may_change = _records_of(source, rest)
            for record in found:
                known = records.get(record.digest)
                if known is None:
                    records[record.digest] = record
                elif not may_change or _is_delta(known) or _is_delta(record):
                    # Two deltas could end up as bases of each other.
                    raise Unpackable(source)

                if may_change and not _is_delta(record) and record.digest not in whole:
                    content = _content(record, min(left, COMPARED_OBJECT))
                    if content is not None:
                        whole[record.digest] = content
                        left -= len(content.data)
                        rest()
        except (PackDamaged, ValueError, OSError) as problem:
            raise Unpackable(source) from problem

    return records, whole


def _records_of(source: Source, rest: Rest) -> tuple[list[PackedObject], bool]:
    """Return a source's records in order, and whether they may be stored in another way."""
    if isinstance(source, LooseFile):
        kind, data = loose.whole_loose(source.path.parent.parent, source.digest)
        return [packed(source.digest, kind, data)], True

    found = _records(source.index, rest)
    return found, not any(_type_of(record) == _OFS_DELTA for record in found)


def _records(index: Path, rest: Rest) -> list[PackedObject]:
    """Return a pack's records, in order.

    Raises ValueError if a record does not match the checksum in the index, or is not listed.
    """
    file = index.with_suffix(".pack")
    content = file.read_bytes()
    body, checksum = memoryview(content)[:-_CHECKSUM], content[-_CHECKSUM:]
    if hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{file.name} is damaged")

    records = read_index(index)
    if not records or int.from_bytes(body[8:12]) != len(records) or records[0].offset != _HEADER:
        raise ValueError(f"{index.name} does not match the contents of its pack")

    found: list[PackedObject] = []
    for count, record in enumerate(records, start=1):
        data = content[record.offset : record.offset + record.length]
        if zlib.crc32(data) != record.crc:
            raise ValueError(f"{record.digest.hex()} is damaged")

        found.append(PackedObject(record.digest, record.crc, data))
        if count % RECORDS_AT_ONCE == 0:
            rest()

    return found


def _type_of(record: PackedObject) -> int:
    return record.record[0] >> 4 & 7


def _is_delta(record: PackedObject) -> bool:
    return _type_of(record) in (_OFS_DELTA, _REF_DELTA)


def _content(record: PackedObject, most: int) -> _Whole | None:
    """Return the content of a whole object; None if it is too long to be compared."""
    if _type_of(record) == _TAG:
        return None

    kind, size, begin = header_of(record.record)
    if size > most:
        return None

    inflate = loose.decompressobj()
    try:
        data = inflate.decompress(record.record[begin:], size + 1)
    except loose.DeflateError as problem:
        raise PackDamaged(record.digest.hex()) from problem

    if digest_of(kind, data) != record.digest:
        raise PackDamaged(record.digest.hex())

    return _Whole(kind, data)


# Versions of a path


def _chains(whole: dict[bytes, _Whole], rest: Rest) -> list[list[bytes]]:
    """Return the versions of each path, oldest first, and those of commits."""
    named, roots = _names(whole, rest)
    families: dict[tuple[str, object], list[bytes]] = {}
    paths: dict[bytes, object] = {}

    def path_of(digest: bytes) -> object:
        steps: list[tuple[bytes, bytes]] = []
        while digest not in paths:
            if digest not in named:
                # The tree of a commit, or another one: notes and the memory of sessions.
                paths[digest] = digest in roots
                break

            above, name = named[digest]
            steps.append((digest, name))
            digest = above

        path = paths[digest]
        for below, name in reversed(steps):
            path = paths[below] = (path, name)

        return path

    for digest, each in whole.items():
        if each.kind == "commit":
            families.setdefault((each.kind, ()), []).append(digest)
        elif each.kind == "tree" or digest in named:
            families.setdefault((each.kind, path_of(digest)), []).append(digest)

    return [chain for chain in families.values() if len(chain) > 1]


def _names(
    whole: dict[bytes, _Whole], rest: Rest
) -> tuple[dict[bytes, tuple[bytes, bytes]], set[bytes]]:
    """Return the tree above each object and its name there, and the trees that commits name."""
    named: dict[bytes, tuple[bytes, bytes]] = {}
    roots: set[bytes] = set()
    for digest, each in whole.items():
        if each.kind == "commit":
            roots.add(bytes.fromhex(each.data[5:45].decode("latin-1")))
        elif each.kind == "tree":
            for _, name, below in raw_entries(each.data):
                if below in whole:
                    named.setdefault(below, (digest, name))

            rest()

    return named, roots


def _compared(
    chain: Sequence[bytes],
    whole: dict[bytes, _Whole],
    records: dict[bytes, PackedObject],
    rest: Rest,
) -> Iterator[tuple[bytes, PackedObject]]:
    """Yield the versions of a chain that are smaller as deltas."""
    bases: list[tuple[int, bytes, Base]] = []
    for place, digest in enumerate(reversed(chain)):
        data = whole[digest].data
        while bases and bases[-1][0] != place & (place - 1):
            bases.pop()

        if bases:
            _, base, content = bases[-1]
            delta = content.delta(data, len(data) // 2)
            if delta is not None:
                record = packed_delta(digest, base, delta)
                if len(record.record) < len(records[digest].record):
                    yield digest, record

        bases.append((place, digest, Base(data)))
        rest()
