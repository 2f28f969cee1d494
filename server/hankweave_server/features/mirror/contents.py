"""The contents of a mirror: one commit, from which everything of the execution is reachable.

    tree       refs         one line for each ref of the shadow repository: its sha and its name
               HEAD         what HEAD names, as in the repository
               state/       small files of the state directory: metadata, and intents
               notes        the tree of the notes, which the repository's ref names directly
               memory       the tree of the session files, likewise
               tags/        the content of each tag that a ref names
               hank/        hank.json and what it refers to, if it holds no secret
               archive/     the rig archive, unless it is empty
               data/        the data, if it is to be in the mirror
    parents    the newest segment of the journal, then each commit that a ref or a tag names, then
               one with this tree, and one with that of the former lease, both without parents
    message    the lease

The journal is a chain of commits, each with the lines that are new since its parent. Neither a tree
nor a tag can be a parent of a commit, so those that refs name are in the tree.

Git does not send again what is in the tree of a parent that the remote has. That is why trees are
named by parents as well; otherwise each push would send all data and conversations.

All of it is read at a moment at which no ref moves, and the journal up to that moment: it is what a
crash at that moment would leave on the disk, and a start recovers from it as from a crash.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pygit2

from hankweave_protocol.ids import Sha
from hankweave_server.features.mirror.lease import Lease, lease_of, message_of
from hankweave_server.fsutil import make_private_directory
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.trees import EXECUTABLE, FOLDER, LINK, REGULAR, Entry, encoded

_T = TypeVar("_T")
_SEGMENT: Final = b"events"

SEGMENT_BYTES: Final = 4 << 20
"""Bytes of the journal in one segment, unless one line is longer."""


class MirrorDamaged(Exception):
    """A mirror contains no execution, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class CapturedExecution:
    """The refs of the shadow repository and files of the state directory, of one moment."""

    head: str
    """The content of HEAD."""
    refs: Mapping[str, Sha]
    state: Mapping[str, bytes]
    """Small files of the state directory, by their paths below it."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The chain of segments so far."""

    tip: Sha | None = None
    journal_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MirrorContents:
    """The contents that a lease's commit leads to."""

    lease: Lease
    head: str
    refs: Mapping[str, Sha]
    state: Mapping[str, bytes]
    journal: Sha | None
    hank: Sha | None
    """The tree with the hank; None if it is not in the mirror."""
    data: Sha | None
    """The tree with the data; None if they are not in the mirror."""
    tags: Mapping[Sha, bytes]
    """The tags that refs name, and their contents."""
    archive: Sha | None
    """The tree with the rig archive; None if it is empty."""


