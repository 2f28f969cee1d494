"""Checkpoints in the user's repository: create, list, roll back, undo.

A rollback makes objects and the safety commit durable, then the intent. Then files, branch and
index change, and last the undo record. The next call on the repository finishes what a crash
interrupted.

Files that were left out cause a CheckpointWarning, unfinished ones a RollbackIncomplete, and disk
errors a CheckpointError.

What is saved before a change: the work tree, the staged content, and exact bytes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from hankweave_server.git.objects import digest_of
from hankweave_server.git.trees import REGULAR, Entry
from hankweave_server.user_git.capture import OURS, WorkspaceCaptured
from hankweave_server.user_git.commits import (
    ROLLBACK,
    SAFETY,
    SAFETY_REFS,
    STAGED,
    CommitListing,
    is_ours,
    message_of,
    shadow_checkpoint,
    what,
    write_commit,
)
from hankweave_server.user_git.errors import (
    CheckpointError,
    CheckpointWarning,
    RollbackIncomplete,
    UndoImpossible,
    UnknownCheckpoint,
)
from hankweave_server.user_git.index_file import GITLINK
from hankweave_server.user_git.intents import Intent, UndoNotes, UndoRecord
from hankweave_server.user_git.labels import Checkpoint, label_of
from hankweave_server.user_git.repository import Commit, GitRepository
from hankweave_server.user_git.restore import begin, changes_between, move, unusual_permissions
from hankweave_server.user_git.tree_builder import is_in_one_of, without_collisions
from hankweave_server.user_git.workspace import (
    OpenWorkspace,
    alone,
    gc_held_off,
    index_held,
    opened,
)

STAGED_REFS = "refs/hankweave/staged/"


@dataclass(frozen=True, slots=True)
class Safety:
    """The saved state before a move."""

    now: bytes
    """The tree of what may change: the work tree, except for the paths that stay."""
    permissions: dict[str, int]
    exact: dict[str, str]
    """Blobs of exact bytes, as an intent has them."""
    commit: str
    ref: str
    staged: str | None


def secure(
    place: OpenWorkspace,
    captured: WorkspaceCaptured,
    wanted: Mapping[bytes, Entry],
    standing: Mapping[bytes, Entry],
    tree: bytes,
    why: bytes,
) -> Safety:
    """Save what a move to `tree` changes; `wanted` are its files, `standing` those that stay."""
    stays = place.ignored_there(captured, wanted)
    files = {path: entry for path, entry in captured.files.items() if path not in stays}
    now = place.tree_with(without_collisions(files, standing))
    changes = changes_between(place, place.folder, now, tree)
    exact = exact_bytes(place, captured, changes)
    digests = {path.hex(): entry.digest.hex() for path, entry in exact.items()}
    permissions = unusual_permissions(place.descent, captured, changes)
    return Safety(now, permissions, digests, *save(place, captured, why, exact))


def save(
    place: OpenWorkspace, captured: WorkspaceCaptured, why: bytes, exact: dict[bytes, Entry]
) -> tuple[str, str, str | None]:
    """Commit the work tree and the staged content, under a ref that is never moved.

    Return the commit, its ref and the commit of the staged content.
    """
    staged, more = None, []
    staged_tree = place.staged_tree()
    if staged_tree is not None:
        staged = write_commit(place, staged_tree, STAGED + b" " + why + b"\n")
        more.append(staged)

    if exact:
        message = SAFETY + b" exact bytes " + why + b"\n"
        more.append(write_commit(place, place.tree_with(exact), message))

    sha = write_commit(place, place.tree_of(captured), SAFETY + b" " + why + b"\n", *more)
    place.repo.flush()
    taken = place.repo.references(SAFETY_REFS)
    numbers = [int(end) for ref in taken if (end := ref.removeprefix(SAFETY_REFS)).isdecimal()]
    ref = f"{SAFETY_REFS}{max(numbers, default=0) + 1}"
    place.repo.point(ref, sha)
    return sha, ref, staged


def keep_staged(place: OpenWorkspace, captured: WorkspaceCaptured, sha: str) -> None:
    """Keep staged content that is neither in HEAD nor in the work tree."""
    in_head = place.files_of(place.head_tree)
    is_lost = any(
        path not in captured.left_alone
        and entry.mode != GITLINK
        and entry not in (in_head.get(path), captured.files.get(path))
        for path, entry in place.index_files().items()
    )
    tree = place.staged_tree() if is_lost else None
    if tree is not None:
        _keep_staged_tree(place, tree, b"before checkpoint " + sha[:7].encode(), sha)


def keep_staged_since(place: OpenWorkspace, intent: Intent) -> None:
    """Keep content staged after a crash, since finishing the move rewrites the index."""
    tree = place.staged_tree()
    known = [intent.head_before, intent.head_after, intent.undo.staged if intent.undo else None]
    trees = [place.repo.commit(sha).tree for sha in known if sha is not None]
    if tree is not None and tree not in trees:
        _keep_staged_tree(place, tree, b"before a rollback was finished")


def _keep_staged_tree(
    place: OpenWorkspace, tree: bytes, why: bytes, named_by: str | None = None
) -> None:
    kept = write_commit(place, tree, STAGED + b" " + why + b"\n")
    place.repo.flush()
    place.repo.point(STAGED_REFS + (named_by or kept)[:12], kept)


def exact_bytes(
    place: OpenWorkspace,
    captured: WorkspaceCaptured,
    changes: Mapping[bytes, tuple[Entry | None, Entry | None]],
) -> dict[bytes, Entry]:
    """Store the exact bytes of files that git's line-end conversion would change."""
    found = {}
    for path, (old, _) in changes.items():
        seen = captured.seen.get(path)
        if old is None or seen is None or not stat.S_ISREG(seen.st_mode):
            continue

        content = place.observer.raw(path, seen)
        if content is not None and digest_of("blob", content) != old.digest:
            found[path] = Entry(REGULAR, place.repo.write_blob(content))

    return found


