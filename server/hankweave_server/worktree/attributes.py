"""Attributes of a file besides content and permissions: owner, group, special bits, ACLs, names.

A restore replaces files by new ones, so it puts these back itself, as `rsync -AHX` does. Nearly all
files have none that is unusual, and finding out costs one system call for a file that is read
anyway. Set-uid and set-gid bits, and capabilities, are rights that were granted to a content and in
the name of an owner: they come back only with both.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hankweave_server.fsutil import is_broken, is_full

LIMIT = 64 << 10
"""Bytes of extended attributes that are recorded for a file, and for a checkpoint."""

SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX

CAPABILITY = "security.capability"
_NAMES = frozenset({"system.posix_acl_access", "system.posix_acl_default", CAPABILITY})

Extended = tuple[tuple[str, bytes], ...]


class Attributes(NamedTuple):
    """The attributes of one file or folder."""

    uid: int
    gid: int
    special: int = 0
    """Set-uid, set-gid and sticky bits."""
    extended: Extended | None = ()
    """ACLs, capabilities and `user.*` attributes, by name; None if they are too large to record."""
    group: int = 0
    """The same for all names of a file that has several (the inode, or a number); otherwise 0."""

    def are_usual(self, owner: tuple[int, int]) -> bool:
        return self == (*owner, 0, (), 0)


def attributes_of(
    where: int | bytes, status: os.stat_result, limit: int | None = LIMIT
) -> Attributes:
    """Return the attributes of a file or folder, given its descriptor or path and its stat data."""
    has_names = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    return Attributes(
        status.st_uid,
        status.st_gid,
        status.st_mode & SPECIAL,
        _extended(where, limit),
        status.st_ino if has_names else 0,
    )


def _extended(where: int | bytes, limit: int | None) -> Extended | None:
    follows = isinstance(where, int)
    try:
        names = os.listxattr(where, follow_symlinks=follows)
        if not names:
            return ()

        wanted = sorted(name for name in names if name.startswith("user.") or name in _NAMES)
        found = tuple((n, os.getxattr(where, n, follow_symlinks=follows)) for n in wanted)
    except OSError:
        return ()  # The file system has none, or they changed at this moment.

    size = sum(len(value) for _, value in found)
    return found if limit is None or size <= limit else None


def sentence_of(lost: Iterable[str]) -> str:
    """Return what a restored file lacks, for people."""
    return (
        f"The restored file lacks: {'; '.join(lost)}. The server's user or the file system cannot "
        "set them, or they belong to the content that was replaced."
    )


OTHER_NAMES = "its other names (hard links), which keep the previous content"


def give(descriptor: int, wanted: Attributes, permissions: int) -> tuple[str, ...]:
    """Give attributes and permissions to an open file; return what it could not be given.

    Raises OSError if the permissions cannot be set, or the disk is full or broken.
    """
    lost = list(_owner_lost(descriptor, wanted))
    special = wanted.special
    if lost and special & ~stat.S_ISVTX:
        special &= stat.S_ISVTX

    for name, value in wanted.extended or ():
        if lost and name == CAPABILITY:
            lost.append(name)
            continue

        try:
            os.setxattr(descriptor, name, value)
        except OSError as problem:
            if is_full(problem) or is_broken(problem):
                raise

            lost.append(name)

    # Last: a change of owner takes the special bits away, and an ACL changes the permissions.
    os.fchmod(descriptor, permissions | special)
    if os.fstat(descriptor).st_mode & SPECIAL != wanted.special:
        lost.append("set-uid, set-gid or sticky bit")

    if wanted.extended is None:
        lost.append("extended attributes, which are too large to be recorded")

    return tuple(lost)


def _owner_lost(descriptor: int, wanted: Attributes) -> Iterator[str]:
    status = os.fstat(descriptor)
    for what, now, then in (
        ("group", status.st_gid, wanted.gid),
        ("owner", status.st_uid, wanted.uid),
    ):
        if now != then:
            try:
                os.fchown(descriptor, *((then, -1) if what == "owner" else (-1, then)))
            except OSError:
                yield f"{what} {then}"
