"""Make one checkpoint: read what changed, write objects, then and only then move the ref.

Blobs, trees, note and commit are written under temporary names, flushed once, renamed to their
final names; then the notes ref moves, then the branch. A crash leaves unreachable objects, or the
whole checkpoint.

The content of many files is deflated on other threads, in batches, while one thread reads. Reading
a small file is a dozen system calls of a microsecond; threads that share this would pass the
interpreter lock to each other at each of them, which takes longer than the calls.

`PendingChanges` follows changes to tracked files that were not reported yet, so that each is
reported exactly once.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import commit_message
from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.detach import QUARANTINE, set_aside
from hankweave_server.checkpoints.diff import Extents, extent_of
from hankweave_server.checkpoints.file_reader import (
    CapturedFile,
    FileReader,
    FileRefused,
    Observation,
    Sink,
)
from hankweave_server.checkpoints.intent import IntentFile
from hankweave_server.checkpoints.merge import TreeMerge
from hankweave_server.checkpoints.model import (
    CAPTURED_ANYWAY,
    CheckpointMade,
    CheckpointRequest,
    Skipped,
    WorkTreeChange,
    kind_of_change,
)
from hankweave_server.checkpoints.notes import Notes, recover_notes
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.domain.checkpoints.titles import Extent
from hankweave_server.git.objects import ObjectStaging, PackedObject, digest_of, packed
from hankweave_server.git.repo import BRANCHES, NOTES_REF, SAFETY, ShadowRepo
from hankweave_server.git.trees import (
    LINK,
    Difference,
    Entry,
    Lookup,
    changes,
    count_changes,
    files_below,
    write_trees,
)
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.wal import Tail
from hankweave_server.worktree.databases import COMPANIONS, base_of, family
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.open_files import OpenFiles
from hankweave_server.worktree.stat_index import StatIndex, TrackedFile, signature_of

THREADS = 2
FEW = 32
"""Up to this many files are read before threads could be started."""

BATCH_SIZE = 128 << 10
"""Bytes of content that are deflated in one piece of work."""

FREQUENT = frozenset({"tool", "turn"})
"""Kinds of checkpoints that trust the stat data of files that a process may be writing to."""

ATTEMPTS = 2
"""How often a database is read again that a program writes to at that moment."""

Seen = tuple[TrackedFile, Observation]
Digests = dict[bytes, str]
"""SHA-256 of regular files, by path."""


def read_all(
    files: Sequence[TrackedFile],
    descent: Descent,
    staging: ObjectStaging,
    size_limit: int | None,
    digests: Digests | None = None,
    extents: Extents | None = None,
) -> Iterator[Seen]:
    """Read the files in turn, store their content, and yield what was at each path.

    `digests` receives the digests of files that are read at once; those of large ones are left out.
    `extents` notes the content of few files.
    Raises StoreFailed when content cannot be stored, OSError for errors of the work tree's disk.
    """
    if len(files) <= FEW:
        sink = staging if extents is None else _RecordingSink(staging, extents)
        few = _DigestingReader(descent, sink, size_limit, digests)
        for file in files:
            yield file, few.read(file.path)

        return

    with ThreadPoolExecutor(THREADS, "checkpoint") as pool:
        deflating = _Deflating(staging, pool)
        reader = _DigestingReader(descent, deflating, size_limit, digests)
        for file in files:
            yield file, reader.read(file.path)

        deflating.finish()


class _DigestingReader:
    """A reader that stores what it reads and, if wanted, notes its SHA-256."""

    def __init__(
        self, descent: Descent, sink: Sink, size_limit: int | None, digests: Digests | None
    ) -> None:
        self._sink = sink
        self._digests = digests
        self._reader = FileReader(descent, sink if digests is None else self, size_limit)
        self._digest: str | None = None
        """Of the content that was read last."""

    def read(self, path: bytes) -> Observation:
        self._digest = None
        seen = self._reader.read(path)
        is_file = isinstance(seen, CapturedFile) and seen.git_mode != LINK
        if self._digests is not None and self._digest is not None and is_file:
            self._digests[path] = self._digest

        return seen

    def blob(self, data: bytes) -> bytes:
        self._digest = hashlib.sha256(data).hexdigest()
        return self._sink.blob(data)

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        return self._sink.streamed_blob(descriptor, size)

    def withdraw(self, digest: bytes) -> None:
        self._sink.withdraw(digest)


class _RecordingSink:
    """A sink that notes small contents for the summary of the checkpoint."""

    def __init__(self, sink: Sink, extents: Extents) -> None:
        self._sink = sink
        self._extents = extents

    def blob(self, data: bytes) -> bytes:
        digest = self._sink.blob(data)
        self._extents.note(digest, data)
        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        return self._sink.streamed_blob(descriptor, size)

    def withdraw(self, digest: bytes) -> None:
        self._sink.withdraw(digest)


class _Deflating:
    """A sink that deflates content on other threads, and stores it in the order of its arrival."""

    def __init__(self, staging: ObjectStaging, pool: ThreadPoolExecutor) -> None:
        self._staging = staging
        self._pool = pool
        self._batch: list[tuple[bytes, bytes]] = []
        self._held = 0
        self._waiting: deque[Future[list[PackedObject]]] = deque()

    def blob(self, data: bytes) -> bytes:
        digest = digest_of("blob", data)
        if self._staging.claim(digest):
            self._batch.append((digest, data))
            self._held += len(data)
            if self._held > BATCH_SIZE:
                self._submit()

        return digest

    def streamed_blob(self, descriptor: int, size: int) -> bytes | None:
        return self._staging.streamed_blob(descriptor, size)

    def withdraw(self, digest: bytes) -> None:
        self._staging.withdraw(digest)

    def finish(self) -> None:
        """Store all that is left."""
        self._submit()
        while self._waiting:
            self._store_next()

    def _submit(self) -> None:
        self._waiting.append(self._pool.submit(_deflated, self._batch))
        self._batch, self._held = [], 0
        if len(self._waiting) > THREADS + 1:
            self._store_next()

    def _store_next(self) -> None:
        for item in self._waiting.popleft().result():
            self._staging.take(item)


def _deflated(batch: Iterable[tuple[bytes, bytes]]) -> list[PackedObject]:
    return [packed(digest, "blob", data) for digest, data in batch]


@dataclass(frozen=True, slots=True)
class _Outline:
    """A description of one state of the index, valid until the index's counter changes."""

    table: StatIndex
    number: int
    files: int
    manifest: manifests.Manifest


