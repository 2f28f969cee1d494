"""Repair a shadow repository that lost objects, without the git program.

A store loses objects in two ways: a file is gone, or its bytes do not match its name. A checkpoint
needs its commit, every tree below it and every blob below those, so one lost blob can make many
checkpoints unusable, and one lost commit hides all its ancestors from a walk of the history.
Objects are named by their content, though: any source with the same content can supply the object
again, and its name proves that it is the right one.

A repair consists of these steps; an interrupted step is repeated.

    clear      Files of the store whose bytes are wrong are moved to `quarantine/`, where git does
               not look: an object that exists and is damaged would never be written again.
    rewrite    Needed objects that cannot be read are searched for in the damaged packs, the work
               tree and the repositories that the caller names, until nothing more is found.
    notes      Manifests of permissions and empty folders are gathered from older notes trees.
    detach     Checkpoints that still lack something are removed from the history: commits made
               upon them become the beginnings of their history (git's `shallow` file), so that no
               sha changes; refs that name them are moved aside, into `quarantine/`, and a branch
               goes back to its newest whole checkpoint.
    keep       Whole checkpoints that no ref leads to any more get one, `refs/hankweave/kept/`.

Afterwards stock `git fsck` finds no fault. Nothing is deleted: everything that was removed lies in
the quarantine, named by the event that the caller journals.

A source of lost objects (another repository, a pack in quarantine) is a function from a digest to
kind and content that raises KeyError. Its result is verified against the digest, so no source can
put wrong content into the store.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.capture import read_all
from hankweave_server.checkpoints.contents import Contents, Verification
from hankweave_server.checkpoints.detach import QUARANTINE, DetachedRef, Detaching
from hankweave_server.checkpoints.file_reader import CapturedFile
from hankweave_server.checkpoints.notes import Notes, recover_notes, whole_memory
from hankweave_server.checkpoints.pruning import named_in
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.fsutil import make_private_directory, sync_directory
from hankweave_server.git.loose import read_loose, whole_loose
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.pack_reader import PackReader
from hankweave_server.git.repo import MEMORY_REF, NOTES_REF, ShadowRepo, reader_of
from hankweave_server.git.store_files import PackFile, StoreFiles
from hankweave_server.git.trees import write_trees
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout

Source = Callable[[bytes], tuple[str, bytes]]

_PLAIN = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_PACK_HEADER = 12
_PACK_TRAILER = 20


class NoRepository(Exception):
    """A path that was named as a source has no git objects."""


def repository_source(place: Path) -> Source:
    """Return a source that reads a repository: a git directory, a clone, or an execution.

    Raises NoRepository if the path is none of these.
    """
    layout = Layout.of_execution(place)
    candidates = (place, place / ".git", layout.shadow_repository)
    objects = next((each / "objects" for each in candidates if (each / "objects").is_dir()), None)
    if objects is None:
        raise NoRepository(f"{place} is neither a git repository nor an execution directory")

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

    Only objects in `wanted` are kept in memory; deltas are skipped.
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
    """Yield the plain objects of a pack up to the first byte that makes no sense."""
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
    """Return the object from the first source that has it."""
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
    """Read the work tree as a checkpoint upon `parent` would, and store the wanted objects."""
    with ObjectStaging(repo.path / "objects", lambda digest: digest not in wanted) as staging:
        pending = memory.refresh(parent, patterns)
        with memory.descent.fresh() as descent:
            for file, seen in read_all(pending, descent, staging, None):
                if isinstance(seen, CapturedFile):
                    memory.scan.remember(
                        file, seen.signature, seen.digest, seen.git_mode, seen.permissions
                    )
                else:
                    memory.table.lose(file)

        write_trees(memory.table, lambda data: staging.add("tree", data))
        staging.settle()


CHUNK = 1 << 20

FromWorkTree = Callable[[frozenset[bytes]], None]
"""Write those of the objects whose content the work tree has."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair."""

    rewritten: tuple[Sha, ...]
    """Objects that could not be read before, and can be now."""
    lost: tuple[Sha, ...]
    """Checkpoints that were given up."""
    detached: tuple[DetachedRef, ...]
    """Refs whose targets are lost."""
    quarantined: tuple[str, ...]
    """Files that were moved aside, relative to the quarantine."""
    quarantine: Path | None
    """Their folder; None if nothing was moved."""
    unknown_manifests: tuple[Sha, ...]
    """Checkpoints whose permissions and empty folders are unknown now."""

    @property
    def has_changed(self) -> bool:
        return bool(self.rewritten or self.lost or self.detached or self.quarantined)


