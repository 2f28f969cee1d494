"""Restore of the workspace from the state of a safety commit to that of a target.

`git.checkout` changes the paths at which the two trees differ, and explains what makes that safe.
Here is what only a user's repository needs: conversions of line ends, permissions that git does not
record, paths whose content another program makes, and the index. `.gitattributes` files come
first, because they decide about the others.

An intent is executed in the order files, branch, index. Afterwards the index has the intended
content for the workspace's folder and its former content elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec
from urllib.parse import quote_from_bytes

from hankweave_server.fsutil import (
    make_private_directory,
    sync_directory,
    sync_file,
    sync_filesystem,
)
from hankweave_server.git.checkout import Allowed, Changes, Checkout
from hankweave_server.git.trees import EXECUTABLE, LINK, Entry, Lookup, differences
from hankweave_server.user_git.attributes import ATTRIBUTES, RAW, to_work_tree
from hankweave_server.user_git.capture import WorkspaceCaptured
from hankweave_server.user_git.commits import SAFETY, write_commit
from hankweave_server.user_git.errors import (
    CheckpointError,
    RepositoryBusy,
    RollbackIncomplete,
    UnsupportedRepository,
)
from hankweave_server.user_git.index_file import GITLINK, IndexEntry, IndexFile, encoded
from hankweave_server.user_git.intents import Intent
from hankweave_server.user_git.observer import SeenFile
from hankweave_server.user_git.repository import Head
from hankweave_server.user_git.tree_builder import files_in, is_in, is_in_one_of
from hankweave_server.user_git.workspace import OpenWorkspace
from hankweave_server.worktree.dirfd import Descent, has_content
from hankweave_server.worktree.names import is_reserved, joined, parents_of
from hankweave_server.worktree.stat_index import Signature, signature_of
from hankweave_server.worktree.tree_writer import NewFile, folder_for_new_files

INSTANT_NS = 20_000_000
"""Resolution of file timestamps: changes closer than this may have the same time."""

_UMASK = "Umask:"

P = ParamSpec("P")


@dataclass
class Restored:
    """The result of a restore."""

    seen: dict[bytes, SeenFile] = field(default_factory=dict)
    """The files now at the paths that were to be written."""
    unfinished: dict[bytes, str] = field(default_factory=dict)
    """Paths that are not as wanted, and why: the system's words, or nothing if they changed."""


