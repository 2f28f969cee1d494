"""Trees built from paths: the workspace's folder is new, the rest is the commit's."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from hankweave_server.git.objects import digest_of
from hankweave_server.git.trees import (
    EMPTY_TREE,
    FOLDER,
    Entry,
    Lookup,
    encoded,
    files_below,
    folders_below,
    parsed,
)
from hankweave_server.user_git.repository import GitRepository
from hankweave_server.worktree.names import parents_of


def files_in(repo: GitRepository, tree: bytes | None, folder: bytes) -> dict[bytes, Entry]:
    """Return a folder's files, links and submodules in a tree, by their full paths."""
    below = Lookup(repo.read_tree).folder(tree, folder) if tree else None
    return dict(files_below(repo.read_tree, below, folder)) if below else {}


def with_folder(
    repo: GitRepository, around: bytes | None, folder: bytes, files: Mapping[bytes, Entry]
) -> bytes:
    """Write the tree of `around` with the folder's content replaced by `files`.

    `around` must stay reachable: objects that it has are not written again.
    """
    lookup = Lookup(repo.read_tree)
    before = lookup.folder(around, folder) if around else None
    there = {tree for _, tree in folders_below(repo.read_tree, before)} if before else set()

    def write(content: bytes) -> bytes:
        digest = digest_of("tree", content)
        return digest if digest in there else repo.write_tree(content)

    tree = _tree_of(folder, files, write)
    for above in _chain(folder):
        name = folder[len(above) + 1 if above else 0 :].partition(b"/")[0]
        parent = lookup.folder(around, above) if around else None
        entries = dict(parsed(repo.read_tree(parent))) if parent else {}
        entries.pop(name, None)
        if tree != EMPTY_TREE:
            entries[name] = Entry(FOLDER, tree)

        tree = repo.write_tree(encoded(entries)) if entries else EMPTY_TREE

    return repo.write_tree(b"") if tree == EMPTY_TREE else tree


def _chain(folder: bytes) -> list[bytes]:
    """Return the folders above one, nearest first, ending with the nameless top."""
    return [*parents_of(folder), b""] if folder else []


def _tree_of(top: bytes, files: Mapping[bytes, Entry], write: Callable[[bytes], bytes]) -> bytes:
    folders: dict[bytes, dict[bytes, Entry]] = {top: {}}
    for path, entry in files.items():
        folder, _, name = path.rpartition(b"/")
        while folder not in folders:
            folders[folder] = {}
            folder = folder.rpartition(b"/")[0]

        folders.setdefault(path.rpartition(b"/")[0], {})[name] = entry

    # Deepest first, so that each folder is written before its parent.
    for folder in sorted(folders, key=lambda each: each.count(b"/"), reverse=True):
        if folder == top:
            continue

        above, _, name = folder.rpartition(b"/")
        folders[above][name] = Entry(FOLDER, write(encoded(folders[folder])))

    return write(encoded(folders[top])) if folders[top] else EMPTY_TREE


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
