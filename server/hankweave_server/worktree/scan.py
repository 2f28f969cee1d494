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
and `_UNSETTLED`), so the next scan compares it again.

What stat data cannot show
--------------------------
Writes through a shared mapping update the times only when a clean page is first written. The
reader therefore asks, before it reads a file, whether any process has it open for writing; a
mapping counts until it ends. If none has, every later write moves the times, and the signature
proves the content (`TrackedFile.is_proof`). Otherwise, or if the kernel cannot say, the signature
is enough for the small checkpoints of an agent's work, which ask the agent's own processes for
their mappings. All other checkpoints read the files in `held` again, and what a rollback replaces
or removes counts as known only with a proof (`is_settled`). A file that changes while it is being
read is the reader's problem: it passes no signature to `remember`, so the file stays pending.

Links and a replaced work tree
------------------------------
`Descent.fresh` opens the work tree again for each scan, so a tree that was removed or replaced is
noticed. Folders are opened without following links; a folder that became a link counts as gone,
with everything below it. A folder that cannot be listed is in `unlistable`: its known files remain
tracked, and the checkpoint reports it.

Read `refresh` first, then `_visit_folders`, `_list` and `_visit_name` (new and vanished names), and
`_changed_files` (known names). `recheck` is the short form for a rollback, which needs to check
only the paths it will touch.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from hankweave_protocol.replies import WatchReason
from hankweave_server.worktree.attributes import Attributes, attributes_of
from hankweave_server.worktree.databases import COMPANIONS, INDEX, base_of, is_database_in
from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent
from hankweave_server.worktree.gitignore import IGNORE_FILE, IgnoreRules
from hankweave_server.worktree.inotify import WatchFailed
from hankweave_server.worktree.names import is_never_captured, is_out_of_bounds, is_reserved, joined
from hankweave_server.worktree.patterns import UnifiedFileResolver
from hankweave_server.worktree.stat_index import (
    Folder,
    Group,
    Signature,
    StatIndex,
    TrackedFile,
    Unproven,
    differing,
    signature_of,
)
from hankweave_server.worktree.watch import TreeWatch, WatchState

