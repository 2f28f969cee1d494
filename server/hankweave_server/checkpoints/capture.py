"""Make one checkpoint: read what changed, write objects, then and only then move the ref.

Blobs, trees, note and commit are written under temporary names, flushed once, renamed to their
final names; then the notes ref moves, then the branch. A crash leaves unreachable objects, or the
whole checkpoint.

Many files are read on two threads. Opening, reading, hashing and deflating release the interpreter
lock, so two threads are nearly twice as fast, and the rest of the daemon is hardly affected.
Results come in the order of the request, and only a few files' content is in memory at a time.

`Untold` follows changes to tracked files that were not reported yet: each change is reported
exactly once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import commit_message
from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.detach import QUARANTINE, set_aside
from hankweave_server.checkpoints.file_reader import (
    CapturedFile,
    FileReader,
    FileRefused,
    Observation,
)
from hankweave_server.checkpoints.model import (
    CAPTURED_ANYWAY,
    REASONS_THAT_LOSE_CONTENT,
    ChangeKind,
    CheckpointMade,
    CheckpointRequest,
    FileChange,
    Skipped,
)
from hankweave_server.checkpoints.notes import Notes, recover_notes
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.git.objects import ObjectStaging, PackedObject, digest_of, packed
from hankweave_server.git.repo import BRANCHES, NOTES_REF, SAFETY, ShadowRepo
from hankweave_server.git.trees import Difference, Entry, Lookup, changes, write_trees
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.wal import StagedFile, Tail
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.open_files import OpenFiles
from hankweave_server.worktree.stat_index import StatIndex, TrackedFile

THREADS = 2
FEW = 32
"""Up to this many files are read before threads could be started."""

CHUNK = 64  # Files in one batch, unless its content is large.
BATCH_LIMIT = 1 << 20  # Deflated bytes after which a batch is handed over early.

Seen = tuple[TrackedFile, Observation]


class Batch(NamedTuple):
    """The results of reading some neighbouring files."""

    seen: list[Seen]
    objects: list[PackedObject]
    rest: Sequence[TrackedFile]
    """Files not read because the batch was full."""


def read_all(
    files: Sequence[TrackedFile],
    descent: Descent,
    staging: ObjectStaging,
    size_limit: int | None,
) -> Iterator[Seen]:
    """Read the files in turn, store their content, and yield what was at each path.

    Raises StoreFailed when content cannot be stored, OSError for errors of the work tree's disk.
    """
    if len(files) <= FEW:
        capture = FileReader(descent, staging, size_limit)
        for file in files:
            yield file, capture.read(file.path)

        return

    with ExitStack() as ending:
        idle: SimpleQueue[_Reader] = SimpleQueue()
        # One more than there are threads: the rest of a full batch is read without waiting.
        for _ in range(THREADS + 1):
            reader = _Reader(descent.twin(), staging, size_limit)
            ending.callback(reader.close)
            idle.put(reader)

        pool = ThreadPoolExecutor(THREADS, "checkpoint")
        ending.callback(pool.shutdown, cancel_futures=True)
        for batch in _in_order(files, pool, idle):
            for item in batch.objects:
                staging.take(item)

            yield from batch.seen


def _in_order(
    files: Sequence[TrackedFile], pool: ThreadPoolExecutor, idle: SimpleQueue[_Reader]
) -> Iterator[Batch]:
    waiting: deque[Future[Batch]] = deque()
    for start in range(0, len(files), CHUNK):
        waiting.append(pool.submit(_read, files[start : start + CHUNK], idle))
        if len(waiting) > THREADS + 1:
            yield from _whole(waiting.popleft().result(), idle)

    while waiting:
        yield from _whole(waiting.popleft().result(), idle)


def _whole(batch: Batch, idle: SimpleQueue[_Reader]) -> Iterator[Batch]:
    yield batch
    while batch.rest:
        batch = _read(batch.rest, idle)
        yield batch


def _read(files: Sequence[TrackedFile], idle: SimpleQueue[_Reader]) -> Batch:
    reader = idle.get()
    try:
        return reader.batch(files)
    finally:
        idle.put(reader)


class _Reader:
    """One reading thread: its own descent into the work tree, and its deflated objects."""

    def __init__(self, descent: Descent, staging: ObjectStaging, size_limit: int | None) -> None:
        self._descent = descent
        self._staging = staging
        self._capture = FileReader(descent, self, size_limit)
        self._objects: list[PackedObject] = []
        self._held = 0

    def batch(self, files: Sequence[TrackedFile]) -> Batch:
        """Read files until the batch is full."""
        seen: list[Seen] = []
        self._objects, self._held = [], 0
        for file in files:
            seen.append((file, self._capture.read(file.path)))
            if self._held > BATCH_LIMIT:
                break

        return Batch(seen, self._objects, files[len(seen) :])

    def close(self) -> None:
        self._descent.close()

    def blob(self, data: bytes) -> bytes:
        digest = digest_of("blob", data)
        if self._staging.claim(digest):
            item = packed(digest, "blob", data)
            self._objects.append(item)
            self._held += len(item.record)

        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        return self._staging.streamed_blob(descriptor, size)

    def withdraw(self, digest: bytes) -> None:
        self._staging.withdraw(digest)


@dataclass(frozen=True, slots=True)
class _Outline:
    """A description of one state of the index, valid until the index's counter changes."""

    table: StatIndex
    number: int
    files: int
    manifest: manifests.Manifest


