"""Say why paths could not be restored, or will not be, and what a person can do about it.

These paths are exceptions of a rollback that is otherwise complete: its event, its report and the
server log name each with its error, an undo leaves it alone, because it is as it was, and a codon
does not start by itself on files that differ from what its plan expects.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from hankweave_protocol.records import UnrestoredPath
from hankweave_server.checkpoints.model import Skipped
from hankweave_server.plain_text import counted

_THEN = "then roll back again"

_SENTENCES = {
    "immutable": "{path!r} is immutable; `chattr -i` lifts that, {then}",
    "append-only": "{path!r} may only be appended to; `chattr -a` lifts that, {then}",
    "mount-point": "{path!r} is a mount point, which cannot be replaced; unmount it, {then}",
    "read-only": "{path!r} is on a read-only mount; make it writable, {then}",
    "no-permission": (
        "{path!r} is in a folder where the user of the server may not write; allow it, {then}"
    ),
    "sticky": (
        "{path!r} belongs to another user, and its folder has the sticky bit; let the owner "
        "change it, {then}"
    ),
    "immutable-folder": "{path!r} is in an immutable folder; `chattr -i` lifts that, {then}",
    "append-only-folder": (
        "{path!r} is in a folder that may only be added to; `chattr -a` lifts that, {then}"
    ),
    "permissions": (
        "{path!r} has the content of the checkpoint, but its permissions cannot be changed; let "
        "its owner do that"
    ),
    "changed": (
        "{path!r} was changed while it was restored; its content was kept. Stop the program that "
        "writes it, {then}"
    ),
    "in-the-way": (
        "{path!r} cannot be restored because of another file or folder in its place, which no "
        "checkpoint has; move that away, {then}"
    ),
    "damaged": (
        "{path!r} cannot be read in the checkpoint; repair it with `hankweave fsck --repair`, "
        "{then}"
    ),
    "os-error": "{path!r} cannot be changed; remove the cause, {then}",
}

_TRANSIENT = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOENT, errno.ETIMEDOUT})
_CHANGED_MEANWHILE = frozenset({"changed", "in-the-way"})


def may_succeed_later(left: Skipped) -> bool:
    """Return whether another attempt may restore a path: it has not been refused for good."""
    return left.reason in _CHANGED_MEANWHILE or left.errno in _TRANSIENT


def has_changed(left: Skipped) -> bool:
    """Return whether somebody has changed a path since it was saved."""
    return left.reason == "changed"


def exceptions_of(left: Iterable[Skipped]) -> tuple[UnrestoredPath, ...]:
    """Return the paths of a report; first those whose content differs from the checkpoint."""
    found = (_exception(each) for each in left)
    return tuple(sorted(found, key=lambda each: (not each.content_differs, each.path)))


def _exception(left: Skipped) -> UnrestoredPath:
    path = os.fsdecode(left.path)
    sentence = _SENTENCES[left.reason].format(path=path, then=_THEN)
    name = errno.errorcode.get(left.errno, str(left.errno)) if left.errno else ""
    if name:
        sentence += f" ({os.strerror(left.errno)}, {name})"

    return UnrestoredPath(
        path=path,
        errno=name,
        sentence=f"{sentence}.",
        content_differs=left.reason != "permissions",
    )


def in_one(found: Iterable[UnrestoredPath], total: int) -> str:
    """Return how many paths differ and the first of them, for a line of a log."""
    first = next(iter(found))
    more = f" And {total - 1} more." if total > 1 else ""
    return f"{counted(total, 'path')} could not be restored: {first.sentence}{more}"
