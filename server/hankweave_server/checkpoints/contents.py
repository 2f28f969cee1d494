"""Read blobs of any size from the shadow repository, and find unreadable objects."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.model import Damage, ObjectKind
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.fsutil import opened
from hankweave_server.git.loose import loose_path, read_loose
from hankweave_server.git.objects import STREAMED_FROM
from hankweave_server.git.pack_reader import PackDamaged
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import FOLDER, parsed
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.names import joined
from hankweave_server.worktree.stat_index import Group, Signature, Slots, differing, signature_of

CLOCK_TICK_NS = 20_000_000
"""No file system's clock stands still for longer than this between two changes."""


class Contents:
    """A reader of blobs in pieces, verified against their names."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._objects = repo.path / "objects"

    def pieces(self, digest: bytes, size: int | None = None) -> Iterator[bytes]:
        """Yield a blob's content; a damaged one raises KeyError, at the latest after its end.

        A large one comes in bounded pieces, unless stock git made a delta of it. `size` saves
        looking it up.
        """
        # Size first: nearly every blob is small, and a header is cheap to read.
        size = self._repo.size(digest) if size is None else size
        stream = self._stream(digest) if size >= STREAMED_FROM else None
        if stream is None:
            yield self._repo.read_blob(digest)
            return

        try:
            yield from stream
        except (PackDamaged, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

    def _stream(self, digest: bytes) -> Iterator[bytes] | None:
        if loose_path(self._objects, digest).exists():
            return read_loose(self._objects, digest)

        return self._repo.packs.pieces(digest)

    def require_readable(self, digests: Iterable[bytes]) -> None:
        """Read blobs that have not been verified yet; raise KeyError for a damaged one."""
        verified = self._repo.verified
        for digest in digests:
            if digest not in verified:
                for _ in self.pieces(digest):
                    pass

                verified.add(digest)

    def is_readable(self, digest: bytes) -> bool:
        try:
            for _ in self.pieces(digest):
                pass
        except KeyError:
            return False

        return True


def store_listing(objects: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, modification time and inode of every file with objects, by relative name.

    What is being written has a temporary name, and is left out. So is a file that is removed
    meanwhile, as packs are that were merged.
    """
    found: dict[str, tuple[int, int, int]] = {}
    with os.scandir(objects) as folders:
        for folder in folders:
            if folder.is_dir(follow_symlinks=False):
                with os.scandir(folder.path) as files:
                    for file in files:
                        if not file.name.startswith("tmp_"):
                            with contextlib.suppress(FileNotFoundError):
                                status = signature_of(file.stat(follow_symlinks=False))
                                name = f"{folder.name}/{file.name}"
                                found[name] = (status.size, status.mtime_ns, status.inode)

    return found