class Recording:
    """A recorder that turns the present work tree into commits."""

    def __init__(
        self,
        repo: ShadowRepo,
        notes: Notes,
        memory: WorkTreeMemory,
        size_limit: int | None,
        staged_intent: Callable[[bytes], StagedFile],
        journal: Path,
    ) -> None:
        """`staged_intent` writes the intent of a restore under its temporary name."""
        self._staged_intent = staged_intent
        self._journal = journal
        self._repo = repo
        self._notes = notes
        self._memory = memory
        self._size_limit = size_limit
        self._outline: _Outline | None = None

    def record(
        self, request: CheckpointRequest, parent: Sha | None, meter: Meter = UNWATCHED
    ) -> CheckpointMade:
        """Make a checkpoint on the request's branch, which exists or has no parent.

        If this raises, the caller must reset the memory, which may name objects that were never
        stored.
        """
        staging = self._repo.staging()
        try:
            meter.begin("scanning", "files")
            pending = self._look(request, parent)
            before = request.open_files()
            pending += self._mapped_besides(pending, before)
            meter.begin("reading", "files", len(pending))
            skipped, sizes = self._read(pending, staging, meter)
            skipped += self._being_written(before | request.open_files(), skipped, sizes)
            skipped.sort(key=lambda item: item.path)
            tree = write_trees(self._memory.table, lambda data: staging.add("tree", data))
            commit, notes = self._write_commit(request, parent, tree, skipped, staging)
            made = CheckpointMade(
                sha=commit,
                tree=Sha(tree.hex()),
                kind=request.kind,
                skipped=tuple(skipped),
                partial=any(item.reason in REASONS_THAT_LOSE_CONTENT for item in skipped),
                files=self._outlined(skipped).files,
                changed=(),
            )
            meter.begin("flushing", "files")
            files = []
            if request.intent_of is not None:
                files.append(self._staged_intent(request.intent_of(made)))

            self._repo.publish(
                staging, _moves(request, commit, notes), files, tail=self._tail_of(request)
            )
        except BaseException:
            staging.abandon()
            raise

        changed = self._changes(parent, sizes)
        self._memory.is_recorded(commit, tree)
        return replace(made, changed=changed)

    def _tail_of(self, request: CheckpointRequest) -> Tail | None:
        return None if request.journal_tail is None else Tail(self._journal, *request.journal_tail)

    def _look(self, request: CheckpointRequest, parent: Sha | None) -> list[TrackedFile]:
        if request.before is not None:
            return self._memory.refresh_after(request.before, parent, request.patterns)

        return self._memory.refresh(parent, request.patterns, request.also)

    def _read(
        self, pending: Sequence[TrackedFile], staging: ObjectStaging, meter: Meter
    ) -> tuple[list[Skipped], dict[bytes, int]]:
        """Read the files into the staging area.

        Returns the files that could not be read properly, and the sizes of the unstable ones.
        """
        memory = self._memory
        skipped = [Skipped(path, "unreadable") for path in memory.scan.unlistable]
        sizes: dict[bytes, int] = {}
        with memory.descent.fresh() as descent:
            for file, seen in read_all(pending, descent, staging, self._size_limit):
                match seen:
                    case CapturedFile(digest, git_mode, signature, permissions, size):
                        memory.scan.remember(file, signature, digest, git_mode, permissions)
                        if signature is None:
                            sizes[file.path] = size
                            skipped.append(Skipped(file.path, CAPTURED_ANYWAY))
                    case FileRefused(reason):
                        memory.scan.remember(file, None)
                        skipped.append(Skipped(file.path, reason))
                    case _:
                        memory.table.lose(file)

                meter.advance()

        return skipped, sizes

    def _mapped_besides(
        self, pending: Sequence[TrackedFile], opened: OpenFiles
    ) -> list[TrackedFile]:
        """Return the tracked files that may have changed although their stat data has not."""
        known = {file.slot for file in pending}
        tracked = (self._memory.table.files.get(path) for path in sorted(opened.mapped))
        return [file for file in tracked if file is not None and file.slot not in known]

    def _being_written(
        self, opened: OpenFiles, skipped: Sequence[Skipped], sizes: dict[bytes, int]
    ) -> list[Skipped]:
        """Return the files that an agent was writing while they were captured.

        A file that it writes through a mapping must be read again, whatever its stat data will be.
        """
        known = {item.path for item in skipped}
        found = []
        for path in opened.open - known:
            file = self._memory.table.files.get(path)
            if file is None or not file.captured[0]:
                continue

            found.append(Skipped(path, CAPTURED_ANYWAY))
            if path in opened.mapped and file.signature is not None:
                git_mode, permissions, digest = file.captured
                sizes[path] = file.signature.size
                self._memory.scan.remember(file, None, digest, git_mode, permissions)

        return found

    def _outlined(self, skipped: list[Skipped]) -> _Outline:
        """Describe what is captured; reuse the last description if only content changed."""
        table, known = self._memory.table, self._outline
        if (
            known is None
            or known.table is not table
            or (known.number, known.manifest.skipped) != (table.outline, tuple(skipped))
        ):
            manifest = manifests.manifest_of(table, skipped)
            files = table.permissions.files
            known = self._outline = _Outline(table, table.outline, files, manifest)

        return known

    def _write_commit(
        self,
        request: CheckpointRequest,
        parent: Sha | None,
        tree: bytes,
        skipped: list[Skipped],
        staging: ObjectStaging,
    ) -> tuple[Sha, Sha | None]:
        """Write commit and manifest; return the commit, and the notes tree if there is a note."""
        parents = () if parent is None else (parent,)
        message = commit_message.written(request)
        body = commit_message.commit_object(tree, parents, request.timestamp, message)
        commit = Sha(staging.add("commit", body).hex())
        manifest = self._outlined(skipped).manifest
        if manifest.is_plain:
            return commit, None

        content = manifests.encoded(manifest)
        try:
            return commit, self._notes.with_note(commit, content, staging.add)
        except (KeyError, ValueError):
            return commit, self._notes_gathered(commit, content, staging)

    def _notes_gathered(self, commit: Sha, content: bytes, staging: ObjectStaging) -> Sha:
        """Write the notes from what older notes trees have, because the present one is damaged."""
        self._repo.is_doubted = True
        lost = self._repo.target(NOTES_REF)
        assert lost is not None, "without a ref there is no damage"
        set_aside(self._repo.path / QUARANTINE / lost, NOTES_REF, lost)
        commits = frozenset(each.sha for each in self._repo.history())
        note = {commit: staging.add("blob", content)}
        top = recover_notes(self._repo, commits, staging.add, note).top
        assert top is not None, "there is a note to add"
        return Sha(top.hex())

    def _changes(self, parent: Sha | None, sizes: Mapping[bytes, int]) -> tuple[FileChange, ...]:
        """Compare the stat index with the parent; unreadable parts of the parent count as absent.

        A file's size is in its stat data, except for unstable files, whose sizes are passed.
        """

        def described(difference: Difference) -> FileChange:
            path, before, after, signature = difference
            size = signature.size if after and signature else sizes.get(path, 0)
            return FileChange(path, kind_of_change(before, after), size)

        table, read = self._memory.table, self._repo.read_tree
        try:
            commit = None if parent is None else self._repo.commit(parent)
            before = None if commit is None else bytes.fromhex(commit.tree)
            return tuple(map(described, changes(table, read, before)))
        except (KeyError, ValueError):
            return tuple(map(described, changes(table, read, None)))


