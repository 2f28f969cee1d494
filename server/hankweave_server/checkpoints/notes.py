"""Manifests, kept as git notes in a ref that names a notes tree directly.

Git fans notes out by the first two digits of the commit, so adding one rewrites two small trees,
however many notes there are.

Every checkpoint with a note writes the notes tree again, and the older trees stay in the store
until a gc. After damage, `recover_notes` gathers from them the manifests that are cut off from
their ref: the predecessors of a lost tree hold all but its newest entries. `whole_memory` drops
the memory epochs that have lost something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.manifest import Manifest, ManifestCorrupt, decoded
from hankweave_server.checkpoints.manifest import encoded as manifest_bytes
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.git.repo import MEMORY_REF, NOTES_REF, ShadowRepo
from hankweave_server.git.store_files import StoreFiles
from hankweave_server.git.trees import FOLDER, REGULAR, Entry, encoded, parsed


class Notes:
    """The notes of a repository: the manifest of each commit."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo

    def manifest(self, sha: Sha) -> Manifest:
        """Return the manifest of a checkpoint; without a note, an empty one.

        Raises KeyError or ManifestCorrupt when there is a note and it cannot be read.
        """
        note = self._find(sha)
        return Manifest() if note is None else decoded(self._repo.read_blob(note))

    def every(self) -> Iterator[tuple[Sha, Manifest]]:
        """Yield the manifests, each with its commit; skip unreadable ones."""
        for name, entry in self._top().items():
            if entry.mode != FOLDER:
                below = {b"": entry}
            else:
                try:
                    below = dict(parsed(self._repo.read_tree(entry.digest)))
                except (KeyError, ValueError):
                    continue

            for rest, note in below.items():
                with contextlib.suppress(KeyError, ManifestCorrupt):
                    sha = (name + rest).decode("latin-1")
                    yield Sha(sha), decoded(self._repo.read_blob(note.digest))

    def unreadable_note(self, sha: Sha) -> bytes | None:
        """Return the object that makes a checkpoint's manifest unreadable, if any."""
        try:
            note = self._find(sha)
        except KeyError as problem:
            return bytes.fromhex(problem.args[0])

        if note is None:
            return None

        try:
            decoded(self._repo.read_blob(note))
        except (KeyError, ManifestCorrupt):
            return note

        return None

    def with_note(self, sha: Sha, content: bytes, add: Callable[[str, bytes], bytes]) -> Sha:
        """Write the note and the trees above it; return the tree that the ref must name."""
        top = self._top()
        fan, rest = sha[:2].encode(), sha[2:].encode()
        below = dict(parsed(self._repo.read_tree(top[fan].digest))) if fan in top else {}
        below[rest] = Entry(REGULAR, add("blob", content))
        top[fan] = Entry(FOLDER, add("tree", encoded(below)))
        return Sha(add("tree", encoded(top)).hex())

    def only_of(
        self,
        commits: AbstractSet[Sha],
        add: Callable[[str, bytes], bytes],
        *,
        past_damage: bool = False,
    ) -> Sha | None:
        """Write the notes without those of other commits; None if there are no others.

        The caller moves the ref to the returned tree. An unreadable tree raises KeyError, or is
        left out with `past_damage`.
        """
        top = self._top()
        staying: dict[bytes, Entry] = {}
        for name, entry in top.items():
            if entry.mode != FOLDER:
                if name.decode("latin-1") in commits:
                    staying[name] = entry

                continue

            try:
                below = dict(parsed(self._repo.read_tree(entry.digest)))
            except KeyError:
                if past_damage:
                    continue

                raise

            noted = {
                rest: note
                for rest, note in below.items()
                if note.mode == FOLDER or (name + rest).decode("latin-1") in commits
            }
            if len(noted) == len(below):
                staying[name] = entry
            elif noted:
                staying[name] = Entry(FOLDER, add("tree", encoded(noted)))

        return None if staying == top else Sha(add("tree", encoded(staying)).hex())

    def _find(self, sha: Sha) -> bytes | None:
        top = self._top()
        fan, rest = sha[:2].encode(), sha[2:].encode()
        if fan in top:
            entry = dict(parsed(self._repo.read_tree(top[fan].digest))).get(rest)
        else:
            # Stock git may have rewritten the notes without a fan-out.
            entry = top.get(sha.encode())

        return None if entry is None else entry.digest

    def _top(self) -> dict[bytes, Entry]:
        target = self._repo.target(NOTES_REF)
        if target is None:
            return {}

        kind, data = self._repo.read(bytes.fromhex(target))
        if kind == "commit":
            data = self._repo.read_tree(bytes.fromhex(data[5:45].decode()))

        return dict(parsed(data))


Add = Callable[[str, bytes], bytes]

MANIFEST_LOST = "manifest-lost"
"""Reason for which a checkpoint skipped the path ``""``: its manifest is unknown."""

_DIGITS = frozenset(b"0123456789abcdef")


@dataclass(frozen=True, slots=True)
class RecoveredNotes:
    top: bytes | None
    """The notes tree to use from now on; None if the present one is complete."""
    unknown: tuple[Sha, ...]
    """Checkpoints whose manifest may have existed and is unknown."""


