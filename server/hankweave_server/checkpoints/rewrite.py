"""Rewrite the shadow repository without a secret, as a second repository beside it.

A git object is named by its content, so a blob that changes takes a new name. So does every tree
that names it, every commit of such a tree, and every later commit. `rewrite` reads each stored
object once, reachable or not, and writes a new version of each that has to change; everything else
is taken over as it is. A pack or a loose object that holds nothing of the old is hard-linked, which
is most of a large store. Of the other packs, only the objects that stay are copied.

What else names a commit follows: refs whose names are shas, tags, notes (their paths are shas), the
file `shallow`, and shas in messages. Quarantined files of earlier repairs are not taken over.

The original is never changed: the caller exchanges the two folders.

Session files of more than 128 KiB are stored in pieces (`session_snapshots`), so a secret may begin
in one piece and end in the next. Such a file is put together, and cut again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hankweave_protocol import codec
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import RedactionRecord
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.notes import notes_tree
from hankweave_server.checkpoints.session_snapshots import PIECE
from hankweave_server.fsutil import make_private_directory, write_private
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.pack_reader import read_index
from hankweave_server.git.repo import MEMORY_REF, NOTES_REF, ShadowRepo
from hankweave_server.git.store_files import StoreFiles
from hankweave_server.git.trees import FOLDER, REGULAR, Entry, Lookup, encoded, parsed, raw_entries
from hankweave_server.paths import Layout

LARGE = 8 << 20
"""Bytes from which a blob is searched in pieces, and read as a whole only if it must change."""

OVERLAP = 64 << 10
"""Bytes of one piece that are searched again with the next one."""

_SHA = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_NOT_TAKEN = ("index", "hankweave-index", "packed-refs", "HEAD", "shallow")
_BESIDE_A_PACK = (".pack", ".rev", ".keep", ".idx")
ERASED = b"[redacted:file]\n"
"""The content of a file that was removed as a whole."""

_LONGEST_NAME = 255
_FOLDER_MODE = b"40000"
_BINARY_IN = 8_000
"""Bytes at the beginning of a file in which a NUL makes it binary, as for git."""


class ContentReplacement(Protocol):
    """Finds secrets in a content, and replaces them."""

    def is_needed(self, data: bytes) -> bool: ...

    def data(self, data: bytes) -> bytes: ...

    def masked(self, data: bytes) -> bytes: ...


def replaced(content: bytes, by: ContentReplacement) -> bytes:
    """Return a file's content without secrets; one that is binary keeps its length."""
    if not by.is_needed(content):
        return content

    return by.masked(content) if b"\0" in content[:_BINARY_IN] else by.data(content)


def renamed_in(content: bytes, names: dict[bytes, bytes]) -> bytes:
    """Return a text with new shas for old ones; both are hexadecimal."""
    return _SHA.sub(lambda found: names.get(found[0], found[0]), content)


@dataclass(slots=True)
class Rewritten:
    """The changes made by a rewrite."""

    objects: dict[bytes, bytes] = field(default_factory=dict)
    """The new digest of each object that has one."""
    names: dict[bytes, bytes] = field(default_factory=dict)
    """The same in hexadecimal, for texts."""
    commits: dict[Sha, Sha] = field(default_factory=dict)
    """The same for commits alone."""
    contents: dict[bytes, bytes] = field(default_factory=dict)
    """The SHA-256 of each changed file's content, before and after, in hexadecimal."""
    holders: set[bytes] = field(default_factory=set)
    """The commits whose own files or message had a secret, and not only an ancestor's."""


