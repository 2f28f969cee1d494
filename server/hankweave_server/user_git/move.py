"""Execution of an intent: files, then the branch, then the index.

Each step can be repeated, so that a crash is recovered by executing the intent again. Afterwards
the index has the intended content for the workspace's folder and its former content elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from urllib.parse import quote_from_bytes

from hankweave_server.fsutil import make_private_directory, sync_directory, sync_filesystem
from hankweave_server.git.trees import Entry, Lookup, differences
from hankweave_server.user_git.capture import WorkspaceCaptured
from hankweave_server.user_git.errors import (
    CheckpointError,
    RepositoryBusy,
    RollbackIncomplete,
    UnsupportedRepository,
)
from hankweave_server.user_git.index_file import GITLINK, IndexEntry, IndexFile, encoded
from hankweave_server.user_git.intents import Intent
from hankweave_server.user_git.repository import Head
from hankweave_server.user_git.restore import Restored, Restoring
from hankweave_server.user_git.tree_builder import files_in, is_in
from hankweave_server.user_git.workspace import OpenWorkspace
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import is_reserved, joined, parents_of


def index_after(
    place: OpenWorkspace,
    intent: Intent,
    folder: bytes,
    captured: WorkspaceCaptured | None,
    restored: Restored,
) -> IndexFile:
    """Return the index after a move; only the folder's part of it changes."""
    old = place.index
    tree = bytes.fromhex(intent.index_tree) if intent.index_tree else None
    files = files_in(place.repo, tree, folder)
    inside = {each.path: each for each in old.entries if is_in(each.path, folder)}
    outside = [each.doubted(old.written_ns) for each in old.entries if each.path not in inside]
    kept = {path: each for path, each in inside.items() if _stays(each, captured)}
    folders = {path.rstrip(b"/") for path, each in kept.items() if each.is_sparse_folder}
    made = dict(kept)
    for path, entry in files.items():
        if path in kept or entry.mode == GITLINK or (captured and path in captured.left_alone):
            continue

        if not folders or not any(above in folders for above in parents_of(path)):
            seen = _seen(path, entry, captured, restored)
            made[path] = _entry(path, entry, inside.get(path), seen, old.written_ns)

    in_order = sorted([*outside, *made.values()], key=lambda each: (each.path, each.stage))
    return IndexFile(tuple(in_order), is_sparse=old.is_sparse)


def _stays(entry: IndexEntry, captured: WorkspaceCaptured | None) -> bool:
    if captured is not None and entry.path in captured.left_alone:
        return True

    if entry.mode == GITLINK or entry.is_sparse_folder or entry.is_assumed_unchanged:
        return True

    return captured is None and entry.is_skipped


def _seen(
    path: bytes, entry: Entry, captured: WorkspaceCaptured | None, restored: Restored
) -> os.stat_result | None:
    """Return a file's stat data if it is known to have had this content."""
    if path in restored.seen:
        standing = restored.seen[path]
        return standing.status if standing.entry == entry else None

    if path in restored.unfinished:
        return None

    if captured is not None and captured.files.get(path) == entry:
        return captured.seen.get(path)

    return None


def _entry(
    path: bytes,
    entry: Entry,
    old: IndexEntry | None,
    seen: os.stat_result | None,
    written_ns: int,
) -> IndexEntry:
    made = IndexEntry(path, entry.mode, entry.digest)
    if seen is not None:
        return made.seen_as(seen)

    if old is not None and (old.mode, old.digest) == (entry.mode, entry.digest):
        return old.in_work_tree().doubted(written_ns)

    return made


def write_index(place: OpenWorkspace, index: IndexFile) -> None:
    path = place.repo.git_dir / "index"
    temporary = place.repo.git_dir / "hankweave-index.new"
    try:
        with temporary.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)

            file.write(encoded(index))
            file.flush()
            os.fsync(file.fileno())

        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # Frees space, in case the disk is full.
        raise

    sync_directory(path.parent)


_NO_NAMES = frozenset({b"", b".", b".."})


def move(place: OpenWorkspace, intent: Intent, captured: WorkspaceCaptured | None) -> list[bytes]:
    """Execute an intent durably; return the paths that another program changed meanwhile.

    `captured` is the scan that the intent is based on; after a crash it is None, and files are read
    again. Raises RepositoryBusy, with nothing changed, or RollbackIncomplete if another program has
    moved the branch to a different commit: its files, branch and index are left alone.
    """
    folder = bytes.fromhex(intent.folder)
    before, after = (Head(intent.branch, sha) for sha in (intent.head_before, intent.head_after))
    if place.repo.head() not in (before, after):
        _end(place)
        raise _overtaken(intent, is_begun=captured is None)

    restored = _restore(place, intent, folder, captured)
    head = place.repo.head()
    if head == before != after:
        place.repo.move_head(head, intent.head_after, intent.why, place.who)
    elif head not in (before, after):
        _end(place)
        raise _overtaken(intent, is_begun=True)

    write_index(place, index_after(place, intent, folder, captured, restored))
    if intent.replaces_undo:
        place.notes.keep_undo(intent.undo)

    _end(place)
    return restored.unfinished


