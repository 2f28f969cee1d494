"""Put files, links and folders in place in the work tree without following a link.

Content is written to a temporary file in a folder of the state directory, which then takes its
place in one step. If that folder is on another disk or may not be used for this
(`_NOT_FROM_ELSEWHERE`), the temporary file is created in the target's own folder. Scans never
mistake a temporary name for a file of the agent.

A temporary file trades places with the file it replaces (renameat2, RENAME_EXCHANGE), so readers
and crashes see either the old or the new file. The displaced file is then a temporary file itself
and is written next, so a restore of thousands of files creates and frees only a handful: on many
disks, creating and freeing all of them would cost ten times as much as writing them. A file that
is removed is renamed to a temporary name in the same way.

What was displaced shows what was replaced or removed; if that is not the file observed a moment
before, or its content is not saved (`IsHeld`), it is put back. Where nothing was observed, the name
must still be free (RENAME_NOREPLACE).

A displaced file is reused only if nothing else can notice: it belongs to this user, has no other
name and no extended attributes, and no process has it open, which a write lease proves (fcntl(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from hankweave_server.fsutil import CHUNK, opened, write_all
from hankweave_server.worktree.attributes import SPECIAL
from hankweave_server.worktree.dirfd import FOLDER_FLAGS, GONE, Descent, has_content
from hankweave_server.worktree.names import OUR_PREFIX, joined, name_of, parent_of
from hankweave_server.worktree.obstacles import Obstacles
from hankweave_server.worktree.stat_index import Signature, signature_of

TEMPORARY = OUR_PREFIX + b".restoring"
"""Prefix of temporary names: a repeated restore finds leftovers by it, and scans ignore them."""

BLOCK = 4096
KEPT = 16
"""Number of displaced files kept; with several sizes, one is likely to fit the next file."""

_NAMES = tuple(TEMPORARY + b"-%d" % number for number in range(KEPT))
_NO_REPLACE, _EXCHANGE = 1, 2  # RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2(2).
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REUSE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ZEROS = bytes(CHUNK)

_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)

T = TypeVar("T")

IsHeld = Callable[[int, bytes], bool]
"""Return whether the content of a name in an open folder is saved, so that it may go."""


def _is_certain(folder: int, name: bytes) -> bool:
    """Return that stat data is enough."""
    return True


class DisplacedFile(Exception):
    """The file at the path was not the one observed; it is still there."""


class NewFile(NamedTuple):
    """The content, size and permissions of a file to be written."""

    content: Callable[[], Iterable[bytes]]
    size: int
    permissions: int
    finish: Callable[[int], None] | None = None
    """Complete the written file, given its descriptor, before it takes its place."""


class _Idle(NamedTuple):
    """A displaced file under a temporary name, available for writing."""

    blocks: int
    name: bytes


class TemporaryFiles:
    """The temporary files of one restore, and the files that they displaced."""

    def __init__(self, folder: int, names: Sequence[bytes] = _NAMES) -> None:
        """Use `names` in `folder`, the descriptor of a folder, for temporary files."""
        self._folder = folder
        self._names = names
        self._idle: list[_Idle] = []
        self._unused = list(names)

    def sweep(self) -> None:
        """Remove temporary files left by a crash."""
        for name in {os.fsencode(name) for name in os.listdir(self._folder)}.intersection(
            self._names
        ):
            self._remove(name)

        self._unused = list(self._names)

    def clear(self) -> None:
        """Remove the temporary files of this restore."""
        while self._idle:
            self._remove(self._idle.pop().name)

    def put(
        self, folder: int, name: bytes, new: NewFile, seen: Signature | None, is_held: IsHeld
    ) -> os.stat_result:
        """Write a file and move it into place.

        `seen` is what was found there; None for nothing. Raises DisplacedFile, with nothing
        changed, when something else is there.
        """
        temporary, descriptor, before = self._opened(_blocks(new.size))
        try:
            try:
                # First, so that the content is never accessible to more users than it will be.
                if stat.S_IMODE(before.st_mode) != new.permissions:
                    os.fchmod(descriptor, new.permissions)

                write_sparsely(descriptor, new.content(), before.st_size)
                if new.finish is not None:
                    new.finish(descriptor)
            except BaseException:
                self._remove(temporary)
                raise

            self._bring(temporary, folder, name, seen, is_held)
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def put_link(
        self, folder: int, name: bytes, target: bytes, seen: Signature | None, is_held: IsHeld
    ) -> os.stat_result:
        """Make a symbolic link and move it into place, as `put` does with a file."""
        temporary = self._free_name()
        create = partial(os.symlink, target, temporary, dir_fd=self._folder)
        self._made(temporary, create)
        self._bring(temporary, folder, name, seen, is_held)
        return os.lstat(name, dir_fd=folder)

    def put_name(
        self,
        folder: int,
        name: bytes,
        other: tuple[int, bytes],
        seen: Signature | None,
        is_held: IsHeld,
    ) -> os.stat_result:
        """Make a second name of another file, and move it into place, as `put` does."""
        temporary = self._free_name()
        below, source = other
        link = partial(
            os.link,
            source,
            temporary,
            src_dir_fd=below,
            dst_dir_fd=self._folder,
            follow_symlinks=False,
        )
        try:
            _create_replacing(temporary, self._folder, link)
        except BaseException:
            self._unused.append(temporary)
            raise

        self._bring(temporary, folder, name, seen, is_held)
        return os.lstat(name, dir_fd=folder)

    def take(self, folder: int, name: bytes, seen: Signature, is_held: IsHeld) -> None:
        """Take a file or link away, if it is the one that was seen.

        Raises DisplacedFile, with nothing changed, when something else is there, and
        FileNotFoundError when nothing is.
        """
        if not _is_seen(os.lstat(name, dir_fd=folder), seen):
            raise DisplacedFile

        temporary = self._free_name()
        try:
            os.rename(name, temporary, src_dir_fd=folder, dst_dir_fd=self._folder)
        except OSError:
            self._unused.append(temporary)
            raise

        if not self._keep_if_seen(temporary, seen, is_held):
            self._put_back(temporary, folder, name)
            raise DisplacedFile

    def _bring(
        self,
        temporary: bytes,
        folder: int,
        name: bytes,
        seen: Signature | None,
        is_held: IsHeld,
    ) -> None:
        """Move a temporary file into place; it is removed if that fails."""
        if seen is not None and _exchanged(self._folder, temporary, folder, name):
            if not self._keep_if_seen(temporary, seen, is_held):
                if _exchanged(self._folder, temporary, folder, name):
                    self._remove(temporary)
                else:
                    self._put_back(temporary, folder, name)

                raise DisplacedFile

            return

        try:
            if seen is None:
                rename_to_free_name(self._folder, temporary, folder, name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(name, dir_fd=folder)
                    if not _may_replace(folder, name, found, seen, is_held):
                        raise DisplacedFile

                os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=folder)
        except BaseException as problem:
            self._remove(temporary)
            if isinstance(problem, FileExistsError):
                raise DisplacedFile from problem

            raise

        self._unused.append(temporary)

    def _keep_if_seen(self, temporary: bytes, seen: Signature, is_held: IsHeld) -> bool:
        """Take over what was displaced; return False, with nothing done, if it may not go."""
        displaced = os.lstat(temporary, dir_fd=self._folder)
        if not _may_replace(self._folder, temporary, displaced, seen, is_held):
            return False

        if stat.S_ISREG(displaced.st_mode) and displaced.st_size < CHUNK:
            self._idle.append(_Idle(_blocks(displaced.st_size), temporary))
        else:
            self._remove(temporary)

        return True

    def _put_back(self, temporary: bytes, folder: int, name: bytes) -> None:
        """Put back what was displaced; beside its place if that has been taken meanwhile."""
        number = 0
        place = name
        while True:
            try:
                rename_to_free_name(self._folder, temporary, folder, place)
            except FileExistsError:
                number += 1
                place = name + b"~%d" % number
            else:
                self._unused.append(temporary)
                return

    def _opened(self, blocks: int) -> tuple[bytes, int, os.stat_result]:
        """Open a temporary file for writing: a suitable displaced one, or a new one."""
        fitting = [idle for idle in self._idle if idle.blocks <= blocks]
        if fitting or not self._unused:
            # Freeing blocks is expensive on some disks, so a larger file is the last resort.
            chosen = max(fitting) if fitting else min(self._idle)
            self._idle.remove(chosen)
            found = self._reopened(chosen.name)
            if found is not None:
                return chosen.name, *found

            self._remove(chosen.name)

        name = self._unused.pop()
        create = partial(os.open, name, _CREATE, 0o600, dir_fd=self._folder)
        descriptor = self._made(name, create)
        return name, descriptor, os.fstat(descriptor)

    def _made(self, name: bytes, create: Callable[[], T]) -> T:
        """Create a temporary file or link; its name is free again if that fails."""
        try:
            return _create_replacing(name, self._folder, create)
        except OSError:
            self._unused.append(name)
            raise

    def _free_name(self) -> bytes:
        """Return a name without a file; remove a displaced file if all names have one."""
        if not self._unused:
            smallest = min(self._idle)
            self._idle.remove(smallest)
            self._remove(smallest.name)

        return self._unused.pop()

    def _reopened(self, name: bytes) -> tuple[int, os.stat_result] | None:
        try:
            descriptor = os.open(name, _REUSE, dir_fd=self._folder)
        except OSError:
            return None

        with contextlib.suppress(OSError):
            if (status := _status_if_unshared(descriptor)) is not None:
                return descriptor, status

        os.close(descriptor)
        return None

    def _remove(self, temporary: bytes) -> None:
        # One that may not be removed is tried again when its name is used, and by `sweep`; it is no
        # fault of the path that has been restored.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.unlink(temporary, dir_fd=self._folder)

        self._unused.append(temporary)


def folder_for_new_files(path: Path) -> AbstractContextManager[int]:
    """Open the private folder in which new files are written, for one restore."""
    return opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _create_replacing(name: bytes, folder: int, create: Callable[[], T]) -> T:
    """Create a temporary file or link, replacing one left by a crash."""
    try:
        return create()
    except FileExistsError:
        os.unlink(name, dir_fd=folder)

    return create()


def _blocks(size: int) -> int:
    return (size + BLOCK - 1) // BLOCK


def _exchanged(elsewhere: int, temporary: bytes, folder: int, name: bytes) -> bool:
    """Exchange a temporary file and another file; return False if that is not possible."""
    return _renameat2 is not None and _renameat2(elsewhere, temporary, folder, name, _EXCHANGE) == 0


def rename_to_free_name(old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
    """Rename a file, link or folder; raise FileExistsError if the new name is taken."""
    if _renameat2 is not None:
        if _renameat2(old_folder, old, new_folder, new, _NO_REPLACE) == 0:
            return

        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number))

    # The kernel or the file system cannot check the name itself.
    with contextlib.suppress(FileNotFoundError):
        os.lstat(new, dir_fd=new_folder)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)


def _may_replace(
    folder: int, name: bytes, status: os.stat_result, seen: Signature, is_held: IsHeld
) -> bool:
    """Return whether a file is the one that was seen, and its content is saved."""
    if not _is_seen(status, seen):
        return False

    try:
        return not has_content(status.st_mode) or is_held(folder, name)
    except OSError:
        return False


def _is_seen(status: os.stat_result, seen: Signature) -> bool:
    """Return whether a file is the one that was seen; a rename has changed its ctime meanwhile."""
    if not has_content(seen.mode):
        # The times of a pipe change whenever it is used.
        return not has_content(status.st_mode) and not stat.S_ISDIR(status.st_mode)

    now = signature_of(status)
    return (stat.S_IFMT(now.mode), now.mtime_ns, now.size) == (
        stat.S_IFMT(seen.mode),
        seen.mtime_ns,
        seen.size,
    )


def _status_if_unshared(descriptor: int) -> os.stat_result | None:
    """Return the stat data of a file that can be reused unnoticed, otherwise None.

    Raises OSError if that cannot be determined.
    """
    # While the lease is held, the kernel signals this process when another one opens the file. The
    # default signal would end this process, so one without effect is chosen.
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    status = os.fstat(descriptor)
    is_unshared = (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
        and status.st_size < CHUNK
        and not os.listxattr(descriptor)
    )
    return status if is_unshared else None


def write_sparsely(descriptor: int, content: Iterable[bytes], size: int) -> None:
    """Overwrite a file of `size` bytes, leaving holes where whole pieces of `content` are zero."""
    position = 0
    is_large = False
    for piece in content:
        if len(piece) >= CHUNK and not is_large:
            # Old content would show through the holes.
            os.ftruncate(descriptor, position)
            is_large = True

        if len(piece) == CHUNK and piece == _ZEROS:
            os.lseek(descriptor, CHUNK, os.SEEK_CUR)
        else:
            write_all(descriptor, piece)

        position += len(piece)

    if is_large or size != position:
        os.ftruncate(descriptor, position)

    if position == 0:
        os.utime(descriptor)  # Nothing was written, and the time may be another file's.


_NOT_FROM_ELSEWHERE = frozenset({errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that mean the private folder cannot supply the temporary file."""


