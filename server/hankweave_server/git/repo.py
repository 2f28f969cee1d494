"""Access a git repository through pygit2: refs, commits, objects, line diffs and the index.

This is the only module that uses pygit2 on the shadow repository; `line_merge` and `line_changes`
use it on contents alone. Objects are written by `objects` and read here.
No configuration but the repository's own is ever read, and its hooks, filters and work tree are
never used.

A ref is moved as git does it: written to a lock file beside it, made durable, then renamed over it.
libgit2 does the same, but holds the interpreter lock during the flush, which may take long. The
repository of a running server has a write-ahead log: one flush of it makes objects and refs durable
together (`publish`). Other repositories have none; their files are flushed one by one.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, RepositoryOpenFlag, SortMode

from hankweave_protocol.ids import RunId, Sha, branch_of
from hankweave_server.fsutil import (
    PRIVATE_FILE,
    make_private_directory,
    sync_directory,
    write_all,
)
from hankweave_server.git.errors import ShadowRepositoryError, disk_faults, named_by_libgit2
from hankweave_server.git.loose import loose_header, whole_loose
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.pack_reader import PackReader
from hankweave_server.wal import StagedFile, Tail, WriteAheadLog, flush_and_rename

NOTES_REF = "refs/notes/hankweave"
BRANCHES = "refs/heads/"
PINS = "refs/pins/"
SAFETY = "refs/hankweave/safety/"
"""Safety checkpoints, each named by its sha: no run's branch contains them."""
KEPT = "refs/hankweave/kept/"
"""Intact checkpoints that a repair found and that no other ref reaches."""
MEMORY_REF = "refs/hankweave/memory"
_OURS = (BRANCHES, PINS, "refs/hankweave/")
"""Prefixes of refs whose commits are checkpoints; `MEMORY_REF` names a tree instead."""

LIBGIT2_OPEN_PACKS = 16
"""Number of pack files that libgit2 keeps open; its default is all it has read from.

`PackReader` reads packs first, so libgit2 is needed for history and deltas only.
"""

KINDS = {
    int(ObjectType.COMMIT): "commit",
    int(ObjectType.TREE): "tree",
    int(ObjectType.BLOB): "blob",
    int(ObjectType.TAG): "tag",
}


COMMITS_KEPT = 1000
"""Loose commits that are kept in memory: the newest ones are asked for again and again."""

BYTES_OF_TREES = 4 << 20
"""Bytes of trees that are kept in memory."""

_COMMIT = re.compile(
    rb"tree ([0-9a-f]{40})\n((?:parent [0-9a-f]{40}\n)*)"
    rb"author [^\n]*\ncommitter [^\n]* ([0-9]{1,10}) [-+][0-9]{4}\n(?:[^\n]+\n)*\n"
)


@dataclass(frozen=True, slots=True)
class RawCommit:
    sha: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    committed: datetime
    message: bytes


@dataclass(frozen=True, slots=True)
class LineDiff:
    added: int
    removed: int
    patch: bytes