class Rewrite:
    """One rewrite of a repository: `decide`, then `write` if it is wanted."""

    def __init__(
        self,
        repo: ShadowRepo,
        by: ContentReplacement,
        *,
        erased: frozenset[bytes] = frozenset(),
        add: Callable[[str, bytes], bytes] = digest_of,
    ) -> None:
        """`erased` are blobs whose whole content is replaced; `add` stores a new object."""
        self._repo = repo
        self._by = by
        self._erased = erased
        self._add = add
        self.done = Rewritten()
        self._stored: dict[bytes, None] = {}
        self._trees: list[bytes] = []
        self._commits: dict[bytes, None] = {}
        self._tags: list[bytes] = []
        self._judged: set[bytes] = set()
        """Trees and commits that were decided about."""

    def decide(self) -> Rewritten:
        """Read every object, and add a new version of each that changes.

        Raises KeyError for an object that is lost or damaged.
        """
        self._repo.packs.locate_all()
        self._stored = _stored_in(self._repo)
        for digest in self._stored:
            self._sort(digest)

        self._join_pieces()
        for tree in self._trees:
            self._follow(tree, self._judge_tree)

        for commit in self._commits:
            self._follow(commit, self._judge_commit)

        for tag in self._tags:
            _, data = self._repo.read(tag)
            self._change(tag, "tag", renamed_in(self._clean(data), self.done.names))

        return self.done

    def _clean(self, text: bytes) -> bytes:
        return self._by.data(text) if self._by.is_needed(text) else text

    def _clean_name(self, name: bytes) -> bytes:
        """Return a name without secrets that a file can have."""
        clean = self._clean(name)
        return self._by.masked(name) if len(clean) > _LONGEST_NAME or b"/" in clean else clean

    def _change(self, old: bytes, kind: str, data: bytes) -> None:
        new = digest_of(kind, data)
        if new == old:
            return

        self._add(kind, data)
        self.done.objects[old] = new
        self.done.names[old.hex().encode()] = new.hex().encode()
        if kind == "commit":
            self.done.commits[Sha(old.hex())] = Sha(new.hex())

    # --- blobs ------------------------------------------------------------------------------------

    def _sort(self, digest: bytes) -> None:
        """Note an object of another kind for later; decide about a blob at once."""
        if self._repo.size(digest) >= LARGE and not self._is_needed_in(digest):
            return

        kind, data = self._repo.read(digest)
        match kind:
            case "tree":
                self._trees.append(digest)
            case "commit":
                self._commits[digest] = None
            case "tag":
                self._tags.append(digest)
            case _:
                content = self._content(digest, data)
                if content is not data:
                    self._change(digest, "blob", content)
                    self.done.contents[_sha256(data)] = _sha256(content)

    def _content(self, digest: bytes, data: bytes) -> bytes:
        return ERASED if digest in self._erased else replaced(data, self._by)

    def _is_needed_in(self, digest: bytes) -> bool:
        """Return whether a large blob has a secret; its pieces overlap."""
        if digest in self._erased:
            return True

        before = b""
        for piece in Contents(self._repo).pieces(digest):
            if self._by.is_needed(before + piece):
                return True

            before = (before + piece)[-OVERLAP:]

        return False

    def _join_pieces(self) -> None:
        """Decide about session files in pieces as a whole."""
        for tree in self._trees_of_pieces():
            digests = [entry.digest for _, entry in sorted(parsed(self._repo.read_tree(tree)))]
            pieces = [self._repo.read_blob(digest) for digest in digests]
            content = replaced(b"".join(pieces), self._by)
            if content == b"".join(map(self._content, digests, pieces)):
                continue

            below: dict[bytes, Entry] = {}
            for number, start in enumerate(range(0, len(content), PIECE)):
                piece = content[start : start + PIECE]
                self._add("blob", piece)
                below[b"%08d" % number] = Entry(REGULAR, digest_of("blob", piece))

            self._change(tree, "tree", encoded(below))
            self._judged.add(tree)

    def _trees_of_pieces(self) -> set[bytes]:
        """Return the folders of pieces: top, hundreds of epochs, epoch, file."""
        target = self._repo.target(MEMORY_REF)
        level = set() if target is None else {bytes.fromhex(target)}
        for _ in range(3):
            level = {below for tree in level for below in self._folders_in(tree)}

        return level

    def _folders_in(self, tree: bytes) -> list[bytes]:
        entries = parsed(self._repo.read_tree(tree))
        return [entry.digest for _, entry in entries if entry.mode == FOLDER]

    # --- trees and commits ------------------------------------------------------------------------

    def _follow(self, top: bytes, judge: Callable[[bytes], list[bytes]]) -> None:
        """Decide about an object after all that it names, without recursion."""
        waiting = [top]
        while waiting:
            digest = waiting[-1]
            if digest in self._judged:
                waiting.pop()
            elif later := judge(digest):
                waiting += later
            else:
                self._judged.add(digest)

    def _judge_tree(self, tree: bytes) -> list[bytes]:
        """Decide about a tree, or return the trees in it that come first."""
        data = self._repo.read_tree(tree)
        entries = raw_entries(data)
        later = [
            digest
            for mode, _, digest in entries
            if mode == _FOLDER_MODE and digest not in self._judged
        ]
        if later:
            return later

        objects = self.done.objects
        has_names = self._by.is_needed(data)
        if has_names or any(digest in objects for _, _, digest in entries):
            below: dict[bytes, Entry] = {}
            for mode, name, digest in entries:
                clean = self._clean_name(name) if has_names else name
                while clean in below:
                    clean += b"~"

                below[clean] = Entry(int(mode, 8), objects.get(digest, digest))

            self._change(tree, "tree", encoded(below))

        return []

    def _judge_commit(self, commit: bytes) -> list[bytes]:
        """Decide about a commit, or return its parents that come first."""
        _, data = self._repo.read(commit)
        header, _, message = data.partition(b"\n\n")
        lines = header.split(b"\n")
        parents = [bytes.fromhex(line[7:].decode()) for line in lines if line[:7] == b"parent "]
        if later := [
            each for each in parents if each in self._commits and each not in self._judged
        ]:
            return later

        tree = bytes.fromhex(lines[0][5:45].decode())
        clean = self._clean(message)
        if tree in self.done.objects or clean is not message:
            self.done.holders.add(commit)

        whole = b"\n\n".join((header, clean))
        self._change(commit, "commit", renamed_in(whole, self.done.names))
        return []

    # --- the new repository -----------------------------------------------------------------------

    def write(self, folder: Path, staging: ObjectStaging) -> None:
        """Complete the new repository; nothing is flushed.

        `staging` is where `add` has put the new objects, in this folder.
        """
        self._link_objects(folder, staging)
        notes = self._notes(staging)
        staging.settle()
        self._copy_settings(folder)
        names, objects = self.done.names, self.done.objects
        references = self._repo.references()
        for ref, target in references.items():
            new = objects.get(bytes.fromhex(target), bytes.fromhex(target))
            if ref == NOTES_REF and notes is not None:
                new = notes

            path = folder / renamed_in(ref.encode(), names).decode()
            make_private_directory(path.parent)
            write_private(path, new.hex().encode() + b"\n", durable=False)

        for name in ("HEAD", "shallow"):
            with contextlib.suppress(FileNotFoundError):
                content = (self._repo.path / name).read_bytes()
                write_private(folder / name, renamed_in(content, names), durable=False)

    def _link_objects(self, folder: Path, staging: ObjectStaging) -> None:
        """Take over what stays: whole files as links, objects of other packs as copies."""
        gone, source = self.done.objects.keys(), self._repo.path / "objects"
        packs = folder / "objects" / "pack"
        for file in StoreFiles(self._repo.path).loose():
            if file.digest not in gone:
                make_private_directory(folder / "objects" / file.path.parent.name)
                os.link(file.path, folder / "objects" / file.path.relative_to(source))

        copied: set[bytes] = set()
        for index in sorted((source / "pack").glob("*.idx")):
            digests = {record.digest for record in read_index(index)}
            if gone.isdisjoint(digests):
                for suffix in _BESIDE_A_PACK:
                    with contextlib.suppress(FileNotFoundError):
                        os.link(index.with_suffix(suffix), packs / (index.stem + suffix))
            else:
                copied |= digests - gone

        for digest in (each for each in self._stored if each in copied):
            staging.add(*self._repo.read(digest))

    def _notes(self, staging: ObjectStaging) -> bytes | None:
        """Write the notes under the new names of their commits; None if there are none."""
        top = notes_tree(self._repo)
        if top is None:
            return None

        fans: dict[bytes, dict[bytes, Entry]] = {}
        for name, entry in parsed(self._repo.read_tree(top)):
            below = {b"": entry}
            if entry.mode == FOLDER:
                below = dict(parsed(self._repo.read_tree(entry.digest)))

            for rest, note in below.items():
                sha = self.done.names.get(name + rest, name + rest)
                new = self.done.objects.get(note.digest, note.digest)
                fans.setdefault(sha[:2], {})[sha[2:]] = Entry(note.mode, new)

        trees = {fan: Entry(FOLDER, staging.add("tree", encoded(e))) for fan, e in fans.items()}
        return staging.add("tree", encoded(trees))

    def _copy_settings(self, folder: Path) -> None:
        """Copy what is neither an object nor a ref, nor rebuilt by the next start."""
        for path in self._repo.path.iterdir():
            if path.is_file() and not path.name.startswith(_NOT_TAKEN):
                shutil.copy2(path, folder / path.name)

        if (self._repo.path / "info").is_dir():
            shutil.copytree(self._repo.path / "info", folder / "info", dirs_exist_ok=True)