class MirrorRepository:
    """The local repository that is pushed from and fetched into; blocking.

    It borrows the objects of the shadow repository, if there is one beside it.
    """

    def __init__(self, path: Path, borrowed: Path | None) -> None:
        """`borrowed` is the folder of objects of another repository."""
        self.path = path
        if not (path / "HEAD").exists():
            make_private_directory(path)
            pygit2.init_repository(str(path), bare=True)

        if borrowed is not None:
            self._link_alternates(borrowed)

        self._repo = pygit2.Repository(str(path))

    def _link_alternates(self, objects: Path) -> None:
        relative = os.path.relpath(objects, self.path / "objects")
        alternates = self.path / "objects" / "info" / "alternates"
        alternates.write_text(f"{relative}\n", encoding="utf-8")

    def move(self, path: Path, borrowed: Path) -> None:
        """Move the repository; from then on it borrows what another one has as well."""
        self._repo.free()
        os.rename(self.path, path)
        self.path = path
        self._link_alternates(borrowed)
        self._repo = pygit2.Repository(str(path))

    def extend(self, segments: Segments, journal: Path, until: int) -> Segments:
        """Add the lines of a journal up to a size, which ends a line, to the chain."""
        with self._written() as new, journal.open("rb") as lines:
            lines.seek(segments.journal_bytes)
            while (left := until - segments.journal_bytes) > 0:
                content = lines.read(min(left, SEGMENT_BYTES))
                if len(content) < left and not content.endswith(b"\n"):
                    content += lines.readline()

                tree = new.tree({_SEGMENT: new.file(content)})
                parents = () if segments.tip is None else (segments.tip,)
                tip = new.commit(tree, parents, f"Events up to byte {lines.tell()}\n")
                segments = Segments(tip, lines.tell())

        return segments

    def compose(
        self,
        lease: Lease,
        captured: CapturedExecution,
        segments: Segments,
        folders: Mapping[str, Sha],
        known: Iterable[Sha] = (),
    ) -> Sha:
        """Write the commit of a lease, and return it.

        `folders` are the trees of the hank, the data and the archive. `known` are commits of leases
        that the remote has: what is in their trees is not sent again, if they are here, too.
        """
        trees: dict[str, Sha] = {}
        tags: dict[str, bytes] = {}
        tips = {} if segments.tip is None else {segments.tip: None}
        for name, sha in captured.refs.items():
            found = self._object(sha, pygit2.Object)
            if isinstance(found, pygit2.Tree):
                trees[name.rpartition("/")[2]] = sha
            elif isinstance(found, pygit2.Tag):
                tags[sha] = found.read_raw()
                tips[target_of(tags[sha])] = None
            else:
                tips[sha] = None

        refs = "".join(f"{sha} {name}\n" for name, sha in sorted(captured.refs.items()))
        with self._written() as new:
            entries = {
                b"HEAD": new.file(captured.head.encode()),
                b"refs": new.file(refs.encode()),
                b"state": new.contents(captured.state),
                b"tags": new.contents(tags),
            }
            for name, tree in (*folders.items(), *trees.items()):
                entries[name.encode()] = Entry(FOLDER, bytes.fromhex(tree))

            whole = new.tree(entries)
            present = [each for each in known if each in self._repo]
            former = [self._object(each, pygit2.Commit).tree_id.raw for each in present]
            tips |= {new.commit_of_tree(each): None for each in (whole, *former)}
            return new.commit(whole, tuple(tips), message_of(lease))

    def retaken(self, sha: Sha, lease: Lease) -> Sha:
        """Write the commit of another lease with the same contents, and return it."""
        commit = self._object(sha, pygit2.Commit)
        parents = tuple(Sha(str(parent)) for parent in commit.parent_ids)
        with self._written() as new:
            return new.commit(commit.tree_id.raw, parents, message_of(lease))

    def store(self, files: Mapping[str, Path]) -> Sha:
        """Store files and links as a tree, by their names below it; return it. Raises OSError."""
        with self._written() as new:
            tree = new.folder({name: new.copy(file) for name, file in files.items()})
            return Sha(tree.digest.hex())

    @contextmanager
    def _written(self) -> Iterator[_NewObjects]:
        """Provide for new objects; they are not flushed, because they can be made again."""
        staging = ObjectStaging(self.path / "objects", lambda _digest: False)
        try:
            yield _NewObjects(staging)
            for each in staging.finish():
                make_private_directory(each.final.parent)
                each.temporary.rename(each.final)
        except BaseException:
            staging.abandon()
            raise

        staging.is_published()

    # --- read ------------------------------------------------------------------------------------

    def contents(self, sha: Sha) -> MirrorContents:
        """Return what a lease's commit leads to; raise MirrorDamaged or NotALease."""
        commit = self._object(sha, pygit2.Commit)
        lease = lease_of(commit.message)
        tree = commit.tree
        refs = {}
        for line in self._text(tree, "refs").splitlines():
            target, _, name = line.partition(" ")
            refs[name] = Sha(target)

        return MirrorContents(
            lease,
            self._text(tree, "HEAD"),
            refs,
            dict(self._files(tree, "state")),
            Sha(str(commit.parent_ids[0])) if lease.journal_bytes else None,
            self._tree_named(tree, "hank"),
            self._tree_named(tree, "data"),
            {Sha(sha): content for sha, content in self._files(tree, "tags")},
            self._tree_named(tree, "archive"),
        )

    def lease(self, sha: Sha) -> Lease:
        """Return the lease of a commit; raise MirrorDamaged or NotALease."""
        return lease_of(self._object(sha, pygit2.Commit).message)

    def journal(self, tip: Sha | None) -> Iterator[bytes]:
        """Yield the content of the journal's segments, the first one first."""
        chain: list[pygit2.Oid] = []
        while tip is not None:
            commit = self._object(tip, pygit2.Commit)
            chain.append(commit.tree_id)
            tip = Sha(str(commit.parent_ids[0])) if commit.parent_ids else None

        for tree in reversed(chain):
            found = self._object(Sha(str(tree)), pygit2.Tree)
            yield self._blob(found, _SEGMENT.decode())

    def agrees(self, segments: Segments, journal: Path) -> bool:
        """Return whether a journal begins with the segments."""
        try:
            with journal.open("rb") as lines:
                return all(lines.read(len(each)) == each for each in self.journal(segments.tip))
        except MirrorDamaged:
            return False

    def pack(self, tips: Iterable[Sha], folder: Path) -> None:
        """Write a pack of all objects that these lead to into a folder; raise MirrorDamaged."""
        command = ("git", "-c", "pack.writeReverseIndex=false", "pack-objects", "--quiet", "--revs")
        done = subprocess.run(
            (*command, "--delta-base-offset", str(folder / "pack")),
            cwd=self.path,
            env={key: text for key, text in os.environ.items() if not key.startswith("GIT_")},
            input="".join(f"{each}\n" for each in tips).encode(),
            capture_output=True,
        )
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            raise MirrorDamaged(f"the history cannot be read: {words}")

    def files(self, tree: Sha) -> Iterator[tuple[str, int, bytes]]:
        """Yield the path, the mode and the content of every file below a tree."""
        waiting = [("", self._object(tree, pygit2.Tree))]
        while waiting:
            prefix, folder = waiting.pop()
            for each in folder:
                name = os.fsdecode(each.raw_name or b"")
                if isinstance(each, pygit2.Tree):
                    waiting.append((f"{prefix}{name}/", each))
                elif isinstance(each, pygit2.Blob):
                    yield f"{prefix}{name}", int(each.filemode), each.data

    def _files(self, tree: pygit2.Tree, name: str) -> Iterator[tuple[str, bytes]]:
        below = self._tree_named(tree, name)
        if below is not None:
            for path, _, content in self.files(below):
                yield path, content

    def _tree_named(self, tree: pygit2.Tree, name: str) -> Sha | None:
        return Sha(str(tree[name].id)) if name in tree else None

    def _text(self, tree: pygit2.Tree, name: str) -> str:
        return self._blob(tree, name).decode()

    def _blob(self, tree: pygit2.Tree, name: str) -> bytes:
        try:
            found = tree[name]
        except KeyError:
            raise MirrorDamaged(f"the mirror has no {name}") from None

        if not isinstance(found, pygit2.Blob):
            raise MirrorDamaged(f"{name} is not a file")

        return found.data

    def _object(self, sha: Sha, kind: type[_T]) -> _T:
        try:
            found = self._repo[sha]
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise MirrorDamaged(f"object {sha} cannot be read: {error}") from None

        if not isinstance(found, kind):
            raise MirrorDamaged(f"object {sha} is not a {kind.__name__.lower()}")

        return found


