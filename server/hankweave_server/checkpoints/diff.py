"""Compare two checkpoints, or a checkpoint with the work tree; read ranges of large files.

`line_counts` counts changed lines where no line-by-line comparison is needed. Most edits add lines
in one place or remove lines from one. Without the common beginning and end, one side is then
empty, and the lines of the other are the result: any minimal diff gives the same. libgit2 compares
all other cases.

`Ranges` reads ranges of large contents in constant memory. Content is deflated, so a range can be
reached only by reading everything before it. Clients that read a large file ask for one range
after the other: the reader of the last range is kept at its position, and the next range continues
there.

`fingerprint` identifies the files as they are, without a checkpoint, at the cost of what changed. A
file that differs from the last checkpoint is read, and the tree is computed that the next one would
have; nothing is stored. So equal files have equal fingerprints, whatever they are compared with.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.contents import Contents
from hankweave_server.checkpoints.file_reader import (
    PERMISSIONS,
    CapturedFile,
    FileReader,
    FileRefused,
)
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.model import (
    CAPTURED_ANYWAY,
    ChangeKind,
    FileDiff,
    kind_of_change,
)
from hankweave_server.checkpoints.worktree_index import FileObserver, WorkTreeMemory
from hankweave_server.domain.checkpoints.titles import Extent
from hankweave_server.git.line_changes import without_common_lines
from hankweave_server.git.objects import HashOnly, digest_of, pieces
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.git.trees import (
    FOLDER,
    Difference,
    Entry,
    Lookup,
    ReadTree,
    differences,
    files_below,
    with_changes,
)
from hankweave_server.worktree.names import is_within, shown
from hankweave_server.worktree.stat_index import StatIndex

_BINARY_PREFIX = 8000
"""Bytes in which git looks for the NUL that makes content binary."""


def line_counts(old: bytes, new: bytes) -> tuple[int, int] | None:
    """Return how many lines were added and removed; None if the lines must be compared."""
    if b"\0" in old[:_BINARY_PREFIX] or b"\0" in new[:_BINARY_PREFIX]:
        return None

    _, removed, added = without_common_lines(old, new)
    return None if removed and added else (_lines(added), _lines(removed))


def _lines(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n") if text else 0)


LINES_LIMIT = 256 << 10
"""Bytes above which files are not compared by lines.

