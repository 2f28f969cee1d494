"""Take the work tree from a safety checkpoint to a target checkpoint.

The caller first takes a safety checkpoint, which captures every path that the plan will touch
(`CheckpointRequest.before`). `git.checkout` then changes the paths at which the two commits differ;
its introduction explains what makes that safe. `_differences` finds the paths whose content
differs, and `_mode_differences` those whose permissions do. A path that is not as in the target
afterwards is reported as `unrestored`: what has changed meanwhile (a new safety checkpoint and a
second restore finish the work), and what the system refused to change, with the errno and, if it
can be found, the obstacle. A repetition after a crash may use the same safety checkpoint or a newer
one.

Paths that could not be captured (pipes, unreadable files), that the target's manifest or ignore
rules protect, or that the caller wants to keep are left alone and reported as skipped or kept.
Empty folders and the permissions of folders come last; the manifests of the checkpoints have them.

A file that is written gets the attributes that the target has recorded, or else those of the file
that it replaces (`_attributes`). Files with several names are not written in place, as a crash
would leave half of one: the first name gets a new file, and each other one becomes a name of it
(`_other_name`). What cannot be put back is in the report (`lost_attributes`).

`TargetSnapshot` combines the tree and the manifest of a checkpoint. Of `Restorer`, read `changes`
first, then `_removable` and `_writable`, which decide about one path each.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.file_reader import (
    PERMISSIONS,
    CapturedFile,
    FileRefused,
    Observation,
    Vanished,
)
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.model import (
    WITHOUT_CONTENT,
    LostAttributes,
    PathEntry,
    RestorePlan,
    RestoreReport,
    Skipped,
)
from hankweave_server.checkpoints.worktree_index import FileObserver
from hankweave_server.git.checkout import (
    OS_ERROR,
    UNSET_PERMISSIONS,
    Allowed,
    Changes,
    Checkout,
)
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import (
    FOLDER,
    LINK,
    REGULAR,
    Entry,
    Lookup,
    differences,
    files_below,
    folders_below,
)
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.attributes import (
    OTHER_NAMES,
    Attributes,
    sentence_of,
)
from hankweave_server.worktree.databases import HEADER, INDEX, base_of, family, is_database_at
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.gitignore import FolderRules
from hankweave_server.worktree.names import is_within, joined, parents_of
from hankweave_server.worktree.obstacles import Obstacles
from hankweave_server.worktree.scan import WorkTreeScan
from hankweave_server.worktree.stat_index import Signature, signature_of
from hankweave_server.worktree.tree_writer import NewFile

TREES_AT_HAND = 1000  # A few megabytes; the path through a tree of any size needs far fewer.


@dataclass(frozen=True)
class TargetSnapshot:
    """The tree and the manifest of one checkpoint."""

    repo: ShadowRepo
    sha: Sha
    tree: bytes
    manifest: Manifest

    def files(self) -> Iterator[tuple[bytes, Entry]]:
        return files_below(self.repo.read_tree, self.tree)

    def entry(self, path: bytes) -> Entry | None:
        """Return a file or link; None if there is none of that name."""
        return self._lookup.entry(self.tree, path)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.repo.recent_tree, TREES_AT_HAND)

    def permissions(self, path: bytes, git_mode: int) -> int:
        return self.manifest.permissions(path, git_mode)

    def described(self, path: bytes, entry: Entry) -> PathEntry:
        """Describe a file of the checkpoint as stat would."""
        return PathEntry(path, self.repo.size(entry.digest), self.mode(path, entry))

    def mode(self, path: bytes, entry: Entry) -> int:
        """Return the mode of a file of the checkpoint as stat would."""
        kind = stat.S_IFLNK if entry.mode == LINK else stat.S_IFREG
        return kind | self.permissions(path, entry.mode)

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

        if any(self._rules.hide(folder, is_folder=True) for folder in above):
            return True

        return self._rules.hide(path, is_folder=False)

    @cached_property
    def _rules(self) -> FolderRules:
        return FolderRules(self._ignore_file)

    def _ignore_file(self, path: bytes) -> bytes | None:
        entry = self.entry(path)
        if entry is None or entry.mode in (LINK, FOLDER):
            return None

        return self.repo.read_blob(entry.digest)

    def _is_file(self, path: bytes) -> bool:
        entry = self.entry(path)
        return entry is not None and entry.mode != FOLDER

    def has_folder(self, path: bytes) -> bool:
        """Return whether the checkpoint has that folder, even if it is empty."""
        if any(is_within(empty, frozenset({path})) for empty in self.manifest.empty_folders):
            return True

        return self._lookup.folder(self.tree, path) is not None

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """Every folder of the checkpoint, including empty ones and their parents."""
        found = set(self.manifest.empty_folders)
        for path in self.manifest.empty_folders:
            while path := path.rpartition(b"/")[0]:
                found.add(path)

        below = folders_below(self.repo.read_tree, self.tree)
        found.update(path for path, _ in below if path)
        return frozenset(found)


class Databases:
    """The databases that a restore meets, in the target, the safety checkpoint or on the disk.

    See `worktree.databases` for what belongs to a database.
    """

    def __init__(
        self, target: TargetSnapshot, descent: Descent, safety: TargetSnapshot | None = None
    ) -> None:
        self._target = target
        self._descent = descent
        self._snapshots = [target] if safety is None else [target, safety]
        self._known: dict[bytes, bool] = {}

    def has(self, path: bytes) -> bool:
        """Return whether a path is a database now, before or afterwards."""
        if path not in self._known:
            self._known[path] = any(
                self._begins(snapshot, path) for snapshot in self._snapshots
            ) or is_database_at(self._descent, path)

        return self._known[path]

    def of(self, path: bytes) -> bytes | None:
        """Return the database that a path is, or belongs to."""
        base = base_of(path)
        return base if self.has(base) else path if base != path and self.has(path) else None

    def selected(self, selection: frozenset[bytes] | None) -> frozenset[bytes] | None:
        """Add what belongs to the databases of a selection."""
        if selection is None:
            return None

        found = {base for path in selection if (base := self.of(path)) is not None}
        return selection.union(*map(family, found))

    def is_index(self, path: bytes) -> bool:
        """Return whether a path is an index, which is never restored."""
        return path.endswith(INDEX) and base_of(path) != path and self.has(base_of(path))

    def protects(self, path: bytes) -> str | None:
        """Return why a path must not be removed (`TargetSnapshot.protects`).

        A companion goes with its database: where that is restored, one that the target lacks goes.
        """
        base = base_of(path)
        if base == path or not self.has(base):
            return self._target.protects(path)

        return None if self._target.entry(base) is not None else self._target.protects(base)

    def _begins(self, snapshot: TargetSnapshot, path: bytes) -> bool:
        entry = snapshot.entry(path)
        if entry is None or entry.mode in (LINK, FOLDER):
            return False

        try:
            return next(Contents(snapshot.repo).pieces(entry.digest), b"").startswith(HEADER)
        except KeyError:
            return False  # Damage is reported where the content is needed.


@dataclass
class _Tally:
    added: list[PathEntry] = field(default_factory=list)
    updated: list[PathEntry] = field(default_factory=list)
    removed: list[PathEntry] = field(default_factory=list)
    kept: list[PathEntry] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unrestored: dict[bytes, Skipped] = field(default_factory=dict)
    lost: dict[bytes, tuple[str, ...]] = field(default_factory=dict)

    def report(self) -> RestoreReport:
        def in_order(entries: list[PathEntry]) -> tuple[PathEntry, ...]:
            return tuple(sorted(entries, key=lambda entry: entry.path))

        return RestoreReport(
            added=in_order(self.added),
            updated=in_order(self.updated),
            removed=in_order(self.removed),
            kept=in_order(self.kept),
            skipped=tuple(sorted(self.skipped, key=lambda item: item.path)),
            unrestored=tuple(self.unrestored[path] for path in sorted(self.unrestored)),
            lost_attributes=_sentences(self.lost),
        )


class Restorer(Checkout):
    """One restore of the work tree from the shadow repository."""

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
        new_files: int,
        meter: Meter = UNWATCHED,
        is_verified: bool = False,
    ) -> None:
        """Restore `selection`, or everything if it is None, except for the paths in `keep`.

        `is_verified` means that every object of the target has just been read.
        """
        super().__init__(descent, new_files, meter)
        self._safety = safety
        self._target = target
        self._scan = scan
        self._observer = observer
        self._keep = keep
        self._databases = Databases(target, descent, safety)
        self._selection = self._databases.selected(selection)
        self._indexes: frozenset[bytes] = frozenset()
        """Indexes of the databases that change; they are removed."""
        self._contents = Contents(target.repo)
        self._tally = _Tally()
        self._is_verified = is_verified

    def changes(self) -> Changes:
        """Return what `apply` has to change.

        Raises KeyError if a blob that is written cannot be read.
        """
        changes = self._without_indexes({**self._differences(), **self._mode_differences()})
        if not self._is_verified:
            self._contents.require_readable(self._written(changes))

        return changes

    def report(self) -> RestoreReport:
        """Return what `apply` has done, path by path."""
        self._find_obstacles()
        return self._tally.report()

    def _find_obstacles(self) -> None:
        """Say of each path that the system refused to change what was in the way, if it shows."""
        obstacles, unrestored = Obstacles(self._descent), self._tally.unrestored
        for path, refused in unrestored.items():
            found = obstacles.at(path) if refused.reason == OS_ERROR else None
            if found is not None:
                unrestored[path] = replace(refused, reason=found.kind)

    def _written(self, changes: Changes) -> Iterator[bytes]:
        """Yield the blobs that the plan has not read: their paths changed after it was made."""
        for path, (old, new) in changes.items():
            if new is None or path in self._keep or (old and old.digest == new.digest):
                continue

            if new.digest not in self._target.repo.verified:
                seen = self._observer.at(path)
                if not isinstance(seen, FileRefused) or seen.reason in WITHOUT_CONTENT:
                    yield new.digest

    def _without_indexes(self, changes: Changes) -> Changes:
        """Remove the index of each database that changes, and leave the other ones alone."""
        kept = {p: pair for p, pair in changes.items() if not self._databases.is_index(p)}
        content = [p for p, (old, new) in kept.items() if old != new and p not in self._keep]
        indexes = {base + INDEX for path in content if self._has_index(base := base_of(path))}
        self._indexes = frozenset(indexes)
        return kept | {path: (Entry(REGULAR, b""), None) for path in indexes}

    def _has_index(self, base: bytes) -> bool:
        try:
            return self._signature_at(base + INDEX) is not None and self._databases.has(base)
        except PermissionError:
            return False  # Nothing in that folder can be changed, either.

    def _is_concerned(self, path: bytes) -> bool:
        return is_within(path, self._selection)

    def _differences(self) -> Changes:
        read = self._target.repo.recent_tree
        found = differences(read, self._safety.tree, self._target.tree)
        return {path: pair for path, pair in found.items() if self._is_required(path, found)}

    def _is_required(self, path: bytes, found: Iterable[bytes]) -> bool:
        """Return whether a path is selected, or is in the place of a parent folder of one."""
        if self._is_concerned(path):
            return True

        selected = self._selection or frozenset()
        return any(path in parents_of(wanted) for wanted in selected)

    def _mode_differences(self) -> Changes:
        """Return files of equal content whose permissions differ between the two manifests."""
        old, new = self._safety.manifest, self._target.manifest
        if (old.usual, old.modes) == (new.usual, new.modes):
            return {}

        if old.usual == new.usual:
            candidates: Iterable[bytes] = old.modes.keys() | new.modes.keys()
        else:
            candidates = [path for path, _ in self._target.files()]

        found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        for path in filter(self._is_concerned, candidates):
            before, after = self._safety.entry(path), self._target.entry(path)
            if before is None or before != after or after.mode == LINK:
                continue

            if old.permissions(path, before.mode) != new.permissions(path, before.mode):
                found[path] = (before, before)

        return found

    def _leave(self, path: bytes, reason: str, number: int = 0) -> None:
        self._tally.unrestored.setdefault(path, Skipped(path, reason, number))

    def _obstructed(self, path: bytes, obstacle: bytes) -> None:
        match self._observer.at(obstacle):
            case FileRefused(reason=reason):
                self._tally.skipped.append(Skipped(path, reason))
            case Vanished() if obstacle == path:
                self._tally.skipped.append(Skipped(path, "in-the-way"))
            case _:
                self._leave(path, "in-the-way")

    def _lose(self, path: bytes, lost: tuple[str, ...]) -> None:
        known = self._tally.lost.get(path, ())
        self._tally.lost[path] = (*known, *lost)

    def _attributes(self, path: bytes, displaced: Attributes | None) -> Attributes | None:
        recorded = self._target.manifest.attributes_at(path)
        if recorded is None:
            return super()._attributes(path, displaced)

        if recorded.extended is None and displaced is not None:
            recorded = recorded._replace(extended=displaced.extended)

        return recorded

    def _other_name(self, path: bytes, new: Entry, displaced: Attributes | None) -> bytes | None:
        manifest = self._target.manifest
        recorded = manifest.attributes_at(path)
        if recorded is None:
            return super()._other_name(path, new, displaced)

        for other in manifest.names.get(recorded.group, ()):
            seen = self._observer.at(other) if other != path else Vanished()
            if isinstance(seen, CapturedFile) and _is(seen, new):
                return other

        return None

    def _keeps_folder(self, path: bytes) -> bool:
        return self._target.has_folder(path)

    def _allowed(self, path: bytes, old: Entry | None, new: Entry | None) -> Allowed | None:
        seen = self._observer.at(path)
        if new is not None:
            return self._writable(path, seen, old, new)

        return None if old is None else self._removable(path, seen, old)

    def _removable(self, path: bytes, seen: Observation, old: Entry) -> Allowed | None:
        if isinstance(seen, Vanished):
            return Allowed(None)

        if path in self._indexes:  # It is not captured: SQLite rebuilds it.
            return Allowed(self._signature(path, seen), is_certain=True)

        protection = self._databases.protects(path)
        if path in self._keep:
            self._tally.kept.append(self._safety.described(path, old))
        elif protection is not None:
            self._tally.skipped.append(Skipped(path, protection))
        elif isinstance(seen, FileRefused):
            self._tally.skipped.append(Skipped(path, seen.reason))
        elif not _is(seen, old):
            self._leave(path, "changed")
        else:
            return self._allowed_to_replace(path, seen)

        return None

    def _writable(
        self, path: bytes, seen: Observation, old: Entry | None, new: Entry
    ) -> Allowed | None:
        if isinstance(seen, CapturedFile) and _is(seen, new):
            permissions = self._target.permissions(path, new.mode)
            if new.mode != LINK and seen.permissions != permissions and path not in self._keep:
                return Allowed(self._signature(path, seen), permissions)
        elif path in self._keep:
            self._tally.kept.append(self._target.described(path, new))
        elif isinstance(seen, CapturedFile) and not (old is not None and _is(seen, old)):
            self._leave(path, "changed")
        elif isinstance(seen, FileRefused) and seen.reason not in WITHOUT_CONTENT:
            self._tally.skipped.append(Skipped(path, seen.reason))
        elif isinstance(seen, Vanished):
            return Allowed(None)
        else:
            return self._allowed_to_replace(path, seen)

        return None

    def _allowed_to_replace(self, path: bytes, seen: CapturedFile | FileRefused) -> Allowed:
        is_certain = isinstance(seen, CapturedFile) and seen.has_writer is False
        attributes = seen.attributes if isinstance(seen, CapturedFile) else None
        return Allowed(self._signature(path, seen), None, is_certain, attributes)

    def _signature(self, path: bytes, seen: CapturedFile | FileRefused) -> Signature | None:
        """Return the stat data of what was observed; as it is now if the observation has none."""
        known = seen.signature if isinstance(seen, CapturedFile) else None
        return known or self._signature_at(path)

    def _content(self, path: bytes, new: Entry, seen: Signature | None) -> NewFile | bytes:
        if new.mode == LINK:
            return b"".join(self._contents.pieces(new.digest))

        size = self._target.repo.size(new.digest)
        pieces = partial(self._contents.pieces, new.digest, size)
        return NewFile(pieces, size, self._target.permissions(path, new.mode))

    def _record(
        self, path: bytes, entry: Entry, status: os.stat_result | None, *, is_new: bool = False
    ) -> None:
        if status is not None:
            self._know(path, entry, status)
            wanted = PathEntry(path, status.st_size, self._target.mode(path, entry))
            (self._tally.added if is_new else self._tally.updated).append(wanted)
            return

        known = self._scan.table.files.get(path)
        if known is not None:
            self._scan.table.drop(known)

        if path not in self._indexes:
            self._tally.removed.append(self._safety.described(path, entry))

    def _know(self, path: bytes, entry: Entry, status: os.stat_result) -> None:
        """Record in the index what was written, so that the next scan need not read it."""
        file = self._scan.table.track(path)
        permissions = stat.S_IMODE(status.st_mode) & PERMISSIONS
        # What is unusual about it, and what is written by another name, a scan finds out.
        is_usual = entry.mode == LINK or (
            (status.st_uid, status.st_gid) == self._scan.table.owner
            and status.st_nlink == 1
            and path not in self._target.manifest.attributes
        )
        signature = signature_of(status) if is_usual else None
        self._scan.remember(file, signature, entry.digest, entry.mode, permissions)

    def _settle_folders(self) -> None:
        """Remove and create empty folders, then set the permissions of all folders."""
        for folder in sorted(self._safety.manifest.empty_folders, reverse=True):
            if self._is_concerned(folder) and not self._target.has_folder(folder):
                self._attempt(folder, self._prune_above, joined(folder, b"*"))

        for folder in sorted(self._target.manifest.empty_folders):
            if self._is_concerned(folder):
                self._attempt(folder, self._placing.make_folder, folder)

        for folder, before in self._placing.opened_up.items():
            if not self._target.has_folder(folder):
                self._attempt(folder, self._set_folder_mode, folder, before)

        for folder in self._placing.made:
            attributes = self._target.manifest.attributes_at(folder)
            if attributes is not None and self._target.has_folder(folder):
                mode = self._target.permissions(folder, FOLDER)
                give = partial(self._give, folder, attributes, mode | stat.S_IRWXU)
                self._attempt(folder, self._placing.finish_folder, folder, give)

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
            try:
                self._placing.set_permissions(path, permissions)
            except OSError as problem:
                self._refused(path, problem, UNSET_PERMISSIONS)


def _sentences(lost: Mapping[bytes, tuple[str, ...]]) -> tuple[LostAttributes, ...]:
    return tuple(LostAttributes(path, sentence_of(what)) for path, what in sorted(lost.items()))


def expected_losses(
    plan: RestorePlan, target: TargetSnapshot, descent: Descent
) -> tuple[LostAttributes, ...]:
    """Return the attributes that a restore by this plan will not be able to put back."""
    lost: dict[bytes, tuple[str, ...]] = {}
    present = {path: descent.status(path) for path in sorted(plan.touched)}
    names = Counter((s.st_dev, s.st_ino) for s in present.values() if s is not None)
    is_root, groups = os.geteuid() == 0, {os.getegid(), *os.getgroups()}
    for entry in (*plan.added, *plan.updated):
        status, recorded = present[entry.path], target.manifest.attributes_at(entry.path)
        if status is not None and stat.S_ISREG(status.st_mode):
            recorded = recorded or Attributes(status.st_uid, status.st_gid)
            if status.st_nlink > names[status.st_dev, status.st_ino]:
                lost[entry.path] = (OTHER_NAMES,)

        if recorded is None or is_root or not stat.S_ISREG(entry.mode):
            continue

        owner = () if recorded.uid == os.geteuid() else (f"owner {recorded.uid}",)
        group = () if recorded.gid in groups else (f"group {recorded.gid}",)
        if found := (*lost.get(entry.path, ()), *group, *owner):
            lost[entry.path] = found

    return _sentences(lost)


def _is(seen: CapturedFile, entry: Entry) -> bool:
    return (seen.digest, seen.git_mode) == (entry.digest, entry.mode)