class Restoring(Checkout):
    """One restore of the folder `folder` of a work tree."""

    _unreadable = CheckpointError

    def __init__(
        self,
        place: OpenWorkspace,
        intent: Intent,
        folder: bytes,
        captured: WorkspaceCaptured | None,
        spares: int,
    ) -> None:
        """Prepare a restore.

        `captured` is the scan that the safety commit was made from; None after a crash. The
        intent's permissions apply to files that do not exist now, and its exact bytes replace the
        blobs of its trees. An undo does not convert line ends, because `.gitattributes` may have
        been different.
        """
        super().__init__(place.descent, spares)
        self._repo = place.repo
        self._observer = place.observer
        self._folder = folder
        self._captured = captured or WorkspaceCaptured(began_ns=0)
        self._permissions = {bytes.fromhex(path): to for path, to in intent.permissions.items()}
        self._exact_before = _blobs(intent.exact_before)
        self._exact = _blobs(intent.exact)
        self._converts = intent.undo is not None
        self._umask = _umask()
        self._done = Restored()

    def run(self, changes: Changes) -> Restored:
        """Restore all changes, removals first; nothing is flushed to the disk."""
        self.apply(changes)
        return self._done

    def _attempt(
        self, path: bytes, act: Callable[P, None], *args: P.args, **details: P.kwargs
    ) -> None:
        super()._attempt(path, act, *args, **details)
        if _is_attributes(path):
            self._observer.read_attributes()

    def _turn(self, path: bytes) -> tuple[bool, bytes]:
        return not _is_attributes(path), path

    def _leave(self, path: bytes, reason: str, number: int = 0) -> None:
        why = f"{os.strerror(number)}, {errno.errorcode.get(number, number)}" if number else ""
        self._done.unfinished.setdefault(path, why)

    def _lose(self, path: bytes, lost: tuple[str, ...]) -> None:
        """Ignore it, as git does not record attributes."""

    def _keeps_folder(self, path: bytes) -> bool:
        return not is_in(path, self._folder)

    def _allowed(self, path: bytes, old: Entry | None, new: Entry | None) -> Allowed | None:
        status = self._descent.status(path)
        if status is None or (new is not None and stat.S_ISDIR(status.st_mode)):
            seen = None
        elif (new is not None and not has_content(status.st_mode)) or self._is_old(
            path, old, status
        ):
            seen = signature_of(status)
        elif new is not None and self._is_new(path, new):
            self._done.seen[path] = SeenFile(new, status)
            return None
        else:
            self._leave(path, "changed")
            return None

        if new is not None and self._observer.is_foreign(path):
            self._leave(path, "foreign")
            return None

        if seen is None or new is None or not has_content(seen.mode):
            return Allowed(seen)

        is_same = old is not None and _differ_by_permissions(old, new)
        return Allowed(seen, self._wanted(path, seen, new) if is_same else None)

    def _content(self, path: bytes, new: Entry, seen: Signature | None) -> NewFile | bytes:
        content = self._repo.read_blob(self._exact.get(path, new.digest))
        if new.mode == LINK and self._observer.keeps_links:
            return content

        if new.mode != LINK and self._converts:
            conversion = self._observer.attributes.conversion(path) or RAW
            content = to_work_tree(content, conversion, new.digest)

        return NewFile(lambda: [content], len(content), self._wanted(path, seen, new))

    def _captured_digest(self, path: bytes, old: Entry) -> bytes:
        return self._exact_before.get(path, old.digest)

    def _record(
        self, path: bytes, entry: Entry, status: os.stat_result | None, *, is_new: bool = False
    ) -> None:
        if status is not None:
            self._done.seen[path] = SeenFile(entry, status)

    def _wanted(self, path: bytes, seen: Signature | None, new: Entry) -> int:
        """Return the permissions to set: git records one bit, the others are kept or default."""
        usual = 0o666 & ~self._umask
        permissions = self._permissions.get(path, usual)
        if path in self._permissions and bool(permissions & stat.S_IXUSR) == (
            new.mode == EXECUTABLE
        ):
            return permissions

        if seen is not None and stat.S_ISREG(seen.mode):
            permissions = stat.S_IMODE(seen.mode)

        if not self._observer.keeps_modes:
            return permissions

        if new.mode == EXECUTABLE:
            return permissions | (permissions & 0o444) >> 2 & ~self._umask | stat.S_IXUSR

        return permissions & ~0o111

    def _is_old(self, path: bytes, old: Entry | None, status: os.stat_result) -> bool:
        """Return whether the current file is the one that the safety commit was made from."""
        known = self._captured.seen.get(path)
        if (
            known is not None
            and known.st_ctime_ns + INSTANT_NS < self._captured.began_ns
            and signature_of(known) == signature_of(status)
        ):
            return old is not None and old == self._captured.files.get(path)

        return old is not None and self._is(path, old, self._exact_before.get(path, old.digest))

    def _is_new(self, path: bytes, new: Entry) -> bool:
        """Return whether the current file is already the target's, as after a crash."""
        if self._is(path, new, self._exact.get(path, new.digest)):
            return True

        return self._converts and self._is(path, new, new.digest, converts=True)

    def _is(self, path: bytes, entry: Entry, digest: bytes, *, converts: bool = False) -> bool:
        """Compare the exact bytes unless `converts`, because `.gitattributes` may have changed."""
        seen = self._observer.at(path, converts=converts)
        if seen is None or seen.entry.digest != digest:
            return False

        return seen.entry.mode == entry.mode or not self._observer.keeps_modes

    def _settle_folders(self) -> None:
        for folder in self._placing.made:
            if folder in self._permissions:
                self._attempt(folder, self._set_folder_mode, folder, self._permissions[folder])

        for folder, before in self._placing.opened_up.items():
            self._attempt(folder, self._set_folder_mode, folder, before)

    def _set_folder_mode(self, path: bytes, permissions: int) -> None:
        status = self._descent.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._placing.set_permissions(path, permissions)


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == ATTRIBUTES


def _differ_by_permissions(old: Entry, new: Entry) -> bool:
    return old.digest == new.digest and LINK not in (old.mode, new.mode)


