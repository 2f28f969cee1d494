"""Session files of agents and sentinels, saved epoch by epoch beside the checkpoints.

`refs/hankweave/memory` names a tree directly, as the notes ref does, so `git log --all` still
shows checkpoints and nothing else. It contains a tree for each state that the session files had
when a checkpoint was taken, fanned out by hundreds: epoch 1234 is `0000012/34`. A file is
identified by its role, not by its path, so that a moved execution finds its files again. A file of
more than `PIECE` bytes is a folder of pieces: a transcript that grew costs its last piece.

An epoch is durable before the checkpoint that names it is begun. One that no checkpoint names,
because of a crash in between, is used by the next. Epoch 0 is the time before anything was saved.

Restored files may lie anywhere, for example in an agent's own folder (see `put_back`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.fsutil import create_durably, make_private_directory, remove_durably
from hankweave_server.git.errors import disk_faults
from hankweave_server.git.objects import ObjectStaging, digest_of, pieces
from hankweave_server.git.repo import MEMORY_REF, ShadowRepo
from hankweave_server.git.trees import EMPTY_TREE, FOLDER, REGULAR, Entry, encoded, parsed
from hankweave_server.worktree.scan import RACY_WINDOW_NS
from hankweave_server.worktree.stat_index import Signature, signature_of

PIECE = 128 << 10
"""Bytes of a file that are one blob; a longer file is a folder of blobs."""

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Add = Callable[[str, bytes], bytes]
"""Store an object, and return its name."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """One file as it was last read; without a signature it has to be read again."""

    signature: Signature | None
    entry: Entry


def signature_at(path: Path) -> Signature | None:
    try:
        return signature_of(path.lstat())
    except OSError:
        return None


def remembered(path: Path, add: Add) -> Remembered | None:
    """Store a file; return None if it is not a regular file, or not readable.

    Of a file of lines that is being written, only the complete lines are stored.
    """
    try:
        descriptor = os.open(path, _OPENING)
    except OSError:
        return None

    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None

        size = status.st_size
        end = _end_of_lines(descriptor, size) if path.suffix == ".jsonl" else size
        entry = _stored(descriptor, end, add)
        # A file that changed just now may change again under the same times.
        is_steady = status.st_ctime_ns < time.time_ns() - RACY_WINDOW_NS
        return Remembered(signature_of(status) if is_steady else None, entry)
    finally:
        os.close(descriptor)


def content_of(path: Path) -> Entry | None:
    """Return the entry that a file's content would have, without storing it."""
    try:
        descriptor = os.open(path, _OPENING)
    except OSError:
        return None

    try:
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode)
        return _stored(descriptor, status.st_size, digest_of) if is_file else None
    finally:
        os.close(descriptor)


def _stored(descriptor: int, size: int, add: Add) -> Entry:
    if size <= PIECE:
        return Entry(REGULAR, add("blob", b"".join(pieces(descriptor, size))))

    below: dict[bytes, Entry] = {}
    for number, start in enumerate(range(0, size, PIECE)):
        piece = b"".join(pieces(descriptor, min(PIECE, size - start)))
        below[b"%08d" % number] = Entry(REGULAR, add("blob", piece))

    return Entry(FOLDER, add("tree", encoded(below)))


def _end_of_lines(descriptor: int, size: int) -> int:
    """Return where the last complete line ends."""
    end = size
    while end > 0:
        start = max(0, end - PIECE)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1

        end = start

    return 0


class NotOurs(Exception):
    """The file or its folder belongs to another user, or it is not a regular file."""


def put_back(path: Path, content: Iterable[bytes]) -> None:
    """Replace a file atomically and durably, readable by its owner alone.

    Raises NotOurs, OSError, and any exception of `content`, with the file unchanged.
    """
    make_private_directory(path.parent)
    _refuse_foreign(path)
    temporary = path.with_name(f".{path.name}.hankweave-tmp")
    temporary.unlink(missing_ok=True)
    create_durably(temporary, content, path)


def _refuse_foreign(path: Path) -> None:
    if path.parent.stat().st_uid != os.geteuid():
        raise NotOurs(path)

    try:
        status = path.lstat()
    except FileNotFoundError:
        return

    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        raise NotOurs(path)


_FAN = 100


@dataclass(frozen=True, slots=True)
class _Standing:
    """The newest epoch, and the tree of all epochs; empty if none can be read."""

    number: int
    files: bytes
    all: Mapping[bytes, Entry]


