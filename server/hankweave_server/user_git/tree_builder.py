"""Trees built from paths: the workspace's folder is new, the rest is the commit's."""

from __future__ import annotations

from collections.abc import Container, Mapping

from hankweave_server.git.trees import Entry, Lookup, files_below, with_changes
from hankweave_server.user_git.repository import GitRepository
from hankweave_server.worktree.names import parents_of


def files_in(repo: GitRepository, tree: bytes | None, folder: bytes) -> dict[bytes, Entry]:
    """Return a folder's files, links and submodules in a tree, by their full paths."""
    below = Lookup(repo.read_tree).folder(tree, folder) if tree else None
    return dict(files_below(repo.read_tree, below, folder)) if below else {}


def with_files(
    repo: GitRepository,
    around: bytes | None,
    before: Mapping[bytes, Entry],
    files: Mapping[bytes, Entry],
) -> bytes:
    """Write the tree of `around` with the files of a folder (`before`) replaced by others."""
    changed = {path for path, _ in before.items() ^ files.items()}
    if around and not changed:
        return around

    changes = {path: files.get(path) for path in changed}
    return with_changes(repo.read_tree, repo.write_tree, around, changes)


def without_collisions(
    files: Mapping[bytes, Entry], standing: Mapping[bytes, Entry]
) -> dict[bytes, Entry]:
    """Merge both; `standing` wins over files at, above or below its paths."""
    occupied = {folder for path in standing for folder in parents_of(path)}
    kept = {
        path: entry
        for path, entry in files.items()
        if path not in occupied and not any(above in standing for above in parents_of(path))
    }
    return {**kept, **standing}


def is_in(path: bytes, folder: bytes) -> bool:
    """Return whether a path lies in a folder; the empty folder contains everything."""
    return not folder or path.startswith(folder + b"/")


def is_in_one_of(path: bytes, folders: Container[bytes]) -> bool:
    return path in folders or any(above in folders for above in parents_of(path))