def _umask() -> int:
    """Return the umask; reading it with `os.umask` would change it for other threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(_UMASK):
            return int(line.removeprefix(_UMASK), 8)

    return 0o022


def index_after(
    place: OpenWorkspace,
    intent: Intent,
    folder: bytes,
    captured: WorkspaceCaptured | None,
    restored: Restored,
) -> IndexFile:
    """Return the index after a move; only the folder's part of it changes."""
    old = place.index
    tree = bytes.fromhex(intent.index_tree) if intent.index_tree else None
    inside = {each.path: each for each in old.entries if is_in(each.path, folder)}
    outside = [
        each.smudged_if_racy(old.written_ns) for each in old.entries if each.path not in inside
    ]
    made = {path: each for path, each in inside.items() if _is_retained(each, captured)}
    folders = {path.rstrip(b"/") for path, each in made.items() if each.is_sparse_folder}
    for path, entry in files_in(place.repo, tree, folder).items():
        if path in made or entry.mode == GITLINK or (captured and path in captured.left_alone):
            continue

        if not folders or not is_in_one_of(path, folders):
            seen = _seen(path, entry, captured, restored)
            made[path] = _entry(path, entry, inside.get(path), seen, old.written_ns)

    in_order = sorted([*outside, *made.values()], key=lambda each: (each.path, each.stage))
    return IndexFile(tuple(in_order), is_sparse=old.is_sparse)


def _is_retained(entry: IndexEntry, captured: WorkspaceCaptured | None) -> bool:
    if captured is not None and entry.path in captured.left_alone:
        return True

    if entry.mode == GITLINK or entry.is_sparse_folder or entry.is_assumed_unchanged:
        return True

    return captured is None and entry.is_skipped


def _seen(
    path: bytes, entry: Entry, captured: WorkspaceCaptured | None, restored: Restored
) -> os.stat_result | None:
    """Return a file's stat data if it is known to have had this content."""
    if path in restored.seen:
        standing = restored.seen[path]
        return standing.status if standing.entry == entry else None

    if path in restored.unfinished:
        return None

    if captured is not None and captured.files.get(path) == entry:
        return captured.seen.get(path)

    return None


def _entry(
    path: bytes,
    entry: Entry,
    old: IndexEntry | None,
    seen: os.stat_result | None,
    written_ns: int,
) -> IndexEntry:
    made = IndexEntry(path, entry.mode, entry.digest)
    if seen is not None:
        return made.seen_as(seen)

    if old is not None and (old.mode, old.digest) == (entry.mode, entry.digest):
        return old.in_work_tree().smudged_if_racy(written_ns)

    return made


def write_index(place: OpenWorkspace, index: IndexFile) -> None:
    path = place.repo.git_dir / "index"
    temporary = place.repo.git_dir / "hankweave-index.new"
    try:
        temporary.touch()
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)

        temporary.write_bytes(encoded(index))
        sync_file(temporary)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # Frees space, in case the disk is full.
        raise

    sync_directory(path.parent)


_NO_NAMES = frozenset({b"", b".", b".."})


def move(
    place: OpenWorkspace, intent: Intent, captured: WorkspaceCaptured | None
) -> dict[bytes, str]:
    """Execute an intent durably; return the paths that could not be restored, and why.

    `captured` is the scan that the intent is based on; after a crash it is None, and files are read
    again. Raises RepositoryBusy, with nothing changed, or RollbackIncomplete if another program has
    moved the branch to a different commit: its files, branch and index are left alone.
    """
    folder = bytes.fromhex(intent.folder)
    before, after = (Head(intent.branch, sha) for sha in (intent.head_before, intent.head_after))
    if place.repo.head() not in (before, after):
        _end(place)
        raise _overtaken(intent, is_begun=captured is None)

    restored = _restore(place, intent, folder, captured)
    head = place.repo.head()
    if head == before != after:
        place.repo.move_head(head, intent.head_after, intent.why, place.who)
    elif head not in (before, after):
        _end(place)
        raise _overtaken(intent, is_begun=True)

    write_index(place, index_after(place, intent, folder, captured, restored))
    if intent.replaces_undo:
        place.notes.keep_undo(intent.undo)

    _end(place)
    return restored.unfinished


def begin(place: OpenWorkspace, intent: Intent) -> None:
    """Make the intent durable and protect the commits it needs from `git gc` until it ends."""
    needed = [intent.head_after] if intent.head_after else []
    if intent.tree_before is not None and intent.tree_after is not None:
        before, after = bytes.fromhex(intent.tree_before), bytes.fromhex(intent.tree_after)
        _refuse_missing(place, changes_between(place, bytes.fromhex(intent.folder), before, after))
        # The tree may belong to no commit: ignored files that are restored are in it.
        needed.append(write_commit(place, before, SAFETY + b" under way\n"))

    place.repo.flush()
    for number, sha in enumerate(needed):
        place.repo.point(f"{_ref_prefix(place)}{number}", sha)

    place.notes.begin(intent)


