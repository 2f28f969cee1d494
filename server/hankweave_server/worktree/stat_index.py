"""An index of the work tree: tracked files, the folders above them, and their stat data.

The index is a cache, never the truth: each scan compares it with the disk, and everything that
differs is read again. It answers two questions without touching content: did this file change
since it was read, and must this folder's git tree be written again.

Invariant: if the `tree` of a folder is None, so is that of every folder above it.

A work tree may have a hundred thousand files, and an object for each would cost two kilobytes. The
per-path data is kept in one block of memory, sixty bytes per path.

`differing` compares that block with the disk, in the one loop that runs for every file. Python
takes two to three microseconds per file, and git one and a half on two processors. A helper in C,
built where a compiler is available, reads the same block outside the interpreter. Both
implementations return the same result.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from hankweave_server.worktree.attributes import Attributes
from hankweave_server.worktree.dirfd import has_content
from hankweave_server.worktree.file_modes import FileModes, Kind
from hankweave_server.worktree.gitignore import IgnoreRules
from hankweave_server.worktree.names import joined, parent_of

native: ModuleType | None
try:
    from hankweave_server.worktree import _lstat_diff as native
except ImportError:
    native = None

DIFFERS = 0
"""Used instead of an error number if the path exists but its stat data differs."""

Group = tuple[bytes, Mapping[bytes, int]]
"""A folder, and the slots of names in it."""

Difference = tuple[int, bytes, int]
"""The group's number, the name, and `DIFFERS` or the error number of `lstat`."""


class Signature(NamedTuple):
    """Stat data that cannot all stay the same when content changes; programs cannot set ctime.

    64 bits hold the nanoseconds of the years 1677 to 2262, but a program can set any mtime that the
    file system stores. Beyond that range mtime wraps, so that different times stay different.
    Ctime, which comes from a clock and is compared with one, ends there instead.
    """

    ctime_ns: int
    mtime_ns: int
    size: int
    inode: int
    mode: int


_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_WRAPPED_BEFORE = -(2**31) * 10**9
"""In December 1901, the earliest time of most file systems: an earlier one has wrapped."""


def signature_of(status: os.stat_result) -> Signature:
    ctime_ns, mtime_ns = status.st_ctime_ns, status.st_mtime_ns
    if not _EARLIEST <= mtime_ns <= _LATEST:
        mtime_ns = (mtime_ns - _EARLIEST) % 2**64 + _EARLIEST

    if not _EARLIEST <= ctime_ns <= _LATEST:
        ctime_ns = max(_EARLIEST, min(ctime_ns, _LATEST))

    return Signature(ctime_ns, mtime_ns, status.st_size, status.st_ino, status.st_mode)


SIGNATURE = struct.Struct("=qqqQI")
_CAPTURED = struct.Struct("=HH20s")
_IS_PROOF_AT = SIGNATURE.size + _CAPTURED.size
STRIDE = _IS_PROOF_AT + 1
_NOTHING = bytes(STRIDE)
_INODE = struct.Struct(f"=24xQ{STRIDE - 32}x")
_MODE = struct.Struct("=I")
_MODE_AT = SIGNATURE.size - _MODE.size


class Slots:
    """Signature, git mode, permissions and digest of many paths, addressed by number.

    A path without a signature must be read again; git mode 0 means that nothing was captured.
    """

    def __init__(self) -> None:
        self.block = bytearray()
        """`STRIDE` bytes per slot; mode 0 in the signature means that there is no signature."""
        self._free: list[int] = []
        self.unusual: dict[int, tuple[bytes, Attributes]] = {}
        """The paths and attributes of those whose attributes are not usual."""

    def take(self) -> int:
        """Return an empty slot."""
        if self._free:
            return self._free.pop()

        self.block += _NOTHING
        return len(self.block) // STRIDE - 1

    def give_back(self, slot: int) -> None:
        self.block[slot * STRIDE : (slot + 1) * STRIDE] = _NOTHING
        self._free.append(slot)
        self.unusual.pop(slot, None)

    def signature(self, slot: int) -> Signature | None:
        found = Signature(*SIGNATURE.unpack_from(self.block, slot * STRIDE))
        return found if found.mode else None

    def sign(self, slot: int, signature: Signature | None) -> None:
        if signature is None:
            _MODE.pack_into(self.block, slot * STRIDE + _MODE_AT, 0)
        else:
            SIGNATURE.pack_into(self.block, slot * STRIDE, *signature)

    def captured(self, slot: int) -> tuple[int, int, bytes]:
        """Return git mode, permissions and digest; the mode is 0 if nothing was captured."""
        found: tuple[int, int, bytes] = _CAPTURED.unpack_from(
            self.block, slot * STRIDE + SIGNATURE.size
        )
        return found

    def capture(
        self, slot: int, git_mode: int, permissions: int, digest: bytes, *, is_proof: bool
    ) -> None:
        _CAPTURED.pack_into(
            self.block, slot * STRIDE + SIGNATURE.size, git_mode, permissions, digest
        )
        self.block[slot * STRIDE + _IS_PROOF_AT] = is_proof

    def is_proof(self, slot: int) -> bool:
        """Return whether the signature proves the content (see `TrackedFile.is_proof`)."""
        return bool(self.block[slot * STRIDE + _IS_PROOF_AT])


