"""The versions of files through the checkpoints of an execution, newest first.

The parents of checkpoints are the timeline: after a rollback, the next checkpoint is a child of the
target, so abandoned work is not among its ancestors. Three kinds of checkpoints have files from
elsewhere, which git cannot know:

- after the restore of some paths, those files come from the checkpoint they were restored from;
- the merge of an attempt's result has that result as a second parent;
- the adopted result of an attempt is a checkpoint of the attempt's run, with its parent here.

A file that a checkpoint has and its parent lacks was renamed if a file that vanished is like it, by
the rules of git: the same content, else the same name and three quarters in common, else the one
that has most in common and at least half.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from hankweave_protocol import codec
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CheckpointRollback
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import Sha
from hankweave_protocol.state import State
from hankweave_server.checkpoints.commit_message import facts_of
from hankweave_server.domain.retention import CommitFacts
from hankweave_server.features.answers.blame import FileVersion
from hankweave_server.git.errors import ShadowRepositoryError, disk_faults
from hankweave_server.git.line_changes import ChangedLines, changed_lines
from hankweave_server.git.repo import RawCommit, ShadowRepo
from hankweave_server.git.trees import FOLDER, LINK, Entry, differences, entry_named, files_below
from hankweave_server.ledger.searched_journal import SearchedJournal, of_types
from hankweave_server.paths import Layout
from hankweave_server.worktree.names import is_within, meant_by, shown

K = TypeVar("K", bytes, Sha)
R = TypeVar("R")

_ENTRIES_AT_HAND = 10_000
_CONTENTS_AT_HAND = 8
_MERGED = re.compile(r"attempt (\S+), merged")


class PathRestore(NamedTuple):
    """A rollback, of some paths or of all files."""

    seq: int
    """Of its event."""
    sha: Sha
    paths: frozenset[bytes] | None


class Occurrences(NamedTuple):
    """How often a file has a text before and after a checkpoint."""

    sha: Sha
    path: bytes
    before: int
    after: int


class FileVersions:
    """The versions of the files in a shadow repository; for one thread."""

    def __init__(
        self,
        repo: ShadowRepo,
        *,
        restores: Sequence[PathRestore] = (),
        results: Mapping[str, Sha] = MappingProxyType({}),
        copies: bool = False,
    ) -> None:
        """Read a repository.

        `restores` are all rollbacks, newest first. `results` are the checkpoints of attempts, by
        their ids. With `copies`, new files are also followed into files that stayed where they
        were.
        """
        self.repo = repo
        self._restores = restores
        self._results = results
        self._copies = copies
        self._entries: dict[tuple[bytes, bytes], Entry | None] = {}
        """The entries of trees that were looked up last, by the tree and the name."""
        self._commits: dict[Sha, RawCommit | None] = {}
        self._contents: dict[bytes, bytes] = {}
        """Contents that were read last, the newest at the end."""
        self._last_origins: tuple[FileVersion, tuple[FileVersion, ...]] | None = None
        """The origins of one version, which are asked for twice."""

    def newest(self) -> Sha | None:
        """Return the checkpoint that the present files continue from."""
        return self.repo.head()

    def version(self, sha: Sha, path: bytes) -> FileVersion | None:
        """Return a file of a checkpoint, if there is one."""
        commit = self.commit(sha)
        entry = None if commit is None else self._entry(commit, path)
        return None if entry is None else FileVersion(sha, path, entry.digest)

    def file_at(self, sha: Sha, path: bytes) -> FileVersion:
        """Return a file of a checkpoint; raise Refused if it has none of that name."""
        version = self.version(sha, path)
        if version is None:
            raise Refused(
                ErrorCode.INVALID_PATH,
                f"Checkpoint {sha[:12]} has no file {shown(path)}.",
                path="$.data.path",
                hint=Hint.FILES_OF_CHECKPOINT,
            )

        return version

    def content(self, blob: bytes) -> bytes:
        """Return a content; raise ShadowRepositoryError if it cannot be read."""
        found = self._contents.pop(blob, None)
        if found is None:
            found = _read(self.repo.read_blob, blob)

        self._contents[blob] = found
        if len(self._contents) > _CONTENTS_AT_HAND:
            del self._contents[next(iter(self._contents))]

        return found

    def commit(self, sha: Sha) -> RawCommit | None:
        """Return a commit; None if it is gone. Raises ShadowRepositoryError for damage."""
        try:
            return self._commits[sha]
        except KeyError:
            found = self._commits[sha] = _read(self.repo.commit, sha)
            return found

    def facts(self, sha: Sha) -> CommitFacts | None:
        """Return what a checkpoint's commit says; None if another program has made it."""
        commit = self.commit(sha)
        return None if commit is None else facts_of(commit)

    def parent(self, commit: RawCommit) -> RawCommit | None:
        """Return the checkpoint before; None at the beginning of what is known."""
        return self.commit(commit.parents[0]) if commit.parents else None

    def line(self, sha: Sha) -> Iterator[RawCommit]:
        """Yield a checkpoint and those before it, newest first."""
        commit = self.commit(sha)
        while commit is not None:
            yield commit
            commit = self.parent(commit)

    # The history of one file

    def beginning(self, version: FileVersion) -> FileVersion:
        """Return the first of the versions that have had this content without a break."""
        while True:
            version = self._unchanged_since(version)
            origins = self.before(version)
            same = (each for each in origins if each.blob == version.blob)
            older = next(same, None)
            if older is None:
                return version

            version = older

    def before(self, version: FileVersion) -> Sequence[FileVersion]:
        """Return the versions, all of other content, that one may come from, the nearest first."""
        if self._last_origins is None or self._last_origins[0] != version:
            self._last_origins = version, tuple(self._found_origins(version))

        return self._last_origins[1]

    def age(self, version: FileVersion) -> float:
        """Return a number that is never smaller for an older version."""
        commit = self.commit(version.sha)
        return 0.0 if commit is None else -commit.committed.timestamp()

    def changed(self, old: FileVersion, new: FileVersion) -> Sequence[ChangedLines]:
        """Compare two versions line by line."""
        return changed_lines(self.content(old.blob), self.content(new.blob))

    def patch(self, version: FileVersion) -> bytes:
        """Return the change by which a version came from the nearest one before, as a diff."""
        origins = self.before(version)
        old = self.content(origins[0].blob) if origins else None
        new = self.content(version.blob)
        return self.repo.line_diff(shown(version.path), old, new, patch_wanted=True).patch

    def changed_paths(self, sha: Sha) -> list[bytes]:
        """Return the files that differ between a checkpoint and the one before."""
        commit = self.commit(sha)
        assert commit is not None, "the checkpoint exists"
        parent = self.parent(commit)
        old = None if parent is None else bytes.fromhex(parent.tree)
        return sorted(differences(self._tree, old, bytes.fromhex(commit.tree)))

    def change_of(self, sha: Sha, path: bytes) -> bytes:
        """Return what a checkpoint changed in a file, as a diff."""
        version = self.version(sha, path)
        if version is not None:
            return self.patch(version)

        commit = self.commit(sha)
        parent = None if commit is None else self.parent(commit)
        removed = None if parent is None else self.version(parent.sha, path)
        old = None if removed is None else self.content(removed.blob)
        return self.repo.line_diff(shown(path), old, None, patch_wanted=True).patch

    def later(self, version: FileVersion, newest: FileVersion) -> Iterator[FileVersion]:
        """Yield the versions that came after one, up to the newest, which is yielded first."""
        version, known = self.beginning(version), self.beginning(newest)
        while known != version:
            yield known
            origins = self.before(known)
            if not origins:
                return

            known = self.beginning(origins[0])

    def _unchanged_since(self, version: FileVersion) -> FileVersion:
        """Go back along first parents, through those that have the same file at the same path."""
        commit = self.commit(version.sha)
        assert commit is not None, "a version is of a checkpoint that exists"
        entry = self._entry(commit, version.path)
        while (parent := self.parent(commit)) is not None:
            if parent.tree != commit.tree:
                there = self._entry(parent, version.path)
                if there is None or entry is None or not _are_same_kind(there, entry):
                    break

                if there.digest != version.blob:
                    break

            commit = parent

        return FileVersion(commit.sha, version.path, version.blob)

    def _found_origins(self, version: FileVersion) -> Iterator[FileVersion]:
        commit = self.commit(version.sha)
        assert commit is not None, "a version is of a checkpoint that exists"
        entry = self._entry(commit, version.path)
        assert entry is not None, "a version is of a file that exists"
        for sha in (*commit.parents, *self._joined(commit, version.path)):
            parent = self.commit(sha)
            if parent is None:
                continue

            there = self._entry(parent, version.path)
            if there is not None and _are_same_kind(there, entry):
                yield FileVersion(sha, version.path, there.digest)
            elif there is None and entry.mode != LINK:
                path = self._former_path(parent, commit, version)
                if path is not None:
                    was = self._entry(parent, path)
                    assert was is not None, "the path is one of the parent"
                    yield FileVersion(sha, path, was.digest)

    def _joined(self, commit: RawCommit, path: bytes) -> Iterator[Sha]:
        """Yield the checkpoints besides its parents from which a checkpoint has a path."""
        if not self._restores and not self._results:
            return

        facts = self.facts(commit.sha)
        merged = None if facts is None else _MERGED.fullmatch(facts.label or "")
        if merged and merged[1] in self._results:
            yield self._results[merged[1]]

        parent = self.parent(commit)
        earlier = None if parent is None else self.facts(parent.sha)
        if facts is None or earlier is None:
            return

        for each in self._restores:
            if each.seq > (facts.event_seq or 0):
                continue

            if each.seq <= (earlier.event_seq or 0) or each.paths is None:
                return  # What was restored before a rollback of all files is gone.

            if is_within(path, each.paths):
                yield each.sha

    def _former_path(
        self, parent: RawCommit, commit: RawCommit, version: FileVersion
    ) -> bytes | None:
        """Return the path that a new file had before, or the one it was copied from."""
        changes = differences(self._tree, bytes.fromhex(parent.tree), bytes.fromhex(commit.tree))
        gone = {path: old for path, (old, new) in sorted(changes.items()) if old and new is None}
        found = self._most_similar(gone, version)
        if found is not None or not self._copies:
            return found

        every = sorted(files_below(self._tree, bytes.fromhex(parent.tree)))
        same = {path: entry for path, entry in every if entry.digest == version.blob}
        changed = {path: old for path, (old, new) in sorted(changes.items()) if old and new}
        return self._most_similar(same or changed, version)

    def _most_similar(self, sources: Mapping[bytes, Entry], version: FileVersion) -> bytes | None:
        """Return which of the files git takes for the former one of a file, if any."""
        files = {path: entry.digest for path, entry in sources.items() if entry.mode != LINK}
        name = _name(version.path)
        same = [path for path, blob in files.items() if blob == version.blob]
        if same:
            return next((path for path in same if _name(path) == name), same[0])

        new = self.content(version.blob)
        scores = {path: _similarity(self.content(blob), new) for path, blob in files.items()}
        namesakes = [path for path in files if _name(path) == name]
        if len(namesakes) == 1 and scores[namesakes[0]] >= _LIKE_NAMESAKES:
            return namesakes[0]

        best = max(scores, key=lambda path: (scores[path], _name(path) == name), default=None)
        return best if best is not None and scores[best] >= _LIKE else None

    # Texts

    def occurrences(self, commits: Iterable[RawCommit], text: bytes) -> Iterator[Occurrences]:
        """Yield where a text came or went: files of checkpoints that have it more or less often.

        A renamed file is no change.
        """
        known: dict[bytes, int] = {}

        def count(entry: Entry | None) -> int:
            if entry is None:
                return 0

            if entry.digest not in known:
                known[entry.digest] = _read(self.repo.read_blob, entry.digest).count(text)

            return known[entry.digest]

        for commit in commits:
            parent = self.parent(commit)
            old = None if parent is None else bytes.fromhex(parent.tree)
            changes = differences(self._tree, old, bytes.fromhex(commit.tree))
            gone = {path: old for path, (old, new) in changes.items() if old and new is None}
            for path, (before, after) in sorted(changes.items()):
                if after is not None and before is None and gone:
                    version = FileVersion(commit.sha, path, after.digest)
                    former = self._most_similar(dict(sorted(gone.items())), version)
                    if former is not None:
                        before = gone.pop(former)
                        changes[path] = before, after
                        del changes[former]

            for path, (before, after) in sorted(changes.items()):
                counts = count(before), count(after)
                if counts[0] != counts[1]:
                    yield Occurrences(commit.sha, path, *counts)

    def every_commit(self) -> Iterator[RawCommit]:
        """Yield the checkpoints of all timelines, newest first."""
        return self.repo.commits()

    def _entry(self, commit: RawCommit, path: bytes) -> Entry | None:
        found: Entry | None = Entry(FOLDER, bytes.fromhex(commit.tree))
        for name in path.split(b"/"):
            if found is None or found.mode != FOLDER:
                return None

            found = self._named(found.digest, name)

        return None if found is None or found.mode == FOLDER else found

    def _named(self, tree: bytes, name: bytes) -> Entry | None:
        known = tree, name
        if known not in self._entries:
            if len(self._entries) >= _ENTRIES_AT_HAND:
                self._entries.clear()

            self._entries[known] = entry_named(self._tree(tree), name)

        return self._entries[known]

    def _tree(self, digest: bytes) -> bytes:
        return _read(self.repo.read_tree, digest)


