"""One workspace, opened for one operation, and the locks that make operations exclusive.

Managers of one repository exclude each other with a `flock`, which the kernel releases when a
process dies. `index.lock` keeps other git programs out; it contains a mark, so that a lock left by
a crash is recognised and removed. `gc.pid` keeps `git gc` out, as between two `git gc`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from hankweave_server import fsutil
from hankweave_server.git.trees import EXECUTABLE, REGULAR, Entry
from hankweave_server.user_git.capture import WorkspaceCapture, WorkspaceCaptured
from hankweave_server.user_git.errors import RepositoryBusy, UnsupportedRepository
from hankweave_server.user_git.ignore_rules import Ignoring
from hankweave_server.user_git.index_file import FOLDER, read_index
from hankweave_server.user_git.intents import UndoNotes
from hankweave_server.user_git.observer import WorkspaceObserver
from hankweave_server.user_git.repository import GitRepository, Head
from hankweave_server.user_git.settings import UserSettings, file_content
from hankweave_server.user_git.tree_builder import files_in, is_in, with_files, without_collisions
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import parents_of

_UNDER_WAY = {
    "MERGE_HEAD": "A merge",
    "CHERRY_PICK_HEAD": "A cherry-pick",
    "REVERT_HEAD": "A revert",
    "BISECT_LOG": "A bisect",
    "rebase-merge": "A rebase",
    "rebase-apply": "A rebase",
    "sequencer": "A cherry-pick or revert",
}


class OpenWorkspace:
    """The state of one operation: repository, settings, index, HEAD and open work tree."""

    def __init__(self, root: Path, repo: GitRepository) -> None:
        self.repo = repo
        self.notes = UndoNotes(repo.git_dir)
        self.settings = UserSettings(repo)
        self.who = self.settings.identity()
        self.index = read_index(repo.git_dir)
        self.head: Head = repo.head()
        self.folder = _place_of(root, repo)
        self._files: dict[bytes | None, dict[bytes, Entry]] = {}
        self.descent = Descent(repo.work_tree)
        self.observer = WorkspaceObserver(repo, self.settings, self.index, self.descent)

    @property
    def head_tree(self) -> bytes | None:
        return None if self.head.sha is None else self.repo.commit(self.head.sha).tree

    def files_of(self, tree: bytes | None) -> dict[bytes, Entry]:
        """Return the content of the workspace's folder in a tree, which is read once."""
        if tree not in self._files:
            self._files[tree] = files_in(self.repo, tree, self.folder)

        return self._files[tree]

    def is_ignored(self) -> bool:
        return self._ignoring().hides_folder_or_one_above(self.folder)

    def _ignoring(self, read: Callable[[bytes], bytes | None] | None = None) -> Ignoring:
        exclude = file_content(self.repo.common_dir / "info" / "exclude")
        return Ignoring(self.settings, exclude, read or self.observer.rules_file)

    def capture(self, *, store: bool, also: Iterable[bytes] = ()) -> WorkspaceCaptured:
        ignoring = self._ignoring()
        if self.is_ignored():
            raise UnsupportedRepository(
                f"The repository ignores all of {os.fsdecode(self.folder)}.",
                'Use repository="shadow", or remove the folder from .gitignore.',
            )

        return WorkspaceCapture(
            folder=self.folder,
            index=self.index,
            head=self.files_of(self.head_tree),
            observer=self.observer,
            ignoring=ignoring,
            descent=self.descent,
            is_sparse=self.settings.flag("core.sparsecheckout", default=False),
            store=store,
            also=also,
        ).run()

    def ignored_there(
        self, captured: WorkspaceCaptured, there: Mapping[bytes, Entry]
    ) -> set[bytes]:
        """Return untracked files that the ignore rules of another state hide.

        They may well have existed beside that state, like the output of a build, so they stay.
        """

        def read(path: bytes) -> bytes | None:
            if not is_in(path, self.folder):
                return self.observer.rules_file(path)

            entry = there.get(path)
            is_file = entry is not None and entry.mode in (REGULAR, EXECUTABLE)
            return self.repo.read_blob(entry.digest) if entry is not None and is_file else None

        ignoring = self._ignoring(read)
        known = {entry.path for entry in self.index.entries}
        known.update(there, self.files_of(self.head_tree))
        # Files in the way of the other state cannot stay.
        known.update(folder for path in there for folder in parents_of(path))
        return {
            path
            for path in captured.files
            if path not in known
            and not any(folder in there for folder in parents_of(path))
            and (
                ignoring.hides_folder_or_one_above(path.rpartition(b"/")[0])
                or ignoring.hides(path, is_folder=False)
            )
        }

    def tree_of(self, captured: WorkspaceCaptured) -> bytes:
        """Write the tree of the work tree; outside the workspace it is HEAD's."""
        return self.tree_with(without_collisions(captured.files, captured.standing))

    def tree_with(self, files: dict[bytes, Entry]) -> bytes:
        head = self.head_tree
        return with_files(self.repo, head, self.files_of(head), files)

    def index_files(self) -> dict[bytes, Entry]:
        """Return the index's entries in the workspace's folder, changed or not."""
        return {
            entry.path.rstrip(b"/"): Entry(entry.mode, entry.digest)
            for entry in self.index.entries
            if not entry.is_only_intended and is_in(entry.path, self.folder)
        }

    def staged_tree(self) -> bytes | None:
        """Write the tree of the staged content; return None if it is the same as HEAD's."""
        staged = self.index_files()
        folders = {path for path, entry in staged.items() if entry.mode == FOLDER}
        in_head = {
            path: entry
            for path, entry in self.files_of(self.head_tree).items()
            if not any(path.startswith(folder + b"/") for folder in folders)
        }
        in_index = {path: entry for path, entry in staged.items() if path not in folders}
        return None if in_index == in_head else self.tree_with(staged)

    def refuse_in_between(self) -> None:
        """Raise RepositoryBusy while a merge or similar operation is unfinished."""
        for name, what in _UNDER_WAY.items():
            if (self.repo.git_dir / name).exists():
                raise RepositoryBusy(
                    f"{what} is in progress in this repository.",
                    "Finish or abort it first; `git status` says how.",
                )

        conflicts = [entry.path for entry in self.index.entries if entry.stage]
        if conflicts:
            raise RepositoryBusy(
                f"{os.fsdecode(conflicts[0])} has an unresolved conflict.",
                "Resolve it and `git add` the file.",
            )


