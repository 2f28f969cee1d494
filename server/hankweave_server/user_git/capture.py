"""Capture of the work tree below the workspace: what `git add -A` would take, with exceptions.

Kept as in HEAD: submodules and inner repositories, paths whose content another program makes (LFS),
and paths that a sparse checkout leaves out. Left out entirely: ignored files, FIFOs and the like,
and untracked files whose names suggest secrets, which are never committed on the user's behalf.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from hankweave_server.git.trees import Entry
from hankweave_server.user_git.ignore_rules import Ignoring
from hankweave_server.user_git.index_file import GITLINK, IndexEntry, IndexFile
from hankweave_server.user_git.observer import SeenFile, WorkspaceObserver
from hankweave_server.user_git.tree_builder import is_in, is_in_one_of
from hankweave_server.worktree.dirfd import GONE, Descent, has_content
from hankweave_server.worktree.names import is_reserved, joined

_SECRET = re.compile(
    r"\.env(\..*)?|.*\.(pem|key|p12|pfx|jks|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519).*|[._]netrc|"
    r"\.(npmrc|pypirc|pgpass|git-credentials)|credentials\.json|service-account.*\.json",
    re.DOTALL,
)
_HARMLESS = (".example", ".sample", ".template", ".dist", ".pub")


def holds_secrets(name: bytes) -> bool:
    """Return whether a file of that name is likely to hold a key or a password."""
    text = name.decode("utf-8", "replace").lower()
    return _SECRET.fullmatch(text) is not None and not text.endswith(_HARMLESS)


OURS = b".hankweave"
"""The server's own directory in a workspace: never part of a checkpoint, even if tracked."""


@dataclass
class WorkspaceCaptured:
    """The captured workspace; paths are relative to the repository."""

    files: dict[bytes, Entry] = field(default_factory=dict)
    """The content of the workspace's folder in the new tree."""
    seen: dict[bytes, os.stat_result] = field(default_factory=dict)
    """The stat data of each file in the work tree."""
    standing: dict[bytes, Entry] = field(default_factory=dict)
    """Entries kept as in HEAD, whatever the work tree has at their paths."""
    left_alone: set[bytes] = field(default_factory=set)
    """Paths that neither a checkpoint nor a rollback touches."""
    secrets: set[bytes] = field(default_factory=set)
    foreign: set[bytes] = field(default_factory=set)
    """Paths of another program that differ from HEAD."""
    unreadable: set[bytes] = field(default_factory=set)
    began_ns: int = field(default_factory=time.time_ns)
    """Changes made shortly before or after this time may have been missed."""


