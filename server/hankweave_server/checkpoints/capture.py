"""Makes one checkpoint: reads what changed, writes objects, then and only then moves the ref.

Order (DESIGN 5): blobs, trees, note and commit under temporary names; one flush; their final
names; the notes ref; the branch. A crash leaves unreachable objects, or the whole checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints import commit_message
from hankweave_server.checkpoints import manifest as manifests
from hankweave_server.checkpoints.detach import QUARANTINE, set_aside
from hankweave_server.checkpoints.file_reader import Captured, Refused
from hankweave_server.checkpoints.model import (
    CAPTURED_ANYWAY,
    REASONS_THAT_LOSE_CONTENT,
    ChangeKind,
    CheckpointMade,
    CheckpointRequest,
    FileChange,
    Skipped,
)
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.notes_recovery import recover_notes
from hankweave_server.checkpoints.reading import read_all
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.repo import NOTES_REF, SAFETY, ShadowRepo
from hankweave_server.git.trees import Difference, Entry, changes, write_trees
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.worktree.open_files import OpenFiles
from hankweave_server.worktree.stat_index import StatIndex, TrackedFile


@dataclass(frozen=True, slots=True)
class _Outline:
    """What one state of the table came to: the same until its number changes."""

    table: StatIndex
    number: int
    files: int
    manifest: manifests.Manifest


class Recording:
    """Turns the work tree as it is into commits."""

    def __init__(
        self, repo: ShadowRepo, notes: Notes, memory: WorkTreeMemory, size_limit: int | None
    ) -> None:
        self._repo = repo
        self._notes = notes
        self._memory = memory
        self._size_limit = size_limit
        self._outline: _Outline | None = None

    @property
    def _objects(self) -> Path:
        return self._repo.path / "objects"

    def record(
        self, request: CheckpointRequest, parent: Sha | None, meter: Meter = UNWATCHED
    ) -> CheckpointMade:
        """Makes a checkpoint on the request's branch, which exists or has no parent.

        Whatever is raised, the caller must make the memory forget: it may know of objects that
        were never stored.
        """
        staging = ObjectStaging(self._objects, self._repo.stored())
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
            meter.begin("flushing", "files")
            staging.settle()
        except BaseException:
            staging.abandon()
            raise

        changed = self._changes(parent, sizes)
        if notes is not None:
            self._repo.point(NOTES_REF, notes)

        if request.before is None:
            self._repo.point_branch(request.run_id, commit)
        else:
            # What a rollback is about to overwrite is no part of the run's line.
            self._repo.point(SAFETY + commit, commit)

        self._memory.is_recorded(commit, tree)
        return CheckpointMade(
            sha=commit,
            tree=Sha(tree.hex()),
            kind=request.kind,
            skipped=tuple(skipped),
            partial=any(item.reason in REASONS_THAT_LOSE_CONTENT for item in skipped),
            files=self._outlined(skipped).files,
            changed=changed,
        )

    def _look(self, request: CheckpointRequest, parent: Sha | None) -> list[TrackedFile]:
        if request.before is not None:
            return self._memory.refresh_after(request.before, parent, request.patterns)

        return self._memory.refresh(parent, request.patterns, request.also)

    def _read(
        self, pending: Sequence[TrackedFile], staging: ObjectStaging, meter: Meter
    ) -> tuple[list[Skipped], dict[bytes, int]]:
        """Reads the files into the staging area.

        Gives those that could not be read, or not well, and the sizes of the unstable.
        """
        memory = self._memory
        skipped = [Skipped(path, "unreadable") for path in memory.scan.unlistable]
        sizes: dict[bytes, int] = {}
        with memory.descent.fresh() as descent:
            for file, seen in read_all(pending, descent, staging, self._size_limit):
                match seen:
                    case Captured(digest, git_mode, signature, permissions, size):
                        memory.scan.remember(file, signature, digest, git_mode, permissions)
                        if signature is None:
                            sizes[file.path] = size
                            skipped.append(Skipped(file.path, CAPTURED_ANYWAY))
                    case Refused(reason):
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
        """Return what an agent was writing while it was captured.

        What it writes through a mapping has to be read again, whatever its stat data will say.
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
        """Describes what is captured, anew only if something but content changed."""
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
        """Writes commit and manifest; gives the commit, and the notes tree if there is a note."""
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
        """Write the notes from what older notes trees have, for the present one is damaged."""
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
        """Compares the table with the parent; what cannot be read of it counts as nothing.

        A file's size is in its stat data, but for the unstable ones, whose sizes are given.
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


def kind_of_change(old: Entry | None, new: Entry | None) -> ChangeKind:
    if old is None:
        return "created"

    return "deleted" if new is None else "modified"