def _end(place: OpenWorkspace) -> None:
    place.notes.end()
    for ref in place.repo.references(_ref_prefix(place)):
        place.repo.forget(ref)


def _ref_prefix(place: OpenWorkspace) -> str:
    """Return the prefix of this work tree's refs for a move; other work trees have their own."""
    name = quote_from_bytes(os.fsencode(place.repo.git_dir.name), safe="").replace("~", "%7E")
    is_main = place.repo.git_dir == place.repo.common_dir
    return f"refs/hankweave/underway/{'main' if is_main else 'worktree-' + name}/"


def _overtaken(intent: Intent, *, is_begun: bool) -> CheckpointError:
    if not is_begun or intent.safety_ref is None:
        return RepositoryBusy("Another program has moved the branch in the meantime.", "Try again.")

    return RollbackIncomplete(
        (
            "Another program moved the branch before a rollback was complete; the branch was "
            "left as it is."
        ),
        f"The files from before the rollback are kept as {intent.safety_ref}.",
        (),
    )


def _refuse_missing(place: OpenWorkspace, changes: Changes) -> None:
    """Raise CheckpointError if the content of a file is missing, as in a partial clone."""
    for path, (_, new) in changes.items():
        if new is not None and not place.repo.has(new.digest):
            raise CheckpointError(
                f"The content of {os.fsdecode(path)!r} is not in this repository.",
                "In a partial clone, `git checkout` of that commit fetches it.",
            )


def _restore(
    place: OpenWorkspace, intent: Intent, folder: bytes, captured: WorkspaceCaptured | None
) -> Restored:
    if intent.tree_before is None or intent.tree_after is None:
        return Restored()

    trees = bytes.fromhex(intent.tree_before), bytes.fromhex(intent.tree_after)
    changes = changes_between(place, folder, *trees)

    spares = place.repo.git_dir / "hankweave-spares"
    make_private_directory(spares)
    with folder_for_new_files(spares) as descriptor:
        restored = Restoring(place, intent, folder, captured, descriptor).run(changes)

    sync_filesystem(place.repo.work_tree)
    return restored


def _blobs(digests: Mapping[str, str]) -> dict[bytes, bytes]:
    return {bytes.fromhex(path): bytes.fromhex(blob) for path, blob in digests.items()}


def changes_between(
    place: OpenWorkspace, folder: bytes, before: bytes, after: bytes
) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Return the files of the folder that differ between two trees, without submodules.

    Raises UnsupportedRepository for names that would lead out of the folder or into `.git`.
    """
    lookup = Lookup(place.repo.read_tree)
    old, new = (lookup.folder(tree, folder) for tree in (before, after))
    found = {
        joined(folder, path): pair
        for path, pair in differences(place.repo.read_tree, old, new).items()
        if all(entry is None or entry.mode != GITLINK for entry in pair)
    }

    for path in found:
        if any(name in _NO_NAMES or is_reserved(name) for name in path.split(b"/")):
            raise UnsupportedRepository(
                (
                    f"A commit contains the name {os.fsdecode(path)!r}, which is not allowed in "
                    "a work tree."
                ),
                "Run `git fsck` for details.",
            )

    return found


def unusual_permissions(
    descent: Descent,
    captured: WorkspaceCaptured,
    changes: Changes,
) -> dict[str, int]:
    """Return permissions that an undo could not restore from git, by path in hex.

    Git records one bit of a file's permissions and none of a folder's. Included are files that are
    removed or change their kind, and folders that may be removed.
    """
    found: dict[bytes, int] = {}
    for path, (old, new) in changes.items():
        status = captured.seen.get(path)
        if old is None or status is None or (new is not None and new.mode == old.mode):
            continue

        found[path] = stat.S_IMODE(status.st_mode)
        for folder in parents_of(path) if new is None else ():
            if folder in found:
                break

            above = descent.status(folder)
            if above is not None:
                found[folder] = stat.S_IMODE(above.st_mode)

    return {path.hex(): permissions for path, permissions in found.items()}
