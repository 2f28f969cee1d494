"""Move files between the work tree and the rig archive without losing or overwriting any.

Every move is one rename from one open folder to another: no link is followed, no content is read,
and a crash leaves each file in exactly one of the two places. A move whose target exists was made
before, so repeating all moves completes only the missing ones.
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
from hankweave_server.worktree.dirfd import FOLDER_FLAGS, Descent
from hankweave_server.worktree.names import joined, parent_of, parents_of
from hankweave_server.worktree.tree_writer import rename_to_free_name

_DEFAULT_MODE = 0o755


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


def put_away(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
    """Move files from the work tree to the archive; those already there count as done."""
    return _carried(places.tree, places.archive, moves)


def put_away_again(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
    """Undo `bring_back`; files in the way in the archive stay."""
    return _carried(places.tree, places.archive, moves, is_done=_has_left)


def bring_back(places: ArchivePlaces, moves: Iterable[ArchiveMove]) -> Moved:
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
    old, new = _name_of(move.source), _name_of(move.target)
    old_folder, new_folder = here.folder_of(move.source), there.folder_of(move.target)
    if here is there:  # One descent holds one folder.
        with contextlib.ExitStack() as stack:
            old_folder = os.dup(here.folder_of(move.source))
            stack.callback(os.close, old_folder)
            rename_to_free_name(old_folder, old, here.folder_of(move.target), new)
    else:
        rename_to_free_name(old_folder, old, new_folder, new)


def follow(places: ArchivePlaces, folders: Iterable[ArchiveMove]) -> Moved:
    """Move emptied folders after their files, inner ones first; a folder that is not empty stays.

    In the archive they keep their modes.
    """
    moved = Moved()
    for move in folders:
        try:
            _let_follow(places, move, moved)
        except OSError as problem:
            if fsutil.is_full(problem) or fsutil.is_broken(problem):
                raise

            moved.failed[move.source] = os.strerror(problem.errno or 0)

    return moved


def _let_follow(places: ArchivePlaces, move: ArchiveMove, moved: Moved) -> None:
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
        os.rmdir(_name_of(path), dir_fd=folder)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise

        return False

    descent.let_go()
    return True


def _make_folders(here: Descent, there: Descent, move: ArchiveMove, made: list[bytes]) -> None:
    """Create missing folders above a target, with the modes of the folders above the source."""
    missing: list[tuple[bytes, int]] = []
    source, target, is_alike = move.source, move.target, True
    while target := parent_of(target):
        if there.status(target) is not None:
            break

        source = parent_of(source)
        is_alike = is_alike and bool(source) and _name_of(source) == _name_of(target)
        status = here.status(source) if is_alike else None
        mode = _DEFAULT_MODE if status is None else stat.S_IMODE(status.st_mode)
        missing.append((target, mode))

    for path, mode in reversed(missing):
        _make_folder(there, path, mode, made)


def _make_folder(there: Descent, path: bytes, mode: int, made: list[bytes]) -> None:
    folder = there.folder_of(path)
    try:
        os.mkdir(_name_of(path), 0o700, dir_fd=folder)
    except FileExistsError:
        status = there.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise
    else:
        made.append(path)

    descriptor = os.open(_name_of(path), FOLDER_FLAGS, dir_fd=there.folder_of(path))
    try:
        # The owner must be able to reach what will lie in it.
        os.fchmod(descriptor, mode & 0o777 | 0o700)
    finally:
        os.close(descriptor)


def tidy(archive: Descent, left: Iterable[bytes], kept: frozenset[bytes]) -> None:
    """Remove folders that became empty because these paths left, except those in `kept`."""
    for path in left:
        for folder in parents_of(path):
            try:
                if folder in kept or not remove_folder(archive, folder):
                    break
            except FileNotFoundError:
                continue


def _name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