def _read(read: Callable[[K], R], name: K) -> R:
    try:
        return read(name)
    except KeyError as problem:
        shown = name.hex() if isinstance(name, bytes) else name
        raise ShadowRepositoryError(f"object {shown} cannot be read") from problem


def _are_same_kind(one: Entry, other: Entry) -> bool:
    """Return whether both are files, or both are links."""
    return (one.mode == LINK) == (other.mode == LINK)


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


_WHOLE = 60_000
_LIKE = _WHOLE // 2
_LIKE_NAMESAKES = _WHOLE * 3 // 4
_PIECE = re.compile(rb"[^\n]{0,63}\n|[^\n]{1,64}")


def _similarity(old: bytes, new: bytes) -> int:
    """Return how much of two contents is in both, as git counts it: pieces of lines, by bytes."""
    larger = max(len(old), len(new))
    if not new or larger * _LIKE < (larger - min(len(old), len(new))) * _WHOLE:
        return 0

    before, after = (Counter(_PIECE.findall(_text(each))) for each in (old, new))
    common = sum(len(piece) * count for piece, count in (before & after).items())
    return common * _WHOLE // larger


def _text(content: bytes) -> bytes:
    return content if b"\0" in content[:8000] else content.replace(b"\r\n", b"\n")


# --- opening --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadHistory:
    """The history of an execution, opened for reading next to its server; for one thread."""

    layout: Layout
    files: FileVersions
    journal: SearchedJournal
    state: State


@contextmanager
def file_versions(
    layout: Layout, journal: SearchedJournal, state: State, *, copies: bool = False
) -> Iterator[FileVersions]:
    """Open the versions of the files; raise ShadowRepositoryError for damage."""
    with disk_faults(layout.root):
        repo = ShadowRepo(layout.shadow_repository)

    with closing(repo):
        attempts = (each for known in state.explorations for each in known.attempts)
        results = {each.attempt_id: each.checkpoint_sha for each in attempts}
        yield FileVersions(
            repo,
            restores=tuple(_restores_in(journal)),
            results={name: sha for name, sha in results.items() if sha is not None},
            copies=copies,
        )


def _restores_in(journal: SearchedJournal) -> Iterator[PathRestore]:
    """Yield the rollbacks, newest first."""
    for _, line in journal.backward(of_types([CheckpointRollback.TYPE])):
        event = codec.decode_event(line)
        if isinstance(event.data, CheckpointRollback):
            paths = event.data.paths
            meant = None if paths is None else meant_by(paths)
            yield PathRestore(event.seq, event.data.checkpoint, meant)
