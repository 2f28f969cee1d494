"""Makes one pack that takes the place of others, and proves that it can.

A replacement under way lies in a folder `tmp_…` beside the packs, laid out as an object store of
its own: so it can be read alone, before anybody else sees it.
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

from hankweave_server.checkpoints.errors import ShadowRepositoryError
from hankweave_server.fsutil import sync_directory
from hankweave_server.git.objects import digest_of
from hankweave_server.git.pack_index import read_index
from hankweave_server.git.packs import PackedObject, PackWriter
from hankweave_server.git.repo import ShadowRepo, reader_of
from hankweave_server.git.store_files import READ_ONLY, PackFile, staging_folder

_HEADER = 12
_CHECKSUM = 20


class Unpackable(Exception):
    """A pack cannot be joined with others: it is damaged, or has what another has."""

    def __init__(self, pack: PackFile) -> None:
        super().__init__(f"{pack.index.name} cannot be joined")
        self.pack = pack


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pack that was flushed and read back, and that nobody sees yet."""

    staging: Path
    index: Path
    digests: frozenset[bytes]

    @property
    def name(self) -> str:
        return self.index.stem

    def adopt(self) -> None:
        """Gives it its final names, durably; git looks for indexes, so the pack goes first."""
        folder = self.staging.parent
        for file in (self.index.with_suffix(".pack"), self.index):
            file.rename(folder / file.name)

        sync_directory(folder)
        shutil.rmtree(self.staging)


def packed_anew(repo: ShadowRepo, pack_folder: Path, digests: Sequence[bytes]) -> Replacement:
    """Packs the objects with deltas between them.

    Raises ShadowRepositoryError, leaving nothing, when one of them cannot be read.
    """
    with _staging(pack_folder) as staging:
        repo.write_pack(digests, staging / "pack")
        (index,) = (staging / "pack").glob("*.idx")
        _flush(index)
        if not _all_can_be_read(reader_of(staging), digests):
            raise ShadowRepositoryError(f"{index.stem} does not hold what was put into it")

        return Replacement(staging, index, frozenset(digests))


def joined(pack_folder: Path, packs: Sequence[PackFile]) -> Replacement:
    """Joins packs by copying; deltas stay as they are, because bases keep their distance.

    Each record is held against the checksum its old index has for it, before and after. Raises
    Unpackable, leaving nothing, for the first pack that does not fit.
    """
    records: dict[bytes, PackedObject] = {}
    for pack in packs:
        found = _sound_records(pack)
        if not records.keys().isdisjoint(found):
            raise Unpackable(pack)

        records |= found

    with _staging(pack_folder) as staging:
        writer = PackWriter(staging / "pack")
        for record in records.values():
            writer.add(record)

        staged = writer.finish()
        staged.adopt()
        index = staging / "pack" / f"{staged.name}.idx"
        _flush(index)
        if _records(index) != records:
            raise ShadowRepositoryError(f"{index.stem} does not hold what was copied into it")

        return Replacement(staging, index, frozenset(records))


def can_be_read(pack: PackFile) -> bool:
    """Tells whether every object of a pack can be read from it alone."""
    with _staging(pack.index.parent) as staging:
        for file in (pack.index, pack.index.with_suffix(".pack")):
            os.link(file, staging / "pack" / file.name)

        try:
            sound = _all_can_be_read(reader_of(staging), pack.digests())
        except (ValueError, OSError):
            sound = False

        shutil.rmtree(staging)
        return sound


@contextmanager
def _staging(pack_folder: Path) -> Iterator[Path]:
    """Makes a staging folder, and removes it if the work in it fails."""
    staging = staging_folder(pack_folder)
    try:
        yield staging
    except BaseException:
        shutil.rmtree(staging)
        raise


def _all_can_be_read(read: Callable[[bytes], tuple[str, bytes]], digests: Iterable[bytes]) -> bool:
    try:
        return all(digest_of(*read(digest)) == digest for digest in digests)
    except KeyError:
        return False


def _flush(index: Path) -> None:
    for file in (index, index.with_suffix(".pack")):
        file.chmod(READ_ONLY)
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sound_records(pack: PackFile) -> dict[bytes, PackedObject]:
    try:
        return _records(pack.index)
    except (ValueError, OSError) as problem:
        raise Unpackable(pack) from problem


def _records(index: Path) -> dict[bytes, PackedObject]:
    """Reads a pack's records as they stand there, in order.

    Raises ValueError if one has not the checksum that the index has for it, or is not listed.
    """
    file = index.with_suffix(".pack")
    content = file.read_bytes()
    body, checksum = memoryview(content)[:-_CHECKSUM], content[-_CHECKSUM:]
    if hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{file.name} is damaged")

    records = read_index(index)
    if int.from_bytes(body[8:12]) != len(records) or records[0].offset != _HEADER:
        raise ValueError(f"{index.name} does not list what its pack holds")

    found = {}
    for record in records:
        data = content[record.offset : record.offset + record.length]
        if zlib.crc32(data) != record.crc:
            raise ValueError(f"{record.digest.hex()} is damaged")

        found[record.digest] = PackedObject(record.digest, record.crc, data)

    return found
