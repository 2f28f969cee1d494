"""Read blobs of any size from the shadow repository, and find unreadable objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.model import Damage, ObjectKind
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.git.loose import loose_path, read_loose
from hankweave_server.git.objects import STREAMED_FROM
from hankweave_server.git.pack_reader import PackDamaged
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import FOLDER, parsed
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.names import joined
from hankweave_server.worktree.stat_index import Signature, signature_of


class Contents:
    """A reader of blobs in pieces, verified against their names."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._objects = repo.path / "objects"

    def pieces(self, digest: bytes) -> Iterator[bytes]:
        """Yield a blob's content; a damaged one raises KeyError, at the latest after its end.

        A large one comes in bounded pieces, unless stock git made a delta of it.
        """
        # Size first: nearly every blob is small, and a header is cheap to read.
        stream = self._stream(digest) if self._repo.size(digest) >= STREAMED_FROM else None
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

    def is_readable(self, digest: bytes) -> bool:
        try:
            for _ in self.pieces(digest):
                pass
        except KeyError:
            return False

        return True


def store_signature(objects: Path) -> frozenset[tuple[str, Signature]]:
    """Return every file that holds objects, with stat data that identifies its version."""
    found: list[tuple[str, Signature]] = []
    with os.scandir(objects) as folders:
        for folder in folders:
            if folder.is_dir(follow_symlinks=False):
                with os.scandir(folder.path) as files:
                    found += [
                        (file.path, signature_of(file.stat(follow_symlinks=False)))
                        for file in files
                    ]

    return frozenset(found)


def store_listing(objects: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, modification time and inode of every file with objects, by relative name."""
    return {
        os.path.relpath(path, objects): (signature.size, signature.mtime_ns, signature.inode)
        for path, signature in store_signature(objects)
        if not os.path.basename(path).startswith("tmp_")
    }


class Verification:
    """A verifier of checkpoints down to each blob; it reads an object once, however often used.

    Objects found intact remain so as long as the files of the store that existed then are
    unchanged in name, size, times and inode: content never changes under a name in git. If one has
    changed or is gone, everything is verified again.
    """

    def __init__(self, repo: ShadowRepo, notes: Notes) -> None:
        self._repo = repo
        self._notes = notes
        self._contents = Contents(repo)
        self._meter = UNWATCHED
        self._intact: set[bytes] = set()
        self._whole: set[bytes] = set()
        """Trees below which everything is intact."""
        self._store: frozenset[tuple[str, Signature]] = frozenset()

    def damages(self, sha: Sha, meter: Meter = UNWATCHED) -> list[Damage]:
        """Return what cannot be read of a checkpoint; empty means it can be restored completely.

        The meter counts the objects that are read.
        """
        self._meter = meter
        self._believe_only_if_unchanged()
        found = self._unreadable(sha)
        if not found:
            return []

        hit = self._commits_that_need({digest for digest, _, _ in found})
        return [
            Damage(Sha(digest.hex()), kind, path, tuple(hit.get(digest, [sha])))
            for digest, kind, path in found
        ]

    def _believe_only_if_unchanged(self) -> None:
        store = store_signature(self._repo.path / "objects")
        if not self._store <= store:
            self._intact.clear()
            self._whole.clear()

        if not self._intact:
            # A pack that is held open can still be read when the disk has lost it.
            self._repo.packs.forget()

        self._store = store

    def _unreadable(self, sha: Sha) -> list[tuple[bytes, ObjectKind, bytes]]:
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
            if tree in self._whole:
                continue

            self._meter.advance()
            trees.add(tree)
            try:
                entries = list(parsed(self._repo.read_tree(tree)))
            except (KeyError, ValueError):
                found.append((tree, "tree", folder))
                continue

            waiting += [(joined(folder, n), e.digest) for n, e in entries if e.mode == FOLDER]
            blobs = [(joined(folder, n), e.digest) for n, e in entries if e.mode != FOLDER]
            broken = [(digest, path) for path, digest in blobs if not self._is_intact(digest)]
            found += [(digest, "blob", path) for digest, path in broken]

        if not found:
            self._whole |= trees

        return found

    def _is_intact(self, digest: bytes) -> bool:
        if digest in self._intact:
            return True

        self._meter.advance()
        if not self._contents.is_readable(digest):
            return False

        self._intact.add(digest)
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