@dataclass
class _Quarantine:
    """The folder for everything that one repair removes, created when it is needed."""

    folder: Path
    moved: list[str] = field(default_factory=list)

    def take(self, path: Path, below: Path) -> None:
        place = self.folder / path.relative_to(below)
        make_private_directory(place.parent)
        path.rename(place)
        sync_directory(path.parent)
        self.moved.append(str(path.relative_to(below)))


class Repair:
    """One repair of one store; nothing else may use the store meanwhile."""

    def __init__(
        self, repo: ShadowRepo, notes: Notes, stamp: str, meter: Meter = UNWATCHED
    ) -> None:
        self._repo = repo
        self._notes = notes
        self._files = StoreFiles(repo.path)
        self._meter = meter
        self._quarantine = _Quarantine(repo.path / QUARANTINE / stamp)

    def run(
        self,
        recorded: frozenset[Sha],
        from_work_tree: FromWorkTree,
        others: Iterable[Source] = (),
    ) -> Repaired:
        """Repair the store; `recorded` are the checkpoints that it should hold.

        Raises OSError and ShadowRepositoryError; everything that was readable is still readable
        then.
        """
        self._repo.settle()
        needed_at_first = self._unreadable(recorded)
        self._clear()
        self._repo.reopen()
        left, seen = self._rewrite(recorded, from_work_tree, tuple(others))
        rewritten = (needed_at_first | seen) - left
        unknown = self._repair_notes_and_memory(recorded, left)
        lost = self._lost(recorded)
        detached = Detaching(self._repo, self._quarantine.folder).run(recorded, lost)
        self._repo.reopen()
        if lost or detached:
            (self._repo.path / "index").unlink(missing_ok=True)  # It may name what is lost.

        moved = tuple(self._quarantine.moved)
        return Repaired(
            rewritten=tuple(sorted(Sha(digest.hex()) for digest in rewritten)),
            lost=tuple(sorted(lost)),
            detached=detached,
            quarantined=moved,
            quarantine=self._quarantine.folder if moved or detached else None,
            unknown_manifests=tuple(sorted(unknown)),
        )

    # --- what is needed, and cannot be read ----------------------------------------------------

    def _roots(self, recorded: frozenset[Sha]) -> set[bytes]:
        named = {bytes.fromhex(sha) for sha in self._repo.references().values()}
        head = self._repo.head()
        named |= set() if head is None else {bytes.fromhex(head)}
        return named | {bytes.fromhex(sha) for sha in recorded}

    def _unreadable(self, recorded: frozenset[Sha]) -> set[bytes]:
        """Return the unreadable objects that refs and recorded checkpoints are known to need."""
        contents, cut = Contents(self._repo), self._repo.shallow()
        seen, lost = set[bytes](), set[bytes]()
        waiting = list(self._roots(recorded))
        self._meter.begin("checking", "objects", self._files.count_objects())
        while waiting:
            digest = waiting.pop()
            if digest in seen:
                continue

            seen.add(digest)
            self._meter.advance()
            try:
                needed, leaves = named_in(*self._repo.read(digest), is_cut=digest.hex() in cut)
            except (KeyError, ValueError):
                lost.add(digest)
                continue

            waiting += needed
            for leaf in leaves:
                if leaf not in seen:
                    seen.add(leaf)
                    self._meter.advance()
                    if not contents.is_readable(leaf):
                        lost.add(leaf)

        return lost

    def _lost(self, recorded: frozenset[Sha]) -> frozenset[Sha]:
        """Return the checkpoints that cannot be restored completely."""
        found, _ = self._repo.reached_from_refs()
        verification = Verification(self._repo, self._notes)
        return frozenset(sha for sha in {*found, *recorded} if verification.unreadable(sha))

    # --- clear ---------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Move files whose bytes are wrong out of git's sight."""
        objects = self._files.objects
        for file in list(self._files.loose()):
            if not _is_sound_loose(objects, file.digest):
                self._quarantine.take(file.path, self._repo.path)

        for pack in self._files.packs():
            if not _is_sound(pack):
                for path in (pack.index, pack.index.with_suffix(".pack")):
                    self._quarantine.take(path, self._repo.path)

    # --- rewrite -------------------------------------------------------------------------------

    def _rewrite(
        self, recorded: frozenset[Sha], from_work_tree: FromWorkTree, others: tuple[Source, ...]
    ) -> tuple[set[bytes], set[bytes]]:
        """Write what other sources have; return what is still lost, and everything that was.

        A recovered tree names further objects that were not known to be needed: hence the loop.
        """
        lost = self._unreadable(recorded)
        seen = set(lost)
        while lost:
            from_work_tree(frozenset(lost))
            self._write(lost, (*self._quarantined(frozenset(lost)), *others))
            self._repo.reopen()
            left = self._unreadable(recorded)
            if left == lost:
                break

            lost = left
            seen |= lost

        return lost, seen

    def _quarantined(self, wanted: frozenset[bytes]) -> Iterator[Source]:
        """Yield the packs that this and earlier repairs moved aside, as sources."""
        for folder in sorted((self._repo.path / QUARANTINE).glob("*/objects")):
            if (folder / "pack").is_dir():
                yield objects_source(folder)
                yield scanned_source(sorted((folder / "pack").glob("*.pack")), wanted)

    def _write(self, wanted: set[bytes], sources: tuple[Source, ...]) -> None:
        with ObjectStaging(self._files.objects, lambda digest: digest not in wanted) as staging:
            for digest in sorted(wanted):
                found = first_of(sources, digest)
                if found is not None:
                    staging.add(*found)

            staging.settle()

    # --- notes and memory ----------------------------------------------------------------------

    def _repair_notes_and_memory(self, recorded: frozenset[Sha], lost: set[bytes]) -> set[Sha]:
        """Make both refs name complete trees again; return the checkpoints without a manifest."""
        if not lost:
            return set()

        found, _ = self._repo.reached_from_refs()
        with ObjectStaging(self._files.objects, self._repo.stored()) as staging:
            notes = recover_notes(self._repo, frozenset((*found, *recorded)), staging.add)
            memory = whole_memory(self._repo, lost, staging.add)
            staging.settle()

        if notes.top is not None:
            self._repo.point(NOTES_REF, notes.top.hex())

        if memory is not None:
            self._repo.point(MEMORY_REF, memory.hex())

        self._repo.reopen()
        return set(notes.unknown)


def _is_sound_loose(objects: Path, digest: bytes) -> bool:
    try:
        for _ in read_loose(objects, digest):
            pass
    except (ValueError, OSError):
        return False

    return True


def _is_sound(pack: PackFile) -> bool:
    """Return whether pack and index match their checksums."""
    try:
        pack.records()
        return _has_its_checksum(pack.index.with_suffix(".pack"))
    except (ValueError, OSError):
        return False


def _has_its_checksum(path: Path) -> bool:
    checksum = hashlib.sha1(usedforsecurity=False)
    left = os.stat(path).st_size - checksum.digest_size
    with path.open("rb") as stream:
        while left > 0 and (part := stream.read(min(CHUNK, left))):
            checksum.update(part)
            left -= len(part)

        return left == 0 and stream.read() == checksum.digest()