class StoreVersions:
    """The files of an object store, with stat data that identifies the version of each.

    They are compared with the disk as the files of a work tree are, and a folder that has not
    changed is not listed again: both cost a microsecond for each.
    """

    def __init__(self) -> None:
        self._slots = Slots()
        self._root: Signature | None = None
        self._folders: dict[bytes, int] = {}
        self._files: dict[bytes, dict[bytes, int]] = {}

    def refresh(self, objects: Path) -> tuple[list[str], bool]:
        """Return which known files are gone, and whether one has another version now.

        What is being written has a temporary name, and is left out.
        """
        root = os.fsencode(objects)
        self._find_folders(root)
        groups: list[Group] = [*self._files.items(), (b"", self._folders)]
        with opened(root, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            different = differing(descriptor, groups, self._slots.block)

        gone: list[str] = []
        is_other = False
        for number, name, error in different:
            folder, _ = groups[number]
            if not folder:
                self._list(root, name)
                continue

            path = os.path.join(root, folder, name)
            self._slots.give_back(self._files[folder].pop(name))
            if error:
                gone.append(os.fsdecode(path))
            else:
                is_other = True
                self._add(folder, name, path)

        return gone, is_other

    def _find_folders(self, root: bytes) -> None:
        signature = signature_of(os.stat(root))
        if signature == self._root:
            return

        self._root = signature if _is_settled(signature) else None
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.name not in self._folders and entry.is_dir(follow_symlinks=False):
                    self._folders[entry.name] = self._slots.take()
                    self._files[entry.name] = {}

    def _list(self, root: bytes, folder: bytes) -> None:
        """Add what is new in a folder."""
        path, known = os.path.join(root, folder), self._files[folder]
        try:
            signature = signature_of(os.stat(path))
            names = os.listdir(path)
        except FileNotFoundError:
            for slot in (self._folders.pop(folder), *self._files.pop(folder).values()):
                self._slots.give_back(slot)

            return

        self._slots.sign(self._folders[folder], signature if _is_settled(signature) else None)
        for name in names:
            if name not in known and not name.startswith(b"tmp_"):
                self._add(folder, name, os.path.join(path, name))

    def _add(self, folder: bytes, name: bytes, path: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):  # A pack that was merged meanwhile.
            signature = signature_of(os.lstat(path))
            self._files[folder][name] = slot = self._slots.take()
            self._slots.sign(slot, signature)


def _is_settled(folder: Signature) -> bool:
    """Return whether a change of a folder from now on gives it another time."""
    return time.time_ns() - max(folder.mtime_ns, folder.ctime_ns) > CLOCK_TICK_NS


@dataclass(slots=True)
class Verified:
    """The objects found intact, and the files of the store at that time."""

    intact: set[bytes] = field(default_factory=set)
    """Blobs."""
    whole: set[bytes] = field(default_factory=set)
    """Trees below which everything is intact."""
    complete: set[bytes] = field(default_factory=set)
    """Trees below which all trees are intact, and all blobs exist."""
    store: StoreVersions = field(default_factory=StoreVersions)

    def clear(self) -> None:
        self.intact.clear()
        self.whole.clear()
        self.complete.clear()


class Verification:
    """A verifier of checkpoints; it looks at an object once, however often it is used.

    `unreadable` reads a checkpoint down to each blob. `missing` reads its trees alone, and finds
    out whether the blobs exist: a rollback reads the blobs that it writes (`require_readable`),
    and must not wait for the others.

    What was found intact remains so as long as the files of the store that existed then are
    unchanged in name, size, times and inode: content never changes under a name in git. If one has
    changed or is gone, everything is verified again, unless its objects were copied into another
    pack, as packing does all the time.
    """

    def __init__(self, repo: ShadowRepo, notes: Notes, verified: Verified | None = None) -> None:
        """Continue with `verified`, the knowledge of an earlier verifier of the same store."""
        self._repo = repo
        self._notes = notes
        self._contents = Contents(repo)
        self._meter = UNWATCHED
        self._verified = Verified() if verified is None else verified

    def unreadable(self, sha: Sha, meter: Meter = UNWATCHED) -> list[Damage]:
        """Return what cannot be read of a checkpoint; empty means it can be restored completely.

        The meter counts the objects that are read.
        """
        self._meter = meter
        self._forget_if_changed()
        return self._described(sha, self._faults(sha, self._verified.whole, self._is_intact))

    def missing(self, sha: Sha, meter: Meter = UNWATCHED) -> list[Damage]:
        """Return which trees of a checkpoint cannot be read, and which blobs do not exist.

        The meter counts the objects that are looked at.
        """
        self._meter = meter
        self._forget_if_changed()
        is_there = self._repo.existing()

        def exists(digest: bytes) -> bool:
            meter.advance()
            return is_there(digest)

        return self._described(sha, self._faults(sha, self._verified.complete, exists))

    def _described(self, sha: Sha, faults: list[tuple[bytes, ObjectKind, bytes]]) -> list[Damage]:
        if not faults:
            return []

        hit = self._commits_that_need({digest for digest, _, _ in faults})
        return [
            Damage(Sha(digest.hex()), kind, path, tuple(hit.get(digest, [sha])))
            for digest, kind, path in faults
        ]

    def _forget_if_changed(self) -> None:
        verified = self._verified
        gone, is_other = verified.store.refresh(self._repo.path / "objects")
        if is_other or not self._are_superseded(gone):
            verified.clear()
            self._repo.verified.clear()

        if not (verified.intact or verified.complete):
            # A pack that is held open can still be read when the disk has lost it.
            self._repo.packs.forget()

    def _are_superseded(self, paths: Iterable[str]) -> bool:
        """Return whether the objects of these files are in other packs now."""
        for path in paths:
            folder, name = os.path.split(path)
            stem = os.path.splitext(name)[0]
            if not self._repo.superseded & {stem, os.path.basename(folder) + name}:
                return False

        return True

    def _faults(
        self, sha: Sha, known: set[bytes], is_fine: Callable[[bytes], bool]
    ) -> list[tuple[bytes, ObjectKind, bytes]]:
        """Look at each tree that is not `known`, and ask `is_fine` about each blob in them."""
        try:
            commit = self._repo.commit(sha)
        except KeyError:
            commit = None

        if commit is None:
            return [(bytes.fromhex(sha), "commit", b"")]

        found: list[tuple[bytes, ObjectKind, bytes]] = []
        note = self._notes.unreadable_note(sha)
        if note is not None:
            found.append((note, "blob", b""))

        waiting = [(b"", bytes.fromhex(commit.tree))]
        trees: set[bytes] = set()
        while waiting:
            folder, tree = waiting.pop()
            if tree in known:
                continue

            self._meter.advance()
            trees.add(tree)
            try:
                entries = list(parsed(self._repo.read_tree(tree)))
            except (KeyError, ValueError):
                found.append((tree, "tree", folder))
                continue

            waiting += [(joined(folder, n), e.digest) for n, e in entries if e.mode == FOLDER]
            found += [
                (entry.digest, "blob", joined(folder, name))
                for name, entry in entries
                if entry.mode != FOLDER and not is_fine(entry.digest)
            ]

        if not found:
            known |= trees

        return found

    def _is_intact(self, digest: bytes) -> bool:
        if digest in self._verified.intact:
            return True

        self._meter.advance()
        if not self._contents.is_readable(digest):
            return False

        self._verified.intact.add(digest)
        return True

    def _commits_that_need(self, broken: set[bytes]) -> dict[bytes, list[Sha]]:
        needed_below: dict[bytes, frozenset[bytes]] = {}
        hit: dict[bytes, list[Sha]] = {}
        # Continue past a commit that is itself lost: that is separate damage.
        found, _ = self._repo.reached_from_refs()
        for commit in found.values():
            for digest in self._needed_by(bytes.fromhex(commit.tree), broken, needed_below):
                hit.setdefault(digest, []).append(commit.sha)

        return hit

    def _needed_by(
        self, tree: bytes, broken: set[bytes], known: dict[bytes, frozenset[bytes]]
    ) -> frozenset[bytes]:
        """Return the broken objects at or below a tree; every tree is read once."""
        waiting = [tree]
        while waiting:
            top = waiting[-1]
            if top in known:
                waiting.pop()
                continue

            try:
                entries = [entry for _, entry in parsed(self._repo.read_tree(top))]
            except (KeyError, ValueError):
                entries = []

            unknown = [e.digest for e in entries if e.mode == FOLDER and e.digest not in known]
            if unknown:
                waiting += unknown
                continue

            below = {top, *(entry.digest for entry in entries)} & broken
            known[top] = frozenset(below).union(*(known.get(e.digest, ()) for e in entries))
            waiting.pop()

        return known[tree]