RACY_WINDOW_NS = 20_000_000
VERIFY_AGAIN_SECONDS = 0.1
"""Longer than a process stays between a change and its event, inside of one system call."""

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
        watches: bool = False,
    ) -> None:
        """With `watches`, scans after the first compare only what may have changed."""
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
        self._held: dict[int, bytes] = {}
        """Slots and paths of files that a process could write to when they were read."""
        self._watch: TreeWatch | None = None
        self._ruled: set[Folder] = set()
        """Folders with a `.gitignore`, which a watched scan compares in any case."""
        self.state = WatchState("start" if watches else "off")

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

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
        try:
            with self._descent.fresh():
                for path in sorted(also):
                    if (status := self._descent.status(path)) is not None:
                        self._adopt(path, status)

                pending = self._scan_watched()
                if pending is None:
                    pending = self._scan_fully()
        except BaseException:
            if self._watch is not None:
                # Events were read whose consequences are lost.
                self._stop_watching("start")

            raise

        self._racy_since = started
        return pending

    def prove(self, at_most: int) -> int:
        """Reduce what the next watched scan compares (see `watch`); return by how many files.

        This opens files and takes time, so it belongs after a reply.
        """
        if self._watch is None:
            return 0

        with self._descent.fresh():
            try:
                return self._watch.prove(self._descent, self._racy.keys(), at_most)
            except WatchFailed as failure:
                self._stop_watching(failure.reason)
                return 0

    def settle_racy(self, read: Callable[[TrackedFile], Signature | None], at_most: int) -> int:
        """Read files that were read or written a moment ago; return how many are settled by it.

        Until then the next scan reports them, because what is known of each may be older than its
        last change. `read` returns the stat data of a file if it still is as it was captured. This
        reads files and takes time, so it belongs after a reply.
        """
        settled = 0
        with self._descent.fresh():
            for slot, path in list(islice(self._racy.items(), at_most)):
                since, file = self._now_ns() - RACY_WINDOW_NS, self.table.files.get(path)
                del self._racy[slot]
                if file is None or file.slot != slot:
                    continue

                signature = read(file)
                if signature == file.signature and signature and signature.ctime_ns < since:
                    settled += 1
                else:
                    self._racy[slot] = path  # Behind the others, which come first the next time.

        return settled

    def verify(self) -> list[bytes]:
        """Compare everything with the disk; return the files and folders that no event named.

        The next scan compares them in any case. Stat data may differ although the content does not,
        for instance when a file gets a second link from outside of the tree. The caller finds out,
        and calls `require_full_scans` if content was missed. Without a watch there is nothing to
        verify.
        """
        unproven = self.table.unproven
        if self._watch is None or unproven is None:
            return []

        with self._descent.fresh() as descent:
            files = [file for file, _ in self._differing_files()]
            # A folder without a signature was listed in the tick in which it changed.
            folders = [folder for folder in self._differing_folders() if folder.signature]
            try:
                # What happened during the comparison has an event by now, or very soon.
                for wait in (0.0, VERIFY_AGAIN_SECONDS):
                    time.sleep(wait)
                    self._watch.read(descent.root)
                    missed = [file for file in files if not unproven.has(file)]
                    unlisted = [folder for folder in folders if folder not in unproven.folders]
                    if not missed and not unlisted:
                        return []
            except WatchFailed as failure:
                self._stop_watching(failure.reason)
                return []

        for file in missed:
            unproven.add(file.folder, file.name, file.slot)

        for folder in unlisted:
            unproven.add_below(folder)

        return [file.path for file in missed] + [folder.path for folder in unlisted]

    def require_full_scans(self) -> None:
        """Make all further scans full, because the watch has missed a change."""
        if self._watch is not None:
            self._stop_watching("distrusted")

    def recheck(self, paths: Iterable[bytes]) -> list[TrackedFile]:
        """Return those of a few paths that must be read, and adopt new ones; check no others."""
        started = self._now_ns() - RACY_WINDOW_NS
        with self._descent.fresh():
            # In order, so that each folder is opened once.
            found = [self._rechecked(path) for path in sorted(paths)]

        self._racy_since = min(self._racy_since, started)
        return [file for file in found if file is not None]

    def remember(
        self,
        file: TrackedFile,
        signature: Signature | None,
        digest: bytes | None = None,
        git_mode: int = 0,
        permissions: int = 0,
        *,
        has_writer: bool | None = False,
        attributes: Attributes | None = None,
    ) -> None:
        """Record the result of reading a file that the last scan reported."""
        if signature is not None and signature.ctime_ns >= self._racy_since:
            self._racy[file.slot] = file.path
        else:
            self._racy.pop(file.slot, None)

        if has_writer:
            self._held[file.slot] = file.path
        else:
            self._held.pop(file.slot, None)

        self.table.record_capture(
            file, signature, digest, git_mode, permissions, is_proof=has_writer is False
        )
        self.table.record_attributes(file.slot, file.path, attributes)

    def held(self) -> list[TrackedFile]:
        """Return the files that a process could write to when they were last read."""
        found = [(slot, self.table.files.get(path)) for slot, path in self._held.items()]
        held = {slot: file for slot, file in found if file is not None and file.slot == slot}
        self._held = {slot: self._held[slot] for slot in held}
        return list(held.values())

    def settle(self) -> None:
        """Trust the stat data of files that were just read or written.

        Only for a work tree that no other process can reach yet, and `RACY_WINDOW_NS` after the
        last write: a change by another process within the tick of a file's last change would go
        unnoticed.
        """
        with self._descent.fresh():
            for path in list(self._racy.values()):
                file, status = self.table.files.get(path), self._descent.status(path)
                if file is None or status is None:
                    continue

                if file.signature == signature_of(status):
                    self._racy.pop(file.slot, None)

    def is_settled(self, file: TrackedFile, status: os.stat_result) -> bool:
        """Return whether stat data proves that the file is still as it was read."""
        if file.slot in self._racy or not file.is_proof:
            return False

        return file.signature == signature_of(status)

    def settled_files(self) -> Iterator[TrackedFile]:
        """Return files whose stat data a later process can trust."""
        doubtful = self._racy.keys() | self._held.keys()
        return (file for file in self.table.files.values() if file.slot not in doubtful)

    def _rechecked(self, path: bytes) -> TrackedFile | None:
        """Compare a path; return its file if that must be read."""
        status, file = self._descent.status(path), self.table.files.get(path)
        if status is None:
            if file is not None:
                self.table.lose(file)

            return None

        if file is None or stat.S_ISDIR(status.st_mode):
            self._adopt(path, status)
            file = self.table.files.get(path)

        return None if file is None or self.is_settled(file, status) else file

    def _scan_fully(self) -> list[TrackedFile]:
        """Compare every folder and file; begin to watch if that is wanted and possible."""
        if self._watch is not None or self.state.may_begin:
            self._begin_watch()

        self.state.full_scans += 1
        self._visit_folders(self._differing_folders())
        self._settle_folders()
        if self.table.unproven is not None:
            self.table.unproven.new.clear()  # Everything is compared, and nothing is proven yet.

        return self._changed_files(self._differing_files())

    def _scan_watched(self) -> list[TrackedFile] | None:
        """Compare what may have changed by the watch; None if everything must be compared."""
        unproven = self.table.unproven
        if self._watch is None or unproven is None:
            return None

        try:
            self._watch.read(self._descent.root)
        except WatchFailed as failure:
            self._stop_watching(failure.reason)
            return None

        self._visit_folders(unproven.folders)
        self._settle_folders()
        if self._watch is None:
            return None

        self._list_linked_files(unproven)
        self.state.watched_scans += 1
        groups = list(unproven.files.items())
        self.state.compared = sum(len(names) for _, names in groups)
        return self._changed_files(self._compared(groups))

    def _list_linked_files(self, unproven: Unproven) -> None:
        """Compare the files that have got a second name: writes to it send no event for the first.

        Such a file stays unproven as long as it has several names.
        """
        inodes: set[int] = set()
        for folder, name in unproven.new:
            try:
                status = os.lstat(joined(folder.path, name), dir_fd=self._descent.root)
            except OSError:
                continue

            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                inodes.add(status.st_ino)

        unproven.new.clear()
        if inodes:
            for file in self.table.with_inodes(inodes):
                unproven.add(file.folder, file.name, file.slot)

    def _begin_watch(self) -> None:
        """Watch all known folders, before anything is compared."""
        self.close()
        try:
            watch = self._watch = TreeWatch(self._descent.root, self.table)
            self.state.reason = None
            for folder in self.table.folders.values():
                # A folder that cannot be opened stays unproven, and is listed by the next scan.
                with suppress(OSError):
                    watch.add(folder, self._descent.folder(folder.path))
        except WatchFailed as failure:
            self._stop_watching(failure.reason)

    def _stop_watching(self, reason: WatchReason) -> None:
        self.close()
        self.state.stop(reason)

    def _settle_folders(self) -> None:
        """Stop watching lost folders; come back to those that could not be read or watched."""
        watch, unproven = self._watch, self.table.unproven
        if watch is None or unproven is None:
            return

        for folder in unproven.lost:
            watch.forget(folder)

        unproven.lost.clear()
        for path in self.unlistable:
            folder_there = self.table.folders.get(path)
            if folder_there is not None:
                unproven.add_folder(folder_there)

    def _visit_folders(self, changed: Iterable[Folder]) -> None:
        self.unlistable.clear()
        waiting = self._folders_to_list(changed)
        while waiting:
            folder = waiting.popleft()
            if self.table.folders.get(folder.path) is folder:
                waiting += self._list(folder)

    def _differing_folders(self) -> list[Folder]:
        known = {path or b".": folder.slot for path, folder in self.table.folders.items()}
        differences = differing(self._descent.root, [(b"", known)], self.table.slots.block)
        return [self.table.folders[b"" if path == b"." else path] for _, path, _ in differences]

    def _folders_to_list(self, changed: Iterable[Folder]) -> deque[Folder]:
        """Return folders that changed, and those whose rules did; parents before children."""
        folders = set(changed)
        self._ruled = {f for f in self._ruled if self.table.folders.get(f.path) is f}
        folders |= {f for f in self._ruled - folders if self._ignore_file_changed(f)}
        # By depth: a folder's rules must be read before those that inherit them.
        return deque(sorted(folders, key=_depth))

    def _ignore_file_changed(self, folder: Folder) -> bool:
        status = self._descent.status(joined(folder.path, IGNORE_FILE))
        return status is None or signature_of(status) != folder.ignore_file

    def _list(self, folder: Folder) -> list[Folder]:
        """Compare a folder's names with the known ones; return the folders to list next."""
        self._descent.close_cached()
        # Read before the folder's times: listing a large folder takes longer than the window.
        racy_since = self._now_ns() - RACY_WINDOW_NS
        try:
            descriptor = self._descent.folder(folder.path)
            self._watch_folder(folder, descriptor)
            status = os.fstat(descriptor)
            attributes = attributes_of(descriptor, status)
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
        if folder.parent is not None:
            self.table.record_attributes(folder.slot, folder.path, attributes)
        if before != (folder.is_empty, folder.is_wanted, folder.mode):
            self.table.outline += 1

        if status.st_ctime_ns < racy_since:
            folder.signature = signature_of(status)
        else:
            folder.signature = None

        names = dict(found)
        self._forget_unseen(folder, names)
        database_files = {
            name
            for name in names
            if name.endswith(COMPANIONS) and not names[name] and names.get(base_of(name)) is False
        }
        children = [
            child
            for name, is_folder in found
            if name not in database_files and (child := self._visit_name(folder, name, is_folder))
        ]
        for name in database_files:
            self._visit_database_file(folder, descriptor, name)

        heirs = [c for c in folder.folders.values() if c.inherited is not folder.rules]
        return list(dict.fromkeys([*children, *heirs]))

    def _watch_folder(self, folder: Folder, descriptor: int) -> None:
        """Watch a folder before it is listed, so that no change lies between."""
        if self._watch is None or self.table.unproven is None:
            return

        try:
            self._watch.add(folder, descriptor)
        except WatchFailed as failure:
            self._stop_watching(failure.reason)

    def _read_rules(self, folder: Folder, descriptor: int, has_rules: bool) -> None:
        above = folder.parent.rules if folder.parent is not None else self._above
        if not has_rules or not folder.is_watched:
            folder.rules, folder.ignore_file, folder.inherited = above, None, above
            self._ruled.discard(folder)
            return

        racy_since = self._now_ns() - RACY_WINDOW_NS
        signature, content = _read_ignore_file(descriptor)
        if signature != folder.ignore_file or above is not folder.inherited or signature is None:
            folder.rules = IgnoreRules(above, folder.path, content) if content else above

        if signature is not None and signature.ctime_ns >= racy_since:
            signature = _UNSETTLED

        folder.ignore_file, folder.inherited = signature, above
        if signature is None:
            self._ruled.discard(folder)
        else:
            self._ruled.add(folder)

    def _forget_unseen(self, folder: Folder, seen: dict[bytes, bool]) -> None:
        def still_a_file(name: bytes) -> bool:
            return name in seen and (not seen[name] or is_reserved(name))

        for file in self.table.files_in(folder):
            if not still_a_file(file.name):
                self.table.lose(file)

        for child in [child for name, child in folder.folders.items() if not seen.get(name)]:
            self.table.lose_folder(child)

    def _visit_name(self, folder: Folder, name: bytes, is_folder: bool) -> Folder | None:
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
            and self._resolver.could_match_below(path)
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

    def _visit_database_file(self, folder: Folder, descriptor: int, name: bytes) -> None:
        """Process a name that may belong to a database beside it, whose turn has been before.

        With a tracked database, its companions are tracked, even if they are hidden.
        """
        base = base_of(name)
        if base not in folder.files or not is_database_in(descriptor, base):
            self._visit_name(folder, name, is_folder=False)
        elif not name.endswith(INDEX):
            self.table.track_in(folder, name)

    def _is_new_member(self, folder: Folder, path: bytes, *, is_folder: bool) -> bool:
        if not folder.is_watched or not self._resolver.wants(path):
            return False

        return folder.rules is None or not folder.rules.hide(path, is_folder=is_folder)

    def _adopt(self, path: bytes, status: os.stat_result) -> None:
        """Track what was found at a path, unless it is out of bounds."""
        if is_out_of_bounds(path, self._descent.at_the_top):
            return

        if stat.S_ISDIR(status.st_mode):
            self.table.add_folder(path)
            self.table.empty_members.add(path)
            self.table.outline += 1
        else:
            self.table.track(path)

    def _differing_files(self) -> list[tuple[TrackedFile, int]]:
        """Compare the stat data of every tracked file."""
        folders = (folder for folder in self.table.folders.values() if folder.files)
        return self._compared([(folder, folder.files) for folder in folders])

    def _compared(
        self, groups: Sequence[tuple[Folder, Mapping[bytes, int]]]
    ) -> list[tuple[TrackedFile, int]]:
        """Return the files whose stat data differs, each with `DIFFERS` or an error number."""
        block = self.table.slots.block
        named: list[Group] = [(folder.path, names) for folder, names in groups]
        return [
            (self.table.track_in(groups[number][0], name), error)
            for number, name, error in differing(self._descent.root, named, block)
        ]

    def _changed_files(self, found: Iterable[tuple[TrackedFile, int]]) -> list[TrackedFile]:
        """Drop vanished files; return those that changed or may have."""
        pending: list[TrackedFile] = []
        for file, error in found:
            if error in GONE:
                self.table.lose(file)
            else:
                pending.append(file)

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


def _depth(folder: Folder) -> tuple[int, bytes]:
    return folder.path.count(b"/") + bool(folder.path), folder.path


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
