"""Combine many packs into few, in short steps, while the engine is idle.

Every checkpoint leaves a small pack, or a loose commit if nothing changed. Two kinds of steps keep
their number down. Fresh small packs are packed again with deltas between their objects, which is
where most bytes are saved. Packs of a similar size are joined by copying, until they are large
enough. So no object is compressed more than twice.

A step writes the new pack under `tmp_` names, flushes it, reads it back, renames it durably, and
only then removes the packs it replaces. A crash in between leaves objects twice, and the next
start removes the copies. Sources that cannot be read stay where they are, for fsck to report.

A replacement in progress lies in a folder `tmp_...` beside the packs, laid out as an object store
of its own: it can be opened and read by itself before any reader can see it.
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
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.objects import PackedObject, PackWriter, digest_of
from hankweave_server.git.pack_reader import read_index
from hankweave_server.git.repo import ShadowRepo, reader_of
from hankweave_server.git.store_files import READ_ONLY, PackFile, Source, StoreFiles, staging_folder
from hankweave_server.meter import UNWATCHED, Meter

_HEADER = 12
_CHECKSUM = 20


class Unpackable(Exception):
    """A pack cannot be joined with others: it is damaged, or holds an object that another holds."""

    def __init__(self, pack: PackFile) -> None:
        super().__init__(f"{pack.index.name} cannot be joined")
        self.pack = pack


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


def packed_anew(repo: ShadowRepo, pack_folder: Path, digests: Sequence[bytes]) -> Replacement:
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


def joined(pack_folder: Path, packs: Sequence[PackFile]) -> Replacement:
    """Join packs by copying records; deltas stay valid, because bases keep their distance.

    Each record is verified against the checksum in its old index, before and after copying. Raises
    Unpackable for the first unsuitable pack, leaving nothing behind.
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
        for file in staged.files():
            file.temporary.rename(file.final)

        index = staging / "pack" / f"{staged.name}.idx"
        _flush(index)
        if _records(index) != records:
            raise ShadowRepositoryError(f"{index.stem} does not contain what was copied into it")

        return Replacement(staging, index, frozenset(records))


def can_be_read(pack: PackFile) -> bool:
    """Return whether every object of a pack can be read from it alone."""
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
    """Create a staging folder, and remove it if the work in it fails."""
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
        sync_file(file)


def _sound_records(pack: PackFile) -> dict[bytes, PackedObject]:
    try:
        return _records(pack.index)
    except (ValueError, OSError) as problem:
        raise Unpackable(pack) from problem


def _records(index: Path) -> dict[bytes, PackedObject]:
    """Return a pack's records, in order.

    Raises ValueError if a record does not match the checksum in the index, or is not listed.
    """
    file = index.with_suffix(".pack")
    content = file.read_bytes()
    body, checksum = memoryview(content)[:-_CHECKSUM], content[-_CHECKSUM:]
    if hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{file.name} is damaged")

    records = read_index(index)
    if int.from_bytes(body[8:12]) != len(records) or records[0].offset != _HEADER:
        raise ValueError(f"{index.name} does not match the contents of its pack")

    found = {}
    for record in records:
        data = content[record.offset : record.offset + record.length]
        if zlib.crc32(data) != record.crc:
            raise ValueError(f"{record.digest.hex()} is damaged")

        found[record.digest] = PackedObject(record.digest, record.crc, data)

    return found


FRESH_PACKS = 32
"""Number of fresh packs that justify a step: their objects then share one base of each tree."""

LOOSE_OBJECTS = 128
JOINED_AT_ONCE = 16

STEP_BYTES = 1 << 20
"""Unpacked bytes that one step compares with one another: some 100 ms."""

