"""Move files between the work tree and the rig archive without losing or overwriting any.

Every move is one rename from one open folder to another: no link is followed, no content is read,
and a crash leaves each file in exactly one of the two places. A move whose target exists was made
before, so repeating all moves completes only the missing ones.

Where the two places are on different file systems, a file is copied, made durable, renamed to its
target, and then removed from its source if nobody has changed it meanwhile. A crash may leave it in
both places; repeating the move finds the copy by its mode, time and content, and removes the
source.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.records import ArchiveMove
from hankweave_server import fsutil
from hankweave_server.worktree.dirfd import FILE_FLAGS, FOLDER_FLAGS, Descent
from hankweave_server.worktree.names import OUR_PREFIX, joined, name_of, parent_of, parents_of
from hankweave_server.worktree.stat_index import signature_of
from hankweave_server.worktree.tree_writer import rename_to_free_name

_DEFAULT_MODE = 0o755
_COPY = OUR_PREFIX + b".moving"
"""A copy on its way to another file system; scans ignore such names."""
_ACL = "system.posix_acl_access"


@dataclass(slots=True)
class Moved:
    """The result of a number of moves."""

    done: list[ArchiveMove] = field(default_factory=list)
    """Moves that are complete, made by this call or an earlier one."""
    failed: dict[bytes, str] = field(default_factory=dict)
    """Sources that stay where they are, and why."""
    made: list[bytes] = field(default_factory=list)
    """Folders that were missing at the target."""


@dataclass(frozen=True, slots=True)
class ArchivePlaces:
    """The work tree and the rig archive, held open."""

    tree: Descent
    archive: Descent

    def sync(self) -> None:
        """Make all moves durable."""
        roots = {os.fstat(each.root).st_dev: each.root for each in (self.tree, self.archive)}
        for descriptor in roots.values():
            fsutil.sync_filesystem(Path(f"/proc/self/fd/{descriptor}"))


@contextmanager
def both(work_tree: Path, archive: Path, at_the_top: frozenset[bytes]) -> Iterator[ArchivePlaces]:
    """Open the two places; create the archive if it is missing."""
    archive.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        tree = Descent(work_tree, at_the_top=at_the_top)
        stack.callback(tree.close)
        shelf = Descent(archive, at_the_top=frozenset())
        stack.callback(shelf.close)
        yield ArchivePlaces(tree, shelf)


def arranged(
    archive: Descent, base: bytes, paths: Iterable[bytes]
) -> tuple[list[ArchiveMove], list[ArchiveMove]]:
    """Plan the moves below a folder of the archive; return first those of existing obstacles."""
    displaced: dict[bytes, bytes] = {}
    moves: list[ArchiveMove] = []
    for path in paths:
        target = joined(base, path)
        obstacle = _obstacle(archive, target)
        if obstacle is not None and obstacle not in displaced:
            displaced[obstacle] = _free_name(archive, obstacle, displaced.values())

        moves.append(ArchiveMove(source=path, target=target))

    return [ArchiveMove(source=old, target=new) for old, new in displaced.items()], moves


def _obstacle(archive: Descent, target: bytes) -> bytes | None:
    for path in (*reversed(parents_of(target)), target):
        status = archive.status(path)
        if status is None:
            return None

        if path == target or not stat.S_ISDIR(status.st_mode):
            return path

    return None


def _free_name(archive: Descent, path: bytes, taken: Iterable[bytes]) -> bytes:
    planned = frozenset(taken)
    number = 1
    while (name := path + b"~%d" % number) in planned or archive.status(name) is not None:
        number += 1

    return name


def displace(archive: Descent, moves: Iterable[ArchiveMove]) -> Moved:
    """Rename obstacles in the archive."""
    return _carried(archive, archive, moves)


def move_to_archive(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
    """Move files from the work tree to the archive; those already there count as done."""
    return _carried(places.tree, places.archive, moves)


def move_to_archive_again(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
    """Undo `move_back`; files in the way in the archive stay."""
    return _carried(places.tree, places.archive, moves, is_done=_has_left)


def move_back(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
    """Move files from the archive to the work tree; existing ones stay and count as failed."""
    return _carried(places.archive, places.tree, moves, is_done=_has_left)


def _has_arrived(here: Descent, there: Descent, move: ArchiveMove) -> bool:
    return there.status(move.target) is not None


def _has_left(here: Descent, there: Descent, move: ArchiveMove) -> bool:
    return here.status(move.source) is None and there.status(move.target) is not None


def _carried(
    here: Descent,
    there: Descent,
    moves: Iterable[ArchiveMove],
    *,
    is_done: Callable[[Descent, Descent, ArchiveMove], bool] = _has_arrived,
) -> Moved:
    moved = Moved()
    for move in moves:
        try:
            _complete_copy(here, there, move)
            if not is_done(here, there, move):
                _carry(here, there, move, moved.made)
        except OSError as problem:
            if fsutil.is_full(problem) or fsutil.is_broken(problem):
                raise

            moved.failed[move.source] = os.strerror(problem.errno or 0)
        else:
            moved.done.append(move)

    return moved


def _carry(here: Descent, there: Descent, move: ArchiveMove, made: list[bytes]) -> None:
    status = here.status(move.source)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    if there.status(move.target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    _make_folders(here, there, move, made)
    if stat.S_ISDIR(status.st_mode) and here is not there:
        _make_folder(there, move.target, stat.S_IMODE(status.st_mode), made)
        remove_folder(here, move.source)
    else:
        _rename(here, there, move)


def _rename(here: Descent, there: Descent, move: ArchiveMove) -> None:
    old, new = name_of(move.source), name_of(move.target)
    old_folder, new_folder = here.folder_of(move.source), there.folder_of(move.target)
    if here is there:  # One descent holds one folder.
        with contextlib.ExitStack() as stack:
            old_folder = os.dup(here.folder_of(move.source))
            stack.callback(os.close, old_folder)
            rename_to_free_name(old_folder, old, here.folder_of(move.target), new)
    else:
        try:
            rename_to_free_name(old_folder, old, new_folder, new)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise

            seen = os.lstat(old, dir_fd=old_folder)
            _copy(seen, old_folder, old, new_folder, new)
            if signature_of(os.lstat(old, dir_fd=old_folder)) != signature_of(seen):
                os.unlink(new, dir_fd=new_folder)
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from None

            os.unlink(old, dir_fd=old_folder)


def _copy(status: os.stat_result, old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
    """Copy a file or link to another file system, durably; the new name must be free."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_COPY, dir_fd=new_folder)

    try:
        if stat.S_ISREG(status.st_mode):
            _copy_file(status, old_folder, old, new_folder)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(old, dir_fd=old_folder), _COPY, dir_fd=new_folder)
        elif stat.S_ISFIFO(status.st_mode):
            os.mkfifo(_COPY, dir_fd=new_folder)
            os.chmod(_COPY, stat.S_IMODE(status.st_mode), dir_fd=new_folder)
        else:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        if not stat.S_ISREG(status.st_mode):
            owner = (status.st_uid, status.st_gid)
            os.chown(_COPY, *owner, dir_fd=new_folder, follow_symlinks=False)
            times = (status.st_atime_ns, status.st_mtime_ns)
            os.utime(_COPY, ns=times, dir_fd=new_folder, follow_symlinks=False)

        rename_to_free_name(new_folder, _COPY, new_folder, new)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_COPY, dir_fd=new_folder)

        raise

    os.fsync(new_folder)