@dataclass(slots=True)
class Capture:
    """The content read for a checkpoint that is not committed yet."""

    staging: ObjectStaging
    parent: Sha | None
    paths: list[bytes]
    """The paths that may have changed since the last scan."""
    skipped: list[Skipped] = field(default_factory=list)
    """Files that could not be read, or not properly."""
    refused: set[bytes] = field(default_factory=set)
    """Those of them of which nothing was captured."""
    sizes: dict[bytes, int] = field(default_factory=dict)
    """Sizes of the unstable files."""
    digests: Digests | None = None
    is_reported: bool = False
    """True if its changes were reported."""


@dataclass(frozen=True, slots=True)
class CapturedChanges:
    """Changes to be reported before the checkpoint that holds them."""

    changes: tuple[WorkTreeChange, ...]
    digests: Mapping[bytes, str]
    """SHA-256 of those that were read at once."""
    capture: Capture


class Recording:
    """A recorder that turns the present work tree into commits."""

    def __init__(
        self,
        repo: ShadowRepo,
        notes: Notes,
        memory: WorkTreeMemory,
        size_limit: int | None,
        intent: IntentFile,
        journal: Path,
    ) -> None:
        self._intent = intent
        self.journal = journal
        self._repo = repo
        self._notes = notes
        self._memory = memory
        self._size_limit = size_limit
        self._outline: _Outline | None = None
        self._extents = Extents(repo)

    def capture(
        self,
        request: CheckpointRequest,
        parent: Sha | None,
        meter: Meter = UNWATCHED,
        *,
        digests_up_to: int = 0,
    ) -> Capture:
        """Read what changed into a staging area, for `commit`; nothing is visible until then.

        Up to so many files, their digests are noted. If this raises, the caller must reset the
        memory, which may name objects that were never stored.
        """
        staging = self._repo.staging()
        try:
            meter.begin("scanning", "files")
            pending = self._find_pending(request, parent)
            before = request.open_files()
            pending += self._besides(pending, request, before)
            meter.begin("reading", "files", len(pending))
            capture = Capture(staging, parent, [file.path for file in pending])
            if len(pending) <= digests_up_to:
                capture.digests = {}

            scan = self._memory.scan
            capture.skipped += [Skipped(path, "unreadable") for path in scan.unlistable]
            self._read(pending, capture, meter)
            self._read_databases_again(pending, capture)
            opened = before | request.open_files()
            capture.skipped += self._being_written(opened, capture)
            capture.skipped.sort(key=lambda item: item.path)
        except BaseException:
            staging.abandon()
            raise

        return capture

    def commit(
        self, capture: Capture, request: CheckpointRequest, meter: Meter = UNWATCHED
    ) -> CheckpointMade:
        """Make a checkpoint of what was captured, on the request's branch; raises as `capture`."""
        staging, parent, skipped = capture.staging, capture.parent, capture.skipped
        with staging:
            tree = write_trees(self._memory.table, lambda data: staging.add("tree", data))
            manifest = self._outlined(skipped).manifest
            changed, extent = self._changed(parent, capture)
            summary = None if request.summarized is None else request.summarized(extent)
            commit, notes = self._write_commit(request, parent, tree, manifest, summary, staging)
            made = CheckpointMade(
                sha=commit,
                tree=Sha(tree.hex()),
                kind=request.kind,
                skipped=tuple(skipped),
                files=self._outlined(skipped).files,
                changed=tuple(_described(each, capture.sizes) for each in changed),
                summary=summary,
            )
            meter.begin("flushing", "files")
            files = []
            if request.intent_of is not None:
                files.append(self._intent.staged(request.intent_of(made)))

            self._repo.publish(
                staging, self._moves(request, commit, notes), files, tail=self._tail_of(request)
            )

        self._memory.is_recorded(commit, tree)
        return made

    def commit_merge(self, request: CheckpointRequest, merged: TreeMerge) -> CheckpointMade:
        """Make a checkpoint of a merge, beside the branches; its parent is the checkpoint `ours`.

        Neither HEAD nor a branch nor a file in the work tree changes. Raises KeyError if an object
        of the other repository cannot be read, and as `ShadowRepo.publish`.
        """
        assert merged.manifest is not None, "a merge with conflicts has no result"
        changes = tuple(_changes_of(merged))
        summary = None
        if request.summarized is not None:
            summary = request.summarized(extent_of([(each.path, each.kind) for each in changes]))

        with self._repo.staging() as staging:
            tree = merged.store(staging)
            commit, notes = self._write_commit(
                request, merged.ours, tree, merged.manifest, summary, staging
            )
            moves = {SAFETY + commit: str(commit)}
            self._repo.publish(staging, moves if notes is None else {NOTES_REF: notes, **moves})

        kinds = [change.kind for change in changes]
        return CheckpointMade(
            sha=commit,
            tree=Sha(tree.hex()),
            kind=request.kind,
            skipped=merged.manifest.skipped,
            files=self._files_in(merged.our_tree) + kinds.count("created") - kinds.count("deleted"),
            changed=changes,
            summary=summary,
        )

    def _files_in(self, tree: bytes) -> int:
        """Count the files of a tree; usually it is the one of the last scan."""
        if tree == self._memory.tree:
            return self._memory.table.permissions.files

        return sum(1 for _ in files_below(self._repo.read_tree, tree))

    def _tail_of(self, request: CheckpointRequest) -> Tail | None:
        return None if request.journal_tail is None else Tail(self.journal, *request.journal_tail)

    def _find_pending(self, request: CheckpointRequest, parent: Sha | None) -> list[TrackedFile]:
        if request.before is not None:
            return self._memory.refresh_after(request.before, parent, request.patterns)

        return self._memory.refresh(parent, request.patterns, request.also)

    def _read(self, pending: Sequence[TrackedFile], capture: Capture, meter: Meter) -> None:
        """Read the files into the staging area."""
        memory, skipped, sizes = self._memory, capture.skipped, capture.sizes
        with memory.descent.fresh() as descent:
            for file, seen in read_all(
                pending,
                descent,
                capture.staging,
                self._size_limit,
                capture.digests,
                self._extents,
            ):
                match seen:
                    case CapturedFile(digest, git_mode, signature, permissions, size) as found:
                        memory.scan.remember(
                            file,
                            signature,
                            digest,
                            git_mode,
                            permissions,
                            has_writer=found.has_writer,
                            attributes=found.attributes,
                        )
                        if signature is None:
                            sizes[file.path] = size
                            skipped.append(Skipped(file.path, CAPTURED_ANYWAY))
                    case FileRefused(reason):
                        memory.scan.remember(file, None)
                        skipped.append(Skipped(file.path, reason))
                        capture.refused.add(file.path)
                    case _:
                        memory.table.lose(file)

                meter.advance()

    def _read_databases_again(self, pending: Iterable[TrackedFile], capture: Capture) -> None:
        """Read databases again of which one file has changed after another one was read."""
        files = self._memory.table.files
        bases = {base_of(file.path) for file in pending if _is_of_a_database(file)}
        for _ in range(ATTEMPTS):
            bases = {base for base in bases if self._is_torn(base, capture)}
            if not bases:
                return

            again = [files[path] for base in bases for path in family(base) if path in files]
            paths = {file.path for file in again}
            capture.skipped = [item for item in capture.skipped if item.path not in paths]
            capture.refused -= paths
            capture.paths += paths.difference(capture.paths)
            self._read(again, capture, UNWATCHED)

        known = {item.path for item in capture.skipped}
        torn = (base for base in bases - known if base in files and self._is_torn(base, capture))
        capture.skipped += [Skipped(base, CAPTURED_ANYWAY) for base in torn]

    def _is_torn(self, base: bytes, capture: Capture) -> bool:
        """Return whether a file of a database is not as it was read, so that they may not match."""
        with self._memory.descent.fresh() as descent:
            for path in family(base):
                file = self._memory.table.files.get(path)
                if file is None or path in capture.refused:
                    continue

                status = descent.status(path)
                if status is None or file.signature != signature_of(status):
                    return True

        return False

    def _besides(
        self, pending: Sequence[TrackedFile], request: CheckpointRequest, opened: OpenFiles
    ) -> list[TrackedFile]:
        """Return the tracked files that may have changed although their stat data has not."""
        files, unconfirmed = self._memory.table.files, set(opened.mapped)
        if request.kind not in FREQUENT:
            unconfirmed.update(file.path for file in self._memory.scan.held())

        if request.before is not None:
            touched = ((path, files.get(path)) for path in request.before.touched)
            unconfirmed.update(path for path, file in touched if file and not file.is_proof)

        known = {file.slot for file in pending}
        tracked = (files.get(path) for path in sorted(unconfirmed))
        return [file for file in tracked if file is not None and file.slot not in known]

    def _being_written(self, opened: OpenFiles, capture: Capture) -> list[Skipped]:
        """Return the files that an agent was writing while they were captured.

        A file that it writes through a mapping must be read again, whatever its stat data will be.
        """
        known = {item.path for item in capture.skipped}
        found = []
        for path in opened.open - known:
            file = self._memory.table.files.get(path)
            if file is None or not file.captured[0]:
                continue

            found.append(Skipped(path, CAPTURED_ANYWAY))
            if path in opened.mapped and file.signature is not None:
                git_mode, permissions, digest = file.captured
                capture.sizes[path] = file.signature.size
                attributes = self._memory.table.attributes(file.slot)
                self._memory.scan.remember(
                    file, None, digest, git_mode, permissions, attributes=attributes
                )

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
        manifest: manifests.Manifest,
        summary: str | None,
        staging: ObjectStaging,
    ) -> tuple[Sha, Sha | None]:
        """Write commit and manifest; return the commit, and the notes tree if there is a note."""
        parents = () if parent is None else (parent,)
        message = commit_message.written(request, summary)
        body = commit_message.commit_object(tree, parents, request.timestamp, message)
        commit = Sha(staging.add("commit", body).hex())
        if manifest.is_plain:
            return commit, None

        content = manifests.encoded(manifest)
        try:
            return commit, self._notes.with_note(commit, content, staging.add)
        except (KeyError, ValueError):
            return commit, self._notes_gathered(commit, content, staging)

    def _moves(self, request: CheckpointRequest, commit: Sha, notes: Sha | None) -> dict[str, str]:
        """Return the refs that a new checkpoint moves, in their order."""
        moves: dict[str, str] = {} if notes is None else {NOTES_REF: notes}
        if request.before is not None:
            # Files that a rollback is about to overwrite are not part of the run's history.
            return {**moves, SAFETY + commit: commit}

        branch = BRANCHES + branch_of(request.run_id)
        moves[branch] = commit
        if not self._repo.is_attached_to(request.run_id):
            moves["HEAD"] = f"ref: {branch}"

        return moves

    def _notes_gathered(self, commit: Sha, content: bytes, staging: ObjectStaging) -> Sha:
        """Write the notes from what older notes trees have, because the present one is damaged."""
        self._repo.mark_suspect()
        lost = self._repo.target(NOTES_REF)
        assert lost is not None, "without a ref there is no damage"
        set_aside(self._repo.path / QUARANTINE / lost, NOTES_REF, lost)
        commits = frozenset(each.sha for each in self._repo.commits())
        note = {commit: staging.add("blob", content)}
        top = recover_notes(self._repo, commits, staging.add, note).top
        assert top is not None, "there is a note to add"
        return Sha(top.hex())

    def _changed(self, parent: Sha | None, capture: Capture) -> tuple[list[Difference], Extent]:
        """Return the changes since the parent, and their extent; many are only counted.

        Those that were not reported are returned in any case. What is unreadable in the parent
        counts as absent.
        """
        table, read = self._memory.table, self._repo.recent_tree
        is_counted = capture.is_reported and len(capture.paths) > FEW
        try:
            commit = None if parent is None else self._repo.commit(parent)
            before = None if commit is None else bytes.fromhex(commit.tree)
            if is_counted and (count := count_changes(table, read, before)) > FEW:
                return [], Extent(count)

            changed = list(changes(table, read, before))
        except (KeyError, ValueError):
            changed = list(changes(table, read, None))

        return changed, self._extents.of(changed)