@dataclass
class WorkspaceCapture:
    """One scan of the whole workspace."""

    folder: bytes
    index: IndexFile
    head: dict[bytes, Entry]
    """HEAD's content of the folder."""
    observer: WorkspaceObserver
    ignoring: Ignoring
    descent: Descent
    is_sparse: bool
    """In a sparse checkout git looks at existing files in spite of their skip mark."""
    store: bool
    also: Iterable[bytes]
    """Paths to capture although they are ignored."""
    _met: dict[bytes, os.stat_result] = field(init=False, default_factory=dict)
    _inner: set[bytes] = field(init=False, default_factory=set)
    """Folders with a repository of their own."""
    _found: WorkspaceCaptured = field(init=False, default_factory=WorkspaceCaptured)

    def __post_init__(self) -> None:
        entries = self.index.entries
        self._tracked = {each.path: each for each in entries if is_in(each.path, self.folder)}

    def run(self) -> WorkspaceCaptured:
        self._walk()
        known = (self._tracked, self.head)
        self._inner.update(path for each in known for path, e in each.items() if e.mode == GITLINK)
        for path, entry in self._tracked.items():
            self._take_tracked(path, entry)

        for path, status in self._met.items():
            if path not in self._tracked:
                self._take_new(path, status)

        for path in self.also:
            self._take_also(path)

        self._leave_to_head()
        return self._found

    def _walk(self) -> None:
        waiting = [self.folder]
        while waiting:
            folder = waiting.pop()
            try:
                names = self._names_in(folder)
            except OSError as problem:
                if folder == self.folder:
                    raise

                if problem.errno not in GONE:
                    self._found.unreadable.add(folder)

                continue

            if folder != self.folder and b".git" in names and self._is_repository(folder):
                self._inner.add(folder)
            else:
                waiting += self._classified(folder, names)

    def _is_repository(self, folder: bytes) -> bool:
        """Return whether a folder is a repository, and does not just have a `.git`, as git does."""
        inner = joined(folder, b".git")
        status = self.descent.status(inner)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return status is not None

        return self.descent.status(joined(inner, b"HEAD")) is not None

    def _names_in(self, folder: bytes) -> dict[bytes, os.stat_result]:
        # Listed completely first: the folder's rules are read through the same descent.
        names: dict[bytes, os.stat_result] = {}
        with os.scandir(self.descent.folder(folder)) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):
                    names[os.fsencode(each.name)] = each.stat(follow_symlinks=False)

        return names

    def _classified(self, folder: bytes, names: dict[bytes, os.stat_result]) -> list[bytes]:
        """Record the files of a folder and return the subfolders to enter."""
        folders: list[bytes] = []
        for name, status in names.items():
            path = joined(folder, name)
            if stat.S_ISDIR(status.st_mode):
                if not self.ignoring.hides(path, is_folder=True) and not is_reserved(name):
                    folders.append(path)
            elif path in self._tracked or not self.ignoring.hides(path, is_folder=False):
                self._met[path] = status

        return folders

    def _take_tracked(self, path: bytes, entry: IndexEntry) -> None:
        if self._is_left_alone(path, entry):
            self._found.left_alone.add(path)
            return

        try:
            status = self._met.get(path) or self.descent.status(path)
        except OSError:
            self._found.unreadable.add(path)
            self._found.left_alone.add(path)
            return

        if status is None or not has_content(status.st_mode):
            if entry.is_skipped:
                self._found.left_alone.add(path)
            elif path in self.head and self.observer.is_foreign(path):
                self._leave_foreign(path)
            return

        if entry.is_only_intended or not entry.describes(status, self.index.written_ns):
            self._read(path)
            return

        mode = self.observer.mode(path, status)
        if mode >> 12 != entry.mode >> 12:
            self._read(path)
        else:
            self._keep(path, SeenFile(Entry(mode, entry.digest), status))

    def _is_left_alone(self, path: bytes, entry: IndexEntry) -> bool:
        return (
            entry.is_sparse_folder
            or entry.is_assumed_unchanged
            or (entry.is_skipped and not self.is_sparse)
            or self._is_inner(path)
            or OURS in path.split(b"/")
        )

    def _take_new(self, path: bytes, status: os.stat_result) -> None:
        name = path.rpartition(b"/")[2]
        if not has_content(status.st_mode):
            return

        if holds_secrets(name):
            self._found.secrets.add(path)
        elif is_reserved(name):
            self._found.unreadable.add(path)
        else:
            self._read(path)

    def _take_also(self, path: bytes) -> None:
        """Capture an ignored file; the others have been met or are in one of the inner folders."""
        if path not in self._tracked and path not in self._met and not self._is_inner(path):
            status = self.descent.status(path)
            if status is not None:
                self._take_new(path, status)

    def _is_inner(self, path: bytes) -> bool:
        return bool(self._inner) and is_in_one_of(path, self._inner)

    def _read(self, path: bytes) -> None:
        try:
            seen = self.observer.at(path, store=self.store)
        except OSError:
            self._found.unreadable.add(path)
            self._found.left_alone.add(path)
            return

        if seen is not None:
            self._keep(path, seen)

    def _keep(self, path: bytes, seen: SeenFile) -> None:
        if seen.entry != self.head.get(path) and self.observer.is_foreign(path):
            self._leave_foreign(path)
            return

        self._found.files[path] = seen.entry
        self._found.seen[path] = seen.status

    def _leave_foreign(self, path: bytes) -> None:
        self._found.foreign.add(path)
        self._found.left_alone.add(path)

    def _leave_to_head(self) -> None:
        """Keep HEAD's entries for all paths that are left alone."""
        alone = self._found.left_alone
        closed = self._inner | {path.rstrip(b"/") for path in alone if path.endswith(b"/")}
        for path, entry in self.head.items():
            if path in alone or (closed and is_in_one_of(path, closed)):
                self._found.standing[path] = entry
                self._found.files.pop(path, None)
                self._found.left_alone.add(path)
