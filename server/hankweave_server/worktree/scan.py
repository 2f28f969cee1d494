"""Find what changed in the work tree since it was last read, from stat data alone.

The problem
-----------
A checkpoint must hold every tracked file as it is now. Reading a hundred thousand files each time
takes seconds; nearly all of them are unchanged. Like git's index, this module remembers the stat
data of each file from when it was read, and reports only files for which that data differs. Two
rules must hold:

1. Every tracked file whose content differs from the recorded digest is reported. A missed change
   makes the checkpoint wrong.
2. An unchanged tree costs one `lstat` for each known file and folder, and nothing else.

What is compared
----------------
A `Signature` holds ctime, mtime, size, inode and mode. Programs can set mtime back, but not ctime:
every write, `chmod`, rename over the file or `touch` gives a new one. All comparisons run in
`stat_index.differing`, in C where possible, over the block of memory that the index keeps.

Folders have signatures as well. Adding, removing or renaming a name changes its folder's ctime, so
a folder is listed only if its signature, its `.gitignore`, the rules it inherits, or the patterns
changed. `_folders_to_list` returns parents before children, because ignore rules are inherited.

The racy window
---------------
Kernels stamp files from a clock that ticks every 1 to 10 ms. A file that is read and then written
again within the same tick keeps its ctime, and if the size stays the same, its whole signature. A
signature therefore proves nothing if its ctime is not clearly older than the moment of reading:

    |-- tick 7 ------------------|-- tick 8 --
      write A   read A   write B               next scan: ctime is still tick 7

`refresh` notes the time at which it starts, minus `RACY_WINDOW_NS`: 20 ms, twice the longest tick.
When a file has been read, `remember` compares its ctime with that time, and keeps the slots of
younger files in `_racy`. Such a file is reported by the next scan even if its signature matches
(`_racy_files`), is not settled for `is_settled`, and is left out of the cache for the next process
(`settled_files`). If it has not changed by then, it is read once more and leaves the set. Folders
and `.gitignore` files follow the same rule: within the window their signature is not kept (None
and `_UNSETTLED`), so the next scan looks again.

What stat data cannot show
--------------------------
Writes through a shared mapping update the times only when a clean page is first written. The
caller finds mapped files through `open_files` and reads them in any case. A file that changes
while it is being read is the reader's problem: it passes no signature to `remember`, so the file
stays pending.

Links and a replaced work tree
------------------------------
`Descent.fresh` opens the work tree again for each scan, so a tree that was removed or replaced is
noticed. Folders are opened without following links; a folder that became a link counts as gone,
with everything below it. A folder that cannot be listed is in `unlistable`: its known files remain
tracked, and the checkpoint reports it.

Read `refresh` first, then `_visit_folders`, `_list` and `_meet` (new and vanished names), and
`_changed_files` (known names). `look_again` is the short form for a rollback, which needs to check
only the paths it will touch.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent
from hankweave_server.worktree.gitignore import IgnoreRules
from hankweave_server.worktree.names import is_never_captured, is_out_of_bounds, is_reserved, joined
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.stat_index import (
    Folder,
    Group,
    Signature,
    StatIndex,
    TrackedFile,
    differing,
    signature_of,
)

RACY_WINDOW_NS = 20_000_000
IGNORE_FILE = b".gitignore"
_UNSETTLED = Signature(0, 0, 0, 0, 0)
IGNORE_FILE_LIMIT = 1 << 20  # A larger file is no list of rules; git reads none above 100 MiB.


class WorkTreeScan:
    """A scanner that keeps a stat index in step with the disk."""

    def __init__(
        self,
        descent: Descent,
        table: StatIndex,
        *,
        above: IgnoreRules | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.table = table
        self._above = above
        """Rules of the repository that contains the work tree."""
        self.unlistable: set[bytes] = set()
        """Folders that could not be read; what lies below them is unknown."""
        self._descent = descent
        self._now_ns = now_ns
        self._resolver = UnifiedFileResolver(())
        self._racy: dict[int, bytes] = {}
        """Slots and paths of files that were read in the same clock tick as they were written."""
        self._racy_since = 0

    def refresh(
        self, resolver: UnifiedFileResolver, also: Iterable[bytes] = ()
    ) -> list[TrackedFile]:
        """Adopt new names, drop vanished ones, and return the files that must be read.

        `also` are paths to track regardless of patterns and ignore rules. Raises OSError when the
        work tree itself cannot be read.
        """
        started = self._now_ns() - RACY_WINDOW_NS
        if resolver.patterns != self._resolver.patterns:
            self.table.list_again(self.table.folders.values())

        self._resolver = resolver
        self.unlistable.clear()
        with self._descent.fresh():
            self._adopt_all(also)
            self._visit_folders()
            pending = self._changed_files()

        self._racy_since = started
        return pending

    def look_again(self, paths: Iterable[bytes]) -> list[TrackedFile]:
        """Return those of a few paths that must be read, and adopt new ones; check no others."""
        started = self._now_ns() - RACY_WINDOW_NS
        with self._descent.fresh():
            self._adopt_all(paths)
            known = [file for path in paths if (file := self.table.files.get(path)) is not None]
            pending = [file for file in known if self._is_news(file)]

        self._racy_since = min(self._racy_since, started)
        return pending

    def remember(
        self,
        file: TrackedFile,
        signature: Signature | None,
        digest: bytes | None = None,
        git_mode: int = 0,
        permissions: int = 0,
    ) -> None:
        """Record the result of reading a file that the last scan reported."""
        if signature is not None and signature.ctime_ns >= self._racy_since:
            self._racy[file.slot] = file.path
        else:
            self._racy.pop(file.slot, None)

        self.table.hold(file, signature, digest, git_mode, permissions)

    def is_settled(self, file: TrackedFile, status: os.stat_result) -> bool:
        """Return whether the file is still as it was read, as far as stat data can show."""
        return file.slot not in self._racy and file.signature == signature_of(status)

    def settled_files(self) -> Iterator[TrackedFile]:
        """Return files whose stat data a later process can trust."""
        return (file for file in self.table.files.values() if file.slot not in self._racy)

    def _adopt_all(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            if not is_out_of_bounds(path, self._descent.at_the_top):
                self._adopt(path)

    def _is_news(self, file: TrackedFile) -> bool:
        status = self._descent.status(file.path)
        if status is None:
            self.table.lose(file)
            return False

        return not self.is_settled(file, status)

    def _visit_folders(self) -> None:
        waiting = self._folders_to_list()
        while waiting:
            folder = waiting.popleft()
            if self.table.folders.get(folder.path) is folder:
                waiting += self._list(folder)

    def _folders_to_list(self) -> deque[Folder]:
        """Find folders that changed, or whose rules did; parents before children."""
        known = {path or b".": folder.slot for path, folder in self.table.folders.items()}
        differences = differing(self._descent.root, [(b"", known)], self.table.slots.block)
        changed = {b"" if path == b"." else path for _, path, _ in differences}
        changed |= {
            folder.path
            for folder in self.table.folders.values()
            if folder.ignore_file is not None
            and folder.path not in changed
            and self._ignore_file_changed(folder)
        }
        # By depth: a folder's rules must be read before those that inherit them.
        in_order = sorted(changed, key=lambda path: (path.count(b"/") + bool(path), path))
        return deque(self.table.folders[path] for path in in_order)

    def _ignore_file_changed(self, folder: Folder) -> bool:
        status = self._descent.status(joined(folder.path, IGNORE_FILE))
        return status is None or signature_of(status) != folder.ignore_file

    def _list(self, folder: Folder) -> list[Folder]:
        """Compare a folder's names with the known ones; return the folders to list next."""
        self._descent.let_go()
        # Read before the folder's times: listing a large folder takes longer than the window.
        racy_since = self._now_ns() - RACY_WINDOW_NS
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

        has_rules = any(name == IGNORE_FILE for name, _ in found)
        self._read_rules(folder, descriptor, has_rules)
        before = (folder.is_empty, folder.is_wanted, folder.mode)
        folder.is_empty = not found
        folder.is_wanted = folder.is_watched and self._resolver.wants_folder(folder.path)
        folder.mode = stat.S_IMODE(status.st_mode)
        if before != (folder.is_empty, folder.is_wanted, folder.mode):
            self.table.outline += 1

        if status.st_ctime_ns < racy_since:
            folder.signature = signature_of(status)
        else:
            folder.signature = None

        self._forget_unseen(folder, dict(found))
        met = [child for name, is_folder in found if (child := self._meet(folder, name, is_folder))]
        heirs = [c for c in folder.folders.values() if c.inherited is not folder.rules]
        return list(dict.fromkeys([*met, *heirs]))

    def _read_rules(self, folder: Folder, descriptor: int, has_rules: bool) -> None:
        above = folder.parent.rules if folder.parent is not None else self._above
        if not has_rules or not folder.is_watched:
            folder.rules, folder.ignore_file, folder.inherited = above, None, above
            return

        racy_since = self._now_ns() - RACY_WINDOW_NS
        signature, content = _read_ignore_file(descriptor)
        if signature != folder.ignore_file or above is not folder.inherited or signature is None:
            folder.rules = IgnoreRules(above, folder.path, content) if content else above

        if signature is not None and signature.ctime_ns >= racy_since:
            signature = _UNSETTLED

        folder.ignore_file, folder.inherited = signature, above

    def _forget_unseen(self, folder: Folder, seen: dict[bytes, bool]) -> None:
        def still_a_file(name: bytes) -> bool:
            return name in seen and (not seen[name] or is_reserved(name))

        for file in self.table.files_in(folder):
            if not still_a_file(file.name):
                self.table.lose(file)

        for child in [child for name, child in folder.folders.items() if not seen.get(name)]:
            self.table.lose_folder(child)

    def _meet(self, folder: Folder, name: bytes, is_folder: bool) -> Folder | None:
        """Process one name of a listed folder; return the folder if it must be visited."""
        if is_never_captured(folder.path, name, self._descent.at_the_top):
            return None

        path = joined(folder.path, name)
        if not is_folder or is_reserved(name):
            if name not in folder.files and self._is_new_member(folder, path, is_folder=is_folder):
                self.table.track_in(folder, name)

            return None

        known = folder.folders.get(name)
        watched = (
            folder.is_watched
            and self._resolver.could_hold(path)
            and not (folder.rules is not None and folder.rules.hide(path, is_folder=True))
        )
        if known is not None:
            if known.is_watched == watched:
                return None

            known.is_watched, known.signature = watched, None
            return known

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
        """Compare every tracked file's stat data; return those that changed or may have."""
        table = self.table
        folders = [folder for folder in table.folders.values() if folder.files]
        groups: list[Group] = [(folder.path, folder.files) for folder in folders]
        pending: list[TrackedFile] = []
        vanished: list[TrackedFile] = []
        for number, name, error in differing(self._descent.root, groups, table.slots.block):
            file = table.track_in(folders[number], name)
            (vanished if error in GONE else pending).append(file)

        for file in vanished:
            table.lose(file)

        return pending + self._racy_files(pending) if self._racy else pending

    def _racy_files(self, known: Iterable[TrackedFile]) -> list[TrackedFile]:
        """Return the files with inconclusive stat data, except those known to have changed."""
        but = {file.slot for file in known}
        found: list[TrackedFile] = []
        for slot, path in list(self._racy.items()):
            file = self.table.files.get(path)
            if file is None or file.slot != slot:
                del self._racy[slot]
            elif slot not in but:
                found.append(file)

        return found


def _read_ignore_file(folder: int) -> tuple[Signature | None, bytes]:
    """Read the `.gitignore` of an open folder; a link or pipe of that name has no rules."""
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
