"""Finds what changed in the work tree since it was last read, by stat data alone.

A folder is listed only if its own stat data, its ignore rules or the patterns changed; a file is
reported only if its stat data did. So a scan of an unchanged tree is one lstat for each known
name and nothing else.

Racy edits: a file written in the same clock tick as it was read keeps its stat data. Whatever
changed within `RACY_WINDOW_NS` before a scan began is therefore looked at again by the next.
Kernels stamp files from a clock that ticks every 1-10 ms, which the window covers twice.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable

from hankweave_server.workspace.descent import FILE_FLAGS, GONE, Descent
from hankweave_server.workspace.names import (
    is_never_captured,
    is_out_of_bounds,
    is_reserved,
    joined,
)
from hankweave_server.workspace.resolver import IgnoreRules, UnifiedFileResolver
from hankweave_server.workspace.table import Folder, Signature, Table, TrackedFile, signature_of

RACY_WINDOW_NS = 20_000_000
IGNORE_FILE = b".gitignore"
_UNSETTLED = Signature(0, 0, 0, 0, 0)
IGNORE_FILE_LIMIT = 1 << 20  # A larger one is no list of rules; git reads none above 100 MiB.


class WorkTreeScan:
    """Keeps a table in step with the disk."""

    def __init__(
        self,
        descent: Descent,
        table: Table,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.table = table
        self.unlistable: set[bytes] = set()
        """Folders that could not be read: what lies below them is unknown."""
        self._descent = descent
        self._now_ns = now_ns
        self._resolver = UnifiedFileResolver(())
        self._racy_files: set[bytes] = set()
        self._racy_since = 0

    def refresh(
        self, resolver: UnifiedFileResolver, also: Iterable[bytes] = ()
    ) -> list[TrackedFile]:
        """Adopts new names, drops vanished ones, and lists the files that must be read.

        `also` are paths to track whatever patterns and ignore rules say. Raises OSError when the
        work tree itself cannot be read.
        """
        started = self._now_ns() - RACY_WINDOW_NS
        if resolver.patterns != self._resolver.patterns:
            self.table.list_again(self.table.folders.values())

        self._resolver = resolver
        self.unlistable.clear()
        with self._descent.fresh():
            for path in also:
                if not is_out_of_bounds(path):
                    self._adopt(path)

            self._visit_folders()
            pending = self._changed_files()

        self._racy_since = started
        return pending

    def remember(
        self,
        file: TrackedFile,
        signature: Signature | None,
        digest: bytes | None = None,
        git_mode: int = 0,
        permissions: int = 0,
    ) -> None:
        """Takes over what was read of a file after the scan that listed it."""
        self._racy_files.discard(file.path)
        if signature is not None and signature.ctime_ns >= self._racy_since:
            self._racy_files.add(file.path)

        before = (file.git_mode, file.permissions, file.digest is None)
        if before != (git_mode, permissions, digest is None):
            self.table.outline += 1

        file.hold(signature, digest, git_mode, permissions)

    def is_settled(self, file: TrackedFile, status: os.stat_result) -> bool:
        """Tells whether the file still is what was read, as far as stat data can say."""
        return file.signature == signature_of(status) and file.path not in self._racy_files

    def settled_files(self) -> list[TrackedFile]:
        """Lists the files whose stat data can be believed by a later process."""
        return [f for f in self.table.files.values() if f.path not in self._racy_files]

    def _visit_folders(self) -> None:
        waiting = deque(self.table.folders.values())
        while waiting:
            folder = waiting.popleft()
            if self.table.folders.get(folder.path) is not folder:
                continue

            if self._must_list(folder):
                waiting += self._list(folder)

    def _must_list(self, folder: Folder) -> bool:
        try:
            status = os.lstat(folder.path or b".", dir_fd=self._descent.root)
        except OSError as problem:
            if problem.errno in GONE:
                self.table.lose_folder(folder)
                return False

            return True

        if not stat.S_ISDIR(status.st_mode):
            self.table.lose_folder(folder)
            return False

        above = folder.parent.rules if folder.parent is not None else None
        return (
            folder.signature != signature_of(status)
            or folder.inherited is not above
            or (folder.ignore_file is not None and self._ignore_file_changed(folder))
        )

    def _ignore_file_changed(self, folder: Folder) -> bool:
        status = self._descent.status(joined(folder.path, IGNORE_FILE))
        return status is None or signature_of(status) != folder.ignore_file

    def _list(self, folder: Folder) -> list[Folder]:
        """Compares a folder's names with the known ones; gives the folders that are new."""
        self._descent.let_go()
        try:
            descriptor = self._descent.folder(folder.path)
            status = os.fstat(descriptor)
            with os.scandir(descriptor) as entries:
                found = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError as problem:
            if problem.errno in GONE:
                self.table.lose_folder(folder)
            else:
                self.unlistable.add(folder.path)

            return []

        self._read_rules(folder, descriptor, any(name == IGNORE_FILE for name, _ in found))
        before = (folder.is_empty, folder.is_wanted, folder.mode)
        folder.is_empty = not found
        folder.is_wanted = folder.is_watched and self._resolver.wants_folder(folder.path)
        folder.mode = stat.S_IMODE(status.st_mode)
        if before != (folder.is_empty, folder.is_wanted, folder.mode):
            self.table.outline += 1

        if status.st_ctime_ns < self._now_ns() - RACY_WINDOW_NS:
            folder.signature = signature_of(status)
        else:
            folder.signature = None

        self._forget_unseen(folder, dict(found))
        return [new for name, is_folder in found if (new := self._meet(folder, name, is_folder))]

    def _read_rules(self, folder: Folder, descriptor: int, has_rules: bool) -> None:
        above = folder.parent.rules if folder.parent is not None else None
        if not has_rules or not folder.is_watched:
            folder.rules, folder.ignore_file, folder.inherited = above, None, above
            return

        signature, content = _read_ignore_file(descriptor)
        if signature != folder.ignore_file or above is not folder.inherited or signature is None:
            folder.rules = IgnoreRules(above, folder.path, content) if content else above

        if signature is not None and signature.ctime_ns >= self._now_ns() - RACY_WINDOW_NS:
            signature = _UNSETTLED

        folder.ignore_file, folder.inherited = signature, above

    def _forget_unseen(self, folder: Folder, seen: dict[bytes, bool]) -> None:
        def still_a_file(name: bytes) -> bool:
            return name in seen and (not seen[name] or is_reserved(name))

        for file in [file for name, file in folder.files.items() if not still_a_file(name)]:
            self.table.lose(file)

        for child in [child for name, child in folder.folders.items() if not seen.get(name)]:
            self.table.lose_folder(child)

    def _meet(self, folder: Folder, name: bytes, is_folder: bool) -> Folder | None:
        """Looks at one name in a listed folder; gives the folder if it has to be visited."""
        if is_never_captured(folder.path, name):
            return None

        path = joined(folder.path, name)
        if not is_folder or is_reserved(name):
            if name not in folder.files and self._is_new_member(folder, path, is_folder=is_folder):
                self.table.track(path)

            return None

        known = folder.folders.get(name)
        watched = (
            folder.is_watched
            and self._resolver.could_hold(path)
            and not (folder.rules is not None and folder.rules.hide(path, is_folder=True))
        )
        if known is not None:
            if known.is_watched != watched:
                known.is_watched, known.signature = watched, None

            return None

        if not watched:
            return None

        child = self.table.child(folder, name)
        child.is_watched = True
        return child

    def _is_new_member(self, folder: Folder, path: bytes, *, is_folder: bool) -> bool:
        if not folder.is_watched or not self._resolver.wants(path):
            return False

        return folder.rules is None or not folder.rules.hide(path, is_folder=is_folder)

    def _adopt(self, path: bytes) -> None:
        status = self._descent.status(path)
        if status is None:
            return

        if stat.S_ISDIR(status.st_mode):
            self.table.add_folder(path)
            self.table.empty_members.add(path)
            self.table.outline += 1
        else:
            self.table.track(path)

    def _changed_files(self) -> list[TrackedFile]:
        """Compares every tracked file's stat data; the one loop that runs for each of them."""
        root, lstat, racy = self._descent.root, os.lstat, self._racy_files
        pending: list[TrackedFile] = []
        vanished: list[TrackedFile] = []
        for file in self.table.files.values():
            try:
                status = lstat(file.path, dir_fd=root)
            except OSError as problem:
                (vanished if problem.errno in GONE else pending).append(file)
                continue

            # The fields of a Signature, in place: naming them for each file doubles the cost.
            seen = (
                status.st_ctime_ns,
                status.st_mtime_ns,
                status.st_size,
                status.st_ino,
                status.st_mode,
            )
            if seen != file.signature or file.path in racy:
                pending.append(file)

        for file in vanished:
            racy.discard(file.path)
            self.table.lose(file)

        return pending


def _read_ignore_file(folder: int) -> tuple[Signature | None, bytes]:
    """Reads the `.gitignore` of an open folder; a link or a pipe of that name holds no rules."""
    try:
        descriptor = os.open(IGNORE_FILE, FILE_FLAGS, dir_fd=folder)
    except OSError:
        return None, b""

    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, b""

        return signature_of(status), os.read(descriptor, IGNORE_FILE_LIMIT)
    finally:
        os.close(descriptor)