class Obstructed(Exception):
    """A folder cannot be entered or created because something else has its name."""

    def __init__(self, path: bytes) -> None:
        super().__init__(os.fsdecode(path))
        self.path = path


class Placing:
    """A writer that changes the work tree one path at a time."""

    def __init__(self, descent: Descent, new_files: int) -> None:
        """Use `new_files`, the descriptor of a private folder, for new files."""
        self._descent = descent
        self._files = TemporaryFiles(new_files)
        self._are_elsewhere = False
        """The temporary files are on another disk than a folder of the work tree."""
        self.opened_up: dict[bytes, int] = {}
        """Folders that had to be made writable, and their previous permissions."""
        self.made: list[bytes] = []

    def put_file(
        self, path: bytes, new: NewFile, seen: Signature | None, is_held: IsHeld = _is_certain
    ) -> os.stat_result:
        """Put a file at a path; create its parents.

        `seen` is what was found there, None for nothing. Raises DisplacedFile, with nothing
        changed, when something else has taken its place since, or `is_held` is false of it.
        """
        return self._placed(
            path, lambda files, folder, name: files.put(folder, name, new, seen, is_held)
        )

    def put_link(
        self, path: bytes, target: bytes, seen: Signature | None, is_held: IsHeld = _is_certain
    ) -> os.stat_result:
        """Put a symbolic link at a path, as `put_file` does with a file."""
        return self._placed(
            path, lambda files, folder, name: files.put_link(folder, name, target, seen, is_held)
        )

    def put_name(
        self, path: bytes, other: bytes, seen: Signature | None, is_held: IsHeld = _is_certain
    ) -> os.stat_result:
        """Make a path a second name of the file at another path, as `put_file` writes a file."""
        folder = os.dup(self._descent.folder_of(other))
        try:
            place = folder, name_of(other)
            return self._placed(
                path, lambda files, below, name: files.put_name(below, name, place, seen, is_held)
            )
        finally:
            os.close(folder)

    def remove(self, path: bytes, seen: Signature, is_held: IsHeld = _is_certain) -> None:
        """Remove the file or link that was seen; raise DisplacedFile when something else is there.

        A path where nothing is any more counts as removed.
        """
        with contextlib.suppress(FileNotFoundError):
            self._placed(path, lambda files, folder, name: files.take(folder, name, seen, is_held))

    def _placed(self, path: bytes, act: Callable[[TemporaryFiles, int, bytes], T]) -> T:
        """Act with temporary files elsewhere or, on another disk, in the folder itself."""
        parent, name = parent_of(path), name_of(path)
        folder = self._enter(parent)
        if not self._are_elsewhere:
            try:
                return act(self._files, folder, name)
            except OSError as problem:
                if problem.errno not in _NOT_FROM_ELSEWHERE:
                    raise

                self._are_elsewhere = problem.errno == errno.EXDEV

        if obstacle := Obstacles(self._descent).at(path):
            # What keeps the file would keep a temporary one in its folder, too.
            raise OSError(obstacle.errno, os.strerror(obstacle.errno))

        def with_temporary_files() -> T:
            files = TemporaryFiles(folder, (TEMPORARY,))
            try:
                return act(files, folder, name)
            finally:
                files.clear()

        return self._changing(parent, folder, with_temporary_files)

    def sweep(self) -> None:
        """Remove the temporary files of a restore that a crash interrupted."""
        self._files.sweep()

    def clear(self) -> None:
        """Remove the temporary files of this restore."""
        self._files.clear()

    def make_folder(self, path: bytes) -> None:
        self._enter(path)

    def remove_empty_folder(self, path: bytes) -> bool:
        """Remove a folder if it is empty; return whether nothing is there any more."""

        def rmdir(folder: int, name: bytes) -> bool:
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as problem:
                if problem.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return False

                if problem.errno != errno.ENOENT:
                    raise

            return True

        try:
            folder = self._descent.folder_of(path)
        except OSError as problem:
            if problem.errno in GONE:
                return True

            raise

        done = self._changing(parent_of(path), folder, lambda: rmdir(folder, name_of(path)))
        if done:
            self._descent.close_cached()

        return done

    def finish_folder(self, path: bytes, finish: Callable[[int], None]) -> None:
        """Call `finish` with the descriptor of a folder."""
        finish(self._descent.folder(path))

    def set_permissions(self, path: bytes, permissions: int) -> os.stat_result:
        """Change the permissions of a file or folder, never of the target of a link.

        Set-uid, set-gid and sticky bits stay as they are.
        """
        folder, name = self._descent.folder_of(path), name_of(path)
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(f"/proc/self/fd/{descriptor}", permissions | mode & SPECIAL)

            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _enter(self, path: bytes) -> int:
        """Open a folder; create it and its parents if they are missing."""
        try:
            return self._descent.folder(path)
        except OSError as problem:
            if problem.errno not in GONE:
                raise

        self._make(path)
        return self._descent.folder(path)

    def _make(self, path: bytes) -> None:
        here = b""
        for name in path.split(b"/"):
            above, here = here, joined(here, name)
            folder = self._descent.folder(above)
            try:
                os.close(os.open(name, FOLDER_FLAGS, dir_fd=folder))
            except FileNotFoundError:
                self._changing(above, folder, partial(os.mkdir, name, dir_fd=folder))
                self.made.append(here)
            except OSError as problem:
                if problem.errno not in GONE:
                    raise

                raise Obstructed(here) from problem

    def _changing(self, path: bytes, folder: int, change: Callable[[], T]) -> T:
        """Run a change in a folder, making the folder writable first if necessary."""
        try:
            return change()
        except PermissionError:
            before = stat.S_IMODE(os.fstat(folder).st_mode)
            if before & stat.S_IRWXU == stat.S_IRWXU:
                raise

            os.fchmod(folder, before | stat.S_IRWXU)
            self.opened_up.setdefault(path, before)

        return change()