def target_of(tag: bytes) -> Sha:
    """Return what a tag names, from its content."""
    return Sha(tag[len(b"object ") :][:40].decode())


class _NewObjects:
    """New objects, from their content."""

    def __init__(self, staging: ObjectStaging) -> None:
        self._staging = staging

    def file(self, content: bytes) -> Entry:
        return Entry(REGULAR, self._staging.add("blob", content))

    def copy(self, file: Path) -> Entry:
        mode = file.lstat().st_mode
        if stat.S_ISLNK(mode):
            return Entry(LINK, self._staging.add("blob", os.fsencode(os.readlink(file))))

        kind = EXECUTABLE if mode & stat.S_IXUSR else REGULAR
        return Entry(kind, self._staging.add("blob", file.read_bytes()))

    def tree(self, entries: Mapping[bytes, Entry]) -> bytes:
        return self._staging.add("tree", encoded(entries))

    def contents(self, files: Mapping[str, bytes]) -> Entry:
        return self.folder({path: self.file(content) for path, content in files.items()})

    def folder(self, files: Mapping[str, Entry]) -> Entry:
        """Store a tree with files whose paths may lead through folders."""
        entries: dict[bytes, Entry] = {}
        below: dict[str, dict[str, Entry]] = {}
        for path, file in files.items():
            first, _, rest = path.partition("/")
            if rest:
                below.setdefault(first, {})[rest] = file
            else:
                entries[os.fsencode(path)] = file

        entries |= {os.fsencode(name): self.folder(inner) for name, inner in below.items()}
        return Entry(FOLDER, self.tree(entries))

    def commit(self, tree: bytes, parents: tuple[Sha, ...], message: str) -> Sha:
        return self._commit(tree, parents, message, int(time.time()))

    def commit_of_tree(self, tree: bytes) -> Sha:
        """Store the commit of a tree that has nothing else; it is always the same one."""
        return self._commit(tree, (), "A tree that the remote has\n", 0)

    def _commit(self, tree: bytes, parents: tuple[Sha, ...], message: str, seconds: int) -> Sha:
        signature = f"Hankweave <hankweave@localhost> {seconds} +0000"
        lines = [f"tree {tree.hex()}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {signature}", f"committer {signature}", "", message]
        return Sha(self._staging.add("commit", "\n".join(lines).encode()).hex())