def recover_notes(
    repo: ShadowRepo,
    commits: frozenset[Sha],
    add: Add,
    also: Mapping[Sha, bytes] | None = None,
) -> RecoveredNotes:
    """Write a notes tree with every manifest that any notes tree of the store has.

    A checkpoint whose manifest is certainly or possibly lost gets one that says so. `also` are
    notes of new checkpoints.
    """
    present = _Present(repo)
    if present.is_whole and not also:
        return RecoveredNotes(None, ())

    found = dict(_every_note(repo, commits)) | present.notes | dict(also or {})
    doubtful = {sha for sha in commits if sha[:2] in present.lost_fans or sha in present.lost_notes}
    unknown = sorted(doubtful - found.keys())
    marker = Manifest(skipped=(Skipped(b"", MANIFEST_LOST),))
    for sha in unknown:
        found[sha] = add("blob", manifest_bytes(marker))

    fans: dict[bytes, dict[bytes, Entry]] = {}
    for sha, note in sorted(found.items()):
        name = sha.encode()
        fans.setdefault(name[:2], {})[name[2:]] = Entry(REGULAR, note)

    top = {fan: Entry(FOLDER, add("tree", encoded(below))) for fan, below in fans.items()}
    return RecoveredNotes(add("tree", encoded(top)), tuple(unknown))


class _Present:
    """The contents of the notes ref, as far as they can be read."""

    def __init__(self, repo: ShadowRepo) -> None:
        self.notes: dict[Sha, bytes] = {}
        self.lost_fans: set[str] = set()
        self.lost_notes: set[Sha] = set()
        self.is_whole = True
        try:
            tree = notes_tree(repo)
            top = {} if tree is None else dict(parsed(repo.read_tree(tree)))
        except (KeyError, ValueError):
            self.is_whole = False
            return

        for name, entry in top.items():
            if entry.mode != FOLDER:
                self._take(repo, name, entry)
                continue

            try:
                below = dict(parsed(repo.read_tree(entry.digest)))
            except (KeyError, ValueError):
                self.is_whole = False
                self.lost_fans.add(name.decode("latin-1"))
                continue

            for rest, note in below.items():
                self._take(repo, name + rest, note)

    def _take(self, repo: ShadowRepo, name: bytes, note: Entry) -> None:
        sha = Sha(name.decode("latin-1"))
        if _is_manifest(repo, note.digest):
            self.notes[sha] = note.digest
        else:
            self.is_whole = False
            self.lost_notes.add(sha)


def notes_tree(repo: ShadowRepo) -> bytes | None:
    """Return the tree that contains the notes; stock git makes a commit of it."""
    target = repo.target(NOTES_REF)
    if target is None:
        return None

    kind, data = repo.read(bytes.fromhex(target))
    return bytes.fromhex(target if kind == "tree" else data[5:45].decode())


def _every_note(repo: ShadowRepo, commits: frozenset[Sha]) -> Iterator[tuple[Sha, bytes]]:
    """Yield notes of these commits from any tree that looks like a part of a notes tree."""
    by_rest = {sha[2:].encode(): sha for sha in commits}
    for digest in _stored(repo):
        try:
            kind, data = repo.read(digest)
            entries = list(parsed(data)) if kind == "tree" else []
        except (KeyError, ValueError):
            continue

        for name, entry in entries:
            whole = len(name) == 40 and name.decode("latin-1") in commits
            sha = Sha(name.decode("latin-1")) if whole else by_rest.get(name)
            is_name = set(name) <= _DIGITS and entry.mode == REGULAR
            if is_name and sha is not None and _is_manifest(repo, entry.digest):
                yield sha, entry.digest


def _stored(repo: ShadowRepo) -> set[bytes]:
    files = StoreFiles(repo.path)
    found = {file.digest for file in files.loose()}
    for pack in files.packs():
        found.update(pack.digests())

    return found


def _is_manifest(repo: ShadowRepo, digest: bytes) -> bool:
    try:
        decoded(repo.read_blob(digest))
    except (KeyError, ManifestCorrupt):
        return False

    return True


def whole_memory(repo: ShadowRepo, lost: set[bytes], add: Add) -> bytes | None:
    """Write the tree of memory epochs without incomplete ones; None if all are complete."""
    target = repo.target(MEMORY_REF)
    if target is None:
        return None

    try:
        top = dict(parsed(repo.read_tree(bytes.fromhex(target))))
    except (KeyError, ValueError):
        return add("tree", b"")

    fans: dict[bytes, Entry] = {}
    for fan, entry in top.items():
        try:
            below = dict(parsed(repo.read_tree(entry.digest)))
        except (KeyError, ValueError):
            continue

        whole = {name: tree for name, tree in below.items() if _is_whole(repo, tree, lost)}
        if whole:
            same = whole == below
            fans[fan] = entry if same else Entry(FOLDER, add("tree", encoded(whole)))

    return None if fans == top else add("tree", encoded(fans))


def _is_whole(repo: ShadowRepo, entry: Entry, lost: set[bytes]) -> bool:
    if entry.digest in lost:
        return False

    if entry.mode != FOLDER:
        return True

    try:
        below = [each for _, each in parsed(repo.read_tree(entry.digest))]
    except (KeyError, ValueError):
        return False

    return all(_is_whole(repo, each, lost) for each in below)