class ShadowRepo:
    """An open shadow repository."""

    def __init__(
        self,
        path: Path,
        wal: WriteAheadLog | None = None,
        superseded: set[str] | None = None,
    ) -> None:
        """`superseded` is that of another instance for the same repository."""
        self.path = path
        self.superseded: set[str] = set() if superseded is None else superseded
        """Names of files that are gone because another pack has their objects (see `supersede`)."""
        self._wal = wal
        self._deferred: list[tuple[ObjectStaging, Mapping[str, str]]] = []
        """Objects and files that the next `publish` publishes as well."""
        _be_alone()
        self._repo = _opened(path)
        self.packs = PackReader(path / "objects")
        self._existing: _Existing | None = None
        self._whole_loose: set[bytes] = set()
        self._loose_commits: dict[Sha, tuple[tuple[int, int, int], RawCommit]] = {}
        """Commits that were read from loose files, with inode, size and time of each file."""
        self._beginnings: frozenset[Sha] | None = None
        """The commits whose parents are gone, as of the last opening; None if not read yet."""
        self._is_suspect = False
        """True after objects were found missing or damaged: `stored` then reads what it reports."""
        self.verified: set[bytes] = set()
        """Blobs that were read whole, and that a restore need not read before it writes them."""
        self._trees: dict[bytes, bytes] = {}
        """Trees read lately, the newest last."""
        self._bytes_of_trees = 0

    def reopen(self) -> None:
        """Discard everything cached, so that removed objects are no longer found.

        libgit2 keeps packs open and objects in memory, and would keep returning removed objects.
        """
        self.packs.forget()
        self.verified.clear()
        self._trees.clear()
        self._bytes_of_trees = 0
        self._open_again()
        self._loose_commits.clear()  # The parents of a commit depend on git's `shallow` file.

    def supersede(self, names: Collection[str]) -> None:
        """Forget files whose objects another pack has; what was found out about those stays true.

        A name is that of a pack without its suffix, or a loose object's.
        """
        self.superseded.update(names)
        self.packs.drop(names)
        self._open_again()

    def _open_again(self) -> None:
        self._beginnings = None
        self._existing = None
        self._repo.free()
        self._repo = _opened(self.path)

    def close(self) -> None:
        self.packs.forget()
        self._existing = None
        self._repo.free()

    # Objects

    def mark_suspect(self) -> None:
        """Note that objects are missing or damaged: from now on `stored` reads what it reports."""
        self._is_suspect = True

    def mark_repaired(self) -> None:
        """Note that a repair is complete."""
        self._is_suspect = False

    def stored(self) -> Callable[[bytes], bool]:
        """Return a test for objects stored now; it may miss objects added or removed later."""
        exists = self.existing()

        def holds(digest: bytes) -> bool:
            return exists(digest) and (not self._is_suspect or self._is_readable(digest))

        return holds

    def existing(self) -> Callable[[bytes], bool]:
        """Return a test for objects that exist now, damaged or not.

        An open repository would list the packs on each miss.
        """
        if self._existing is None or not self._existing.is_current():
            self._existing = _Existing(self.path / "objects")

        return self._existing.holds

    def read(self, digest: bytes) -> tuple[str, bytes]:
        """Return kind and content of an object, verified against its name.

        Raises KeyError when it is missing or damaged.
        """
        packed = self.packs.read(digest)
        if packed is not None:
            return packed

        try:
            return whole_loose(self.path / "objects", digest)
        except FileNotFoundError:
            pass
        except (ValueError, OSError):
            # A pack may hold the object too, as a delta. libgit2 would read the damaged loose
            # object first, so the packs are read alone.
            return self._read_packed(digest)

        try:
            kind, data = self._repo.odb.read(pygit2.Oid(raw=digest))
        except (pygit2.GitError, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

        return KINDS[int(kind)], data

    def _read_packed(self, digest: bytes) -> tuple[str, bytes]:
        return reader_of(self.path / "objects")(digest)

    def _is_readable(self, digest: bytes) -> bool:
        try:
            self.read(digest)
        except KeyError:
            return False

        return True

    def read_tree(self, digest: bytes) -> bytes:
        return self._read_as("tree", digest)

    def recent_tree(self, digest: bytes) -> bytes:
        """Return a tree as `read_tree` does, but from memory if it was read lately.

        A checkpoint and a rollback compare the same trees several times. What is in memory may be
        damaged on the disk.
        """
        found = self._trees.get(digest)
        if found is None:
            found = self._trees[digest] = self.read_tree(digest)
            self._bytes_of_trees += len(found)
            while self._bytes_of_trees > BYTES_OF_TREES:
                self._bytes_of_trees -= len(self._trees.pop(next(iter(self._trees))))

        return found

    def read_blob(self, digest: bytes) -> bytes:
        return self._read_as("blob", digest)

    def _read_as(self, wanted: str, digest: bytes) -> bytes:
        kind, data = self.read(digest)
        if kind != wanted:
            raise KeyError(f"{digest.hex()} is a {kind}, not a {wanted}")

        return data

    def size(self, digest: bytes) -> int:
        """Return an object's size without reading its content; raise KeyError as `read`."""
        size = self.packs.size(digest)
        if size is not None:
            return size

        try:
            return loose_header(self.path / "objects", digest)[1]
        except FileNotFoundError:
            pass
        except (ValueError, OSError):
            return len(self._read_packed(digest)[1])

        try:
            return int(self._repo.odb.read_header(pygit2.Oid(raw=digest))[1])
        except (pygit2.GitError, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

    # Commits

    def commit(self, sha: Sha) -> RawCommit | None:
        """Return a commit; None if missing or not a commit. Raise KeyError for damage."""
        try:
            known = self._loose_commits.get(sha)
            if known is not None and known[0] == _loose_identity(self.path, sha):
                return known[1]

            file, stored = None, self.packs.read(bytes.fromhex(sha))
            if stored is None and (file := _loose_identity(self.path, sha)) is not None:
                stored = self.read(bytes.fromhex(sha))

            commit = None if stored is None else self._parsed(sha, *stored)
            if commit is None:
                found = self._repo.get(sha)
                commit = _raw(found) if isinstance(found, pygit2.Commit) else None
        except (pygit2.GitError, ValueError) as problem:
            raise KeyError(sha) from problem

        if commit is not None and file is not None:
            if len(self._loose_commits) >= COMMITS_KEPT:
                self._loose_commits.clear()

            self._loose_commits[sha] = file, commit

        return commit

    def _parsed(self, sha: Sha, kind: str, data: bytes) -> RawCommit | None:
        """Parse a commit in a third of libgit2's time; None if its form is not the usual one."""
        found = _COMMIT.match(data) if kind == "commit" else None
        if found is None:
            return None

        if self._beginnings is None:
            self._beginnings = self.shallow()

        parents = () if sha in self._beginnings else found[2].decode().split()[1::2]
        return RawCommit(
            sha=sha,
            tree=Sha(found[1].decode()),
            parents=tuple(map(Sha, parents)),
            committed=datetime.fromtimestamp(int(found[3]), UTC),
            message=data[found.end() :],
        )

    def commit_named_by(self, sha: Sha) -> Sha | None:
        """Follow a ref's target to a commit, through tags; None if it does not lead to one."""
        try:
            kind, data = self.read(bytes.fromhex(sha))
            while kind == "tag":
                sha = Sha(data[len(b"object ") :][:40].decode())
                kind, data = self.read(bytes.fromhex(sha))
        except (KeyError, ValueError):
            return None

        return sha if kind == "commit" else None

    def reachable(self, tips: Iterable[Sha]) -> tuple[dict[Sha, RawCommit], set[Sha]]:
        """Walk from these commits as far as possible; return those read and those unreadable."""
        found: dict[Sha, RawCommit] = {}
        lost: set[Sha] = set()
        waiting = list(tips)
        while waiting:
            sha = waiting.pop()
            if sha in found or sha in lost:
                continue

            try:
                commit = self.commit(sha)
            except KeyError:
                commit = None

            if commit is None:
                lost.add(sha)
            else:
                found[sha] = commit
                waiting += commit.parents

        return found, lost

    def reached_from_refs(self) -> tuple[dict[Sha, RawCommit], set[Sha]]:
        """Return the commits reachable from refs, without order (see `reachable`)."""
        return self.reachable({self.commit_named_by(tip) or tip for tip in self.tips()})

    def commits(self, also: Iterable[Sha] = ()) -> Iterator[RawCommit]:
        """Walk every commit that our refs and HEAD reach, newest first; pins are among our refs.

        If a commit cannot be read, the walk continues past it, as far as refs and the commits in
        `also` lead; pass the commits that the caller knows of.
        """
        try:
            yield from list(self._walked())
        except ShadowRepositoryError:
            named = {self.commit_named_by(tip) or tip for tip in self.tips()}
            found, _ = self.reachable({*named, *also})
            yield from _newest_first(found)

    def _walked(self) -> Iterator[RawCommit]:
        tips = self.tips()
        if not tips:
            return

        if not self._loose_are_whole():
            raise ShadowRepositoryError("A commit of the shadow repository is damaged.")

        try:
            # A named pin is a tag; the walk begins at the commit it names.
            walker = self._repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
            for tip in sorted(tips):
                walker.push(tip)

            for commit in walker:
                yield _raw(commit)
        except (pygit2.GitError, KeyError, ValueError) as problem:
            raise ShadowRepositoryError(
                f"A commit of the shadow repository cannot be read: {problem}"
            ) from problem

    def _loose_are_whole(self) -> bool:
        """Return whether libgit2 may read: it never returns from a truncated loose object."""
        objects = self.path / "objects"
        for path in objects.glob("[0-9a-f][0-9a-f]/" + "[0-9a-f]" * 38):
            digest = bytes.fromhex(path.parent.name + path.name)
            if digest in self._whole_loose:
                continue

            try:
                if loose_header(objects, digest)[0] != "blob":
                    whole_loose(objects, digest)
                    self._whole_loose.add(digest)
            except FileNotFoundError:
                continue
            except (ValueError, OSError):
                return False

        return True

    def shallow(self) -> frozenset[Sha]:
        """Return the commits that histories begin with: their parents are gone."""
        return shallow_in(self.path)

    # Refs

    def tips(self) -> set[Sha]:
        """Return the targets of our refs and HEAD, where the history begins."""
        ours = [self.references(prefix) for prefix in _OURS]
        targets = {sha for each in ours for ref, sha in each.items() if ref != MEMORY_REF}
        head = self.head()
        return targets if head is None else targets | {head}

    def references(self, prefix: str = "refs/") -> dict[str, Sha]:
        """Return every ref with that prefix, and the object it names, of any kind."""
        with _libgit2_errors():
            references = self._repo.references
            names = [name for name in references if name.startswith(prefix)]
            return {name: Sha(str(references[name].resolve().target)) for name in names}

    def tip(self, run: RunId) -> Sha | None:
        return self.target(BRANCHES + branch_of(run))

    def target(self, ref: str) -> Sha | None:
        found = self._repo.references.get(ref)
        return None if found is None else Sha(str(found.target))

    def staging(self) -> ObjectStaging:
        """Return an empty staging area for new objects; `publish` or `abandon` it."""
        return ObjectStaging(self.path / "objects", self.stored())

    def publish(
        self,
        staging: ObjectStaging | None,
        moves: Mapping[str, str],
        files: Sequence[StagedFile] = (),
        *,
        flush_also: Path | None = None,
        tail: Tail | None = None,
    ) -> None:
        """Make staged objects, and the refs that name them, visible and durable.

        `moves` has the new content of each ref: a sha, or "ref: NAME"; the old one does not
        matter. `files` become visible and durable with them, after them. `flush_also` and `tail`
        are as in `WriteAheadLog.publish`, and need a log. Raises ShadowRepositoryError with no ref
        moved, also while another git program holds a ref's lock file.
        """
        held = [*self._deferred, *([] if staging is None else [(staging, moves)])]
        objects = [file for each, _ in held for file in each.finish()]
        content = {ref: value for _, each in held for ref, value in each.items()} | dict(moves)
        refs: list[StagedFile] = []
        with disk_faults(self.path):
            try:
                if self._wal is None:
                    flush_and_rename(objects)
                    objects = []

                for ref, value in content.items():
                    refs.append(_locked(self.path / ref, f"{value}\n"))

                if self._wal is None:
                    flush_and_rename((*refs, *files))
                else:
                    self._wal.publish(objects, (*refs, *files), flush_also=flush_also, tail=tail)
            except BaseException:
                for each in (*refs, *files):
                    each.temporary.unlink(missing_ok=True)

                raise

        for each_staging, _ in held:
            each_staging.is_published()

        self._deferred.clear()

    def defer(self, staging: ObjectStaging, moves: Mapping[str, str]) -> None:
        """Publish these together with what is published next; until then nothing is visible."""
        self._deferred.append((staging, moves))

    def drop_deferred(self) -> bool:
        """Abandon what was held and not published; return whether there was anything."""
        for staging, _ in self._deferred:
            staging.abandon()

        had_any = bool(self._deferred)
        self._deferred.clear()
        return had_any

    def settle(self) -> None:
        """Make everything published durable without the log; call it before files are removed."""
        if self._wal is not None:
            with disk_faults(self.path):
                self._wal.settle()

    def point(self, ref: str, sha: str) -> None:
        """Create or move a ref, durably."""
        self.publish(None, {ref: sha})

    def drop(self, ref: str) -> None:
        """Remove a ref if it exists, durably."""
        if self._repo.references.get(ref) is None:
            return

        self.settle()
        with _libgit2_errors():
            self._repo.references.delete(ref)

        # libgit2 also removes a folder that has become empty.
        folder = (self.path / ref).parent
        while not folder.is_dir():
            folder = folder.parent

        sync_directory(folder)

    def point_branch(self, run: RunId, sha: Sha) -> None:
        self.point(BRANCHES + branch_of(run), sha)

    def head(self) -> Sha | None:
        """Return the commit that HEAD leads to; None while its branch is unborn."""
        if self._repo.head_is_unborn:
            return None

        return Sha(str(self._repo.head.target))

    def is_attached_to(self, run: RunId) -> bool:
        return self._repo.references["HEAD"].target == BRANCHES + branch_of(run)

    def detach(self, sha: Sha, *, flush_also: Path | None = None) -> None:
        """Make HEAD name a commit (seed 000, "Branch Management" 3).

        `flush_also` is as in `publish`.
        """
        self.publish(None, {"HEAD": sha}, flush_also=flush_also)

    # Packs

    def write_pack(self, digests: Iterable[bytes], folder: Path) -> None:
        """Write the objects into a folder as one pack, each as a delta where that is smaller.

        Other threads run meanwhile. libgit2 creates the files: they are neither flushed nor
        private.
        """
        with _libgit2_errors():
            builder = pygit2.PackBuilder(self._repo)
            builder.set_threads(1)
            for digest in digests:
                builder.add(pygit2.Oid(raw=digest))

            builder.write(folder)

    # Output for people

    def line_diff(
        self, path: str, old: bytes | None, new: bytes | None, *, patch_wanted: bool
    ) -> LineDiff:
        """Compare two contents line by line; None means no file, binary content has no lines."""
        # libgit2's binding takes names as UTF-8 text only; the caller has the exact one.
        path = path.encode("utf-8", "replace").decode()
        with _libgit2_errors():
            patch = pygit2.Patch.create_from(
                old, new, old_as_path=path, new_as_path=path, context_lines=3
            )

        _, added, removed = patch.line_stats
        return LineDiff(added, removed, patch.data if patch_wanted else b"")

    def write_index(self, tree: Sha, check: Callable[[], None] = lambda: None) -> None:
        """Write the index stock git compares the work tree with, durably.

        `check` is called before each step that takes long, and before the new index gets its name;
        an exception that it raises leaves the index unchanged.
        """
        if not self._loose_are_whole():
            raise ShadowRepositoryError("A tree of the shadow repository is damaged.")

        # libgit2 does not flush an index, so it gets its name here, under git's own lock.
        with _libgit2_errors():
            lock, temporary = _locked(self.path / "index", "").temporary, self.path / "tmp_index"
            try:
                temporary.unlink(missing_ok=True)
                index = pygit2.Index(str(temporary))
                check()
                index.read_tree(self._repo[tree].peel(pygit2.Tree))
                check()
                index.write()
                temporary.chmod(PRIVATE_FILE)  # It was created according to the umask.
                check()
                flush_and_rename([StagedFile(temporary, self.path / "index")])
            finally:
                temporary.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)


class _Existing:
    """A test for objects that exist, for as long as no pack is removed."""

    def __init__(self, objects: Path) -> None:
        self._packs = objects / "pack"
        self._known = self._listed()
        # Backends belong to a store: a separate backend is never freed, nor are the packs it
        # opened.
        self._store = pygit2.Odb(str(objects))
        self._backends = tuple(self._store.backends)

    def is_current(self) -> bool:
        """Take new packs into account; return False if one is gone."""
        present = self._listed()
        if not self._known <= present:
            return False

        if present != self._known:
            self._known = present
            for backend in self._backends:
                backend.refresh()

        return True

    def holds(self, digest: bytes) -> bool:
        name = pygit2.Oid(raw=digest)
        return any(backend.exists(name) for backend in self._backends)

    def _listed(self) -> set[str]:
        return {name for name in os.listdir(self._packs) if name.endswith(".idx")}


def _loose_identity(path: Path, sha: Sha) -> tuple[int, int, int] | None:
    """Return inode, size and time of a loose object, which change if it is replaced or damaged."""
    try:
        status = os.stat(f"{path}/objects/{sha[:2]}/{sha[2:]}")
    except FileNotFoundError:
        return None

    return status.st_ino, status.st_size, status.st_ctime_ns


def _locked(path: Path, content: str) -> StagedFile:
    """Write a ref's new content to its lock file; FileExistsError if another program has it."""
    make_private_directory(path.parent)
    lock = path.with_name(path.name + ".lock")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock, flags, PRIVATE_FILE)
    try:
        write_all(descriptor, content.encode())
    except OSError:
        lock.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)

    return StagedFile(lock, path)


