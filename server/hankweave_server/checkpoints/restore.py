"""Take the work tree from a safety checkpoint to a target checkpoint, safely at every step.

The problem
-----------
A rollback rewrites files in a folder that other programs can write at any moment. The server can
be killed or lose power in the middle; the disk can fill up; an agent can have replaced a folder by
a link to `/home`; a person can save a file between the decision to overwrite it and the write. In
each case two things must hold:

1. Content that no checkpoint holds is never overwritten or deleted.
2. After a crash, the same restore can be run again, and then completes.

The safety checkpoint
---------------------
The caller first takes a safety checkpoint, which captures every path that the plan will touch
(`CheckpointRequest.before`). This module then looks only at the difference between two commits:
the safety checkpoint and the target. `_differences` finds the paths whose content differs, and
`_mode_differences` those whose permissions do. Each path is observed again right before its
change. It is changed only if it is as the safety checkpoint has it, hence can be brought back, or
is already as the target has it. Otherwise it is left alone and listed in `unfinished`, and the
engine raises RestoreIncomplete: a new safety checkpoint and a second restore finish the work.
Paths that could not be captured (pipes, unreadable files), that the target's manifest or ignore
rules protect, or that the caller wants to keep are left alone and reported as skipped or kept.

Repeating instead of logging
----------------------------
There is no undo log. Every step checks its own result first: a removed file is gone, a written
file compares equal to the target, an existing folder is not made. So a restore that was
interrupted anywhere is simply run again from the start, with the same or a newer safety
checkpoint. Nothing is flushed here; the engine calls `sync_filesystem` once at the end. The caller
records its intention durably before the restore and clears it afterwards, so a start knows that it
must repeat one.

The order within one run keeps each step possible:

1. Remove temporary files of a crashed restore (`Placing.sweep`).
2. Remove files and links, deepest first, and the folders this empties.
3. Write files and links, creating folders on the way.
4. Create empty folders, then set the permissions of folders, because a read-only folder takes no
   files. Folders that had to be made writable are in `Placing.opened_up`.

Writing one file
----------------
`worktree.tree_writer` never changes the content of a file in place. New content goes into a
temporary file, outside the work tree where possible, which gets its final permissions and then
takes its place in one system call: a rename, or RENAME_EXCHANGE if a file was observed there. A
reader or a crash sees the old or the new file, never half of one. After an exchange the displaced
file's time and size are compared with the observation; if a different file had appeared in
between, the exchange is undone and the path counts as changed. Removals, links, and files for
paths where nothing was observed have no such check: there, a few system calls lie between the
observation and the change.

Links
-----
`worktree.dirfd.Descent` opens each component of a path relative to the one above it with
O_NOFOLLOW, and the last step is a `*at` call on that folder. A link in the middle of a path is an
error, not a detour: the path counts as missing, and where a folder must be, `Obstructed` reports
it.

Errors
------
A fault of one path is noted and the others are still done (`_attempt`). A fault of the disk itself
(`_FAULTS_OF_THE_DISK`) ends the run; the changes made by then stay, and a repetition continues.

Read `Restorer.run` first, then `_remove` and `_bring`, which decide about one path each, then
`_attempt`. `TargetSnapshot` combines the tree and the manifest of a checkpoint.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import ParamSpec

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.file_reader import (
    CapturedFile,
    FileRefused,
    Observation,
    Vanished,
)
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.model import WITHOUT_CONTENT, PathEntry, RestoreReport, Skipped
from hankweave_server.checkpoints.worktree_index import FileObserver
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import FOLDER, LINK, Entry, Lookup, differences, files_below, parsed
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.gitignore import IgnoreRules
from hankweave_server.worktree.names import is_within, joined, parents_of
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import signature_of
from hankweave_server.worktree.tree_writer import DisplacedFile, NewFile, Obstructed, Placing

TREES_AT_HAND = 1000  # A few megabytes; the path through a tree of any size needs far fewer.


@dataclass(frozen=True)
class TargetSnapshot:
    """The tree and the manifest of one checkpoint."""

    repo: ShadowRepo
    sha: Sha
    tree: bytes
    manifest: Manifest
    _rules: dict[bytes, IgnoreRules | None] = field(default_factory=dict, compare=False)
    _trees: dict[bytes, dict[bytes, Entry]] = field(default_factory=dict, compare=False)
    """Trees read so far, by digest: neighbouring paths are looked up in turn."""

    def files(self) -> Iterator[tuple[bytes, Entry]]:
        return files_below(self.repo.read_tree, self.tree)

    def entry(self, path: bytes) -> Entry | None:
        """Return a file or link; None if there is none of that name."""
        *above, name = path.split(b"/")
        tree: bytes = self.tree
        for folder in above:
            found = self._entries(tree).get(folder)
            if found is None or found.mode != FOLDER:
                return None

            tree = found.digest

        entry = self._entries(tree).get(name)
        return None if entry is None or entry.mode == FOLDER else entry

    def _entries(self, tree: bytes) -> dict[bytes, Entry]:
        known = self._trees.get(tree)
        if known is None:
            if len(self._trees) >= TREES_AT_HAND:
                self._trees.clear()

            known = self._trees[tree] = dict(parsed(self.repo.read_tree(tree)))

        return known

    def permissions(self, path: bytes, git_mode: int) -> int:
        return self.manifest.permissions(path, git_mode)

    def described(self, path: bytes, entry: Entry) -> PathEntry:
        """Describe a file of the checkpoint as stat would."""
        kind = stat.S_IFLNK if entry.mode == LINK else stat.S_IFREG
        mode = kind | self.permissions(path, entry.mode)
        return PathEntry(path, self.repo.size(entry.digest), mode)

    def protects(self, path: bytes) -> str | None:
        """Return why a restore of this checkpoint must not remove a path that it lacks.

        The checkpoint lacks what could not be captured, and what its own `.gitignore` files hid:
        such a file may well have existed, so its absence from the tree proves nothing.
        """
        return self.manifest.protects(path) or ("ignored" if self._hides(path) else None)

    def _hides(self, path: bytes) -> bool:
        above = list(reversed(parents_of(path)))
        if any(self._is_file(folder) for folder in above):
            return False  # It is in the way of something that the checkpoint holds.

        for outer, folder in pairwise([b"", *above]):
            rules = self._rules_in(outer)
            if rules is not None and rules.hide(folder, is_folder=True):
                return True

        rules = self._rules_in(above[-1] if above else b"")
        return rules is not None and rules.hide(path, is_folder=False)

    def _is_file(self, path: bytes) -> bool:
        entry = self.entry(path)
        return entry is not None and entry.mode != FOLDER

    def _rules_in(self, folder: bytes) -> IgnoreRules | None:
        """Return the rules that apply in a folder of the checkpoint, outer ones included."""
        if folder not in self._rules:
            outer = self._rules_in(folder.rpartition(b"/")[0]) if folder else None
            entry = self.entry(joined(folder, b".gitignore"))
            if entry is None or entry.mode in (LINK, FOLDER):
                self._rules[folder] = outer
            else:
                content = self.repo.read_blob(entry.digest)
                self._rules[folder] = IgnoreRules(outer, folder, content)

        return self._rules[folder]

    def has_folder(self, path: bytes) -> bool:
        """Return whether the checkpoint has that folder, even if it is empty."""
        if any(is_within(empty, frozenset({path})) for empty in self.manifest.empty_folders):
            return True

        return Lookup(self.repo.read_tree).folder(self.tree, path) is not None

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """Every folder of the checkpoint, including empty ones and their parents."""
        found = set(self.manifest.empty_folders)
        for path in self.manifest.empty_folders:
            while path := path.rpartition(b"/")[0]:
                found.add(path)

        waiting = [(b"", self.tree)]
        while waiting:
            folder, tree = waiting.pop()
            for name, entry in parsed(self.repo.read_tree(tree)):
                if entry.mode == FOLDER:
                    path = joined(folder, name)
                    found.add(path)
                    waiting.append((path, entry.digest))

        return frozenset(found)


_FAULTS_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}
)

_Changes = dict[bytes, tuple[Entry | None, Entry | None]]

P = ParamSpec("P")


@dataclass
class _Tally:
    added: list[PathEntry] = field(default_factory=list)
    updated: list[PathEntry] = field(default_factory=list)
    removed: list[PathEntry] = field(default_factory=list)
    kept: list[PathEntry] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unfinished: list[Skipped] = field(default_factory=list)

    def report(self) -> RestoreReport:
        def in_order(entries: list[PathEntry]) -> tuple[PathEntry, ...]:
            return tuple(sorted(entries, key=lambda entry: entry.path))

        return RestoreReport(
            added=in_order(self.added),
            updated=in_order(self.updated),
            removed=in_order(self.removed),
            kept=in_order(self.kept),
            skipped=tuple(sorted(self.skipped, key=lambda item: item.path)),
        )


class Restorer:
    """One restore."""

    def __init__(
        self,
        *,
        safety: TargetSnapshot,
        target: TargetSnapshot,
        scan: WorkTreeScan,
        observer: FileObserver,
        descent: Descent,
        selection: frozenset[bytes] | None,
        keep: frozenset[bytes],
        spares: int,
        meter: Meter = UNWATCHED,
    ) -> None:
        """Prepare a restore.

        `spares` is the descriptor of a folder for temporary files, on the work tree's disk.
        """
        self._safety = safety
        self._target = target
        self._scan = scan
        self._observer = observer
        self._descent = descent
        self._selection = selection
        self._keep = keep
        self._contents = Contents(target.repo)
        self._placing = Placing(descent, spares)
        self._meter = meter
        self._tally = _Tally()

    @property
    def unfinished(self) -> tuple[Skipped, ...]:
        return tuple(self._tally.unfinished)

    def run(self) -> RestoreReport:
        """Perform the restore; paths that failed are in `unfinished`. Nothing is flushed."""
        changes = {**self._differences(), **self._mode_differences()}
        self._meter.begin("writing", "files", len(changes))
        self._placing.sweep()
        try:
            # Deepest first, so that a folder is empty when its own turn comes.
            for path, (old, new) in sorted(changes.items(), reverse=True):
                if new is None and old is not None:
                    self._attempt(path, self._remove, path, old)
                    self._meter.advance()

            self._remove_empty_folders()
            for path, (old, new) in sorted(changes.items()):
                if new is not None:
                    self._attempt(path, self._bring, path, old, new)
                    self._meter.advance()

        finally:
            self._placing.clear()

        self._make_empty_folders()
        self._settle_folder_modes()
        self._descent.let_go()
        return self._tally.report()

    def _is_concerned(self, path: bytes) -> bool:
        return is_within(path, self._selection)

    def _differences(self) -> _Changes:
        read = self._target.repo.read_tree
        found = differences(read, self._safety.tree, self._target.tree)
        return {path: pair for path, pair in found.items() if self._must_happen(path, found)}

    def _must_happen(self, path: bytes, found: Iterable[bytes]) -> bool:
        """Return whether a path is selected, or is in the place of a parent folder of one."""
        if self._is_concerned(path):
            return True

        selected = self._selection or frozenset()
        return any(path in parents_of(wanted) for wanted in selected)

    def _mode_differences(self) -> _Changes:
        """Return files of equal content whose permissions differ between the two manifests."""
        old, new = self._safety.manifest, self._target.manifest
        if (old.usual, old.modes) == (new.usual, new.modes):
            return {}

        if old.usual == new.usual:
            candidates: Iterable[bytes] = old.modes.keys() | new.modes.keys()
        else:
            candidates = [path for path, _ in self._target.files()]

        found: _Changes = {}
        for path in filter(self._is_concerned, candidates):
            before, after = self._safety.entry(path), self._target.entry(path)
            if before is None or before != after or after.mode == LINK:
                continue

            if old.permissions(path, before.mode) != new.permissions(path, before.mode):
                found[path] = (before, before)

        return found

    def _attempt(
        self, path: bytes, act: Callable[P, None], *args: P.args, **details: P.kwargs
    ) -> None:
        """Process one path; record its failure and let the others continue."""
        try:
            try:
                act(*args, **details)
            except Obstructed as obstacle:
                if self._clears(path, obstacle.path):
                    act(*args, **details)
        except Obstructed:
            self._tally.unfinished.append(Skipped(path, "in-the-way"))
        except DisplacedFile:
            self._tally.unfinished.append(Skipped(path, "changed"))
        except KeyError:
            self._tally.unfinished.append(Skipped(path, "damaged"))
        except OSError as problem:
            if problem.errno in _FAULTS_OF_THE_DISK:
                raise

            self._tally.unfinished.append(Skipped(path, "os-error"))

    def _clears(self, path: bytes, obstacle: bytes) -> bool:
        """Remove an obstacle in the place of a folder if it holds no content; return success."""
        match self._observer.at(obstacle):
            case FileRefused(reason=reason) if reason in WITHOUT_CONTENT:
                self._placing.remove(obstacle)
                return True
            case FileRefused(reason=reason):
                self._tally.skipped.append(Skipped(path, reason))
            case _:
                self._tally.unfinished.append(Skipped(path, "in-the-way"))

        return False

    def _remove(self, path: bytes, old: Entry) -> None:
        protection = self._target.protects(path)
        seen = self._observer.at(path)
        if isinstance(seen, Vanished):
            self._prune_above(path)
        elif path in self._keep:
            self._tally.kept.append(self._safety.described(path, old))
        elif protection is not None:
            self._tally.skipped.append(Skipped(path, protection))
        elif isinstance(seen, FileRefused):
            self._tally.skipped.append(Skipped(path, seen.reason))
        elif not _is(seen, old):
            self._tally.unfinished.append(Skipped(path, "changed"))
        else:
            self._placing.remove(path)
            known = self._scan.table.files.get(path)
            if known is not None:
                self._scan.table.drop(known)

            self._tally.removed.append(self._safety.described(path, old))
            self._prune_above(path)

    def _prune_above(self, path: bytes) -> None:
        """Remove the folders that the removal emptied, up to one that the target has."""
        for folder in parents_of(path):
            if self._target.has_folder(folder) or not self._placing.remove_empty_folder(folder):
                return

    def _bring(self, path: bytes, old: Entry | None, new: Entry) -> None:
        wanted = self._target.described(path, new)
        permissions = stat.S_IMODE(wanted.mode)
        seen = self._observer.at(path)
        if isinstance(seen, CapturedFile) and _is(seen, new):
            if new.mode != LINK and seen.permissions != permissions and path not in self._keep:
                self._know(path, new, self._placing.set_permissions(path, permissions))
                self._tally.updated.append(wanted)
        elif path in self._keep:
            self._tally.kept.append(wanted)
        elif isinstance(seen, CapturedFile) and not (old is not None and _is(seen, old)):
            self._tally.unfinished.append(Skipped(path, "changed"))
        elif isinstance(seen, FileRefused) and seen.reason not in WITHOUT_CONTENT:
            self._tally.skipped.append(Skipped(path, seen.reason))
        elif isinstance(seen, Vanished) and not self._clear_folder(path):
            self._tally.skipped.append(Skipped(path, "in-the-way"))
        else:
            self._write(wanted, new, seen)
            is_new = isinstance(seen, Vanished)
            (self._tally.added if is_new else self._tally.updated).append(wanted)

    def _write(self, wanted: PathEntry, new: Entry, seen: Observation) -> None:
        path, content = wanted.path, partial(self._contents.pieces, new.digest)
        if new.mode == LINK:
            status = self._placing.put_link(path, b"".join(content()))
        else:
            signature = None
            if isinstance(seen, CapturedFile) and seen.git_mode != LINK:
                signature = seen.signature

            file = NewFile(content, wanted.size, stat.S_IMODE(wanted.mode))
            status = self._placing.put_file(path, file, signature)

        self._know(path, new, status)

    def _know(self, path: bytes, entry: Entry, status: os.stat_result) -> None:
        """Record in the index what was written, so that the next scan need not read it."""
        file = self._scan.table.track(path)
        permissions = stat.S_IMODE(status.st_mode)
        self._scan.remember(file, signature_of(status), entry.digest, entry.mode, permissions)

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

    def _remove_empty_folders(self) -> None:
        for folder in sorted(self._safety.manifest.empty_folders, reverse=True):
            if self._is_concerned(folder) and not self._target.has_folder(folder):
                self._attempt(folder, self._prune_above, joined(folder, b"*"))

    def _make_empty_folders(self) -> None:
        for folder in sorted(self._target.manifest.empty_folders):
            if self._is_concerned(folder):
                self._attempt(folder, self._placing.make_folder, folder)

    def _settle_folder_modes(self) -> None:
        """Set the permissions of folders last: a read-only folder takes no files."""
        for folder, before in self._placing.opened_up.items():
            if not self._target.has_folder(folder):
                self._attempt(folder, self._set_folder_mode, folder, before)

        for folder in sorted(self._folders_to_settle(), reverse=True):
            if self._target.has_folder(folder):
                mode = self._target.permissions(folder, FOLDER)
                self._attempt(folder, self._set_folder_mode, folder, mode)

    def _folders_to_settle(self) -> set[bytes]:
        old, new = self._safety.manifest, self._target.manifest
        candidates = set(old.modes.keys() | new.modes.keys())
        if old.usual[FOLDER] != new.usual[FOLDER]:
            candidates |= self._target.folders

        differing = {
            path
            for path in candidates
            if self._is_concerned(path)
            and old.permissions(path, FOLDER) != new.permissions(path, FOLDER)
        }
        return differing | set(self._placing.made) | set(self._placing.opened_up)

    def _set_folder_mode(self, path: bytes, permissions: int) -> None:
        status = self._descent.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return

        if stat.S_IMODE(status.st_mode) & 0o777 != permissions:
            self._placing.set_permissions(path, permissions)


def _is(seen: CapturedFile, entry: Entry) -> bool:
    return (seen.digest, seen.git_mode) == (entry.digest, entry.mode)
