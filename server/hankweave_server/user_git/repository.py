"""The only user of pygit2 for the user's repository: objects, refs, configuration.

A repository is opened for each operation, so that no state is cached that another program may have
changed. libgit2 runs no hook and signs nothing; its index, filters and checkout are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, SortMode

from hankweave_server.fsutil import sync_directory, sync_file, sync_filesystem
from hankweave_server.user_git.errors import (
    CheckpointError,
    NotARepository,
    RepositoryBusy,
    UnsupportedRepository,
    WorkspaceMissing,
)

FEW = 64
"""Number of objects up to which each is flushed; above it the whole file system is."""

WRITE_AGAIN = 3
"""Attempts to write an object: the user's `git gc` may remove its folder in between."""

SYMBOLIC_LINKS = 5
"""Length of the chain of names that git follows from HEAD to a branch."""

_BLOB, _TREE, _COMMIT = int(ObjectType.BLOB), int(ObjectType.TREE), int(ObjectType.COMMIT)


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    tree: bytes
    parents: tuple[str, ...]
    author_time: int
    message: bytes

    @property
    def subject(self) -> bytes:
        return self.message.partition(b"\n")[0]


@dataclass(frozen=True, slots=True)
class Head:
    """The target of HEAD: a branch, possibly without a commit yet, or a commit itself."""

    branch: str | None
    sha: str | None


def git_folder_of(workspace: Path) -> Path | None:
    """Return the git directory of the repository around a folder, or None."""
    with _libgit2_errors():
        found = pygit2.discover_repository(str(workspace))

    return None if found is None else Path(found)


