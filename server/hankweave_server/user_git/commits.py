"""The format of checkpoint commits, and the search for them.

Checkpoints are found on HEAD's line and among those that a rollback stepped back over. A commit's
message distinguishes checkpoints from the user's own commits.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote_from_bytes

from hankweave_server.git.trees import Lookup, differences
from hankweave_server.user_git.errors import CheckpointError
from hankweave_server.user_git.labels import CHECKPOINT_PREFIX, Checkpoint, Mark, mark_in
from hankweave_server.user_git.repository import Commit
from hankweave_server.user_git.workspace import OpenWorkspace

PREFIX = CHECKPOINT_PREFIX.encode() + b":"
ROLLBACK = b"architect:rollback:"
SAFETY = b"architect:safety:"
STAGED = b"architect:staged:"

_TRAILER = re.compile(
    rb"\n\n(?=Hankweave-)(?:Hankweave-Checkpoint: (?P<checkpoint>[0-9a-f]{40,64})\n)?"
    rb"(?:Hankweave-Workspace: (?P<folder>\S*)\n)?\Z"
)


def message_of(label: str, folder: bytes, checkpoint: str | None = None) -> bytes:
    """Return the message of a checkpoint with a label.

    Trailers name the workspace if it is not the whole repository, and the checkpoint of the shadow
    repository that has the same files.
    """
    content = _encoded(label)
    if b"\0" in content:
        raise CheckpointError("A checkpoint's message cannot hold a NUL.")

    trailers = b""
    if checkpoint is not None:
        trailers += b"Hankweave-Checkpoint: " + checkpoint.encode() + b"\n"

    if folder:
        trailers += b"Hankweave-Workspace: " + quote_from_bytes(folder).encode() + b"\n"

    return content + b"\n" + (b"\n" + trailers if trailers else b"")


def marked(commit: Commit) -> Mark | None:
    """Parse a checkpoint's message; return None for any other commit, whatever it mentions."""
    if not commit.message.startswith(PREFIX):
        return None

    return mark_in(os.fsdecode(_TRAILER.sub(b"\n", commit.message).removesuffix(b"\n")))


def belongs_to(commit: Commit, folder: bytes) -> bool:
    """Return whether a checkpoint is of this workspace, and not of another one beside it."""
    trailer = _TRAILER.search(commit.message)
    named = None if trailer is None else trailer["folder"]
    return named is None or not folder or named == quote_from_bytes(folder).encode()


def shadow_checkpoint(commit: Commit) -> str | None:
    """Return the shadow repository's checkpoint that a commit was made from, if any."""
    trailer = _TRAILER.search(commit.message) if marked(commit) is not None else None
    found = None if trailer is None else trailer["checkpoint"]
    return None if found is None else found.decode()


def is_ours(commit: Commit) -> bool:
    """Return whether the server made the commit, so that a rollback may step back over it."""
    return commit.message.startswith((PREFIX, ROLLBACK))


def what(commit: Commit) -> bytes:
    """Return a one-line description of a commit."""
    subject = commit.subject
    return subject.removeprefix(PREFIX) or commit.sha[:7].encode()


def write_commit(place: OpenWorkspace, tree: bytes, message: bytes, *more: str) -> str:
    """Write a commit on top of HEAD and of other commits; no ref names it yet."""
    now = int(time.time())
    ahead = time.localtime(now).tm_gmtoff // 60
    zone = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}{abs(ahead) % 60:02}"
    person = _encoded(f"{place.who[0]} <{place.who[1]}> {now} {zone}")
    parents = [*([place.head.sha] if place.head.sha else []), *more]
    lines = [b"tree " + tree.hex().encode()]
    lines += [b"parent " + parent.encode() for parent in parents]
    lines += [b"author " + person, b"committer " + person, b"", message]
    return place.repo.write_commit(b"\n".join(lines))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


SAFETY_REFS = "refs/hankweave/safety/"
"""Refs of the commits that save the state before each move; they are never moved."""


class CommitListing:
    """The checkpoints of one workspace."""

    def __init__(self, place: OpenWorkspace) -> None:
        self._place = place
        self._head = [place.head.sha] if place.head.sha else []
        self._kept = list(place.repo.references(SAFETY_REFS).values())

    def all(self) -> list[Checkpoint]:
        """Return every checkpoint, newest first."""
        return list(map(self.listed, self._checkpoints([*self._kept, *self._head])))

    def on_the_line(self) -> Iterator[Checkpoint]:
        """Yield the checkpoints that are ancestors of HEAD, newest first."""
        return map(self.listed, self._checkpoints(self._head))

    def found(self, step: int | str) -> str | None:
        """Return the newest checkpoint of a step on HEAD's line, otherwise among the others."""
        for tips, hidden in ((self._head, []), (self._kept, self._head)):
            for commit in self._checkpoints(tips, hidden):
                mark = marked(commit)
                if mark is not None and mark.is_called(step):
                    return commit.sha

        return None

    def listed(self, commit: Commit) -> Checkpoint:
        mark = marked(commit)
        assert mark is not None, f"{commit.sha} is a checkpoint"
        return Checkpoint(
            step=mark.step or 0,
            commit_hash=commit.sha,
            message=mark.message,
            timestamp=float(commit.author_time),
            files_changed=self._files_of(commit),
        )

    def _checkpoints(self, tips: list[str], hidden: Iterable[str] = ()) -> Iterator[Commit]:
        for commit in self._place.repo.commits(tips, hidden):
            if marked(commit) is not None and belongs_to(commit, self._place.folder):
                yield commit

    def _files_of(self, commit: Commit) -> list[str]:
        repo = self._place.repo
        lookup = Lookup(repo.read_tree)
        before = repo.commit(commit.parents[0]).tree if commit.parents else None
        trees = [lookup.folder(tree, self._place.folder) for tree in (before, commit.tree)]
        return [os.fsdecode(path) for path in sorted(differences(repo.read_tree, *trees))]
