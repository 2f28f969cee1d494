"""What is known of the work tree: the tracked files, the folders above them, and their stat data.

The table is a memory, never a truth: each scan compares it with the disk, and whatever differs
is read again. It answers two questions without touching content: did this file change since it
was read, and must this folder's git tree be written anew.

Invariant: where a folder's `tree` is None, so is that of every folder above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from hankweave_server.workspace.names import joined, parent_of
from hankweave_server.workspace.resolver import IgnoreRules


class Signature(NamedTuple):
    """Stat data that cannot all stay the same when content changes; ctime nobody can put back."""

    ctime_ns: int
    mtime_ns: int
    size: int
    inode: int
    mode: int


def signature_of(status: os.stat_result) -> Signature:
    return Signature(
        status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
    )


class TrackedFile:
    """One tracked path and what was last read there.

    Without a signature the path must be read again; without a digest nothing of it was captured
    (a socket, an unreadable file), and no git tree names it.
    """

    __slots__ = ("digest", "folder", "git_mode", "name", "path", "permissions", "signature")

    def __init__(self, folder: Folder, name: bytes, path: bytes) -> None:
        self.folder = folder
        self.name = name
        self.path = path
        self.signature: Signature | None = None
        self.digest: bytes | None = None
        self.git_mode = 0
        self.permissions = 0

    def hold(
        self,
        signature: Signature | None,
        digest: bytes | None = None,
        git_mode: int = 0,
        permissions: int = 0,
    ) -> None:
        """Takes over what was read; the trees above are written anew if git would see a change."""
        if (self.digest, self.git_mode) != (digest, git_mode):
            self.folder.touch()

        self.signature, self.digest = signature, digest
        self.git_mode, self.permissions = git_mode, permissions


class Folder:
    """One folder on the way to tracked files, or one that must be watched for new ones."""

    __slots__ = (
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
        "signature",
        "tree",
    )

    def __init__(self, parent: Folder | None, name: bytes, path: bytes) -> None:
        self.parent = parent
        self.name = name
        self.path = path
        self.files: dict[bytes, TrackedFile] = {}
        self.folders: dict[bytes, Folder] = {}
        self.signature: Signature | None = None
        """None when the folder must be listed."""
        self.mode = 0
        self.is_empty = False
        self.is_wanted = False
        """Matched by the patterns itself, so that it is recorded even when empty."""
        self.is_watched = parent is None
        """New names in it are looked at; False below an ignored folder."""
        self.inherited: IgnoreRules | None = None
        self.rules: IgnoreRules | None = None
        self.ignore_file: Signature | None = None
        self.tree: bytes | None = None
        """The git tree of what is captured below; empty bytes when that is nothing."""

    def touch(self) -> None:
        """Says that something captured below has changed."""
        folder: Folder | None = self
        while folder is not None and folder.tree is not None:
            folder.tree = None
            folder = folder.parent


class Table:
    """All tracked files and folders, parents before children."""

    def __init__(self) -> None:
        self.top = Folder(None, b"", b"")
        self.folders: dict[bytes, Folder] = {b"": self.top}
        self.files: dict[bytes, TrackedFile] = {}
        self.empty_members: set[bytes] = set()
        """Empty folders of the last checkpoint: tracked until they are gone, as files are."""
        self.gone: set[bytes] = set()
        """Tracked files that vanished since the last checkpoint."""
        self.outline = 0
        """Counts what changes the list of captured names, their kinds or their permissions."""

    def add_folder(self, path: bytes) -> Folder:
        """Gives the folder, creating it and those above it where they are missing."""
        missing: list[bytes] = []
        while path not in self.folders:
            missing.append(path)
            path = parent_of(path)

        folder = self.folders[path]
        for path in reversed(missing):
            # Touch first: the new folder has no tree, so that a later touch would stop at it.
            folder.touch()
            child = Folder(folder, path.rpartition(b"/")[2], path)
            folder.folders[child.name] = child
            self.folders[path] = folder = child

        return folder

    def track(self, path: bytes) -> TrackedFile:
        """Gives the tracked file of that path; a new one waits to be read."""
        known = self.files.get(path)
        if known is not None:
            return known

        folder = self.add_folder(parent_of(path))
        name = path.rpartition(b"/")[2]
        file = folder.files[name] = self.files[path] = TrackedFile(folder, name, path)
        return file

    def drop(self, file: TrackedFile) -> None:
        """Tracks the path no longer; its folder is listed again, as the patterns may want it."""
        file.folder.signature = None
        self._remove(file)

    def lose(self, file: TrackedFile) -> None:
        """Notes that a tracked file is no longer there."""
        self.gone.add(file.path)
        self._remove(file)

    def _remove(self, file: TrackedFile) -> None:
        self.outline += 1
        del self.files[file.path]
        del file.folder.files[file.name]
        file.folder.touch()

    def lose_folder(self, folder: Folder) -> None:
        """Notes that a folder is gone, with everything in it."""
        if folder.parent is None:
            raise FileNotFoundError("the work tree itself is gone")

        self.outline += 1
        waiting = [folder]
        while waiting:
            lost = waiting.pop()
            waiting += lost.folders.values()
            del self.folders[lost.path]
            for file in list(lost.files.values()):
                self.lose(file)

        del folder.parent.folders[folder.name]
        folder.parent.touch()

    def list_again(self, folders: Iterable[Folder]) -> None:
        for folder in folders:
            folder.signature = None

    def empty_folders(self) -> list[Folder]:
        """Lists the empty folders a checkpoint records."""
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