class GitRepository:
    """An open repository with a work tree."""

    def __init__(self, workspace: Path) -> None:
        """Open a repository; raise CheckpointError if there is none that can be used."""
        if not workspace.is_dir():
            raise WorkspaceMissing(
                f"There is no folder {workspace}.", "Name the folder to work in."
            )

        found = git_folder_of(workspace)
        if found is None:
            raise NotARepository(
                f"{workspace} is not in a git repository.",
                'Run `git init` there, or use repository="shadow".',
            )

        with _libgit2_errors():
            # By workspace: a separate git directory (`--separate-git-dir`) does not know its work
            # tree.
            self._repo = pygit2.Repository(str(workspace))

        if self._repo.workdir is None:
            raise UnsupportedRepository(
                f"{found} is a bare repository: it has no files to checkpoint.",
                "Use a clone or a worktree of it.",
            )

        self.git_dir = Path(self._repo.path).resolve()
        self.work_tree = Path(self._repo.workdir).resolve()
        self.common_dir = self._common_dir()
        self._written: set[bytes] = set()

    def _common_dir(self) -> Path:
        named = self.git_dir / "commondir"
        if not named.is_file():
            return self.git_dir

        return (self.git_dir / named.read_text().rstrip("\n")).resolve()

    def close(self) -> None:
        self._repo.free()

    # Objects

    def read(self, digest: bytes, kind: int) -> bytes:
        """Return an object's content; raise CheckpointError if it is missing or damaged."""
        try:
            found, data = self._repo.odb.read(pygit2.Oid(raw=digest))
        except (pygit2.GitError, KeyError, ValueError, OSError) as problem:
            raise CheckpointError(
                f"Object {digest.hex()} of the repository cannot be read.",
                "Run `git fsck` for details.",
            ) from problem

        if int(found) != kind:
            raise CheckpointError(f"Object {digest.hex()} has the wrong type.")

        return bytes(data)

    def read_tree(self, digest: bytes) -> bytes:
        return self.read(digest, _TREE)

    def read_blob(self, digest: bytes) -> bytes:
        return self.read(digest, _BLOB)

    def has(self, digest: bytes) -> bool:
        """Return whether an object is present; a partial clone lacks some."""
        with _libgit2_errors():
            return bool(self._repo.odb.exists(pygit2.Oid(raw=digest)))

    def write_blob(self, content: bytes) -> bytes:
        return self._write(_BLOB, content)

    def write_tree(self, content: bytes) -> bytes:
        return self._write(_TREE, content)

    def write_commit(self, content: bytes) -> str:
        return self._write(_COMMIT, content).hex()

    def _write(self, kind: int, content: bytes) -> bytes:
        with _libgit2_errors():
            digest = self._put(kind, content)

        self._written.add(digest)
        return digest

    def _put(self, kind: int, content: bytes) -> bytes:
        for _ in range(WRITE_AGAIN):
            with suppress(pygit2.GitError, KeyError, OSError):
                return put(self._repo, kind, content)

        return put(self._repo, kind, content)

    def flush(self) -> None:
        """Make written objects durable, before anything refers to them."""
        if len(self._written) > FEW:
            sync_filesystem(self.common_dir)
            self._written.clear()

        folders = set()
        for digest in self._written:
            name = digest.hex()
            path = self.common_dir / "objects" / name[:2] / name[2:]
            if _synced(path):
                folders.add(path.parent)

        for folder in folders:
            sync_directory(folder)

        self._written.clear()

    # Commits

    def commit(self, sha: str) -> Commit:
        """Return a commit; raise CheckpointError if there is none of that name."""
        found = self._repo.get(sha)
        if not isinstance(found, pygit2.Commit):
            raise CheckpointError(f"There is no commit {sha} in this repository.")

        return _commit(found)

    def named(self, text: str) -> str | None:
        """Resolve a user's name for a commit: a hash, its prefix, a branch, `HEAD~1`."""
        try:
            return str(self._repo.revparse_single(text).peel(pygit2.Commit).id)
        except (pygit2.GitError, KeyError, ValueError):
            return None

    def commits(self, tips: Iterable[str], hidden: Iterable[str] = ()) -> Iterator[Commit]:
        """Yield commits reachable from `tips` but not from `hidden`, children before parents.

        Commits that are not related come newest first.
        """
        with _libgit2_errors():
            walker = self._repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
            for tip in tips:
                walker.push(tip)

            for sha in hidden:
                walker.hide(sha)

            yield from map(_commit, walker)

    def leads_to(self, ancestor: str, sha: str) -> bool:
        with _libgit2_errors():
            return ancestor == sha or bool(self._repo.descendant_of(sha, ancestor))

    # Refs

    def head(self) -> Head:
        """Return the target of HEAD; a branch may itself be a symbolic ref."""
        with _libgit2_errors():
            branch: str | None = None
            name = "HEAD"
            for _ in range(SYMBOLIC_LINKS):
                found = self._repo.references.get(name)
                if found is None:
                    return Head(branch, None)

                if not isinstance(found.target, str):
                    return Head(branch, str(found.target))

                branch = name = found.target

        raise UnsupportedRepository("HEAD is an endless chain of symbolic references.")

    def move_head(self, head: Head, sha: str | None, why: str, who: tuple[str, str]) -> None:
        """Move the target of HEAD, with a reflog entry, if it has not changed since `head`.

        Raises RepositoryBusy if another program has moved it meanwhile.
        """
        name = head.branch or "HEAD"
        with _libgit2_errors():
            # libgit2 compares the value read here when it writes.
            reference = self._repo.references.get(name)
            standing = None if reference is None else str(reference.target)
            if self.head() != head or standing != head.sha:
                raise RepositoryBusy(
                    "Another program has moved the branch in the meantime.", "Try again."
                )

            self._repo.set_ident(*who)
            if reference is None:
                if sha is not None:
                    self._repo.create_reference_direct(name, pygit2.Oid(hex=sha), False, why)
            elif sha is None:
                reference.delete()
            else:
                reference.set_target(pygit2.Oid(hex=sha), why)

        place = (self.common_dir if head.branch else self.git_dir) / name
        if _synced(place):
            sync_directory(place.parent)

    def references(self, prefix: str) -> dict[str, str]:
        with _libgit2_errors():
            references = self._repo.references
            names = [name for name in references if name.startswith(prefix)]
            return {name: str(references[name].resolve().target) for name in names}

    def point(self, ref: str, sha: str) -> None:
        """Create or move one of the server's refs, durably."""
        with _libgit2_errors():
            self._repo.references.create(ref, pygit2.Oid(hex=sha), force=True)

        place = self.common_dir / ref
        if _synced(place):
            sync_directory(place.parent)

    def forget(self, ref: str) -> None:
        """Remove one of the server's refs, if it exists."""
        with _libgit2_errors():
            found = self._repo.references.get(ref)
            if found is not None:
                found.delete()

    # Configuration

    def own_settings(self) -> list[tuple[str, str]]:
        """Return the repository's own configuration, in order of increasing precedence."""
        with _libgit2_errors():
            return [
                (entry.name, entry.value or "")
                for entry in self._repo.config
                if entry.level >= ConfigLevel.LOCAL
            ]


def _synced(path: Path) -> bool:
    """Flush a file; return False if it does not exist: an object in a pack, a packed ref."""
    try:
        sync_file(path)
    except FileNotFoundError:
        return False

    return True


def settings_in(path: Path) -> list[tuple[str, str]]:
    """Read a user's configuration file; return nothing if it is missing or malformed."""
    try:
        if path.is_file():
            return [(entry.name, entry.value or "") for entry in pygit2.Config(str(path))]
    except (pygit2.GitError, KeyError, ValueError, OSError):
        pass

    return []


def _commit(found: pygit2.Commit) -> Commit:
    return Commit(
        sha=str(found.id),
        tree=bytes(found.tree_id.raw),
        parents=tuple(str(parent) for parent in found.parent_ids),
        author_time=int(found.author.time),
        message=bytes(found.raw_message),
    )


def put(repo: pygit2.Repository, kind: int, content: bytes) -> bytes:
    """Write one object; raise libgit2's errors."""
    return bytes(repo.write(ObjectType(kind), content).raw)


@contextmanager
def _libgit2_errors() -> Iterator[None]:
    try:
        yield
    except (pygit2.GitError, KeyError, ValueError, OSError) as problem:
        raise UnsupportedRepository(
            f"The repository cannot be used: {problem}.",
            ("Check whether `git status` works there."),
        ) from problem
