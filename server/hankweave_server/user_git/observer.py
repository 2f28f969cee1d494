"""Single files of the work tree as git would store them; links are never followed."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from hankweave_server.git.objects import digest_of
from hankweave_server.git.trees import EXECUTABLE, LINK, REGULAR, Entry
from hankweave_server.user_git.attributes import RAW, GitAttributes, to_repository
from hankweave_server.user_git.index_file import IndexEntry, IndexFile
from hankweave_server.user_git.repository import GitRepository
from hankweave_server.user_git.settings import UserSettings, file_content
from hankweave_server.worktree.dirfd import FILE_FLAGS, GONE, Descent, has_content
from hankweave_server.worktree.stat_index import signature_of

READINGS = 3
"""Number of attempts to read a file that changes while it is read."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file or link in the work tree, and its tree entry."""

    entry: Entry
    status: os.stat_result


class WorkspaceObserver:
    """A reader of the files of one work tree, for one operation."""

    def __init__(
        self, repo: GitRepository, settings: UserSettings, index: IndexFile, descent: Descent
    ) -> None:
        self._repo = repo
        self._descent = descent
        self._info = file_content(repo.common_dir / "info" / "attributes")
        self._settings = settings
        self.indexed = {entry.path: entry for entry in index.entries if not entry.stage}
        self.keeps_modes = settings.flag("core.filemode", default=True)
        self.keeps_links = settings.flag("core.symlinks", default=True)
        self.read_attributes()

    def read_attributes(self) -> None:
        """Load the attributes, again after `.gitattributes` files have changed."""
        self.attributes = GitAttributes(self._settings, self._info, self.rules_file)

    def is_foreign(self, path: bytes) -> bool:
        """Return whether another program (LFS, git-crypt) makes the stored content of a path."""
        return self.attributes.conversion(path) is None

    def at(self, path: bytes, *, store: bool = False, converts: bool = True) -> SeenFile | None:
        """Read a file or link; return None if the path is neither.

        With `converts`, the entry is that of the content after git's conversions, otherwise of the
        exact bytes. Raises OSError if the file exists and cannot be read.
        """
        for _ in range(READINGS):
            status = self._descent.status(path)
            if status is None or not has_content(status.st_mode):
                return None

            seen = self._read(path, status, store, converts)
            if seen is not None:
                return seen

        raise OSError(errno.EBUSY, "it keeps changing", os.fsdecode(path))

    def raw(self, path: bytes, seen: os.stat_result) -> bytes | None:
        """Return a file's exact content; None if the file has changed since `seen`."""
        content, status = _read_file(path.rpartition(b"/")[2], self._descent.folder_of(path))
        return content if signature_of(status) == signature_of(seen) else None

    def mode(self, path: bytes, status: os.stat_result, fallback: Entry | None = None) -> int:
        """Return the tree mode of a file, following core.fileMode and core.symlinks."""
        known = self.indexed.get(path)
        before = known.mode if known is not None else (fallback.mode if fallback else REGULAR)
        if stat.S_ISLNK(status.st_mode) or (before == LINK and not self.keeps_links):
            return LINK

        if not self.keeps_modes:
            return EXECUTABLE if before == EXECUTABLE else REGULAR

        return EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR

    def _read(
        self, path: bytes, status: os.stat_result, store: bool, converts: bool
    ) -> SeenFile | None:
        """Read a file once; return None if it changed while it was read."""
        name = path.rpartition(b"/")[2]
        mode = self.mode(path, status)
        try:
            folder = self._descent.folder_of(path)
            if stat.S_ISLNK(status.st_mode):
                content, after = os.readlink(name, dir_fd=folder), status
            else:
                content, after = _read_file(name, folder)
        except OSError as problem:
            if problem.errno in GONE or problem.errno == errno.EINVAL:
                self._descent.close_cached()
                return None

            raise

        if signature_of(after) != signature_of(status) or (
            stat.S_ISREG(after.st_mode) and len(content) != after.st_size
        ):
            return None

        if mode != LINK and converts:
            content = self._converted(path, content)

        digest = self._repo.write_blob(content) if store else digest_of("blob", content)
        return SeenFile(Entry(mode, digest), status)

    def _converted(self, path: bytes, content: bytes) -> bytes:
        conversion = self.attributes.conversion(path) or RAW
        before = None
        if conversion.is_guessed and b"\r" in content:
            before = self._blob_of(self.indexed.get(path))

        return to_repository(content, conversion, before or b"")

    def _blob_of(self, known: IndexEntry | None) -> bytes | None:
        if known is None or known.is_only_intended or known.mode not in (REGULAR, EXECUTABLE):
            return None

        return self._repo.read_blob(known.digest)

    def rules_file(self, path: bytes) -> bytes | None:
        """Read a `.gitignore` or `.gitattributes`, including those that a sparse checkout leaves
        out.

        A file that the user removed does not count, although the index may still have it: once the
        commit lacks it, its rules could not be known any more.
        """
        content = self.small_file(path)
        known = self.indexed.get(path)
        if content is None and known is not None and known.is_skipped:
            return self._blob_of(known)

        return content

    def small_file(self, path: bytes) -> bytes | None:
        """Read a rules file; return None if it is missing or a link."""
        name = path.rpartition(b"/")[2]
        try:
            content, status = _read_file(name, self._descent.folder_of(path))
        except OSError:
            return None

        return content if stat.S_ISREG(status.st_mode) else None


def _read_file(name: bytes, folder: int) -> tuple[bytes, os.stat_result]:
    descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", status

        content = file.read()
        return content, os.fstat(descriptor)