@contextlib.contextmanager
def opened(root: Path) -> Iterator[OpenWorkspace]:
    """Open a workspace; raise CheckpointError if that is not possible."""
    with contextlib.closing(GitRepository(root)) as repo:
        place = OpenWorkspace(root, repo)
        with contextlib.closing(place.descent):
            yield place


def _place_of(root: Path, repo: GitRepository) -> bytes:
    """Return the workspace's path in the work tree; empty for the top."""
    try:
        place = root.resolve().relative_to(repo.work_tree)
    except ValueError as problem:
        raise UnsupportedRepository(
            f"{root} is outside the work tree of its repository, {repo.work_tree}.",
            "Name a folder inside the work tree.",
        ) from problem

    if place.parts[:1] == (".git",):
        raise UnsupportedRepository(f"{root} is inside a git directory.", "Name the work tree.")

    return b"" if place == Path() else os.fsencode(place)


LOCK_TIMEOUT_S = 30.0
"""Time to wait for another checkpoint or rollback of the same repository."""
INDEX_TIMEOUT_S = 1.0
"""Time to wait for the index, which `git status` and editors lock for an instant."""

_MARK = b"hankweave\n"
_PAUSE_S = 0.02


@contextlib.contextmanager
def alone(common_dir: Path) -> Iterator[None]:
    """Exclude other managers of the repository; raise RepositoryBusy after 30 seconds."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with fsutil.opened(common_dir / "hankweave.lock", flags) as descriptor:

        def is_locked() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False

            return True

        _wait_for(
            is_locked,
            LOCK_TIMEOUT_S,
            "Another checkpoint or rollback of this repository is still running.",
            "Wait for it, or find the process that holds hankweave.lock in the git directory.",
        )
        yield


def _wait_for(act: Callable[[], bool], timeout: float, message: str, hint: str) -> None:
    """Repeat an attempt until it succeeds; raise RepositoryBusy if it does not in time."""
    deadline = time.monotonic() + timeout
    while not act():
        if time.monotonic() > deadline:
            raise RepositoryBusy(message, hint)

        time.sleep(_PAUSE_S)


@contextlib.contextmanager
def gc_held_off(common_dir: Path) -> Iterator[None]:
    """Keep `git gc --prune=now` from removing objects that no ref names yet.

    The mechanism is git's own between two `git gc`. A running `git gc` is not waited for: it may
    take minutes, and spares new objects unless told otherwise. A file left by a crash names a dead
    process, which git ignores.
    """
    pid, ours = common_dir / "gc.pid", common_dir / "hankweave-gc.new"
    mark = f"{os.getpid()} {socket.gethostname()}".encode()
    is_held = not _runs_elsewhere(pid)
    try:
        if is_held:
            ours.write_bytes(mark)
            ours.replace(pid)

        yield
    finally:
        ours.unlink(missing_ok=True)
        if is_held and file_content(pid) == mark:
            pid.unlink(missing_ok=True)


def _runs_elsewhere(pid: Path) -> bool:
    number, _, host = file_content(pid).partition(b" ")
    if not number.isdigit():
        return False

    return host != socket.gethostname().encode() or Path(f"/proc/{int(number)}").exists()


@contextlib.contextmanager
def index_held(git_dir: Path) -> Iterator[None]:
    """Hold git's lock on the index; call only inside `alone`."""
    lock, ours = git_dir / "index.lock", git_dir / "hankweave-index.lock"

    def is_linked() -> bool:
        """Create the lock as a hard link, so that it never exists without its mark."""
        if _is_ours(lock):
            lock.unlink(missing_ok=True)

        try:
            os.link(ours, lock)
        except FileExistsError:
            return False

        return True

    try:
        ours.write_bytes(_MARK)
        _wait_for(
            is_linked,
            INDEX_TIMEOUT_S,
            f"Another git program is using this repository: {lock} exists.",
            "Wait for it to finish; if none is running, remove that file.",
        )
    finally:
        ours.unlink(missing_ok=True)

    try:
        yield
    finally:
        # If the user removed the lock by hand, another program may hold it now.
        if _is_ours(lock):
            lock.unlink(missing_ok=True)


def _is_ours(lock: Path) -> bool:
    return file_content(lock) == _MARK
