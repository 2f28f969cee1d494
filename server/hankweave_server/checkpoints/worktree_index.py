"""State of the work tree between two calls of the engine: tracked paths, stat data, digests.

The tracked paths follow the commit that will be the parent of the next checkpoint, as with git's
index: a path of the parent stays tracked even if `.gitignore` hides it by now. Knowledge about
file contents does not depend on any commit, only on stat data.

The scan cache keeps that knowledge over a restart. It is only a cache: it is used if its checksum
is right and the checkpoint it was made at is in the repository; otherwise it is ignored, and the
next checkpoint reads every file. Its format is a checksum, then blocks of msgpack, each preceded
by its length: first the head, then the files.

`FileObserver` reports what is at a path now, and reads it only when stat data is inconclusive.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.contents import store_listing
from hankweave_server.checkpoints.file_reader import CapturedFile, FileReader, Observation, Vanished
from hankweave_server.checkpoints.manifest import ManifestCorrupt
from hankweave_server.checkpoints.model import RestorePlan
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.fsutil import replace
from hankweave_server.git.objects import HashOnly
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import differences
from hankweave_server.worktree.attributes import Attributes
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import AT_THE_TOP
from hankweave_server.worktree.parent_gitignore import rules_above
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.scan import RACY_WINDOW_NS, WorkTreeScan
from hankweave_server.worktree.stat_index import Signature, StatIndex, TrackedFile, signature_of

VERSION = 4
FILES_IN_A_BLOCK = 1000  # So that no process ever holds all of them as objects.
_CHECKSUM_SIZE = 32
_LENGTH = struct.Struct(">I")


class CachedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    signature: Signature
    digest: bytes
    git_mode: int
    permissions: int
    is_proof: bool
    attributes: Attributes | None = None
    """If they are not usual."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    version: int
    made_at: str
    store: dict[str, tuple[int, int, int]]
    owner: tuple[int, int]


_DECODE_HEAD = msgspec.msgpack.Decoder(_Head).decode
_DECODE_FILES = msgspec.msgpack.Decoder(list[CachedFile]).decode
_FAULTS = (OSError, struct.error, msgspec.DecodeError)


@dataclass(frozen=True, slots=True)
class ScanCache:
    """A saved cache whose checksum was right."""

    made_at: Sha
    """The checkpoint whose repository holds every digest of the cache."""
    store: dict[str, tuple[int, int, int]]
    """The files that held the repository's objects, with size, time and inode."""
    owner: tuple[int, int]
    """User and group of a usual file."""
    _files: bytes

    def files(self) -> Iterator[list[CachedFile]]:
        """Yield what was read of the files, in blocks."""
        return map(_DECODE_FILES, _blocks(self._files))

    def apply(self, table: StatIndex) -> None:
        """Fill in what was read of the tracked files before."""
        for block in self.files():
            for cached in block:
                file = table.files.get(cached.path)
                if file is not None:
                    table.record_capture(
                        file,
                        cached.signature,
                        cached.digest,
                        cached.git_mode,
                        cached.permissions,
                        is_proof=cached.is_proof,
                    )
                    table.record_attributes(file.slot, file.path, cached.attributes)


def save(
    path: Path,
    made_at: Sha,
    table: StatIndex,
    files: Iterable[TrackedFile],
    store: dict[str, tuple[int, int, int]],
) -> None:
    """Write the cache, without racy files: their stat data proves nothing."""
    body = bytearray(_block(_Head(VERSION, made_at, store, table.owner)))
    remembered = _remembered(table, files)
    while chunk := list(islice(remembered, FILES_IN_A_BLOCK)):
        body += _block(chunk)

    replace(path, hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() + body)


def load(path: Path) -> ScanCache | None:
    """Read the cache; return None if there is none that can be trusted."""
    try:
        content = path.read_bytes()
        checksum, body = content[:_CHECKSUM_SIZE], content[_CHECKSUM_SIZE:]
        if hashlib.blake2b(body, digest_size=_CHECKSUM_SIZE).digest() != checksum:
            return None

        first = next(_blocks(body), b"")
        head = _DECODE_HEAD(first)
    except _FAULTS:
        return None

    if head.version != VERSION:
        return None

    return ScanCache(Sha(head.made_at), head.store, head.owner, body[_LENGTH.size + len(first) :])


def _remembered(table: StatIndex, files: Iterable[TrackedFile]) -> Iterator[CachedFile]:
    for file in files:
        signature = file.signature
        git_mode, permissions, digest = file.captured
        if signature is not None and git_mode:
            _, attributes = table.slots.unusual.get(file.slot, (b"", None))
            yield CachedFile(
                file.path, signature, digest, git_mode, permissions, file.is_proof, attributes
            )