def _copy_file(status: os.stat_result, old_folder: int, old: bytes, new_folder: int) -> None:
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(fsutil.opened(old, FILE_FLAGS, dir_fd=old_folder))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = stack.enter_context(fsutil.opened(_COPY, flags, dir_fd=new_folder))
        while piece := os.read(source, fsutil.CHUNK):
            fsutil.write_all(target, piece)

        os.fchown(target, status.st_uid, status.st_gid)  # It takes special bits away.
        os.fchmod(target, stat.S_IMODE(status.st_mode))
        for name in os.listxattr(source):
            if name.startswith("user.") or name == _ACL:
                os.setxattr(target, name, os.getxattr(source, name))

        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(target)


def _complete_copy(here: Descent, there: Descent, move: ArchiveMove) -> None:
    """Remove a source that a crash has left beside its copy on another file system."""
    source, target = here.status(move.source), there.status(move.target)
    if (
        source is not None
        and target is not None
        and source.st_dev != target.st_dev
        and not stat.S_ISDIR(source.st_mode)
        and _marks(source) == _marks(target)
        and _has_same_content(here, there, move)
    ):
        os.unlink(name_of(move.source), dir_fd=here.folder_of(move.source))


def _marks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mode, status.st_size, status.st_mtime_ns


def _has_same_content(here: Descent, there: Descent, move: ArchiveMove) -> bool:
    ends = ((here, move.source), (there, move.target))
    status = here.status(move.source)
    assert status is not None, "its marks were compared"
    if stat.S_ISLNK(status.st_mode):
        first, second = (os.readlink(name_of(p), dir_fd=d.folder_of(p)) for d, p in ends)
        return first == second

    if not stat.S_ISREG(status.st_mode):
        return True

    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(
                fsutil.opened(name_of(path), FILE_FLAGS, dir_fd=descent.folder_of(path))
            )
            for descent, path in ends
        )
        while piece := os.read(source, fsutil.CHUNK):
            if os.read(target, len(piece)) != piece:
                return False

        return True