def _described(difference: Difference, sizes: Mapping[bytes, int]) -> WorkTreeChange:
    """Describe a change; `sizes` are those of unstable files, which have no stat data."""
    path, before, after, signature = difference
    size = signature.size if after and signature else sizes.get(path, 0)
    return WorkTreeChange(path, kind_of_change(before, after), size)


def _is_of_a_database(file: TrackedFile) -> bool:
    """Return whether a file may belong to a database of several files, by the tracked names."""
    names = family(file.name)[1:]
    return file.name.endswith(COMPANIONS) or any(name in file.folder.files for name in names)


def _changes_of(merged: TreeMerge) -> Iterator[WorkTreeChange]:
    for each in merged.merged.decisions:
        if each.changes_ours:
            kind = kind_of_change(each.ours, each.result)
            size = 0 if each.result is None else merged.objects.size(each.result[1])
            yield WorkTreeChange(each.path, kind, size)


class PendingChanges:
    """Changes that were not reported yet, followed across scans and checkpoints in their order."""

    def __init__(self, repo: ShadowRepo, memory: WorkTreeMemory) -> None:
        self._repo = repo
        self._memory = memory
        self._reported: dict[bytes, Entry | None] = {}
        """Last reported state of files that the last checkpoint may hold in another state."""
        self._basis: tuple[bytes | None, tuple[str, ...]] | None = None
        """The tree with which the last scan compared, and the patterns it used."""

    @contextmanager
    def unless_it_fails(self) -> Iterator[None]:
        """Count nothing as reported that is yielded in the block if that raises."""
        reported, basis = dict(self._reported), self._basis
        try:
            yield
        except BaseException:
            self._reported, self._basis = reported, basis
            raise

    def detect(
        self, last: bytes | None, patterns: tuple[str, ...], pending: Iterable[TrackedFile]
    ) -> Iterator[WorkTreeChange]:
        """Yield what changed since the last checkpoint and was not yielded before.

        The memory must be fresh; `pending` are the files that it has found to differ.
        """
        for path, before in self._suspects(last, patterns, (file.path for file in pending)):
            seen = self._memory.observer.at(path)
            if isinstance(seen, FileRefused):
                continue

            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, CapturedFile) else None
            if isinstance(seen, CapturedFile):
                self._memory.confirm(path, seen)

            if now != before:
                size = seen.size if isinstance(seen, CapturedFile) else 0
                yield WorkTreeChange(path, kind_of_change(before, now), size)

            self._reported[path] = now

    def of_capture(
        self, last: bytes | None, patterns: tuple[str, ...], capture: Capture
    ) -> Iterator[WorkTreeChange]:
        """Do the same as `detect`, for what was captured a moment ago."""
        files = self._memory.table.files
        for path, before in self._suspects(last, patterns, capture.paths):
            if path in capture.refused:
                continue

            file, now, size = files.get(path), None, 0
            if file is not None and file.captured[0]:
                git_mode, _, digest = file.captured
                now, signature = Entry(git_mode, digest), file.signature
                size = capture.sizes.get(path, 0) if signature is None else signature.size

            if now != before:
                yield WorkTreeChange(path, kind_of_change(before, now), size)

            self._reported[path] = now

    def leave(self, paths: Iterable[bytes]) -> None:
        """Report no change of files that a restore has left as they were captured before it."""
        for path in paths:
            file = self._memory.table.files.get(path)
            git_mode, _, digest = (0, 0, b"") if file is None else file.captured
            self._reported[path] = Entry(git_mode, digest) if git_mode else None

    def suspects(self, pending: Iterable[bytes]) -> set[bytes]:
        """Return the paths that may differ from the last checkpoint."""
        return {*pending, *self._memory.table.gone, *self._reported}

    def _suspects(
        self, last: bytes | None, patterns: tuple[str, ...], pending: Iterable[bytes]
    ) -> Iterator[tuple[bytes, Entry | None]]:
        """Yield what may have changed, and what it was when it was last reported or recorded."""
        self._basis = last, patterns
        recorded_in = Lookup(self._repo.recent_tree)
        for path in sorted(self.suspects(pending)):
            if path in self._reported:
                yield path, self._reported[path]
            else:
                yield path, self._recorded(recorded_in, last, path)

    def _recorded(self, recorded_in: Lookup, last: bytes | None, path: bytes) -> Entry | None:
        """Return what a tree has at a path; from the index if that has the same folder."""
        file = self._memory.table.files.get(path)
        known = None if file is None else file.folder.tree
        if file is None or not known or known != recorded_in.folder(last, file.folder.path):
            return recorded_in.entry(last, path)

        git_mode, _, digest = file.captured
        return Entry(git_mode, digest) if git_mode else None

    def follow_capture(
        self, request: CheckpointRequest, capture: Capture, made: CheckpointMade
    ) -> None:
        """Compare with a new checkpoint from now on whose changes were reported (`of_capture`)."""
        self._reported = {p: entry for p, entry in self._reported.items() if p in capture.refused}
        self._basis = bytes.fromhex(made.tree), request.patterns

    def follow(
        self, request: CheckpointRequest, parent: bytes | None, made: CheckpointMade
    ) -> None:
        """Compare with a new checkpoint from now on; its parent has the tree `parent`.

        Changes it captured after the last scan are still to be reported: agents do not pause.
        Newly tracked files are not changes, and after a safety checkpoint everything may be
        different.
        """
        if parent is None or request.kind == "safety" or self._basis != (parent, request.patterns):
            self._reported, self._basis = {}, None
            return

        tree, recorded_in = bytes.fromhex(made.tree), Lookup(self._repo.recent_tree)
        taken_in = sorted({change.path for change in made.changed} | self._reported.keys())
        last = {
            path: self._reported[path]
            if path in self._reported
            else recorded_in.entry(parent, path)
            for path in taken_in
        }
        taken = {path: recorded_in.entry(tree, path) for path in taken_in}
        self._reported = {path: entry for path, entry in last.items() if entry != taken[path]}
        self._basis = tree, request.patterns
