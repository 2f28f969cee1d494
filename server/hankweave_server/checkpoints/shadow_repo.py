"""The one place that speaks to pygit2: refs, history, reading objects, diffs, the index.

Objects are written by `objects`, refs by libgit2 with fsync on. No configuration but the
repository's own is ever read, and its hooks, filters and work tree are never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, RepositoryOpenFlag, SortMode

from hankweave_protocol.ids import RunId, Sha, branch_of
from hankweave_server.checkpoints.errors import ShadowRepositoryError
from hankweave_server.files import PRIVATE_FILE

NOTES_REF = "refs/notes/hankweave"
_BRANCHES = "refs/heads/"

_KINDS = {
    int(ObjectType.COMMIT): "commit",
    int(ObjectType.TREE): "tree",
    int(ObjectType.BLOB): "blob",
}


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

    def __init__(self, path: Path) -> None:
        self.path = path
        _be_alone()
        try:
            self._repo = pygit2.Repository(
                str(path), RepositoryOpenFlag.BARE | RepositoryOpenFlag.NO_SEARCH
            )
        except (pygit2.GitError, KeyError, OSError) as problem:
            raise ShadowRepositoryError(str(problem)) from problem

    def close(self) -> None:
        self._repo.free()

    # Objects

    def holds(self, digest: bytes) -> bool:
        return bool(self._repo.odb.exists(pygit2.Oid(raw=digest)))

    def read(self, digest: bytes) -> tuple[str, bytes]:
        """Gives kind and content of an object; its bytes are checked against its name.

        Raises KeyError when it is missing or damaged.
        """
        try:
            kind, data = self._repo.odb.read(pygit2.Oid(raw=digest))
        except (pygit2.GitError, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

        return _KINDS[int(kind)], data

    def read_tree(self, digest: bytes) -> bytes:
        return self._read_as("tree", digest)

    def read_blob(self, digest: bytes) -> bytes:
        return self._read_as("blob", digest)

    def _read_as(self, wanted: str, digest: bytes) -> bytes:
        kind, data = self.read(digest)
        if kind != wanted:
            raise KeyError(f"{digest.hex()} is a {kind}, not a {wanted}")

        return data

    def size(self, digest: bytes) -> int:
        """Gives an object's size without reading its content; raises KeyError as `read`."""
        try:
            return int(self._repo.odb.read_header(pygit2.Oid(raw=digest))[1])
        except (pygit2.GitError, ValueError, OSError) as problem:
            raise KeyError(digest.hex()) from problem

    # History

    def commit(self, sha: Sha) -> RawCommit | None:
        try:
            found = self._repo.get(sha)
        except (pygit2.GitError, ValueError) as problem:
            raise KeyError(sha) from problem

        return _raw(found) if isinstance(found, pygit2.Commit) else None

    def history(self) -> Iterator[RawCommit]:
        """Walks every commit our branches and HEAD reach, newest first.

        Raises ShadowRepositoryError where a commit cannot be read.
        """
        tips = {*self.tips().values()}
        head = self.head()
        if head is not None:
            tips.add(head)

        if not tips:
            return

        try:
            walker = self._repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
            for tip in sorted(tips):
                walker.push(tip)

            for commit in walker:
                yield _raw(commit)
        except (pygit2.GitError, KeyError, ValueError) as problem:
            raise ShadowRepositoryError(
                f"A commit of the shadow repository cannot be read: {problem}"
            ) from problem

    # Refs

    def tips(self) -> dict[str, Sha]:
        """Gives every branch and its commit."""
        references = self._repo.references
        names = [name for name in references if name.startswith(_BRANCHES)]
        return {name: Sha(str(references[name].target)) for name in names}

    def tip(self, run: RunId) -> Sha | None:
        return self.target(_BRANCHES + branch_of(run))

    def target(self, ref: str) -> Sha | None:
        found = self._repo.references.get(ref)
        return None if found is None else Sha(str(found.target))

    def point(self, ref: str, sha: str) -> None:
        """Creates or moves a ref, durably."""
        with _libgit2_errors():
            self._repo.references.create(ref, pygit2.Oid(hex=sha), force=True)
            self._keep_private(ref)

    def point_branch(self, run: RunId, sha: Sha) -> None:
        self.point(_BRANCHES + branch_of(run), sha)

    def head(self) -> Sha | None:
        """Gives the commit that HEAD leads to; None while its branch is unborn."""
        if self._repo.head_is_unborn:
            return None

        return Sha(str(self._repo.head.target))

    def attach(self, run: RunId) -> None:
        """Makes HEAD name the run's branch, born or not."""
        with _libgit2_errors():
            self._repo.set_head(_BRANCHES + branch_of(run))
            self._keep_private("HEAD")

    def is_attached_to(self, run: RunId) -> bool:
        return self._repo.references["HEAD"].target == _BRANCHES + branch_of(run)

    def detach(self, sha: Sha) -> None:
        """Makes HEAD name a commit (seed 000, "Branch Management" 3)."""
        with _libgit2_errors():
            self._repo.set_head(pygit2.Oid(hex=sha))
            self._keep_private("HEAD")

    # For people

    def line_diff(self, path: str, old: bytes | None, new: bytes | None) -> LineDiff:
        """Compares two contents line by line; None is no file, binary content has no lines."""
        # libgit2's binding takes names as UTF-8 text only; the caller has the exact one.
        path = path.encode("utf-8", "replace").decode()
        with _libgit2_errors():
            patch = pygit2.Patch.create_from(
                old, new, old_as_path=path, new_as_path=path, context_lines=3
            )

        _, added, removed = patch.line_stats
        return LineDiff(added, removed, patch.data)

    def write_index(self, tree: Sha) -> None:
        """Writes the index stock git compares the work tree with."""
        with _libgit2_errors():
            index = pygit2.Index(str(self.path / "index"))
            index.clear()
            index.read_tree(self._repo[tree].peel(pygit2.Tree))
            index.write()
            self._keep_private("index")

    def _keep_private(self, name: str) -> None:
        """Takes back the permissions that libgit2 gives by the umask."""
        (self.path / name).chmod(PRIVATE_FILE)


def _be_alone() -> None:
    """Sets libgit2 up for this process: our configuration only, and fsync for what it writes.

    These settings are global to the process and must precede the first opening; every write
    libgit2 does here is of ours, so that a global setting is no harm. Ownership is not checked,
    because the only repository ever opened is the one named by the layout.
    """
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = ""

    pygit2.settings.enable_fsync_gitdir(True)
    pygit2.settings.owner_validation = False


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
        raise ShadowRepositoryError(str(problem)) from problem