def begin(place: OpenWorkspace, intent: Intent, *needed: str) -> None:
    """Make the intent durable and protect the commits it needs from `git gc` until it ends."""
    if intent.tree_before is not None and intent.tree_after is not None:
        trees = bytes.fromhex(intent.tree_before), bytes.fromhex(intent.tree_after)
        _refuse_missing(place, changes_between(place, bytes.fromhex(intent.folder), *trees))

    for number, sha in enumerate(needed):
        place.repo.point(f"{_under_way(place)}{number}", sha)

    place.notes.begin(intent)


def _end(place: OpenWorkspace) -> None:
    place.notes.end()
    for ref in place.repo.references(_under_way(place)):
        place.repo.forget(ref)


def _under_way(place: OpenWorkspace) -> str:
    """Return the prefix of this work tree's refs for a move; other work trees have their own."""
    name = quote_from_bytes(os.fsencode(place.repo.git_dir.name), safe="").replace("~", "%7E")
    is_main = place.repo.git_dir == place.repo.common_dir
    return f"refs/hankweave/underway/{'main' if is_main else 'worktree-' + name}/"


def _overtaken(intent: Intent, *, is_begun: bool) -> CheckpointError:
    if not is_begun or intent.safety_ref is None:
        return RepositoryBusy("Another program has moved the branch meanwhile.", "Try again.")

    return RollbackIncomplete(
        "A rollback did not end before another program moved the branch: that is left as it is.",
        f"The files as they were before it are kept as {intent.safety_ref}.",
        (),
    )


def _refuse_missing(
    place: OpenWorkspace, changes: Mapping[bytes, tuple[Entry | None, Entry | None]]
) -> None:
    """Raise CheckpointError if the content of a file is missing, as in a partial clone."""
    for path, (_, new) in changes.items():
        if new is not None and not place.repo.has(new.digest):
            raise CheckpointError(
                f"The content of {os.fsdecode(path)!r} is not in this repository.",
                "In a partial clone, `git checkout` of that commit fetches it.",
            )


def _restore(
    place: OpenWorkspace, intent: Intent, folder: bytes, captured: WorkspaceCaptured | None
) -> Restored:
    if intent.tree_before is None or intent.tree_after is None:
        return Restored()

    trees = bytes.fromhex(intent.tree_before), bytes.fromhex(intent.tree_after)
    changes = changes_between(place, folder, *trees)

    spares = place.repo.git_dir / "hankweave-spares"
    make_private_directory(spares)
    descriptor = os.open(spares, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        restored = Restoring(
            repo=place.repo,
            folder=folder,
            descent=place.descent,
            observer=place.observer,
            spares=descriptor,
            captured=captured,
            permissions={bytes.fromhex(path): mode for path, mode in intent.permissions.items()},
            exact_before=_blobs(intent.exact_before),
            exact=_blobs(intent.exact),
            converts=intent.undo is not None,
        ).run(changes)
    finally:
        os.close(descriptor)

    sync_filesystem(place.repo.work_tree)
    return restored


def _blobs(told: Mapping[str, str]) -> dict[bytes, bytes]:
    return {bytes.fromhex(path): bytes.fromhex(blob) for path, blob in told.items()}


def changes_between(
    place: OpenWorkspace, folder: bytes, before: bytes, after: bytes
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Return the files of the folder that differ between two trees, without submodules.

    Raises UnsupportedRepository for names that would lead out of the folder or into `.git`.
    """
    lookup = Lookup(place.repo.read_tree)
    old, new = (lookup.folder(tree, folder) for tree in (before, after))
    found = {
        joined(folder, path): pair
        for path, pair in differences(place.repo.read_tree, old, new).items()
        if all(entry is None or entry.mode != GITLINK for entry in pair)
    }

    for path in found:
        if any(name in _NO_NAMES or is_reserved(name) for name in path.split(b"/")):
            raise UnsupportedRepository(
                f"A commit holds the name {os.fsdecode(path)!r}, which no work tree may have.",
                "See what `git fsck` says about it.",
            )

    return found


def unusual_permissions(
    descent: Descent,
    captured: WorkspaceCaptured,
    changes: Mapping[bytes, tuple[Entry | None, Entry | None]],
) -> dict[str, int]:
    """Return permissions that an undo could not restore from git, by path in hex.

    Git records one bit of a file's permissions and none of a folder's. Included are files that are
    removed or change their kind, and folders that may be removed.
    """
    found: dict[bytes, int] = {}
    for path, (old, new) in changes.items():
        status = captured.seen.get(path)
        if old is None or status is None or (new is not None and new.mode == old.mode):
            continue

        found[path] = stat.S_IMODE(status.st_mode)
        for folder in parents_of(path) if new is None else ():
            if folder in found:
                break

            above = descent.status(folder)
            if above is not None:
                found[folder] = stat.S_IMODE(above.st_mode)

    return {path.hex(): permissions for path, permissions in found.items()}