STEP_OBJECTS = 160
LARGE_PACK = 256 << 10
"""Packs of this size or more are not joined: joining sixteen of them would delay a checkpoint."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """The result of a consolidation."""

    packs_before: int
    packs_after: int
    loose_before: int
    loose_after: int
    bytes_before: int
    bytes_after: int
    finished: bool
    """True if nothing is left to do; False if it was asked to stop."""


class Repacking:
    """The consolidation of one store; its only state is which sources must not be tried again."""

    def __init__(self, repo: ShadowRepo, files: StoreFiles) -> None:
        self._repo = repo
        self._files = files
        self._left_alone: set[bytes | str] = set()
        self._copies_removed = False

    def is_needed(self) -> bool:
        fresh = self._fresh()
        packs = sum(isinstance(source, PackFile) for source in fresh)
        return (
            packs >= FRESH_PACKS
            or len(fresh) - packs >= LOOSE_OBJECTS
            or self._next_to_join() is not None
        )

    def run(self, should_stop: Callable[[], bool], meter: Meter = UNWATCHED) -> Consolidated:
        """Work until nothing is left to do, or until asked, between steps, to stop.

        The meter counts the packs and loose objects that no longer need a step. Raises OSError or
        ShadowRepositoryError with every object still readable.
        """
        before = self._files.size()
        finished = self._run(should_stop, meter)
        after = self._files.size()
        return Consolidated(
            packs_before=before.packs,
            packs_after=after.packs,
            loose_before=before.loose_objects,
            loose_after=after.loose_objects,
            bytes_before=before.bytes_on_disk,
            bytes_after=after.bytes_on_disk,
            finished=finished,
        )

    def _run(self, should_stop: Callable[[], bool], meter: Meter) -> bool:
        if not self._copies_removed:
            self._remove_copies()
            self._copies_removed = True

        before = len(self._fresh())
        meter.begin("packing", "files", before)
        while not should_stop():
            if not (self._pack_fresh_ones() or self._join_packs()):
                return True

            left = len(self._fresh())
            meter.advance(max(0, before - left))
            before = left

        return False

    # Fresh packs and loose objects

    def _pack_fresh_ones(self) -> bool:
        """Pack the oldest fresh sources with deltas; return False if there are fewer than two."""
        fresh = self._fresh()
        if len(fresh) < 2:
            return False

        batch, digests = self._batch(fresh)
        if len(batch) > 1:
            self._replace(batch, packed_anew(self._repo, self._files.pack_folder, digests))
        elif batch:
            self._leave_alone(batch[0])

        return True

    def _fresh(self) -> list[Source]:
        packs = [pack for pack in self._files.packs() if pack.is_fresh]
        sources: list[Source] = [*self._files.loose(), *packs]
        return [source for source in sources if _key(source) not in self._left_alone]

    def _batch(self, sources: Sequence[Source]) -> tuple[list[Source], list[bytes]]:
        """Choose as many sources as fit into one step; one too large for any is never retried."""
        batch: list[Source] = []
        digests: dict[bytes, None] = {}
        room = STEP_BYTES
        for source in sources:
            content = self._readable(source)
            if content is None:
                self._leave_alone(source)
                continue

            if sum(content.values()) > room or len(digests) + len(content) > STEP_OBJECTS:
                if not batch:
                    self._leave_alone(source)
                    continue

                break

            batch.append(source)
            digests.update(dict.fromkeys(content))
            room -= sum(content.values())

        return batch, list(digests)

    def _readable(self, source: Source) -> dict[bytes, int] | None:
        """Return a source's objects and sizes; None if one is damaged or the total is too large."""
        if source.size > STEP_BYTES:
            return None

        try:
            sizes = {digest: self._repo.size(digest) for digest in source.digests()}
            if sum(sizes.values()) <= STEP_BYTES:
                for digest in sizes:
                    self._repo.read(digest)
        except (KeyError, ValueError, OSError):
            return None

        return sizes

    def _leave_alone(self, source: Source) -> None:
        self._left_alone.add(_key(source))
        if isinstance(source, PackFile):
            source.settle()

    # Packs of a similar size

    def _join_packs(self) -> bool:
        packs = self._next_to_join()
        if packs is None:
            return False

        try:
            replacement = joined(self._files.pack_folder, packs)
        except Unpackable as unfit:
            self._left_alone.add(_key(unfit.pack))
            return True

        self._replace(packs, replacement)
        return True

    def _next_to_join(self) -> list[PackFile] | None:
        classes: dict[int, list[PackFile]] = {}
        for pack in self._files.packs():
            if not pack.is_fresh and pack.size < LARGE_PACK and _key(pack) not in self._left_alone:
                alike = classes.setdefault(_class_of(pack), [])
                alike.append(pack)
                if len(alike) == JOINED_AT_ONCE:
                    return alike

        return None

    # Replacement

    def _replace(self, sources: Iterable[Source], replacement: Replacement) -> None:
        """Replace the sources by the new pack, which was read back with all their objects."""
        replacement.adopt()
        self._remove(sources, replacement.digests, replacement.name)
        self._repo.reopen()

    def _remove(self, sources: Iterable[Source], held: frozenset[bytes], name: str) -> None:
        replaced = [
            source
            for source in sources
            if held.issuperset(source.digests())
            and not (isinstance(source, PackFile) and source.index.stem == name)
        ]
        self._files.remove(replaced)

    def _remove_copies(self) -> None:
        """Remove the copies left by an interrupted step."""
        packs = [pack for pack in self._files.packs() if pack.size < JOINED_AT_ONCE * LARGE_PACK]
        sources: list[Source] = [*packs, *self._files.loose()]
        known = {_key(source): _digests_of(source) for source in sources}
        present = {_key(source): source for source in sources if known[_key(source)]}
        for pack in packs:
            if pack.is_fresh or _key(pack) not in present:
                continue

            whole = known[_key(pack)]
            copies = [
                other for key, other in present.items() if key != _key(pack) and known[key] <= whole
            ]
            if copies and can_be_read(pack):
                self._remove(copies, whole, pack.index.stem)
                self._repo.reopen()
                for copy in copies:
                    del present[_key(copy)]


def _digests_of(source: Source) -> frozenset[bytes]:
    """Return the names of a source's objects; none for a torn index, which fsck reports."""
    try:
        return frozenset(source.digests())
    except (ValueError, OSError):
        return frozenset()


def _key(source: Source) -> bytes | str:
    return source.index.name if isinstance(source, PackFile) else source.digest


def _class_of(pack: PackFile) -> int:
    """Return the size class of a pack.

    Each class spans a factor of sixteen, so sixteen joined packs are in the next class and are not
    joined with small packs again.
    """
    return pack.size.bit_length() // 4