def follow(places: ArchivePlaces, folders: Iterable[ArchiveMove]) -> Moved:
    """Move emptied folders after their files, inner ones first; a folder that is not empty stays.

    In the archive they keep their modes.
    """
    moved = Moved()
    for move in folders:
        try:
            _move_folder(places, move, moved)
        except OSError as problem:
            if fsutil.is_full(problem) or fsutil.is_broken(problem):
                raise

            moved.failed[move.source] = os.strerror(problem.errno or 0)

    return moved


def _move_folder(places: ArchivePlaces, move: ArchiveMove, moved: Moved) -> None:
    status = places.tree.status(move.source)
    if status is not None and stat.S_ISDIR(status.st_mode):
        _make_folders(places.tree, places.archive, move, moved.made)
        _make_folder(places.archive, move.target, stat.S_IMODE(status.st_mode), moved.made)
        if not remove_folder(places.tree, move.source):
            return

    moved.done.append(move)


def remove_folder(descent: Descent, path: bytes) -> bool:
    """Remove a folder if it is empty; return whether it is gone."""
    folder = descent.folder_of(path)
    try:
        os.rmdir(name_of(path), dir_fd=folder)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise

        return False

    descent.close_cached()
    return True


def _make_folders(here: Descent, there: Descent, move: ArchiveMove, made: list[bytes]) -> None:
    """Create missing folders above a target, with the modes of the folders above the source."""
    missing: list[tuple[bytes, int]] = []
    source, target, is_alike = move.source, move.target, True
    while target := parent_of(target):
        if there.status(target) is not None:
            break

        source = parent_of(source)
        is_alike = is_alike and bool(source) and name_of(source) == name_of(target)
        status = here.status(source) if is_alike else None
        mode = _DEFAULT_MODE if status is None else stat.S_IMODE(status.st_mode)
        missing.append((target, mode))

    for path, mode in reversed(missing):
        _make_folder(there, path, mode, made)


def _make_folder(there: Descent, path: bytes, mode: int, made: list[bytes]) -> None:
    folder = there.folder_of(path)
    try:
        os.mkdir(name_of(path), 0o700, dir_fd=folder)
    except FileExistsError:
        status = there.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise
    else:
        made.append(path)

    # The owner must be able to reach what will lie in it.
    with fsutil.opened(name_of(path), FOLDER_FLAGS, dir_fd=there.folder_of(path)) as descriptor:
        os.fchmod(descriptor, mode & 0o777 | 0o700)


def clean_up(archive: Descent, left: Iterable[bytes], kept: frozenset[bytes]) -> None:
    """Remove folders that became empty because these paths left, except those in `kept`."""
    for path in left:
        for folder in parents_of(path):
            try:
                if folder in kept or not remove_folder(archive, folder):
                    break
            except FileNotFoundError:
                continue