class SessionSnapshots:
    """The sessions of agents and sentinels in a repository, saved in epochs; blocking."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._standing: _Standing | None = None
        self._kept: dict[str, Remembered] = {}

    def save(self, places: Mapping[str, Path], *, beyond: int) -> int:
        """Save the files if they changed, and return the number of their epoch.

        A new epoch becomes visible and durable with the next checkpoint, not before. Missing and
        unreadable files are left out. A new epoch also has a higher number than
        `beyond`: than all epochs that checkpoints name, wherever they come from. Raises
        InsufficientSpace or ShadowRepositoryError; the epochs are then unchanged.
        """
        with disk_faults(self._repo.path):
            return self._save(places, beyond)

    def _save(self, places: Mapping[str, Path], beyond: int) -> int:
        standing = self._standing or self._newest()
        signatures = {
            name: signature
            for name, path in places.items()
            if (signature := signature_at(path)) is not None
        }
        if signatures == {name: kept.signature for name, kept in self._kept.items()}:
            return standing.number

        staging = self._repo.staging()
        try:
            kept = self._read(places, signatures, staging.add)
            files = encoded({_in_tree(name): file.entry for name, file in kept.items()})
            if digest_of("tree", files) != standing.files:
                number = max(standing.number, beyond) + 1
                standing = self._written(number, files, standing.all, staging)
        except BaseException:
            staging.abandon()
            raise

        self._standing, self._kept = standing, kept
        return standing.number

    def adopt(self, files: bytes, *, beyond: int, staging: ObjectStaging) -> int:
        """Take a tree of session files, whose blobs `staging` holds, as a new epoch.

        Return its number.

        Like a saved epoch, it becomes visible with the next checkpoint.
        """
        standing = self._standing or self._newest()
        if digest_of("tree", files) == standing.files:
            staging.abandon()
            return standing.number

        number = max(standing.number, beyond) + 1
        self._standing = self._written(number, files, standing.all, staging)
        self._kept = {}
        return number

    def tree_of(self, epoch: int) -> bytes | None:
        """Return the tree of an epoch's files; None for no files, or if it cannot be read."""
        folder, name = _place(epoch)
        try:
            found = self._below(self._all(), folder).get(name)
        except (KeyError, ValueError):
            return None

        return None if epoch == 0 or found is None else found.digest

    def names(self, epoch: int) -> frozenset[str]:
        return frozenset(self._files_of(epoch) or ())

    def rewind(
        self,
        epoch: int,
        place_of: Callable[[str], Path | None],
        removable: Iterable[str],
        only: str = "",
    ) -> tuple[Skipped, ...]:
        """Restore the files of an epoch, and remove those of `removable` that it lacks.

        `only` is the beginning of the names of the files to restore. May be repeated. Returns what
        could not be restored; nothing else is touched.
        """
        files = self._files_of(epoch)
        if files is None:
            return (Skipped(MEMORY_REF.encode(), "memory-lost"),)

        chosen = {name: entry for name, entry in files.items() if name.startswith(only)}
        skipped = [self._rewound(name, entry, place_of(name)) for name, entry in chosen.items()]
        skipped += [_removed(place_of(name)) for name in removable if name not in files]
        return tuple(skip for skip in skipped if skip is not None)

    # --- saving --------------------------------------------------------------------------------

    def _read(
        self, places: Mapping[str, Path], signatures: Mapping[str, Signature], add: Add
    ) -> dict[str, Remembered]:
        """Read what changed; the rest is stored already."""
        found: dict[str, Remembered] = {}
        for name, signature in signatures.items():
            known = self._kept.get(name)
            file = (
                known if known and known.signature == signature else remembered(places[name], add)
            )
            if file is not None:
                found[name] = file

        return found

    def _written(
        self, number: int, files: bytes, before: Mapping[bytes, Entry], staging: ObjectStaging
    ) -> _Standing:
        digest = staging.add("tree", files)
        folder, name = _place(number)
        below = {**self._below(before, folder), name: Entry(FOLDER, digest)}
        fanned = Entry(FOLDER, staging.add("tree", encoded(below)))
        everything = {**before, folder: fanned}
        top = staging.add("tree", encoded(everything))
        self._repo.defer(staging, {MEMORY_REF: top.hex()})
        return _Standing(number, digest, everything)

    # --- reading -------------------------------------------------------------------------------

    def _newest(self) -> _Standing:
        """Read the newest epoch; if that is impossible, numbering starts again."""
        try:
            everything = self._all()
            folder = max(everything)
            below = self._below(everything, folder)
            name = max(below)
            return _Standing(int(folder) * _FAN + int(name), below[name].digest, everything)
        except (KeyError, ValueError):
            return _Standing(0, EMPTY_TREE, {})

    def _all(self) -> dict[bytes, Entry]:
        target = self._repo.target(MEMORY_REF)
        return {} if target is None else dict(parsed(self._repo.read_tree(bytes.fromhex(target))))

    def _below(self, everything: Mapping[bytes, Entry], folder: bytes) -> dict[bytes, Entry]:
        if folder not in everything:
            return {}

        return dict(parsed(self._repo.read_tree(everything[folder].digest)))

    def _files_of(self, epoch: int) -> dict[str, Entry] | None:
        """Return the files of an epoch; None if it is not stored here, or cannot be read."""
        if epoch == 0:
            return {}

        folder, name = _place(epoch)
        try:
            found = self._below(self._all(), folder)[name]
            files = list(parsed(self._repo.read_tree(found.digest)))
        except (KeyError, ValueError):
            return None

        return {unquote(each, errors="surrogateescape"): entry for each, entry in files}

    def _rewound(self, name: str, entry: Entry, path: Path | None) -> Skipped | None:
        if path is None:
            return Skipped(os.fsencode(name), "no-place")

        try:
            if content_of(path) != entry:
                put_back(path, self._content(entry))
        except (KeyError, ValueError):
            return Skipped(os.fsencode(path), "damaged")
        except NotOurs:
            return Skipped(os.fsencode(path), "not-ours")
        except OSError:
            return Skipped(os.fsencode(path), "os-error")

        return None

    def _content(self, entry: Entry) -> Iterator[bytes]:
        if entry.mode != FOLDER:
            yield self._repo.read_blob(entry.digest)
            return

        for _, piece in parsed(self._repo.read_tree(entry.digest)):
            yield self._repo.read_blob(piece.digest)


def _in_tree(name: str) -> bytes:
    """Encode any text as one name of a tree."""
    return quote(name, safe="", errors="surrogateescape").encode()


def _place(epoch: int) -> tuple[bytes, bytes]:
    return b"%07d" % (epoch // _FAN), b"%02d" % (epoch % _FAN)


def _removed(path: Path | None) -> Skipped | None:
    if path is None:
        return None

    try:
        remove_durably(path)
    except OSError:
        return Skipped(os.fsencode(path), "os-error")

    return None
