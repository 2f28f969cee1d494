"""Take a work tree from one git tree to another, safely at every step.

The shadow repository and a user's own repository are restored by the same steps; a subclass of
`Checkout` decides what may happen at each path, and which content a file gets.

The problem
-----------
A restore rewrites files in a folder that other programs can write at any moment. The process can
be killed or lose power in the middle; the disk can fill up; an agent can have replaced a folder by
a link to `/home`; a person can save a file between the decision to overwrite it and the write. In
each case two things must hold:

1. Content that no commit holds is never overwritten or deleted.
2. After a crash, the same restore can be run again, and then completes.

Both follow from two trees: what has been captured, and what is wanted. Each path at which they
differ is observed again right before its change. It is changed only if it is as captured, hence
can be brought back. If it is as wanted already, at most its permissions change. Otherwise it is
left alone and reported.

Repeating instead of logging
----------------------------
There is no undo log. Every step checks its own result first: a removed file is gone, a written
file compares equal to the target, an existing folder is not made. So a restore that was
interrupted anywhere is simply run again from the start. Nothing is flushed here; the caller does
that once at the end. It records its intention durably before the restore and clears it
afterwards, so a start knows that it must repeat one.

The order within one run keeps each step possible:

1. Remove temporary files of a crashed restore (`Placing.sweep`).
2. Remove files and links, deepest first, and the folders this empties.
3. Write files and links, creating folders on the way.
4. Settle the folders last, because a read-only folder takes no files. Folders that had to be made
   writable are in `Placing.opened_up`.

Writing one file
----------------
`worktree.tree_writer` never changes the content of a file in place. New content goes into a
temporary file, outside the work tree where possible, which gets its final permissions and then
takes its place in one system call. A reader or a crash sees the old or the new file, never half of
one. What is displaced or removed is compared with the observation afterwards; if it is something
else, it is put back, and the path counts as changed. Stat data is enough for this if no process
could write to the file when it was captured (`Allowed.is_certain`). Otherwise the content is read
and compared: a write through a mapping may move no time (see `worktree.scan`).

The new file gets owner, ACLs and other attributes before it takes its place (`_with_attributes`).

Links
-----
`worktree.dirfd.Descent` opens each component of a path relative to the one above it with
O_NOFOLLOW, and the last step is a `*at` call on that folder. A link in the middle of a path is an
error, not a detour: the path counts as missing, and where a folder must be, `Obstructed` reports
it.

Errors
------
A fault of one path is reported with its errno, and the others are still done (`_attempt`): the path
may be immutable, a mount point, on a read-only mount, or in a folder where this user may not write.
A fault that every other path would meet too (`_ends_all`: a full or broken disk, no descriptors)
ends the run; the changes made by then stay, and a repetition continues.

Read `Checkout.apply` first, then `_remove` and `_bring`, which change one path each, then
`_attempt`.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import ClassVar, NamedTuple, ParamSpec

from hankweave_server.fsutil import is_broken, is_full
from hankweave_server.git.objects import STREAMED_FROM, HashOnly, digest_of
from hankweave_server.git.trees import Entry
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.attributes import (
    CAPABILITY,
    OTHER_NAMES,
    Attributes,
    attributes_of,
    give,
)
from hankweave_server.worktree.dirfd import FILE_FLAGS, Descent, has_content
from hankweave_server.worktree.names import joined, parents_of
from hankweave_server.worktree.stat_index import Signature, signature_of
from hankweave_server.worktree.tree_writer import (
    DisplacedFile,
    IsHeld,
    NewFile,
    Obstructed,
    Placing,
)

Changes = Mapping[bytes, tuple[Entry | None, Entry | None]]
"""What was captured and what is wanted, for each path at which they differ."""

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

OS_ERROR = "os-error"
UNSET_PERMISSIONS = "permissions"
"""Why a path is not as wanted: the system refused the change, or only that of its permissions."""

P = ParamSpec("P")


class Allowed(NamedTuple):
    """A path may be changed."""

    seen: Signature | None
    """The file or link that may go; None if nothing, or a folder, is there."""
    permissions: int | None = None
    """Set only these: the content is as wanted already."""
    is_certain: bool = False
    """Whether stat data would show any change of what was seen."""
    attributes: Attributes | None = None
    """Those of the file that may go, if they are known."""


class Checkout(ABC):
    """One restore of a work tree."""

    _unreadable: ClassVar[type[Exception]] = KeyError
    """Raised when an object cannot be read."""

    def __init__(self, descent: Descent, new_files: int, meter: Meter = UNWATCHED) -> None:
        """Use `new_files`, the descriptor of a folder on the work tree's disk, for new files."""
        self._descent = descent
        self._placing = Placing(descent, new_files)
        self._meter = meter
        self._as_new = os.geteuid(), os.getegid(), 0, ()
        """The attributes of a new file."""
        self._several: dict[tuple[int, Entry], bytes] = {}
        """The path that replaced a file with several names, by its inode and what replaced it."""
        self._names: dict[int, tuple[bytes, int]] = {}
        """A path and the number of names of each such file, by inode."""
        self._displaced_names: Counter[int] = Counter()

    def apply(self, changes: Changes) -> None:
        """Make all changes, removals first; nothing is flushed to the disk."""
        self._meter.begin("writing", "files", len(changes))
        self._placing.sweep()
        try:
            # Deepest first, so that a folder is empty when its own turn comes.
            for path, (old, new) in sorted(changes.items(), reverse=True):
                if new is None and old is not None:
                    self._attempt(path, self._remove, path, old)
                    self._meter.advance()

            for path in sorted(changes, key=self._turn):
                old, new = changes[path]
                if new is not None:
                    self._attempt(path, self._bring, path, old, new)
                    self._meter.advance()
        finally:
            self._placing.clear()

        self._report_names()
        self._settle_folders()
        self._descent.close_cached()

    # What a subclass decides

    @abstractmethod
    def _allowed(self, path: bytes, old: Entry | None, new: Entry | None) -> Allowed | None:
        """Observe a path; return None if it must stay, after reporting why unless it is as wanted.

        Nothing but a file or link as in `old`, or something without content, may be changed.
        """

    @abstractmethod
    def _content(self, path: bytes, new: Entry, seen: Signature | None) -> NewFile | bytes:
        """Return the file to write, or the target of a link."""

    @abstractmethod
    def _record(
        self, path: bytes, entry: Entry, status: os.stat_result | None, *, is_new: bool = False
    ) -> None:
        """Record that a path has a new file or new permissions; without `status`, it is gone."""

    @abstractmethod
    def _keeps_folder(self, path: bytes) -> bool:
        """Return whether a folder stays although it is empty."""

    @abstractmethod
    def _leave(self, path: bytes, reason: str, number: int = 0) -> None:
        """Report a path that is not as wanted because of a change or failure, with its errno."""

    @abstractmethod
    def _settle_folders(self) -> None:
        """Set the permissions of folders, after everything else."""

    @abstractmethod
    def _lose(self, path: bytes, lost: tuple[str, ...]) -> None:
        """Report attributes that a restored file lacks."""

    def _turn(self, path: bytes) -> tuple[bool, bytes]:
        """Return the sort key of the order in which files are written."""
        return False, path

    def _obstructed(self, path: bytes, obstacle: bytes) -> None:
        """Report a path with something else in the place of a folder above it.

        If `obstacle` is the path itself, a folder that is not empty has the place of the file.
        """
        self._leave(path, "in-the-way")

    # One path at a time

    def _attempt(
        self, path: bytes, act: Callable[P, None], *args: P.args, **details: P.kwargs
    ) -> None:
        """Process one path; report its failure and let the others continue."""
        try:
            try:
                act(*args, **details)
            except Obstructed as obstacle:
                if self._clear_special(obstacle.path):
                    act(*args, **details)
                else:
                    self._obstructed(path, obstacle.path)
        except Obstructed:
            self._leave(path, "in-the-way")
        except DisplacedFile:
            self._leave(path, "changed")
        except self._unreadable:
            self._leave(path, "damaged")
        except OSError as problem:
            self._refused(path, problem)

    def _refused(self, path: bytes, problem: OSError, reason: str = OS_ERROR) -> None:
        """Report that the system refused to change a path; raise what ends the whole run."""
        if _ends_all(problem):
            number = problem.errno or errno.EIO
            raise OSError(number, os.strerror(number), os.fsdecode(path)) from problem

        self._leave(path, reason, problem.errno or 0)

    def _remove(self, path: bytes, old: Entry) -> None:
        allowed = self._allowed(path, old, None)
        if allowed is None:
            return

        if allowed.seen is not None:
            self._placing.remove(path, allowed.seen, partial(self._is_held, path, old, allowed))
            self._displaced_names[allowed.seen.inode] += 1
            self._record(path, old, None)

        self._prune_above(path)

    def _prune_above(self, path: bytes) -> None:
        """Remove the folders that the removal emptied, up to one that is to be kept."""
        for folder in parents_of(path):
            if self._keeps_folder(folder):
                return

            try:
                if not self._placing.remove_empty_folder(folder):
                    return
            except OSError as problem:
                self._refused(folder, problem)
                return

    def _bring(self, path: bytes, old: Entry | None, new: Entry) -> None:
        allowed = self._allowed(path, old, new)
        if allowed is None:
            return

        seen = allowed.seen
        if allowed.permissions is not None:
            try:
                status = self._placing.set_permissions(path, allowed.permissions)
            except OSError as problem:
                self._refused(path, problem, UNSET_PERMISSIONS)
                return
        elif seen is None and not self._clear_folder(path):
            self._obstructed(path, path)
            return
        else:
            is_held = partial(self._is_held, path, old, allowed)
            content = self._content(path, new, seen)
            if isinstance(content, bytes):
                status = self._placing.put_link(path, content, seen, is_held)
            else:
                displaced = self._displaced(path, allowed)
                named = self._named_again(path, new, displaced, seen, is_held)
                if named is None:
                    finished = self._with_attributes(path, content, displaced)
                    status = self._placing.put_file(path, finished, seen, is_held)
                    if displaced is not None and displaced.group:
                        self._several.setdefault((displaced.group, new), path)
                else:
                    status = named

        self._record(path, new, status, is_new=seen is None)

    def _named_again(
        self,
        path: bytes,
        new: Entry,
        displaced: Attributes | None,
        seen: Signature | None,
        is_held: IsHeld,
    ) -> os.stat_result | None:
        """Make a path another name of a restored file, if both named the displaced one."""
        if other := self._other_name(path, new, displaced):
            with suppress(OSError):
                return self._placing.put_name(path, other, seen, is_held)

        return None

    def _with_attributes(
        self, path: bytes, content: NewFile, displaced: Attributes | None
    ) -> NewFile:
        """Return a new file that gets its attributes before it takes its place."""
        attributes = self._attributes(path, displaced)
        if attributes is None or attributes[:4] == self._as_new:
            return content

        finish = partial(self._give, path, attributes, content.permissions)
        return content._replace(finish=finish)

    def _displaced(self, path: bytes, allowed: Allowed) -> Attributes | None:
        """Return the attributes of the file that is replaced; note how many names it has."""
        known = allowed.attributes
        if known is not None and known.extended == () and not known.group:
            return known

        status = None if allowed.seen is None else self._descent.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None

        if status.st_nlink > 1:
            self._names.setdefault(status.st_ino, (path, status.st_nlink))
            self._displaced_names[status.st_ino] += 1

        folder, name = self._descent.folder_of(path), path.rpartition(b"/")[2]
        return attributes_of(b"/proc/self/fd/%d/%s" % (folder, name), status, limit=None)

    def _other_name(self, path: bytes, new: Entry, displaced: Attributes | None) -> bytes | None:
        """Return a restored path that must name the same file: the displaced file had both."""
        return None if displaced is None else self._several.get((displaced.group, new))

    def _attributes(self, path: bytes, displaced: Attributes | None) -> Attributes | None:
        """Return the attributes of a new file; None for those that it has when it is created.

        They are those of the displaced file, except for rights that were granted to its content.
        """
        if displaced is None:
            return None

        extended = tuple(pair for pair in displaced.extended or () if pair[0] != CAPABILITY)
        if displaced.special or extended != displaced.extended:
            self._lose(path, ("set-uid, set-gid and sticky bits, and capabilities",))

        return displaced._replace(special=0, extended=extended, group=0)

    def _give(self, path: bytes, attributes: Attributes, permissions: int, descriptor: int) -> None:
        if lost := give(descriptor, attributes, permissions):
            self._lose(path, lost)

    def _report_names(self) -> None:
        """Report the files some of whose names still lead to what was replaced."""
        for inode, (path, names) in self._names.items():
            if self._displaced_names[inode] < names:
                self._lose(path, (OTHER_NAMES,))

    def _is_held(
        self, path: bytes, old: Entry | None, allowed: Allowed, folder: int, name: bytes
    ) -> bool:
        """Return whether what was displaced from a path has the content that was captured there."""
        if allowed.is_certain:
            return True

        return old is not None and digest_at(folder, name) == self._captured_digest(path, old)

    def _captured_digest(self, path: bytes, old: Entry) -> bytes:
        """Return the blob of the exact bytes that were captured."""
        return old.digest

    def _signature_at(self, path: bytes) -> Signature | None:
        """Return the stat data of what is at a path; None for nothing and for a folder."""
        status = self._descent.status(path)
        return None if status is None or stat.S_ISDIR(status.st_mode) else signature_of(status)

    def _clear_special(self, path: bytes) -> bool:
        """Remove a pipe, socket or device, which has no content to lose; return whether it was."""
        seen = self._signature_at(path)
        if seen is None or has_content(seen.mode):
            return False

        self._placing.remove(path, seen)
        return True

    def _clear_folder(self, path: bytes) -> bool:
        """Remove a folder, if there is one, that contains nothing but folders."""
        status = self._descent.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return True

        found = [path]
        for folder in found:
            with os.scandir(self._descent.folder(folder)) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        return False

                    found.append(joined(folder, os.fsencode(entry.name)))

        return all(self._placing.remove_empty_folder(folder) for folder in reversed(found))


def digest_at(folder: int, name: bytes) -> bytes | None:
    """Return the blob of a file's exact content or of a link's target, as it is now."""
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise

        return digest_of("blob", os.readlink(name, dir_fd=folder))

    try:
        size = os.fstat(descriptor).st_size
        if size >= STREAMED_FROM:
            return HashOnly().streamed_blob(descriptor, size)

        return digest_of("blob", os.read(descriptor, size + 1))
    finally:
        os.close(descriptor)


def _ends_all(problem: OSError) -> bool:
    """Return whether the fault is not one of a path, so that a repetition must continue later."""
    if problem.errno == errno.EROFS:
        return False  # A mount may be read-only in the middle of the tree.

    return is_full(problem) or is_broken(problem) or problem.errno in _OUT_OF_DESCRIPTORS
