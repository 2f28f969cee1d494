"""What is saved before a change: the work tree, the staged content, and exact bytes."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass

from hankweave_server.git.trees import REGULAR, Entry
from hankweave_server.user_git.capture import WorkspaceCaptured
from hankweave_server.user_git.commits import SAFETY, STAGED, content_of
from hankweave_server.user_git.index_file import GITLINK
from hankweave_server.user_git.intents import Intent
from hankweave_server.user_git.observer import blob_name
from hankweave_server.user_git.workspace import OpenWorkspace

SAFETY_REFS = "refs/hankweave/safety/"
STAGED_REFS = "refs/hankweave/staged/"


@dataclass(frozen=True, slots=True)
class Safety:
    """The saved state before a move."""

    commit: str
    tree: bytes
    ref: str
    staged: str | None


def save(
    place: OpenWorkspace, captured: WorkspaceCaptured, why: bytes, exact: dict[bytes, Entry]
) -> Safety:
    """Commit the work tree and the staged content, under a ref that is never moved."""
    staged, more = None, []
    staged_tree = place.staged_tree()
    if staged_tree is not None:
        staged = write_commit(place, staged_tree, STAGED + b" " + why + b"\n")
        more.append(staged)

    if exact:
        message = SAFETY + b" exact bytes " + why + b"\n"
        more.append(write_commit(place, place.tree_with(exact), message))

    tree = place.tree_of(captured)
    message = SAFETY + b" " + why + b"\n"
    sha = write_commit(place, tree, message, *more)
    place.repo.flush()
    taken = place.repo.references(SAFETY_REFS)
    numbers = [int(end) for ref in taken if (end := ref.removeprefix(SAFETY_REFS)).isdecimal()]
    ref = f"{SAFETY_REFS}{max(numbers, default=0) + 1}"
    place.repo.point(ref, sha)
    return Safety(sha, tree, ref, staged)


def write_commit(place: OpenWorkspace, tree: bytes, message: bytes, *more: str) -> str:
    parents = [place.head.sha] if place.head.sha else []
    return place.repo.write_commit(content_of(tree, [*parents, *more], place.who, message))


def keep_staged(place: OpenWorkspace, captured: WorkspaceCaptured, sha: str) -> None:
    """Keep staged content that is neither in HEAD nor in the work tree."""
    staged = place.index_files()
    in_head = place.files_of(place.head_tree)
    lost = [
        path
        for path, entry in staged.items()
        if path not in captured.left_alone
        and entry.mode != GITLINK
        and entry not in (in_head.get(path), captured.files.get(path))
    ]
    tree = place.staged_tree() if lost else None
    if tree is not None:
        message = STAGED + b" before checkpoint " + sha[:7].encode() + b"\n"
        kept = write_commit(place, tree, message)
        place.repo.flush()
        place.repo.point(STAGED_REFS + sha[:12], kept)


def keep_staged_since(place: OpenWorkspace, intent: Intent) -> None:
    """Keep content staged after a crash, since finishing the move rewrites the index."""
    tree = place.staged_tree()
    if tree is None:
        return

    known = [intent.head_before, intent.head_after, intent.undo.staged if intent.undo else None]
    if tree not in [place.repo.commit(sha).tree for sha in known if sha is not None]:
        kept = write_commit(place, tree, STAGED + b" before a rollback was finished\n")
        place.repo.flush()
        place.repo.point(STAGED_REFS + kept[:12], kept)


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
        if content is not None and blob_name(content) != old.digest:
            found[path] = Entry(REGULAR, place.repo.write_blob(content))

    return found


def told(exact: Mapping[bytes, Entry]) -> dict[str, str]:
    """Encode the blobs of exact bytes for an intent or undo record."""
    return {path.hex(): entry.digest.hex() for path, entry in exact.items()}