def _block(value: object) -> bytes:
    encoded = msgspec.msgpack.encode(value)
    return _LENGTH.pack(len(encoded)) + encoded


def _blocks(body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        yield body[position : position + length]
        position += length


class FileObserver:
    """An observer of paths that stores nothing in the repository."""

    def __init__(
        self,
        descent: Descent,
        scan: WorkTreeScan,
        size_limit: int | None,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._descent = descent
        self._scan = scan
        self._capture = FileReader(descent, HashOnly(), size_limit)
        self._now_ns = now_ns
        self._seen: dict[bytes, CapturedFile] = {}

    def at(self, path: bytes) -> Observation:
        """Observe one path; raise OSError only for disk errors."""
        try:
            status = self._descent.status(path)
        except PermissionError:
            return self._capture.read(path)

        if status is None or stat.S_ISDIR(status.st_mode):
            return Vanished()

        file = self._scan.table.files.get(path)
        if file is not None and self._scan.is_settled(file, status):
            git_mode, permissions, digest = file.captured
            if git_mode:
                return CapturedFile(
                    digest,
                    git_mode,
                    signature_of(status),
                    permissions,
                    status.st_size,
                    attributes=self._scan.table.attributes(file.slot),
                )

        seen = self._seen.get(path)
        if seen is not None and seen.signature == signature_of(status):
            return seen

        return self._read(path)

    def read(self, path: bytes) -> Observation:
        """Read what is at a path, whatever is known of it."""
        return self._capture.read(path)

    def forget(self) -> None:
        self._seen.clear()

    def _read(self, path: bytes) -> Observation:
        seen = self._capture.read(path)
        if not isinstance(seen, CapturedFile) or seen.signature is None:
            return seen

        # A file read in the same tick as its last write may change again unnoticed.
        if seen.has_writer is False and (seen.signature.ctime_ns < self._now_ns() - RACY_WINDOW_NS):
            self._seen[path] = seen

        return seen


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: RestorePlan
    patterns: tuple[str, ...]
    pending: list[TrackedFile]


class WorkTreeMemory:
    """Index, scan and observer of one work tree, kept in step with HEAD and with the disk."""

    def __init__(
        self,
        repo: ShadowRepo,
        notes: Notes,
        work_tree: Path,
        size_limit: int | None,
        *,
        in_place: bool = False,
        watches: bool = False,
    ) -> None:
        self._repo = repo
        self._notes = notes
        self._size_limit = size_limit
        # In an in-place project no name at the top is reserved, and outer ignore rules may apply.
        self.descent = Descent(work_tree, at_the_top=frozenset() if in_place else AT_THE_TOP)
        self._above = rules_above(work_tree) if in_place else None
        self._watches = watches
        self._begin()

    def forget(self) -> None:
        """Discard everything: the next checkpoint reads every file again."""
        before = self.scan
        before.close()
        self._begin()
        self.scan.state.follow(before.state)

    def close(self) -> None:
        """Release the work tree."""
        self.scan.close()
        self.descent.close()

    def _begin(self) -> None:
        top = os.fstat(self.descent.root)
        self.table = StatIndex((top.st_uid, top.st_gid))
        self.scan = WorkTreeScan(self.descent, self.table, above=self._above, watches=self._watches)
        self.observer = FileObserver(self.descent, self.scan, self._size_limit)
        self._tree: bytes | None = None
        self._commit: Sha | None = None
        self._planned: _Planned | None = None

    @property
    def tree(self) -> bytes | None:
        """The tree of the commit that the index follows."""
        return self._tree

    def refresh(
        self,
        parent: Sha | None,
        patterns: Iterable[str],
        also: Iterable[bytes] = (),
    ) -> list[TrackedFile]:
        """Scan the work tree; return the files that must be read."""
        self._planned = None
        self.follow(parent)
        return self.scan.refresh(UnifiedFileResolver(patterns), also)

    def with_held(self, pending: list[TrackedFile]) -> list[TrackedFile]:
        """Add the files that a process may have written to although their stat data has not moved.

        They must be read before their content counts as known.
        """
        known = {file.slot for file in pending}
        return pending + [file for file in self.scan.held() if file.slot not in known]

    def unconfirmed(self, pending: list[TrackedFile]) -> list[TrackedFile]:
        """Return those of the files that must be read even after `confirm`."""
        return self.with_held(self.scan.recheck(file.path for file in pending))

    def settle_racy(self, at_most: int) -> int:
        """Read some files that were written a moment ago; return how many need no further check."""

        def read(file: TrackedFile) -> Signature | None:
            seen = self.observer.read(file.path)
            is_known = isinstance(seen, CapturedFile) and self._is_as_captured(file, seen)
            return seen.signature if isinstance(seen, CapturedFile) and is_known else None

        return self.scan.settle_racy(read, at_most)

    def _is_as_captured(self, file: TrackedFile, seen: CapturedFile) -> bool:
        """Return whether nothing about a file has changed, nor can change unnoticed."""
        if seen.signature is None or seen.has_writer is not False:
            return False

        is_usual = seen.attributes in (None, self.table.attributes(file.slot))
        return is_usual and (seen.git_mode, seen.permissions, seen.digest) == file.captured

    def confirm(self, path: bytes, seen: CapturedFile) -> None:
        """Note that a file is as it was captured, so that the next checkpoint need not read it."""
        file = self.table.files.get(path)
        if file is not None and self._is_as_captured(file, seen):
            self.scan.remember(
                file,
                seen.signature,
                seen.digest,
                seen.git_mode,
                seen.permissions,
                attributes=seen.attributes,
            )

    def has_planned(
        self, plan: RestorePlan, patterns: Iterable[str], pending: list[TrackedFile]
    ) -> None:
        """Record the result of the scan that a plan is based on."""
        self._planned = _Planned(plan, tuple(patterns), pending)

    def refresh_after(
        self, plan: RestorePlan, parent: Sha | None, patterns: Iterable[str]
    ) -> list[TrackedFile]:
        """Check the paths that the plan will touch again, and reuse its scan for the rest.

        Scans everything if that was not the last scan, or had other parameters.
        """
        planned, self._planned = self._planned, None
        if (
            planned is None
            or planned.plan is not plan
            or planned.patterns != tuple(patterns)
            or parent != self._commit
        ):
            return self.refresh(parent, patterns, plan.touched)

        changed = self.scan.recheck(plan.touched)
        known = {file.slot for file in changed}
        before = [file for file in planned.pending if self.table.is_tracked(file)]
        return changed + [file for file in before if file.slot not in known]

    def follow(self, parent: Sha | None) -> None:
        """Track the files of that commit; patterns add others later."""
        if parent == self._commit:
            return

        try:
            self._track_as(parent)
        except (KeyError, ManifestCorrupt):
            # A damaged past must not prevent new checkpoints; patterns alone decide then.
            self.forget()

        self._commit = parent

    def is_recorded(self, commit: Sha, tree: bytes) -> None:
        """Record that the state of the index has become that commit."""
        self._commit, self._tree = commit, tree
        self.table.gone.clear()
        self.table.track_present_empty_folders()
        self.observer.forget()

    def missed_by_watch(self) -> tuple[bytes, ...]:
        """Compare everything with the disk; return what changed in content without an event.

        A file whose times alone differ, as after a new link from outside, is not one of them.
        """
        missed: list[bytes] = []
        with self.descent.fresh():
            for path in self.scan.verify():
                file = self.table.files.get(path)
                seen = self.observer.at(path)
                if file is None or not isinstance(seen, CapturedFile):
                    missed.append(path)
                    continue

                if (seen.git_mode, seen.permissions, seen.digest) != file.captured:
                    missed.append(path)

        return tuple(missed)

    def load(self, path: Path) -> None:
        """Load what an earlier process knew, if it can be trusted."""
        saved = load(path)
        if saved is None:
            return

        if not saved.store.items() <= store_listing(self._objects).items():
            # A file of the store is gone or changed, perhaps with objects that the cache names.
            self._repo.mark_suspect()
        elif saved.owner == self.table.owner and self._is_ours(saved.made_at):
            self.follow(self._repo.head())
            saved.apply(self.table)

    def save(self, path: Path) -> None:
        if self._commit is not None:
            files = self.scan.settled_files()
            save(path, self._commit, self.table, files, store_listing(self._objects))

    @property
    def _objects(self) -> Path:
        return self._repo.path / "objects"

    def _is_ours(self, commit: Sha) -> bool:
        try:
            return self._repo.commit(commit) is not None
        except KeyError:
            return False

    def _track_as(self, parent: Sha | None) -> None:
        commit = None if parent is None else self._repo.commit(parent)
        tree = None if commit is None else bytes.fromhex(commit.tree)
        empty_folders = self._notes.manifest(parent).empty_folders if parent else frozenset()
        for path, (_, after) in differences(self._repo.recent_tree, self._tree, tree).items():
            known = self.table.files.get(path)
            if after is not None:
                self.table.track(path)
            elif known is not None:
                self.table.drop(known)

        self.table.track_empty_folders(empty_folders)
        self._tree = tree