libgit2 holds the interpreter lock meanwhile, for some 12 ms if two such files have nothing in
common.
"""

Change = tuple[bytes, Entry | None, Entry | None]


class Comparing:
    """A comparison of trees with trees and with the disk."""

    def __init__(self, repo: ShadowRepo, memory: WorkTreeMemory) -> None:
        self._repo = repo
        self._memory = memory

    def trees(
        self, old: bytes, new: bytes, selection: frozenset[bytes] | None, *, patch: bool
    ) -> tuple[FileDiff, ...]:
        found = differences(self._repo.read_tree, old, new)
        return tuple(
            self._described((path, before, after), {}, patch=patch)
            for path, (before, after) in sorted(found.items())
            if is_within(path, selection)
        )

    def new_content(self, old: bytes | None, new: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """Return the files that have other content than in an older tree, and the blob of each."""
        found = differences(self._repo.read_tree, old, new)
        return tuple(
            (path, after.digest)
            for path, (before, after) in sorted(found.items())
            if after is not None and (before is None or before.digest != after.digest)
        )

    def with_work_tree(
        self, old: bytes, selection: frozenset[bytes] | None, *, patch: bool
    ) -> tuple[FileDiff, ...]:
        """Compare a tree with the disk; the memory must be fresh."""
        recorded = dict(files_below(self._repo.read_tree, old))
        found: list[FileDiff] = []
        for path in sorted(recorded.keys() | self._memory.table.files.keys()):
            seen = self._memory.observer.at(path)
            if not is_within(path, selection) or isinstance(seen, FileRefused):
                continue

            before = recorded.get(path)
            after = Entry(seen.git_mode, seen.digest) if isinstance(seen, CapturedFile) else None
            if before != after:
                content = self._content_now(path) if after is not None else {}
                found.append(self._described((path, before, after), content, patch=patch))

        return tuple(found)

    def towards(self, target: bytes, paths: Iterable[bytes]) -> tuple[FileDiff, ...]:
        """Compare the present files with those of a tree: the effect of a restore."""
        found: list[FileDiff] = []
        wanted_in = Lookup(self._repo.read_tree)
        for path in sorted(paths):
            seen = self._memory.observer.at(path)
            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, CapturedFile) else None
            then = wanted_in.entry(target, path)
            content = self._content_now(path) if now is not None else {}
            found.append(self._described((path, now, then), content, patch=True))

        return tuple(found)

    def _content_now(self, path: bytes) -> Mapping[bytes, bytes]:
        keeper = _Keeper()
        FileReader(self._memory.descent, keeper, LINES_LIMIT).read(path)
        return keeper.content

    def _described(
        self, change: Change, at_hand: Mapping[bytes, bytes], *, patch: bool
    ) -> FileDiff:
        def text(entry: Entry) -> bytes | None:
            return at_hand[entry.digest] if entry.digest in at_hand else self._text(entry)

        return described(self._repo, change, text, patch=patch)

    def _text(self, entry: Entry) -> bytes | None:
        try:
            if self._repo.size(entry.digest) > LINES_LIMIT:
                return None

            return self._repo.read_blob(entry.digest)
        except KeyError:
            return None


def described(
    repo: ShadowRepo, change: Change, text: Callable[[Entry], bytes | None], *, patch: bool
) -> FileDiff:
    """Compare two versions of a file.

    `text` returns a content, or None if it is too long, or cannot be read: no lines are counted.
    """
    path, before, after = change
    kind = kind_of_change(before, after)
    old = None if before is None else text(before)
    new = None if after is None else text(after)
    if (old is None) != (before is None) or (new is None) != (after is None):
        return FileDiff(path, kind, 0, 0, b"" if patch else None)

    counts = None if patch else line_counts(old or b"", new or b"")
    if counts is not None:
        return FileDiff(path, kind, *counts, None)

    lines = repo.line_diff(os.fsdecode(path), old, new, patch_wanted=patch)
    return FileDiff(path, kind, lines.added, lines.removed, lines.patch if patch else None)


COUNTED_FILES = 4
COUNTED_BYTES = 32 << 10
"""Bounds up to which a checkpoint counts the changed lines: 0.1 ms for a file, at most 1 ms."""

NOTED_BYTES = 1 << 20


class Extents:
    """How much new checkpoints change; an edit is compared with the content of the one before."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._noted: dict[bytes, bytes] = {}
        """Contents that were read last, by digest."""
        self._noted_bytes = 0

    def note(self, digest: bytes, content: bytes) -> None:
        """Remember a small content for a while."""
        if len(content) <= COUNTED_BYTES and digest not in self._noted:
            self._noted[digest] = content
            self._noted_bytes += len(content)
            while self._noted_bytes > NOTED_BYTES:
                self._noted_bytes -= len(self._noted.pop(next(iter(self._noted))))

    def of(self, changes: Sequence[Difference]) -> Extent:
        """Return the extent of these changes, with lines if few small files differ."""
        paths = [(each.path, kind_of_change(each.before, each.after)) for each in changes[:2]]
        return replace(extent_of(paths), files=len(changes), lines=self._lines(changes))

    def _lines(self, changes: Sequence[Difference]) -> tuple[int, int] | None:
        if len(changes) > COUNTED_FILES:
            return None

        added = removed = 0
        for each in changes:
            new = b"" if each.after is None else self._noted.get(each.after.digest)
            old = b"" if each.before is None or new is None else self._recorded(each.before)
            if old is None or new is None:
                return None

            counts = line_counts(old, new)
            if counts is None:
                lines = self._repo.line_diff("", old, new, patch_wanted=False)
                counts = lines.added, lines.removed

            added, removed = added + counts[0], removed + counts[1]

        return added, removed

    def _recorded(self, entry: Entry) -> bytes | None:
        known = self._noted.get(entry.digest)
        try:
            if known is None and self._repo.size(entry.digest) <= COUNTED_BYTES:
                known = self._repo.read_blob(entry.digest)
        except KeyError:
            pass

        return known


def extent_of(changes: Sequence[tuple[bytes, ChangeKind]]) -> Extent:
    """Return the extent of changes whose lines are not counted."""
    if len(changes) != 1:
        return Extent(len(changes))

    ((path, kind),) = changes
    return Extent(1, shown(path), is_deleted=kind == "deleted")


class _Keeper(HashOnly):
    """A sink that keeps what was read: the work tree's content is not in the repository."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}

    def blob(self, data: bytes) -> bytes:
        digest = super().blob(data)
        self.content[digest] = data
        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        """Keep streamed content as well: the size limit for diffs bounds the memory."""
        data = b"".join(pieces(descriptor, size))
        return self.blob(data) if len(data) == size else None


class Ranges:
    """A reader of ranges of blobs that keeps one blob open."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._reading: _Reading | None = None

    def read(self, digest: bytes, size: int, offset: int, length: int) -> bytes:
        """Return a range of a blob of that size; raise KeyError for a damaged one.

        Ranges of a large blob are verified only when its end has been read.
        """
        if offset >= size > 0:
            return b""

        reading = self._reading
        self._reading = None
        if reading is None or reading.digest != digest or reading.position > offset:
            _close(reading)
            reading = _Reading(digest, self._contents.pieces(digest))

        reading.skip(offset - reading.position)
        data = reading.take(length)
        if offset + length >= size:
            reading.finish()
        else:
            self._reading = reading

        return data

    def close(self) -> None:
        _close(self._reading)
        self._reading = None