def warn_of_omissions(captured: WorkspaceCaptured) -> None:
    """Warn about files that a checkpoint leaves out, so that users do not rely on it."""
    for paths, why in (
        (captured.secrets, "may contain secrets and are not tracked, so they are not committed"),
        (
            captured.foreign,
            ("are managed by another program (LFS, git-crypt), so they are left unchanged"),
        ),
        (captured.unreadable, "cannot be read or named by git, so they are left out"),
    ):
        if paths:
            warnings.warn(f"{_shown(paths)} {why}.", CheckpointWarning, stacklevel=5)


def require_finished(left: Mapping[bytes, str], what_was_done: str) -> None:
    """Raise RollbackIncomplete for paths that could not be restored, with why, if there are any."""
    if not left:
        return

    parts = [f"{_shown([path])} ({why})" for path, why in sorted(left.items()) if why]
    if len(parts) > 5:
        parts = [*parts[:5], f"{len(parts) - 5} more"]

    changed = [path for path, why in left.items() if not why]
    if changed:
        parts.append(f"files that have changed since they were captured: {_shown(changed)}")

    raise RollbackIncomplete(
        f"{what_was_done}, except for {', and '.join(parts)}.",
        "They were left unchanged; `undo()` reverts the rest.",
        tuple(os.fsdecode(path) for path in sorted(left)),
    )


