"""Compute what a restore would do to the present work tree, without touching it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hankweave_server.checkpoints.contents import Contents, Verification
from hankweave_server.checkpoints.errors import CheckpointDamaged
from hankweave_server.checkpoints.file_reader import (
    CapturedFile,
    FileRefused,
    Observation,
    Vanished,
)
from hankweave_server.checkpoints.manifest import manifest_of
from hankweave_server.checkpoints.model import WITHOUT_CONTENT, PathEntry, RestorePlan, Skipped
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.restore import Databases, TargetSnapshot
from hankweave_server.checkpoints.worktree_index import FileObserver
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.trees import FOLDER, LINK, Entry, Lookup, raw_entries
from hankweave_server.worktree.databases import PAGE_UNIT, base_of, family
from hankweave_server.worktree.dirfd import GONE, Descent
from hankweave_server.worktree.names import (
    is_never_captured,
    is_reserved,
    is_within,
    joined,
    parents_of,
)
from hankweave_server.worktree.stat_index import Folder, StatIndex


@dataclass
class _Draft:
    added: list[PathEntry] = field(default_factory=list)
    updated: list[PathEntry] = field(default_factory=list)
    removed: dict[bytes, PathEntry] = field(default_factory=dict)
    kept: dict[bytes, str] = field(default_factory=dict)
    unchanged: int = 0
    bytes_to_write: int = 0
    blobs: set[bytes] = field(default_factory=set)
    """Blobs to be written."""
    unsaved: set[bytes] = field(default_factory=set)


class Planning:
    """A comparison of the work tree with one checkpoint.

    The stat index's tree of each folder is compared with the target's; where both are the same,
    nothing below is visited. A plan therefore costs what differs, not what exists.
    """

    def __init__(
        self,
        target: TargetSnapshot,
        table: StatIndex,
        observer: FileObserver,
        descent: Descent,
        selection: frozenset[bytes] | None,
        unconfirmed: frozenset[bytes],
        head: bytes | None,
        leftovers: frozenset[bytes] = frozenset(),
    ) -> None:
        """Prepare a plan.

        `unconfirmed` are the paths of the index that the preceding scan could not confirm. `head`
        is the tree of the checkpoint that the index follows. `leftovers` are files and folders to
        be removed with everything in them, tracked or not, except what the target has.
        """
        self._target = target
        self._table = table
        self._observer = observer
        self._descent = descent
        self._databases = Databases(target, descent)
        self._selection = self._databases.selected(selection)
        self._unconfirmed = unconfirmed
        self._head = head
        self._leftovers = leftovers
        self._recorded = Lookup(target.repo.recent_tree)
        self._unconfirmed_folders = {
            folder for path in unconfirmed for folder in (*parents_of(path), b"")
        }
        self._draft = _Draft()
        self._clear_above: set[bytes] = set()
        """Folders known to be folders, or known to be missing."""
        self._replaced: set[bytes] = set()
        """Pipes, sockets and devices that a folder replaces: they hold no content."""

    def plan(self) -> RestorePlan:
        """Return the plan, after reading every blob that it writes.

        Raises CheckpointDamaged if one of them, or what else the plan needs, cannot be read.
        Damage of other blobs does not matter here: nothing is written from them.
        """
        try:
            plan = self._planned()
            Contents(self._target.repo).require_readable(self._draft.blobs)
            return plan
        except KeyError as problem:
            raise self._damaged(problem) from problem

    def _damaged(self, problem: KeyError) -> CheckpointDamaged | ShadowRepositoryError:
        repo, sha = self._target.repo, self._target.sha
        repo.mark_suspect()
        damages = Verification(repo, Notes(repo)).unreadable(sha)
        if damages:
            return CheckpointDamaged(sha, tuple(damages))

        return ShadowRepositoryError(f"cannot read {problem.args[0]}")

    def _planned(self) -> RestorePlan:
        wanted, unwanted = self._candidates()
        for path, entry in wanted.items():
            self._consider_wanted(path, entry)

        for path in self._target.manifest.empty_folders:
            if is_within(path, self._selection):
                self._consider_above(joined(path, b"*"))

        for path in unwanted:
            self._consider_removal(path)

        for path in sorted(self._leftovers):
            self._consider_leftover(path)

        databases = self._consider_database_files()

        draft = self._draft
        changed = {entry.path for entry in (*draft.added, *draft.updated)}
        is_same_below = not (changed or draft.removed)
        return RestorePlan(
            target=self._target.sha,
            added=_in_order(draft.added),
            updated=_in_order(draft.updated),
            removed=_in_order(draft.removed.values()),
            unchanged_count=draft.unchanged,
            kept=tuple(Skipped(path, reason) for path, reason in sorted(draft.kept.items())),
            bytes_to_write=draft.bytes_to_write,
            unsaved=frozenset(
                path for path in draft.unsaved if path in draft.removed or path in changed
            ),
            databases=databases,
            folders_differ=is_same_below and self._folders_differ(),
        )

    def _folders_differ(self) -> bool:
        """Return whether permissions or empty folders may differ from those of the target."""
        now, then = manifest_of(self._table, ()), self._target.manifest
        return (now.usual, now.modes, now.empty_folders) != (
            then.usual,
            then.modes,
            then.empty_folders,
        )

    def _candidates(self) -> tuple[dict[bytes, Entry], list[bytes]]:
        """Return what the target has and what it lacks, wherever index and target may differ."""
        wanted: dict[bytes, Entry] = {}
        unwanted: list[bytes] = []
        waiting: list[tuple[bytes, Folder | None, bytes | None]] = [
            (b"", self._table.top, self._target.tree)
        ]
        while waiting:
            path, folder, tree = waiting.pop()
            if not self._may_differ(path, folder, tree):
                continue

            inner = {} if folder is None else folder.folders
            files, folders = set(), set()
            content = self._target.repo.recent_tree(tree) if tree else b""
            for mode, name, digest in raw_entries(content):
                here, entry = joined(path, name), Entry(int(mode, 8), digest)
                if entry.mode == FOLDER:
                    folders.add(name)
                    waiting.append((here, inner.get(name), digest))
                    continue

                files.add(name)
                if is_within(here, self._selection):
                    if self._is_as_wanted(here, folder, name, entry):
                        self._draft.unchanged += 1
                    else:
                        wanted[here] = entry

            waiting += [(child.path, child, None) for n, child in inner.items() if n not in folders]
            others = () if folder is None else folder.files.keys() - files
            unwanted += [p for n in others if is_within(p := joined(path, n), self._selection)]

        self._add_other_permissions(wanted)
        is_index = self._databases.is_index
        return (
            {path: entry for path, entry in wanted.items() if not is_index(path)},
            [path for path in unwanted if not is_index(path)],
        )

    def _may_differ(self, path: bytes, folder: Folder | None, tree: bytes | None) -> bool:
        if not self._is_near_the_selection(path):
            return False

        if folder is None or folder.tree is None or path in self._unconfirmed_folders:
            return True

        if folder.tree != (tree or b"") or not is_within(path, self._selection):
            return True

        self._draft.unchanged += folder.tracked_below()
        return False

    def _is_near_the_selection(self, folder: bytes) -> bool:
        if is_within(folder, self._selection) or not folder:
            return True

        below = folder + b"/"
        return any(path.startswith(below) for path in self._selection or ())

    def _add_other_permissions(self, wanted: dict[bytes, Entry]) -> None:
        """Add files of equal content whose permissions differ between the two manifests."""
        for path in self._paths_of_other_permissions():
            entry = self._target.entry(path)
            if path not in wanted and entry is not None and is_within(path, self._selection):
                above, _, name = path.rpartition(b"/")
                if not self._is_as_wanted(path, self._table.folders.get(above), name, entry):
                    wanted[path] = entry
                    self._draft.unchanged -= 1

    def _paths_of_other_permissions(self) -> Iterable[bytes]:
        usual, modes = self._table.permissions_of_files()
        target = self._target.manifest
        if any(target.usual[git_mode] != usual[git_mode] for git_mode in usual):
            return [path for path, _ in self._target.files()]

        return [
            p for p in modes.keys() | target.modes.keys() if modes.get(p) != target.modes.get(p)
        ]

    def _is_as_wanted(self, path: bytes, folder: Folder | None, name: bytes, entry: Entry) -> bool:
        """Return, from the scan alone, whether a path is as the target has it."""
        slot = None if folder is None else folder.files.get(name)
        if slot is None:
            return False

        git_mode, permissions, digest = self._table.slots.captured(slot)
        if digest != entry.digest or git_mode != entry.mode or path in self._unconfirmed:
            return False

        wanted = self._target.manifest.permissions(path, git_mode)
        return git_mode == LINK or permissions == wanted

    def _consider_wanted(self, path: bytes, entry: Entry) -> None:
        draft = self._draft
        match self._observe(path):
            case CapturedFile(digest=digest, git_mode=git_mode, permissions=permissions):
                if (digest, git_mode) != (entry.digest, entry.mode):
                    self._write(draft.updated, path, entry)
                elif entry.mode != LINK and permissions != self._target.permissions(
                    path, entry.mode
                ):
                    draft.updated.append(self._target.described(path, entry))
                else:
                    draft.unchanged += 1
            case FileRefused(reason=reason) if reason in WITHOUT_CONTENT:
                # It holds no content, so the file replaces it.
                self._write(draft.updated, path, entry)
            case FileRefused(reason=reason):
                draft.kept[path] = reason
            case _:
                if self._consider_above(path) and self._consider_folder_in_place(path):
                    self._write(draft.added, path, entry)

    def _write(self, entries: list[PathEntry], path: bytes, entry: Entry) -> None:
        described = self._target.described(path, entry)
        entries.append(described)
        self._draft.bytes_to_write += described.size
        self._draft.blobs.add(entry.digest)

    def _observe(self, path: bytes) -> Observation:
        """Observe a path; mark it as unsaved if no checkpoint has it in this state.

        HEAD may have it, or the checkpoint in which it was last captured: that is another one
        after a rollback that left it as it was. Stat data need not show that it has changed.
        """
        seen = self._observer.at(path)
        file = self._table.files.get(path)
        if isinstance(seen, CapturedFile):
            now = Entry(seen.git_mode, seen.digest)
            captured = None if file is None else (file.captured[0], file.captured[2])
            if now != captured and now != self._recorded.entry(self._head, path):
                self._draft.unsaved.add(path)
        elif isinstance(seen, Vanished) and path in self._table.gone:
            self._draft.unsaved.add(path)

        return seen

    def _consider_above(self, path: bytes) -> bool:
        """Plan to remove a file or link where a folder must be; return False if it has to stay."""
        for folder in reversed(parents_of(path)):
            if folder in self._clear_above:
                continue

            match self._observe(folder):
                case CapturedFile(digest=_) as found:
                    self._draft.removed[folder] = _described(folder, found)
                    self._clear_above.add(folder)
                case FileRefused(reason=reason) if reason in WITHOUT_CONTENT:
                    self._clear_above.add(folder)
                    self._replaced.add(folder)
                case FileRefused(reason=reason):
                    self._draft.kept[folder] = reason
                    return False
                case _:
                    self._clear_above.add(folder)

        return True

    def _is_out_of_bounds(self, folder: bytes, name: bytes) -> bool:
        return is_never_captured(folder, name, self._descent.at_the_top) or is_reserved(name)

    def _consider_folder_in_place(self, path: bytes) -> bool:
        """Plan to remove everything below a folder that is in the place of a file.

        All of it is captured by the safety checkpoint and then removed. If some of it cannot be
        captured, the folder stays, and the whole path is kept.
        """
        below: dict[bytes, PathEntry] = {}
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            for name, is_folder in self._names_in(folder):
                inner = joined(folder, name)
                if self._is_out_of_bounds(folder, name):
                    self._draft.kept[path] = "in-the-way"
                    return False

                if is_folder:
                    waiting.append(inner)
                    continue

                found = self._observe(inner)
                if not isinstance(found, CapturedFile):
                    self._draft.kept[path] = "in-the-way"
                    return False

                below[inner] = _described(inner, found)

        self._draft.removed.update(below)
        return True

    def _consider_leftover(self, path: bytes) -> None:
        """Consider untracked files at a path and below it; the others have been considered."""
        status = self._descent.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            for name, _ in self._names_in(path):
                if not self._is_out_of_bounds(path, name):
                    self._consider_leftover(joined(path, name))
        elif path not in self._table.files and self._target.entry(path) is None:
            self._consider_removal(path)

    def _consider_database_files(self) -> dict[bytes, tuple[Skipped, ...]]:
        """Consider companions of changed databases that are not tracked; return those databases,
        each with the companions that do not come with it.
        """
        draft, found = self._draft, set[bytes]()
        for entry in (*draft.added, *draft.updated, *draft.removed.values()):
            base = base_of(entry.path)
            if base == entry.path and (entry.size % PAGE_UNIT or not entry.size):
                continue

            if self._databases.has(base):
                found.add(base)

        for base in sorted(found):
            for path in family(base):
                if path not in self._table.files and self._target.entry(path) is None:
                    self._consider_removal(path)

        return {base: tuple(self._missing_from(base)) for base in sorted(found)}

    def _missing_from(self, base: bytes) -> Iterator[Skipped]:
        paths = family(base)
        yield from (Skipped(p, self._draft.kept[p]) for p in paths if p in self._draft.kept)
        yield from (item for item in self._target.manifest.skipped if item.path in paths)

    def _names_in(self, folder: bytes) -> list[tuple[bytes, bool]]:
        try:
            with os.scandir(self._descent.folder(folder)) as entries:
                return [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError as problem:
            if problem.errno in GONE:
                return []

            raise

    def _consider_removal(self, path: bytes) -> None:
        protection = self._databases.protects(path)
        match self._observe(path):
            case CapturedFile(digest=_) as found:
                if protection is None:
                    self._draft.removed[path] = _described(path, found)
                else:
                    self._draft.kept[path] = protection
            case FileRefused(reason=reason) if path not in self._replaced:
                self._draft.kept[path] = reason
            case _:
                pass


def _described(path: bytes, found: CapturedFile) -> PathEntry:
    kind = stat.S_IFLNK if found.git_mode == LINK else stat.S_IFREG
    return PathEntry(path, found.size, kind | found.permissions)


def _in_order(entries: Iterable[PathEntry]) -> tuple[PathEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.path))
