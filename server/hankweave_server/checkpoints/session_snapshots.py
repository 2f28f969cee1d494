"""What agents and sentinels remember, kept epoch by epoch beside the checkpoints.

`refs/hankweave/memory` names a tree directly, as the notes do: so `git log --all` goes on to show
checkpoints and nothing else. In it is a tree for each state that the remembered files had when a
checkpoint was taken, fanned out by hundreds: epoch 1234 is `0000012/34`. A file is named by what
it is, not by where it lies, so that an execution which was moved finds its memory again. One of
more than `PIECE` bytes is a folder of pieces: a transcript that grew costs its last piece.

An epoch is durable before the checkpoint that names it is begun; one that no checkpoint names,
because of a crash in between, is the next one's. Epoch 0 is the time before anything was
remembered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from hankweave_server.checkpoints.model import Skipped
from hankweave_server.checkpoints.put_back import NotOurs, put_back
from hankweave_server.checkpoints.remembered import Add, Remembered, content_of, look_at, remembered
from hankweave_server.fsutil import remove_durably
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.repo import MEMORY_REF, ShadowRepo
from hankweave_server.git.trees import FOLDER, Entry, encoded, parsed
from hankweave_server.worktree.slots import Signature

_FAN = 100
_EMPTY = digest_of("tree", b"")


@dataclass(frozen=True, slots=True)
class _Standing:
    """The newest epoch, and the tree of all; none yet, or none that can be read."""

    number: int
    files: bytes
    all: Mapping[bytes, Entry]


class Epochs:
    """Saves epochs and brings them back; blocking, as the engine is."""

    def __init__(self, repo: ShadowRepo) -> None:
        self._repo = repo
        self._standing: _Standing | None = None
        self._kept: dict[str, Remembered] = {}

    def save(self, places: Mapping[str, Path], *, beyond: int) -> int:
        """Keeps the files as they are, if they changed, and gives the number of their epoch.

        Files that are not there, or that we may not read, are not remembered. A new epoch has a
        higher number than `beyond`, too: than all that checkpoints name, wherever they come from.
        Raises OSError when the disk fails; then the epochs are as they were.
        """
        standing = self._standing or self._newest()
        looks = {name: look for name, path in places.items() if (look := look_at(path)) is not None}
        if looks == {name: kept.signature for name, kept in self._kept.items()}:
            return standing.number

        staging = ObjectStaging(self._repo.path / "objects", self._repo.stored())
        try:
            kept = self._read(places, looks, staging.add)
            files = encoded({_in_tree(name): file.entry for name, file in kept.items()})
            if digest_of("tree", files) != standing.files:
                number = max(standing.number, beyond) + 1
                standing = self._written(number, files, standing.all, staging)
        except BaseException:
            staging.abandon()
            raise

        self._standing, self._kept = standing, kept
        return standing.number

    def names(self, epoch: int) -> frozenset[str]:
        return frozenset(self._files_of(epoch) or ())

    def rewind(
        self,
        epoch: int,
        place_of: Callable[[str], Path | None],
        removable: Iterable[str],
    ) -> tuple[Skipped, ...]:
        """Brings the files of an epoch back, and removes those `removable` that it has not.

        May be repeated. Gives what could not be brought back; nothing else is touched.
        """
        files = self._files_of(epoch)
        if files is None:
            return (Skipped(MEMORY_REF.encode(), "memory-lost"),)

        skipped = [self._rewound(name, entry, place_of(name)) for name, entry in files.items()]
        skipped += [_removed(place_of(name)) for name in removable if name not in files]
        return tuple(skip for skip in skipped if skip is not None)

    # --- saving --------------------------------------------------------------------------------

    def _read(
        self, places: Mapping[str, Path], looks: Mapping[str, Signature], add: Add
    ) -> dict[str, Remembered]:
        """Reads what changed; what did not is stored already."""
        found: dict[str, Remembered] = {}
        for name, look in looks.items():
            known = self._kept.get(name)
            file = known if known and known.signature == look else remembered(places[name], add)
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
        staging.settle()
        self._repo.point(MEMORY_REF, top.hex())
        return _Standing(number, digest, everything)

    # --- reading -------------------------------------------------------------------------------

    def _newest(self) -> _Standing:
        """Reads the newest epoch; where that cannot be done, the epochs begin anew."""
        try:
            everything = self._all()
            folder = max(everything)
            below = self._below(everything, folder)
            name = max(below)
            return _Standing(int(folder) * _FAN + int(name), below[name].digest, everything)
        except (KeyError, ValueError):
            return _Standing(0, _EMPTY, {})

    def _all(self) -> dict[bytes, Entry]:
        target = self._repo.target(MEMORY_REF)
        return {} if target is None else dict(parsed(self._repo.read_tree(bytes.fromhex(target))))

    def _below(self, everything: Mapping[bytes, Entry], folder: bytes) -> dict[bytes, Entry]:
        if folder not in everything:
            return {}

        return dict(parsed(self._repo.read_tree(everything[folder].digest)))

    def _files_of(self, epoch: int) -> dict[str, Entry] | None:
        """Lists an epoch; None where it is not kept here, or cannot be read."""
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
    """Makes one name of a tree of any text."""
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
