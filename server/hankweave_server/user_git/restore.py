"""Restore of the workspace from the state of a safety commit to that of a target.

A path is changed only if it has the safety commit's content or already the target's, so content
that was not captured is never overwritten or removed. Every step is idempotent: after a crash, all
of it is done again. No folder is entered through a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_server.fsutil import is_broken, is_full
from hankweave_server.git.trees import EXECUTABLE, LINK, Entry
from hankweave_server.user_git.attributes import ATTRIBUTES, RAW, to_work_tree
from hankweave_server.user_git.capture import WorkspaceCaptured
from hankweave_server.user_git.errors import CheckpointError
from hankweave_server.user_git.observer import SeenFile, WorkspaceObserver
from hankweave_server.user_git.repository import GitRepository
from hankweave_server.user_git.tree_builder import is_in
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import joined, parents_of
from hankweave_server.worktree.stat_index import signature_of
from hankweave_server.worktree.tree_writer import DisplacedFile, NewFile, Obstructed, Placing

INSTANT_NS = 20_000_000
"""Resolution of file timestamps: changes closer than this may have the same time."""

_UMASK = "Umask:"


@dataclass
class Restored:
    """The result of a restore."""

    seen: dict[bytes, SeenFile] = field(default_factory=dict)
    """The files now at the paths that were to be written."""
    unfinished: list[bytes] = field(default_factory=list)
    """Paths with neither the old nor the new content: another program changed them."""


class Restoring:
    """One restore of the folder `folder` of a work tree."""

    def __init__(
        self,
        *,
        repo: GitRepository,
        folder: bytes,
        descent: Descent,
        observer: WorkspaceObserver,
        spares: int,
        captured: WorkspaceCaptured | None,
        permissions: Mapping[bytes, int],
        exact_before: Mapping[bytes, bytes],
        exact: Mapping[bytes, bytes],
        converts: bool,
    ) -> None:
        """Prepare a restore.

        `captured` is the scan that the safety commit was made from; None after a crash.
        `permissions` apply to files that do not exist now. `exact` are blobs to write instead of
        the tree's, `exact_before` those of the files that exist. An undo does not convert line ends
        (`converts`), because `.gitattributes` may have been different.
        """
        self._repo = repo
        self._folder = folder
        self._descent = descent
        self._observer = observer
        self._before = captured.seen if captured is not None else {}
        self._looked_ns = captured.began_ns if captured is not None else 0
        self._captured = captured.files if captured is not None else {}
        self._permissions = permissions
        self._exact_before = exact_before
        self._exact = exact
        self._converts = converts
        self._placing = Placing(descent, spares)
        self._umask = _umask()
        self._done = Restored()

    def run(self, changes: Mapping[bytes, tuple[Entry | None, Entry | None]]) -> Restored:
        """Restore all changes, removals first; nothing is flushed to the disk."""
        self._placing.sweep()
        try:
            for path, (old, new) in sorted(changes.items(), reverse=True):
                if new is None and old is not None:
                    self._attempt(path, old, None)

            for path in sorted(changes, key=_rules_first):
                old, new = changes[path]
                if new is not None:
                    self._attempt(path, old, new)
        finally:
            self._placing.clear()

        self._close_again()
        self._descent.let_go()
        return self._done

    def _attempt(self, path: bytes, old: Entry | None, new: Entry | None) -> None:
        try:
            is_done = self._remove(path, old) if new is None else self._bring(path, old, new)
        except (Obstructed, DisplacedFile, CheckpointError):
            is_done = False  # A CheckpointError is an object that has become unreadable.
        except OSError as problem:
            if is_full(problem) or is_broken(problem):
                raise

            is_done = False

        if not is_done:
            self._done.unfinished.append(path)

        if path.rpartition(b"/")[2] == ATTRIBUTES:
            self._observer.reread_attributes()

    def _remove(self, path: bytes, old: Entry | None) -> bool:
        status = self._descent.status(path)
        if status is not None:
            if not self._is_old(path, old, status):
                return False

            self._placing.remove(path)

        for folder in parents_of(path):
            if not is_in(folder, self._folder) or not self._placing.remove_empty_folder(folder):
                break

        return True

    def _bring(self, path: bytes, old: Entry | None, new: Entry) -> bool:
        status = self._descent.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            if not self._remove_empty(path):
                return False

            status = None
        elif status is not None and not _has_content(status):
            status = None  # A FIFO has no content to lose.

        if status is not None and not self._is_old(path, old, status):
            if not self._is_new(path, new):
                return False

            self._done.seen[path] = SeenFile(new, status)
            return True

        if self._observer.is_foreign(path):
            return False

        self._done.seen[path] = SeenFile(new, self._put(path, status, old, new))
        return True

    def _put(
        self, path: bytes, status: os.stat_result | None, old: Entry | None, new: Entry
    ) -> os.stat_result:
        permissions = self._wanted(path, status, new)
        if status is not None and old is not None and _differ_by_permissions(old, new):
            return self._placing.set_permissions(path, permissions)

        content = self._repo.read_blob(self._exact.get(path, new.digest))
        if new.mode == LINK and self._observer.keeps_links:
            return self._placing.put_link(path, content)

        if new.mode != LINK and self._converts:
            conversion = self._observer.attributes.conversion(path) or RAW
            content = to_work_tree(content, conversion, new.digest)

        signature = None
        if status is not None and stat.S_ISREG(status.st_mode):
            signature = signature_of(status)

        file = NewFile(lambda: [content], len(content), permissions)
        return self._placing.put_file(path, file, signature)

    def _wanted(self, path: bytes, status: os.stat_result | None, new: Entry) -> int:
        """Return the permissions to set: git records one bit, the others are kept or default."""
        usual = 0o666 & ~self._umask
        permissions = self._permissions.get(path, usual)
        if path in self._permissions and bool(permissions & stat.S_IXUSR) == (
            new.mode == EXECUTABLE
        ):
            return permissions

        if status is not None and stat.S_ISREG(status.st_mode):
            permissions = stat.S_IMODE(status.st_mode)

        if not self._observer.keeps_modes:
            return permissions

        if new.mode == EXECUTABLE:
            return permissions | (permissions & 0o444) >> 2 & ~self._umask | stat.S_IXUSR

        return permissions & ~0o111

    def _is_old(self, path: bytes, old: Entry | None, status: os.stat_result) -> bool:
        """Return whether the current file is the one that the safety commit was made from."""
        known = self._before.get(path)
        if (
            known is not None
            and known.st_ctime_ns + INSTANT_NS < self._looked_ns
            and signature_of(known) == signature_of(status)
        ):
            return old is not None and old == self._captured.get(path)

        return old is not None and self._is(path, old, self._exact_before)

    def _is_new(self, path: bytes, new: Entry) -> bool:
        """Return whether the current file is already the target's, as after a crash."""
        if self._is(path, new, self._exact):
            return True

        return self._converts and self._has(new, self._observer.at(path), new.digest)

    def _is(self, path: bytes, entry: Entry, exact: Mapping[bytes, bytes]) -> bool:
        """Compare the exact bytes, because `.gitattributes` may have changed."""
        return self._has(
            entry, self._observer.at(path, converts=False), exact.get(path, entry.digest)
        )

    def _has(self, entry: Entry, seen: SeenFile | None, digest: bytes) -> bool:
        if seen is None or seen.entry.digest != digest:
            return False

        return seen.entry.mode == entry.mode or not self._observer.keeps_modes

    def _remove_empty(self, path: bytes) -> bool:
        """Remove a folder that contains only folders; return whether it is gone."""
        found = [path]
        for folder in found:
            with os.scandir(self._descent.folder(folder)) as entries:
                for each in entries:
                    if not each.is_dir(follow_symlinks=False):
                        return False

                    found.append(joined(folder, os.fsencode(each.name)))

        return all(self._placing.remove_empty_folder(folder) for folder in reversed(found))

    def _close_again(self) -> None:
        for folder in self._placing.made:
            if folder in self._permissions:
                self._placing.set_permissions(folder, self._permissions[folder])

        for folder, before in self._placing.opened_up.items():
            status = self._descent.status(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                self._placing.set_permissions(folder, before)


def _rules_first(path: bytes) -> tuple[bool, bytes]:
    return path.rpartition(b"/")[2] != ATTRIBUTES, path


def _differ_by_permissions(old: Entry, new: Entry) -> bool:
    return old.digest == new.digest and LINK not in (old.mode, new.mode)


def _has_content(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)


def _umask() -> int:
    """Return the umask; reading it with `os.umask` would change it for other threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(_UMASK):
            return int(line.removeprefix(_UMASK), 8)

    return 0o022