class Folder:
    """A folder that leads to tracked files, or that is watched for new ones."""

    __slots__ = (
        "_slots",
        "files",
        "folders",
        "ignore_file",
        "inherited",
        "is_empty",
        "is_wanted",
        "is_watched",
        "mode",
        "name",
        "parent",
        "path",
        "rules",
        "slot",
        "tree",
    )

    def __init__(self, parent: Folder | None, name: bytes, path: bytes, slots: Slots) -> None:
        self._slots = slots
        self.slot = slots.take()
        self.parent = parent
        self.name = name
        self.path = path
        self.files: dict[bytes, int] = {}
        """Slots of the tracked files in it, by name."""
        self.folders: dict[bytes, Folder] = {}
        self.mode = 0
        self.is_empty = False
        self.is_wanted = False
        """True if the patterns match the folder itself, so that it is recorded even when empty."""
        self.is_watched = parent is None
        """True if new names in it are considered; False below an ignored folder."""
        self.inherited: IgnoreRules | None = None
        self.rules: IgnoreRules | None = None
        self.ignore_file: Signature | None = None
        self.tree: bytes | None = None
        """The git tree of what is captured below; empty bytes if nothing is."""

    @property
    def signature(self) -> Signature | None:
        """The stat data when the folder was listed; None if it must be listed again."""
        return self._slots.signature(self.slot)

    @signature.setter
    def signature(self, signature: Signature | None) -> None:
        self._slots.sign(self.slot, signature)

    def captured(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield name, git mode, permissions and digest of the captured files in it."""
        for name, slot in self.files.items():
            git_mode, permissions, digest = self._slots.captured(slot)
            if git_mode:
                yield name, git_mode, permissions, digest

    def modified_ns(self, name: bytes) -> int | None:
        """Return when a tracked file of this folder was last written, or None if unknown."""
        signature = self._slots.signature(self.files[name])
        if signature is None:
            return None

        has_wrapped = signature.mtime_ns < _WRAPPED_BEFORE
        return signature.mtime_ns + 2**64 if has_wrapped else signature.mtime_ns

    def tracked_below(self) -> int:
        """Return the number of tracked files in it and in the folders below."""
        count = 0
        waiting = [self]
        while waiting:
            folder = waiting.pop()
            count += len(folder.files)
            waiting += folder.folders.values()

        return count

    def touch(self) -> None:
        """Mark the trees of this folder and those above as outdated."""
        folder: Folder | None = self
        while folder is not None and folder.tree is not None:
            folder.tree = None
            folder = folder.parent


class TrackedFile:
    """One tracked path and what was last read there; a view, valid while the path is tracked.

    Without a signature the path must be read again. Without a digest nothing was captured (a
    socket, an unreadable file), and no git tree names it.
    """

    __slots__ = ("_slots", "folder", "name", "slot")

    def __init__(self, folder: Folder, name: bytes, slot: int, slots: Slots) -> None:
        self._slots = slots
        self.folder = folder
        self.name = name
        self.slot = slot

    @property
    def path(self) -> bytes:
        return joined(self.folder.path, self.name)

    @property
    def signature(self) -> Signature | None:
        return self._slots.signature(self.slot)

    @property
    def captured(self) -> tuple[int, int, bytes]:
        """Git mode, permissions and digest; the mode is 0 if nothing was captured."""
        return self._slots.captured(self.slot)

    @property
    def is_proof(self) -> bool:
        """Whether an equal signature proves that the content is the same.

        It does if no process could write to the file when it was read (see `scan`).
        """
        return self._slots.is_proof(self.slot)


class TrackedFiles(Mapping[bytes, TrackedFile]):
    """The tracked files of an index, by path."""

    def __init__(self, folders: Mapping[bytes, Folder], slots: Slots) -> None:
        self._folders = folders
        self._slots = slots
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        for folder in self._folders.values():
            above = folder.path + b"/" if folder.path else b""
            for name in folder.files:
                yield above + name

    def __getitem__(self, path: bytes) -> TrackedFile:
        above, _, name = path.rpartition(b"/")
        folder = self._folders[above]
        return TrackedFile(folder, name, folder.files[name], self._slots)


class Unproven:
    """The files and folders that may have changed although no event of a watch names them.

    A scan without a watch looks everywhere and does not need it (see `watch`).
    """

    def __init__(self) -> None:
        self.files: dict[Folder, dict[bytes, int]] = {}
        """Slots by folder and name, as `differing` takes them."""
        self.folders: dict[Folder, None] = {}
        """Folders to list again."""
        self.lost: list[Folder] = []
        """Folders that are gone from the index and may still be watched."""
        self.new: list[tuple[Folder, bytes]] = []
        """Names that appeared, tracked or not: each may be a second link of a tracked file."""

    @classmethod
    def everything(cls, table: StatIndex) -> Unproven:
        unproven = cls()
        unproven.files = {f: dict(f.files) for f in table.folders.values() if f.files}
        unproven.folders = dict.fromkeys(table.folders.values())
        return unproven

    def add(self, folder: Folder, name: bytes, slot: int) -> None:
        self.files.setdefault(folder, {})[name] = slot

    def add_folder(self, folder: Folder) -> None:
        self.folders[folder] = None

    def add_files(self, folder: Folder) -> None:
        if folder.files:
            self.files[folder] = dict(folder.files)

    def add_below(self, top: Folder) -> None:
        """Add a folder and all that is known below it, as its name may mean another folder now."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            waiting += folder.folders.values()
            self.folders[folder] = None
            self.add_files(folder)

    def has(self, file: TrackedFile) -> bool:
        return file.name in self.files.get(file.folder, ())

    def discard(self, folder: Folder, name: bytes) -> None:
        names = self.files.get(folder)
        if names is not None and names.pop(name, None) is not None and not names:
            del self.files[folder]

    def move_to_end(self, tried: Iterable[tuple[Folder, bytes, int]]) -> None:
        """Move what could not be proven behind all other candidates."""
        for folder, name, slot in tried:
            names = self.files.get(folder)
            if names is not None and names.pop(name, None) is not None:
                names[name] = slot
                self.files[folder] = self.files.pop(folder)

    def lose(self, folder: Folder) -> None:
        self.files.pop(folder, None)
        self.folders.pop(folder, None)
        self.lost.append(folder)

    def candidates(
        self, slots: Slots, racy: Container[int], at_most: int
    ) -> list[tuple[Folder, bytes, int]]:
        """Return files and links whose signature is conclusive, so that they can be proven."""
        found: list[tuple[Folder, bytes, int]] = []
        for folder, names in self.files.items():
            for name, slot in names.items():
                signature = slots.signature(slot)
                if slot not in racy and signature is not None and has_content(signature.mode):
                    found.append((folder, name, slot))
                    if len(found) == at_most:
                        return found

        return found


class StatIndex:
    """All tracked files and folders, parents before children."""

    def __init__(self, owner: tuple[int, int] | None = None) -> None:
        self.owner = owner or (os.geteuid(), os.getegid())
        """User and group of a usual file."""
        self._usual = Attributes(*self.owner)
        self.slots = Slots()
        self.top = Folder(None, b"", b"", self.slots)
        self.folders: dict[bytes, Folder] = {b"": self.top}
        self.files = TrackedFiles(self.folders, self.slots)
        self.permissions = FileModes()
        self.empty_members: set[bytes] = set()
        """Empty folders of the last checkpoint; like files, they stay tracked until gone."""
        self.gone: set[bytes] = set()
        """Tracked files that vanished since the last checkpoint."""
        self.unproven: Unproven | None = None
        """What a watched scan looks at in any case; None without a watch."""
        self.outline = 0
        """A counter of changes to the captured names, their kinds or their permissions."""

    def add_folder(self, path: bytes) -> Folder:
        """Return the folder; create it and missing folders above it."""
        missing: list[bytes] = []
        while path not in self.folders:
            missing.append(path)
            path = parent_of(path)

        folder = self.folders[path]
        for path in reversed(missing):
            # Touch first: the new folder has no tree, so that a later touch would stop at it.
            folder.touch()
            child = Folder(folder, path.rpartition(b"/")[2], path, self.slots)
            folder.folders[child.name] = child
            self.folders[path] = folder = child
            if self.unproven is not None:
                self.unproven.add_folder(child)

        return folder

    def track(self, path: bytes) -> TrackedFile:
        """Return the tracked file of that path; a new one has yet to be read."""
        above, _, name = path.rpartition(b"/")
        return self.track_in(self.folders.get(above) or self.add_folder(above), name)

    def track_in(self, folder: Folder, name: bytes) -> TrackedFile:
        """Return the tracked file of that name in a folder of the index."""
        slot = folder.files.get(name)
        if slot is None:
            slot = folder.files[name] = self.slots.take()
            self.files.count += 1
            if self.unproven is not None:
                self.unproven.add(folder, name, slot)
                self.unproven.new.append((folder, name))

        return TrackedFile(folder, name, slot, self.slots)

    def record_capture(
        self,
        file: TrackedFile,
        signature: Signature | None,
        digest: bytes | None = None,
        git_mode: int = 0,
        permissions: int = 0,
        *,
        is_proof: bool = False,
    ) -> None:
        """Record what was read; mark the trees above as outdated if git would see a change."""
        mode_before, permissions_before, digest_before = self.slots.captured(file.slot)
        if digest is None:
            digest, git_mode, permissions = bytes(len(digest_before)), 0, 0

        if (mode_before, digest_before) != (git_mode, digest):
            file.folder.touch()

        if (mode_before, permissions_before) != (git_mode, permissions):
            self.outline += 1
            before, after = (mode_before, permissions_before), (git_mode, permissions)
            self.permissions.change(lambda: file.path, before, after)

        if signature is None and self.unproven is not None:
            self.unproven.add(file.folder, file.name, file.slot)

        self.slots.sign(file.slot, signature)
        self.slots.capture(file.slot, git_mode, permissions, digest, is_proof=is_proof)

    def record_attributes(self, slot: int, path: bytes, attributes: Attributes | None) -> None:
        """Record the attributes of a tracked file or a folder, if they are not usual."""
        if attributes is not None and attributes != self._usual:
            now = path, attributes
            if self.slots.unusual.get(slot) != now:
                self.slots.unusual[slot] = now
                self.outline += 1
        elif self.slots.unusual.pop(slot, None) is not None:
            self.outline += 1

    def attributes(self, slot: int) -> Attributes:
        """Return the attributes of a file when it was read."""
        found = self.slots.unusual.get(slot)
        return self._usual if found is None else found[1]

    def unusual_attributes(self) -> Iterator[tuple[bytes, Attributes]]:
        """Yield path and attributes of captured files and of folders with unusual attributes."""
        for slot, (path, attributes) in self.slots.unusual.items():
            if path in self.folders or self.slots.captured(slot)[0]:
                yield path, attributes

    def is_tracked(self, file: TrackedFile) -> bool:
        """Return whether the path is still tracked by the same entry."""
        is_there = self.folders.get(file.folder.path) is file.folder
        return is_there and file.folder.files.get(file.name) == file.slot

    def drop(self, file: TrackedFile) -> None:
        """Stop tracking the path; its folder is listed again, as the patterns may want the path."""
        self.list_again([file.folder])
        self._remove(file)

    def lose(self, file: TrackedFile) -> None:
        """Record that a tracked file is gone."""
        self.gone.add(file.path)
        self._remove(file)

    def _remove(self, file: TrackedFile) -> None:
        self.outline += 1
        git_mode, permissions, _ = self.slots.captured(file.slot)
        self.permissions.change(lambda: file.path, (git_mode, permissions), (0, 0))
        self.slots.give_back(file.slot)
        self.files.count -= 1
        del file.folder.files[file.name]
        if self.unproven is not None:
            self.unproven.discard(file.folder, file.name)

        file.folder.touch()

    def lose_folder(self, folder: Folder) -> None:
        """Record that a folder is gone, with everything in it."""
        if folder.parent is None:
            raise FileNotFoundError("the work tree itself is gone")

        self.outline += 1
        waiting = [folder]
        while waiting:
            lost = waiting.pop()
            waiting += lost.folders.values()
            del self.folders[lost.path]
            self.slots.give_back(lost.slot)
            for file in self.files_in(lost):
                self.lose(file)

            if self.unproven is not None:
                self.unproven.lose(lost)

        del folder.parent.folders[folder.name]
        folder.parent.touch()

    def with_inodes(self, inodes: Container[int]) -> Iterator[TrackedFile]:
        """Yield the files whose signature has one of these inodes."""
        found = enumerate(_INODE.iter_unpack(self.slots.block))
        slots = {slot for slot, (inode,) in found if inode in inodes}
        for folder in self.folders.values():
            for name, slot in folder.files.items():
                if slot in slots:
                    yield TrackedFile(folder, name, slot, self.slots)

    def permissions_of_files(self) -> tuple[Mapping[int, int], Mapping[bytes, int]]:
        """Return the commonest permissions of each git mode, and all others by path."""

        def everything() -> Iterator[tuple[bytes, Kind]]:
            for folder in self.folders.values():
                for name, git_mode, permissions, _ in folder.captured():
                    yield joined(folder.path, name), (git_mode, permissions)

        return self.permissions.settled(everything)

    def files_in(self, folder: Folder) -> list[TrackedFile]:
        return [TrackedFile(folder, name, slot, self.slots) for name, slot in folder.files.items()]

    def list_again(self, folders: Iterable[Folder]) -> None:
        for folder in folders:
            folder.signature = None
            if self.unproven is not None:
                self.unproven.add_folder(folder)

    def track_empty_folders(self, paths: Iterable[bytes]) -> None:
        """Track these empty folders, those of a checkpoint, and no others."""
        self.empty_members = set(paths)
        self.outline += 1

    def track_present_empty_folders(self) -> None:
        """Track the empty folders that a checkpoint has just recorded."""
        self.empty_members = {folder.path for folder in self.empty_folders()}

    def empty_folders(self) -> list[Folder]:
        """Return the empty folders that a checkpoint records."""
        return [
            folder
            for folder in self.folders.values()
            if folder.is_empty
            and folder.parent is not None
            and (folder.is_wanted or folder.path in self.empty_members)
        ]

    def child(self, folder: Folder, name: bytes) -> Folder:
        known = folder.folders.get(name)
        return known if known is not None else self.add_folder(joined(folder.path, name))


def differing(root: int, groups: Sequence[Group], block: bytearray) -> list[Difference]:
    """Return, in order, the names whose stat data differs from the signature in their slot.

    `root` is the descriptor that folders are relative to. Links are not followed, except where a
    folder has become one: only stat data is read.
    """
    if native is not None:
        found: list[Difference] = native.differing(root, groups, block, STRIDE)
        return found

    return differing_in_python(root, groups, block)


def differing_in_python(root: int, groups: Sequence[Group], block: bytearray) -> list[Difference]:
    lstat, unpack_from = os.lstat, SIGNATURE.unpack_from
    found: list[Difference] = []
    for number, (folder, names) in enumerate(groups):
        above = folder + b"/" if folder else b""
        for name, slot in names.items():
            try:
                status = lstat(above + name, dir_fd=root)
            except OSError as problem:
                found.append((number, name, problem.errno or DIFFERS))
                continue

            # The fields of a Signature, in place: a named tuple for each file doubles the cost.
            seen = (
                status.st_ctime_ns,
                status.st_mtime_ns,
                status.st_size,
                status.st_ino,
                status.st_mode,
            )
            known = unpack_from(block, slot * STRIDE)
            if seen != known and signature_of(status) != known:
                found.append((number, name, DIFFERS))

    return found
