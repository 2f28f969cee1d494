"""Names in a work tree: which ones no checkpoint holds, and which ones git cannot hold.

Paths are bytes, relative to the work tree, separated by `/`: the only form that loses nothing.
"""

from __future__ import annotations

import os
import re

from hankweave_server.layout import DATA_SOURCE, RIG_ARCHIVE, STATE_DIRECTORY

OUR_PREFIX = os.fsencode(STATE_DIRECTORY)
"""Begins the name of everything of ours: state, shadow repository, and half-written restores."""

_AT_THE_ROOT = frozenset({os.fsencode(DATA_SOURCE), os.fsencode(RIG_ARCHIVE)})

# The rules of git's own fsck (is_ntfs_dotgit, is_hfs_dotgit): a tree that holds one of these names
# is refused by other git programs, and would be `.git` on a Windows or macOS disk.
_NTFS_DOT_GIT = re.compile(rb"(?:^|\\)(?:\.git|git~1)[. ]*(?:$|[:\\])", re.IGNORECASE)
_HFS_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def is_never_captured(folder: bytes, name: bytes) -> bool:
    """Tells whether a name in that folder is out of bounds for checkpoints and rollbacks.

    `.git` and our own names count at any depth, the data source and the rig archive at the top
    of the work tree (seed 000, "What Gets Checkpointed"; seed 001, `read_only_data_source`).
    """
    if name == b".git" or name.startswith(OUR_PREFIX):
        return True

    return not folder and name in _AT_THE_ROOT


def is_out_of_bounds(path: bytes) -> bool:
    """Tells whether a component of a path is out of bounds or reserved, or no name at all."""
    folder = b""
    for name in path.split(b"/"):
        if name in (b"", b".", b"..") or is_never_captured(folder, name) or is_reserved(name):
            return True

        folder = joined(folder, name)

    return False


def is_reserved(name: bytes) -> bool:
    """Tells whether git refuses the name because some file system would take it for `.git`."""
    if _NTFS_DOT_GIT.search(name):
        return True

    if name.isascii():
        return False

    visible = _HFS_IGNORED.sub("", name.decode("utf-8", "surrogateescape"))
    return visible.casefold() == ".git"


def joined(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def parent_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def parents_of(path: bytes) -> list[bytes]:
    """Lists the folders above a path, nearest first, without the work tree itself."""
    above: list[bytes] = []
    while path := parent_of(path):
        above.append(path)

    return above


def is_within(path: bytes, selection: frozenset[bytes] | None) -> bool:
    """Tells whether a path or a folder above it was selected; None selects everything."""
    if selection is None or b"" in selection or path in selection:
        return True

    return any(folder in selection for folder in parents_of(path))
