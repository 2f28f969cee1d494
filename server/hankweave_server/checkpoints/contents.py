"""Reads blobs of any size from the shadow repository, and says which objects cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.loose import loose_path, read_loose
from hankweave_server.checkpoints.model import Damage, ObjectKind
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.objects import STREAMED_FROM
from hankweave_server.checkpoints.shadow_repo import ShadowRepo
from hankweave_server.checkpoints.trees import FOLDER, parsed
from hankweave_server.workspace.names import joined


class Contents:
    """Gives blobs in pieces, checked against their names."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._objects = repo.path / "objects"

    def pieces(self, digest: bytes) -> Iterator[bytes]:
        """Gives a blob's content; a damaged one raises KeyError, at the latest after its end."""
        if not self._is_streamed(digest):
            yield self._repo.read_blob(digest)
            return

        try:
            yield from read_loose(self._objects, digest)
        except (ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

    def is_readable(self, digest: bytes) -> bool:
        try:
            for _ in self.pieces(digest):
                pass
        except KeyError:
            return False

        return True

    def _is_streamed(self, digest: bytes) -> bool:
        loose = loose_path(self._objects, digest)
        try:
            # Compressed size tells too little; the header of a loose object is cheap to read.
            return loose.exists() and self._repo.size(digest) >= STREAMED_FROM
        except KeyError:
            return False


class Verification:
    """Reads checkpoints down to each blob; an object is read once however often it is used."""

    def __init__(self, repo: ShadowRepo, notes: Notes) -> None:
        self._repo = repo
        self._notes = notes
        self._contents = Contents(repo)
        self._intact: set[bytes] = set()

    def damages(self, sha: Sha) -> list[Damage]:
        """Lists what of a checkpoint cannot be read; empty means it can be restored whole."""
        found = self._unreadable(sha)
        if not found:
            return []

        hit = self._commits_that_need({digest for digest, _, _ in found})
        return [
            Damage(Sha(digest.hex()), kind, path, tuple(hit.get(digest, [sha])))
            for digest, kind, path in found
        ]

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
        while waiting:
            folder, tree = waiting.pop()
            try:
                entries = list(parsed(self._repo.read_tree(tree)))
            except (KeyError, ValueError):
                found.append((tree, "tree", folder))
                continue

            waiting += [(joined(folder, n), e.digest) for n, e in entries if e.mode == FOLDER]
            blobs = [(joined(folder, n), e.digest) for n, e in entries if e.mode != FOLDER]
            broken = [(digest, path) for path, digest in blobs if not self._is_intact(digest)]
            found += [(digest, "blob", path) for digest, path in broken]

        return found

    def _is_intact(self, digest: bytes) -> bool:
        if digest not in self._intact and self._contents.is_readable(digest):
            self._intact.add(digest)

        return digest in self._intact

    def _commits_that_need(self, broken: set[bytes]) -> dict[bytes, list[Sha]]:
        needed_below: dict[bytes, frozenset[bytes]] = {}
        hit: dict[bytes, list[Sha]] = {}
        for commit in self._repo.history():
            for digest in self._needed_by(bytes.fromhex(commit.tree), broken, needed_below):
                hit.setdefault(digest, []).append(commit.sha)

        return hit

    def _needed_by(
        self, tree: bytes, broken: set[bytes], known: dict[bytes, frozenset[bytes]]
    ) -> frozenset[bytes]:
        """Gives the broken objects at or below a tree; every tree is read once."""
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