def _newest_first(commits: Mapping[Sha, RawCommit]) -> Iterator[RawCommit]:
    """Yield the commits, each before its parents, and newer ones first."""
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            if parent in children:
                children[parent] += 1

    waiting = [(-c.committed.timestamp(), sha) for sha, c in commits.items() if not children[sha]]
    heapq.heapify(waiting)
    while waiting:
        _, sha = heapq.heappop(waiting)
        yield commits[sha]
        for parent in commits[sha].parents:
            if parent in children:
                children[parent] -= 1
                if not children[parent]:
                    heapq.heappush(waiting, (-commits[parent].committed.timestamp(), parent))


def _opened(path: Path) -> pygit2.Repository:
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.BARE | RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, KeyError, OSError) as problem:
        raise ShadowRepositoryError(str(problem)) from problem


def shallow_in(repository: Path) -> frozenset[Sha]:
    """Return the commits that git's `shallow` file names."""
    try:
        return frozenset(map(Sha, (repository / "shallow").read_text().split()))
    except FileNotFoundError:
        return frozenset()


def reader_of(objects: Path) -> Callable[[bytes], tuple[str, bytes]]:
    """Return a `read` function that uses the packs of one folder alone; it raises KeyError."""
    store = pygit2.Odb()
    store.add_backend(pygit2.OdbBackendPack(str(objects)), 1)

    def read(digest: bytes) -> tuple[str, bytes]:
        try:
            kind, data = store.read(pygit2.Oid(raw=digest))
        except (pygit2.GitError, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

        return KINDS[int(kind)], data

    return read


def _be_alone() -> None:
    """Configure libgit2 for this process: the repository's configuration only, and fsync.

    These settings are global to the process and must precede the first opening. Every write that
    libgit2 makes in this process is for our repositories, so a global setting is harmless.
    Ownership is not checked, because the only repository ever opened is the one in our own
    directory layout.
    """
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = ""

    pygit2.settings.enable_fsync_gitdir(True)
    pygit2.settings.owner_validation = False
    pygit2.settings.mwindow_file_limit = LIBGIT2_OPEN_PACKS


def _raw(commit: pygit2.Commit) -> RawCommit:
    return RawCommit(
        sha=Sha(str(commit.id)),
        tree=Sha(str(commit.tree_id)),
        parents=tuple(Sha(str(parent)) for parent in commit.parent_ids),
        committed=datetime.fromtimestamp(commit.commit_time, UTC),
        message=commit.raw_message,
    )


@contextmanager
def _libgit2_errors() -> Iterator[None]:
    try:
        yield
    except (pygit2.GitError, OSError, ValueError) as problem:
        raise named_by_libgit2(problem) from problem