def _close(reading: _Reading | None) -> None:
    if reading is not None:
        reading.close()


class _Reading:
    """A blob read up to a position."""

    def __init__(self, digest: bytes, pieces: Iterator[bytes]) -> None:
        self.digest = digest
        self.position = 0
        self._pieces = pieces
        self._piece = b""
        self._at = 0

    def skip(self, count: int) -> None:
        for _ in self._parts(count):
            pass

    def take(self, count: int) -> bytes:
        return b"".join(self._parts(count))

    def finish(self) -> None:
        """Read to the end: only there does verification finish."""
        for _ in self._pieces:
            pass

    def close(self) -> None:
        if isinstance(self._pieces, Generator):
            self._pieces.close()

    def _parts(self, count: int) -> Iterator[bytes]:
        while count > 0:
            if self._at == len(self._piece):
                self._piece, self._at = next(self._pieces, b""), 0
                if not self._piece:
                    return

            part = self._piece[self._at : self._at + count]
            self._at += len(part)
            self.position += len(part)
            count -= len(part)
            yield part


# --- fingerprints ---------------------------------------------------------------------------------

MOST_CHANGED = 200


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The checkpoint with which the files are compared; nothing before the first one."""

    sha: Sha | None
    tree: bytes | None
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The tracked files at one moment."""

    tree: str
    """The git tree that a checkpoint of them has."""
    modes: str
    """A hash of permissions and attributes, and of empty folders."""
    base: Sha | None
    """The last checkpoint before."""
    changed: Mapping[bytes, str | None] | None
    """Hashes of the files that differ from it, None for a removed one; None if they are many."""


@dataclass(frozen=True, slots=True)
class Incomparable:
    """The reason, as a clause, why the tracked files cannot be compared with others."""

    reason: str


def fingerprint(
    base: LastCheckpoint,
    table: StatIndex,
    observer: FileObserver,
    suspects: Iterable[bytes],
    read: ReadTree,
) -> Fingerprint | Incomparable:
    """Return what identifies the tracked files; `suspects` may differ from the last checkpoint.

    The index must be fresh. Raises KeyError for a tree that cannot be read.
    """
    for skipped in base.manifest.skipped:
        if skipped.reason != CAPTURED_ANYWAY:
            return Incomparable(f"{shown(skipped.path)} is in no checkpoint ({skipped.reason})")

    manifest, recorded_in = base.manifest, Lookup(read)
    modes, attributes = dict(manifest.modes), dict(manifest.attributes)
    changed: dict[bytes, Entry | None] = {}
    for path in sorted(suspects):
        seen = observer.at(path)
        if isinstance(seen, FileRefused):
            return Incomparable(f"{shown(path)} cannot be captured ({seen.reason})")

        entry = None
        modes.pop(path, None)
        attributes.pop(path, None)
        if isinstance(seen, CapturedFile):
            entry = Entry(seen.git_mode, seen.digest)
            if seen.permissions != manifest.usual[seen.git_mode]:
                modes[path] = seen.permissions

            if seen.attributes is not None and not seen.attributes.are_usual(table.owner):
                attributes[path] = seen.attributes._replace(group=int(seen.attributes.group > 0))

        if entry != recorded_in.entry(base.tree, path):
            changed[path] = entry

    modes = {path: mode for path, mode in modes.items() if path in table.files}
    for path, mode in _folder_modes(table).items():
        if mode != manifest.usual[FOLDER]:
            modes[path] = mode

    now = replace(
        manifest,
        modes=modes,
        empty_folders=frozenset(folder.path for folder in table.empty_folders()),
        skipped=(),
        owner=manifest.owner or (table.owner if attributes else None),
        attributes=attributes,
    )
    return Fingerprint(
        tree=with_changes(read, _tree_digest, base.tree, changed).hex(),
        modes=hashlib.sha256(manifests.encoded(now)).hexdigest(),
        base=base.sha,
        changed={path: _short(entry) for path, entry in changed.items()}
        if len(changed) <= MOST_CHANGED
        else None,
    )


def _folder_modes(table: StatIndex) -> dict[bytes, int]:
    """Return the permissions of the folders that a checkpoint records."""
    recorded = {folder.path for folder in table.empty_folders()}
    for folder in reversed(table.folders.values()):
        if folder.files or any(each.path in recorded for each in folder.folders.values()):
            recorded.add(folder.path)

    recorded.discard(b"")
    return {path: table.folders[path].mode & PERMISSIONS for path in recorded}


def _tree_digest(content: bytes) -> bytes:
    return digest_of("tree", content)


def _short(entry: Entry | None) -> str | None:
    return None if entry is None else f"{entry.mode:o}:{entry.digest.hex()[:12]}"
