"""The index after a move: it says of the workspace what it shall, and of all else what it did."""

from __future__ import annotations

import os

from hankweave_server.fsutil import sync_directory
from hankweave_server.git.trees import Entry
from hankweave_server.user_git.capture import Captured
from hankweave_server.user_git.index_file import GITLINK, IndexEntry, IndexFile, encoded
from hankweave_server.user_git.intents import Intent
from hankweave_server.user_git.restore import Restored
from hankweave_server.user_git.tree_builder import files_in, is_in
from hankweave_server.user_git.workspace import Opened
from hankweave_server.worktree.names import parents_of


def index_after(
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


def write_index(place: Opened, index: IndexFile) -> None:
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
        temporary.unlink(missing_ok=True)  # A disk that is full needs what the half of it takes.
        raise

    sync_directory(path.parent)
