"""The files of an object store: list them, measure them, remove them.

The pack of a checkpoint is writable (0600). A pack that a consolidation created, or examined and
left alone, is read-only (0400), as git makes its own. The mode is the only record of this; a pack
whose mode was lost is merely examined once more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hankweave_server.fsutil import PRIVATE_DIRECTORY
from hankweave_server.git.pack_reader import Record, count_in, read_index

READ_ONLY = 0o400
_BESIDE_A_PACK = (".rev", ".bitmap", ".mtimes", ".pack")
_INDEX_OF_MANY = "multi-pack-index"


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack with its index."""

    index: Path
    size: int
    """Bytes of both files, as written."""
    is_fresh: bool
    """True for the pack of a checkpoint: it has no deltas, and there may be many like it."""
    modified_ns: int

    def records(self) -> list[Record]:
        return read_index(self.index)

    def digests(self) -> list[bytes]:
        return [record.digest for record in self.records()]

    def settle(self) -> None:
        """Mark the pack as one that consolidation need not examine again."""
        self.index.with_suffix(".pack").chmod(READ_ONLY)
        self.index.chmod(READ_ONLY)

    def hide(self) -> None:
        """Remove the index alone: no reader that lists the packs finds this one any more."""
        self.index.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove what `hide` left, which may take long."""
        for suffix in _BESIDE_A_PACK:
            self.index.with_suffix(suffix).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class LooseFile:
    path: Path
    digest: bytes
    size: int
    """Bytes, as written."""
    modified_ns: int

    def digests(self) -> list[bytes]:
        return [self.digest]

    def hide(self) -> None:
        self.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Do nothing: a loose object is one file."""


Source = PackFile | LooseFile


@dataclass(frozen=True, slots=True)
class StoreSize:
    """The size of the shadow repository on disk."""

    bytes_on_disk: int
    """Allocated blocks in bytes, as `du` reports, not file lengths."""
    loose_objects: int
    packs: int


@dataclass(frozen=True, slots=True)
class _Folder:
    """The contents of a folder of loose objects when it last changed."""

    modified_ns: int
    files: tuple[LooseFile, ...]
    blocks: int


class StoreFiles:
    """The packs and loose objects of a store; an unchanged folder is not listed again."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self.objects = repository / "objects"
        self.pack_folder = self.objects / "pack"
        self._known: dict[str, _Folder] = {}

    def packs(self) -> list[PackFile]:
        """List the packs that may be replaced, oldest first; a pack with a `.keep` file may not."""
        with os.scandir(self.pack_folder) as entries:
            files = {entry.name: entry for entry in entries}

        found: list[PackFile] = []
        for name, index in files.items():
            stem, suffix = os.path.splitext(name)
            pack = files.get(stem + ".pack")
            if suffix != ".idx" or pack is None or stem + ".keep" in files:
                continue

            status = pack.stat()
            size = status.st_size + index.stat().st_size
            is_fresh = bool(stat.S_IMODE(status.st_mode) & stat.S_IWUSR)
            found.append(PackFile(Path(index.path), size, is_fresh, status.st_mtime_ns))

        return sorted(found, key=lambda pack: (pack.modified_ns, pack.index))

    def loose(self) -> Iterator[LooseFile]:
        for folder in self._loose_folders():
            yield from folder.files

    def count_objects(self) -> int:
        """Count the stored objects, copies included; a torn index counts as empty."""
        packed = sum(count_in(index) for index in self.pack_folder.glob("*.idx"))
        return packed + sum(len(folder.files) for folder in self._loose_folders())

    def remove(self, sources: Sequence[Source]) -> None:
        """Remove packs and loose objects that are no longer needed."""
        self.hide(sources)
        self.discard(sources)

    def hide(self, sources: Iterable[Source]) -> None:
        """Remove what a reader finds sources by; some microseconds for each of them."""
        # A multi-pack index would still direct git to removed packs; it is only an optimization.
        for name in os.listdir(self.pack_folder):
            if name.startswith(_INDEX_OF_MANY):
                (self.pack_folder / name).unlink()

        for source in sources:
            source.hide()

        # A folder may have been listed and changed within one tick of its clock.
        self._known.clear()

    def discard(self, sources: Iterable[Source]) -> None:
        """Remove what is left of hidden sources; a start does it too, after a crash."""
        for source in sources:
            source.discard()

    def size(self) -> StoreSize:
        folders = list(self._loose_folders())
        blocks = sum(folder.blocks for folder in folders)
        packs, waiting = 0, [os.fspath(self._repository)]
        while waiting:
            place = waiting.pop()
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if not (_is_fan_out(entry.name) and place == os.fspath(self.objects)):
                            waiting.append(entry.path)
                    elif not _is_index(entry.name):  # It changes with HEAD at other times.
                        with contextlib.suppress(FileNotFoundError):
                            blocks += entry.stat(follow_symlinks=False).st_blocks
                            packs += entry.name.endswith(".idx")

        loose = sum(len(folder.files) for folder in folders)
        return StoreSize(blocks * 512, loose, packs)

    def _loose_folders(self) -> Iterator[_Folder]:
        with os.scandir(self.objects) as entries:
            folders = sorted(entry.path for entry in entries if _is_fan_out(entry.name))

        for path in folders:
            modified = os.stat(path).st_mtime_ns
            known = self._known.get(path)
            if known is None or known.modified_ns != modified:
                known = self._known[path] = _listed(path, modified)

            yield known


def staging_folder(pack_folder: Path) -> Path:
    """Create an object store for packs in progress; after a crash, cleanup removes it."""
    folder = pack_folder / f"tmp_{os.urandom(8).hex()}"
    folder.mkdir(mode=PRIVATE_DIRECTORY)
    (folder / "pack").mkdir(mode=PRIVATE_DIRECTORY)
    return folder


def _is_fan_out(name: str) -> bool:
    return len(name) == 2 and set(name) <= set("0123456789abcdef")


def _listed(path: str, modified: int) -> _Folder:
    files: list[LooseFile] = []
    blocks = 0
    prefix = os.path.basename(path)
    with os.scandir(path) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            blocks += status.st_blocks
            if len(entry.name) == 38:
                digest = bytes.fromhex(prefix + entry.name)
                modified_ns = status.st_mtime_ns
                files.append(LooseFile(Path(entry.path), digest, status.st_size, modified_ns))

    return _Folder(modified, tuple(sorted(files, key=lambda file: file.digest)), blocks)


def _is_index(name: str) -> bool:
    return name.startswith(("index", "hankweave-index"))