def _moves(request: CheckpointRequest, commit: Sha, notes: Sha | None) -> dict[str, str]:
    """Return the refs that a new checkpoint moves."""
    # Files that a rollback is about to overwrite are not part of the run's history.
    on_branch = request.before is None
    ref = BRANCHES + branch_of(request.run_id) if on_branch else SAFETY + commit
    return {ref: commit} if notes is None else {NOTES_REF: notes, ref: commit}


def kind_of_change(old: Entry | None, new: Entry | None) -> ChangeKind:
    if old is None:
        return "created"

    return "deleted" if new is None else "modified"


class Untold:
    """The unreported changes, followed across scans and checkpoints in their order."""

    def __init__(self, repo: ShadowRepo, memory: WorkTreeMemory) -> None:
        self._repo = repo
        self._memory = memory
        self._told: dict[bytes, Entry | None] = {}
        """Last reported state of files that the last checkpoint may hold in another state."""
        self._basis: tuple[bytes | None, tuple[str, ...]] | None = None
        """The tree with which the last scan compared, and the patterns it used."""

    def look(
        self, last: bytes | None, patterns: tuple[str, ...], pending: Iterable[TrackedFile]
    ) -> Iterator[FileChange]:
        """Yield what changed since the last checkpoint and was not yielded before.

        The memory must be fresh; `pending` are the files that it has found to differ.
        """
        self._basis = last, patterns
        recorded_in = Lookup(self._repo.read_tree)
        suspects = {file.path for file in pending} | self._memory.table.gone
        for path in sorted(suspects | self._told.keys()):
            seen = self._memory.observer.at(path)
            if isinstance(seen, FileRefused):
                continue

            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, CapturedFile) else None
            recorded = recorded_in.entry(last, path)
            before = self._told.get(path, recorded)
            if now != before:
                size = seen.size if isinstance(seen, CapturedFile) else 0
                yield FileChange(path, kind_of_change(before, now), size)

            self._told[path] = now

    def follow(
        self, request: CheckpointRequest, parent: bytes | None, made: CheckpointMade
    ) -> None:
        """Compare with a new checkpoint from now on; its parent has the tree `parent`.

        Changes it captured after the last scan are still to be reported: agents do not pause.
        Newly tracked files are not changes, and after a safety checkpoint everything may be
        different.
        """
        if parent is None or request.kind == "safety" or self._basis != (parent, request.patterns):
            self._told, self._basis = {}, None
            return

        tree, recorded_in = bytes.fromhex(made.tree), Lookup(self._repo.read_tree)
        taken_in = sorted({change.path for change in made.changed} | self._told.keys())
        last = {
            path: self._told[path] if path in self._told else recorded_in.entry(parent, path)
            for path in taken_in
        }
        taken = {path: recorded_in.entry(tree, path) for path in taken_in}
        self._told = {path: entry for path, entry in last.items() if entry != taken[path]}
        self._basis = tree, request.patterns