def _stored_in(repo: ShadowRepo) -> dict[bytes, None]:
    """Return all objects, pack by pack and in each pack as they lie: so they are read quickly."""
    found = dict.fromkeys(file.digest for file in StoreFiles(repo.path).loose())
    for index in sorted((repo.path / "objects" / "pack").glob("*.idx")):
        records = sorted(read_index(index), key=lambda record: record.offset)
        found |= dict.fromkeys(record.digest for record in records)

    return found


def blobs_at(repo: ShadowRepo, paths: Iterable[bytes]) -> frozenset[bytes]:
    """Return the contents that these paths have in any checkpoint."""
    wanted = sorted(paths)
    lookup = Lookup(repo.read_tree)
    trees = dict.fromkeys(bytes.fromhex(commit.tree) for commit in repo.commits())
    found = (lookup.entry(tree, path) for tree in trees for path in wanted)
    return frozenset(entry.digest for entry in found if entry is not None)


def renamed_shas(layout: Layout) -> dict[Sha, Sha]:
    """Return the present sha of each commit that a redaction has rewritten, maybe repeatedly."""
    steps: dict[Sha, Sha] = {}
    for path in sorted(layout.redactions.glob("*.json")):
        with contextlib.suppress(FileNotFoundError):
            record = codec.decode_value(RedactionRecord, path.read_bytes())
            steps |= {Sha(old): Sha(new) for old, new in record.renamed.items()}

    return {old: _last_of(old, steps) for old in steps}


def _last_of(sha: Sha, steps: dict[Sha, Sha]) -> Sha:
    seen: set[Sha] = set()
    while sha in steps and sha not in seen:
        seen.add(sha)
        sha = steps[sha]

    return sha


def new_repository(folder: Path) -> ObjectStaging:
    """Create the folders of a repository, and return a staging area for its objects."""
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/notes", "refs/tags"):
        make_private_directory(folder / name)

    return ObjectStaging(folder / "objects", lambda _digest: False)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
