"""Carries out what an intent says: files, then the branch, then the index; as often as need be."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hankweave_server.checkpoints.trees import Entry, Lookup, differences
from hankweave_server.checkpoints.workspace_git.capture import Captured
from hankweave_server.checkpoints.workspace_git.composing import files_in, is_in
from hankweave_server.checkpoints.workspace_git.errors import UnsupportedRepository
from hankweave_server.checkpoints.workspace_git.index_file import (
    GITLINK,
    IndexEntry,
    IndexFile,
    encoded,
)
from hankweave_server.checkpoints.workspace_git.opened import Opened
from hankweave_server.checkpoints.workspace_git.repository import Head
from hankweave_server.checkpoints.workspace_git.restoring import Restored, Restoring
from hankweave_server.checkpoints.workspace_git.writing_down import Intent
from hankweave_server.files import make_private_directory, sync_directory, sync_filesystem
from hankweave_server.workspace.names import is_reserved, joined, parents_of

_NO_NAMES = frozenset({b"", b".", b".."})


def move(place: Opened, intent: Intent, captured: Captured | None) -> list[bytes]:
    """Does it, durably, and gives the paths that somebody else changed meanwhile.

    `captured` is the look the intent was made of; without it, after a crash, files are read anew.
    """
    folder = bytes.fromhex(intent.folder)
    restored = _restore(place, intent, folder, captured)
    head = place.repo.head()
    if head == Head(intent.branch, intent.head_before):
        if intent.head_before != intent.head_after:
            place.repo.move_head(head, intent.head_after, intent.why, place.who)
    elif head != Head(intent.branch, intent.head_after):
        # Somebody has gone on from there: their branch and index are theirs.
        place.notes.end()
        return restored.unfinished

    _write_index(place, _index_after(place, intent, folder, captured, restored))
    if intent.replaces_undo:
        place.notes.keep_undo(intent.undo)

    place.notes.end()
    return restored.unfinished


def _restore(place: Opened, intent: Intent, folder: bytes, captured: Captured | None) -> Restored:
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
            exact={bytes.fromhex(path): bytes.fromhex(blob) for path, blob in intent.exact.items()},
        ).run(changes)
    finally:
        os.close(descriptor)

    sync_filesystem(place.repo.work_tree)
    return restored


def changes_between(
    place: Opened, folder: bytes, before: bytes, after: bytes
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Gives the files of the folder that differ; submodules are nobody's business.

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


def _index_after(
    place: Opened, intent: Intent, folder: bytes, captured: Captured | None, restored: Restored
) -> IndexFile:
    """Makes the folder's part of the index say what it shall, and leaves the rest as it is."""
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


def _stays(entry: IndexEntry, captured: Captured | None) -> bool:
    if captured is not None and entry.path in captured.left_alone:
        return True

    if entry.mode == GITLINK or entry.is_sparse_folder or entry.is_assumed_unchanged:
        return True

    return captured is None and entry.is_skipped


def _seen(
    path: bytes, entry: Entry, captured: Captured | None, restored: Restored
) -> os.stat_result | None:
    """Gives how a file looked when it was known to be that entry."""
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


def _write_index(place: Opened, index: IndexFile) -> None:
    path = place.repo.git_dir / "index"
    temporary = place.repo.git_dir / "hankweave-index.new"
    with temporary.open("wb") as file:
        if path.exists():
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)

        file.write(encoded(index))
        file.flush()
        os.fsync(file.fileno())

    temporary.replace(path)
    sync_directory(path.parent)


def unusual_permissions(
    captured: Captured, changes: Mapping[bytes, tuple[Entry | None, Entry | None]]
) -> dict[str, int]:
    """Gives the permissions of files that will be removed: git knows one bit of them."""
    found = {}
    for path, (old, new) in changes.items():
        status = captured.seen.get(path)
        if old is not None and new is None and status is not None:
            found[path.hex()] = status.st_mode & 0o7777

    return found