def _shown(paths: Iterable[bytes]) -> str:
    names = [path.decode("utf-8", "backslashreplace") for path in sorted(paths)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


@contextlib.contextmanager
def faults_converted() -> Iterator[None]:
    """Convert an OSError to a CheckpointError."""
    try:
        yield
    except OSError as problem:
        raise CheckpointError(
            f"The workspace or its repository cannot be used: {problem}.",
            "The next call completes an interrupted operation.",
        ) from problem


class WorkspaceGit:
    """The checkpoints of one workspace; every call opens the repository anew."""

    def __init__(self, root: Path) -> None:
        """Raise CheckpointError if the repository cannot hold checkpoints."""
        self._root = root
        with self._reading():
            pass

    def is_ignored(self) -> bool:
        """Return whether the repository around the workspace ignores it."""
        with self._reading() as place:
            return place.is_ignored()

    def create(self, step: int, message: str = "") -> Checkpoint | None:
        """Commit the workspace as a numbered step; return None if nothing changed."""
        return self.commit(label_of(step, message))

    def commit(self, label: str, *, checkpoint: str | None = None) -> Checkpoint | None:
        """Commit the workspace with a label; return None if nothing changed.

        `checkpoint` is that of the shadow repository that has the same files, if there is one.
        """
        with self._changing() as place:
            captured = place.capture(store=True)
            warn_of_omissions(captured)
            tree = place.tree_of(captured)
            if tree == (place.head_tree or place.repo.write_tree(b"")):
                return None

            message = message_of(label, place.folder, checkpoint)
            sha = write_commit(place, tree, message)
            keep_staged(place, captured, sha)
            subject = message.partition(b"\n")[0]
            why = "commit: " + os.fsdecode(subject)
            self._move(place, captured, intended(place, sha, why, tree))
            return CommitListing(place).listed(place.repo.commit(sha))

    def list_checkpoints(self) -> list[Checkpoint]:
        """Return all checkpoints, newest first, including those a rollback stepped back over."""
        with self._reading() as place:
            return CommitListing(place).all()

    def get_latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is an ancestor of HEAD."""
        with self._reading() as place:
            return next(CommitListing(place).on_the_line(), None)

    def has_changes_since(self, commit_hash: str) -> bool:
        """Return whether the workspace's files differ from a commit; new files count.

        Raises UnknownCheckpoint if the name is not that of a commit.
        """
        with self._reading() as place:
            sha = place.repo.named(commit_hash)
            if sha is None:
                raise UnknownCheckpoint(
                    f"There is no commit {commit_hash!r} in this repository.",
                    "`list_checkpoints()` returns the hashes of all checkpoints.",
                )

            captured = place.capture(store=False)
            now = without_collisions(captured.files, captured.standing)
            return now != place.files_of(place.repo.commit(sha).tree)

    def shadow_checkpoint_of(self, name: str) -> str | None:
        """Return the shadow checkpoint that a commit was made from, or None."""
        with self._reading() as place:
            sha = place.repo.named(name)
            return None if sha is None else shadow_checkpoint(place.repo.commit(sha))

    def has_commit(self, name: str) -> bool:
        """Return whether a name is that of a commit of the repository."""
        with self._reading() as place:
            return place.repo.named(name) is not None

    def rollback(self, step: int | str | None = None, commit: str | None = None) -> bool:
        """Restore a commit or the newest checkpoint of a step; return False if there is none.

        Raises RollbackIncomplete if it was done except for files that changed meanwhile.
        """
        if step is None and commit is None:
            return False

        with self._changing() as place:
            sha = None
            if commit is not None:
                sha = place.repo.named(commit)
            elif step is not None:
                sha = CommitListing(place).found(step)

            if sha is None:
                return False

            self._go_to(place, place.repo.commit(sha))
            return True

    def undo(self) -> bool:
        """Undo the last rollback: files, staged content, and the branch.

        Returns False if there is none; raises UndoImpossible if the branch has moved since.
        """
        with self._changing() as place:
            record = place.notes.undo_record()
            if record is None or bytes.fromhex(record.folder) != place.folder:
                return False

            if (place.head.branch, place.head.sha) != (record.branch, record.head_after):
                raise UndoImpossible(
                    "The branch has moved since the rollback.",
                    f"The files from before the rollback are kept as {record.safety_ref}.",
                )

            self._undo_rollback(place, record)
            return True

    def close(self) -> None:
        """Do nothing: every call has already released what it opened."""

    # Implementation

    @contextlib.contextmanager
    def _reading(self) -> Iterator[OpenWorkspace]:
        with faults_converted(), contextlib.ExitStack() as stack:
            place = stack.enter_context(opened(self._root))
            if place.notes.has_intent():
                stack.close()
                with self._locked():
                    place = stack.enter_context(opened(self._root))

            yield place

    @contextlib.contextmanager
    def _changing(self) -> Iterator[OpenWorkspace]:
        with faults_converted(), self._locked(), opened(self._root) as place:
            place.refuse_in_between()
            yield place

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the locks, after finishing an interrupted move."""
        with contextlib.closing(GitRepository(self._root)) as repo:
            common_dir, git_dir = repo.common_dir, repo.git_dir

        with alone(common_dir), index_held(git_dir), gc_held_off(common_dir):
            # Checked under the lock: its former holder may have died.
            if UndoNotes(git_dir).has_intent():
                self._finish_interrupted()

            yield

    def _finish_interrupted(self) -> None:
        with opened(self._root) as place:
            intent = place.notes.intent()
            if intent is not None:
                place.refuse_in_between()
                keep_staged_since(place, intent)
                require_finished(move(place, intent, None), "The interrupted operation is complete")

    def _go_to(self, place: OpenWorkspace, target: Commit) -> None:
        wanted = {
            path: entry
            for path, entry in place.files_of(target.tree).items()
            if entry.mode != GITLINK and OURS not in path.split(b"/")
        }
        captured = place.capture(store=True, also=wanted)
        warn_of_omissions(captured)
        name, standing = what(target), captured.standing
        files = {path: e for path, e in wanted.items() if path not in captured.left_alone}
        tree = place.tree_with(without_collisions(files, standing))
        safety = secure(place, captured, wanted, standing, tree, b"before rollback to " + name)
        after = self._head_after(place, target, tree, name)
        intent = intended(place, after, "architect:rollback: to " + os.fsdecode(name), tree)
        record = UndoRecord(
            folder=intent.folder,
            branch=intent.branch,
            head_before=intent.head_before,
            head_after=after,
            safety=safety.commit,
            safety_ref=safety.ref,
            staged=safety.staged,
            permissions=safety.permissions,
            exact=safety.exact,
        )
        self._move(place, captured, moving(intent, safety, tree, undo=record))

    def _undo_rollback(self, place: OpenWorkspace, record: UndoRecord) -> None:
        tree = place.repo.commit(record.safety).tree
        wanted = place.files_of(tree)
        captured = place.capture(store=True, also=wanted)
        warn_of_omissions(captured)
        standing = {
            path: entry for path, entry in wanted.items() if is_in_one_of(path, captured.left_alone)
        }
        why = b"before undo of the rollback"
        safety = secure(place, captured, wanted, standing, tree, why)
        staged = record.staged or record.head_before
        index_tree = place.repo.commit(staged).tree if staged else None
        intent = intended(place, record.head_before, "architect:rollback: undone", index_tree)
        intent = replace(intent, permissions=record.permissions, exact=record.exact)
        self._move(place, captured, moving(intent, safety, tree))

    def _head_after(self, place: OpenWorkspace, target: Commit, tree: bytes, name: bytes) -> str:
        """Return the new HEAD: an earlier commit, the present one, or a new one.

        HEAD steps back only over the server's own commits. The user's commits are kept, and the
        rollback becomes a new commit on top of them.
        """
        repo, head = place.repo, place.head.sha
        if head is not None:
            if tree == target.tree and repo.leads_to(target.sha, head):
                between = repo.commits([head], [target.sha])
                if all(is_ours(commit) for commit in between):
                    return target.sha

            if tree == place.head_tree:
                return head

        return write_commit(place, tree, ROLLBACK + name + b"\n")

    def _move(self, place: OpenWorkspace, captured: WorkspaceCaptured, intent: Intent) -> None:
        begin(place, intent)
        require_finished(move(place, intent, captured), "The rollback is complete")


def intended(place: OpenWorkspace, after: str | None, why: str, index: bytes | None) -> Intent:
    """Return the intent to move HEAD and the index, but no file."""
    return Intent(
        folder=place.folder.hex(),
        branch=place.head.branch,
        head_before=place.head.sha,
        head_after=after,
        why=why.encode("utf-8", "replace").decode(),
        index_tree=index.hex() if index else None,
    )


def moving(intent: Intent, safety: Safety, tree: bytes, undo: UndoRecord | None = None) -> Intent:
    """Return the intent with the change of the files to `tree`."""
    return replace(
        intent,
        tree_before=safety.now.hex(),
        tree_after=tree.hex(),
        exact_before=safety.exact,
        safety_ref=safety.ref,
        undo=undo,
        replaces_undo=True,
    )
