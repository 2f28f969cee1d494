"""Names in a work tree: which ones checkpoints never hold, and which ones git cannot hold.

Paths are bytes, relative to the work tree, separated by `/`: the only lossless form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from hankweave_protocol.state_directory import STATE_DIRECTORY
from hankweave_server.paths import DATA_SOURCE, RIG_ARCHIVE

OUR_PREFIX = os.fsencode(STATE_DIRECTORY)
"""Prefix of all of Hankweave's own names: state, shadow repository, and unfinished restores."""

AT_THE_TOP = frozenset({os.fsencode(DATA_SOURCE), os.fsencode(RIG_ARCHIVE)})
"""Names reserved at the top of an execution's work tree; in-place projects have none."""

# The rules of git's own fsck (is_ntfs_dotgit, is_hfs_dotgit): other git programs reject a tree
# with one of these names, which would be `.git` on a Windows or macOS disk.
_NTFS_DOT_GIT = re.compile(rb"(?:^|\\)(?:\.git|git~1)[. ]*(?:$|[:\\])", re.IGNORECASE)
_SHOWN_BYTE = re.compile(rb"\\x([89a-f][0-9a-f])")
_HFS_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def shown(path: bytes) -> str:
    r"""Return a name as on the wire and in the journal, with a byte that is not UTF-8 as `\xff`."""
    return path.decode("utf-8", "backslashreplace")


def meanings(text: str) -> tuple[bytes, ...]:
    r"""Return the possible meanings of a wire name, likelier first: a `\x` may be literal."""
    exact = text.encode("utf-8", "surrogateescape")
    return tuple(dict.fromkeys((exact, _SHOWN_BYTE.sub(_byte, exact))))


def meant_by(texts: Iterable[str]) -> frozenset[bytes]:
    """Return everything that names from the journal may mean."""
    return frozenset(path for text in texts for path in meanings(text))


def _byte(shown_byte: re.Match[bytes]) -> bytes:
    return bytes.fromhex(shown_byte[1].decode())


def is_never_captured(
    folder: bytes, name: bytes, at_the_top: frozenset[bytes] = AT_THE_TOP
) -> bool:
    """Return whether checkpoints and rollbacks must not touch a name in that folder.

    `.git` and Hankweave's own names count at any depth, the data source and the rig archive at the
    top of the work tree (seed 000, "What Gets Checkpointed"; seed 001, `read_only_data_source`).
    """
    if name == b".git" or name.startswith(OUR_PREFIX):
        return True

    return not folder and name in at_the_top


def is_out_of_bounds(path: bytes, at_the_top: frozenset[bytes] = AT_THE_TOP) -> bool:
    """Return whether a component of a path is out of bounds, reserved, or not a name at all."""
    folder = b""
    for name in path.split(b"/"):
        if name in (b"", b".", b"..") or is_reserved(name):
            return True

        if is_never_captured(folder, name, at_the_top):
            return True

        folder = joined(folder, name)

    return False


def is_reserved(name: bytes) -> bool:
    """Return whether git rejects the name because some file system would take it for `.git`."""
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


def name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def parents_of(path: bytes) -> list[bytes]:
    """Return the folders above a path, nearest first, without the work tree itself."""
    above: list[bytes] = []
    while path := parent_of(path):
        above.append(path)

    return above


def is_within(path: bytes, selection: frozenset[bytes] | None) -> bool:
    """Return whether a path or a folder above it was selected; None selects everything."""
    if selection is None or b"" in selection or path in selection:
        return True

    return any(folder in selection for folder in parents_of(path))
