"""The checkpoint engine: the facade of the shadow repository, and of this package.

All calls block, and no two may run at the same time; in a server, `execution.checkpoint_access`
makes them in a worker thread, one at a time. A call that raises has changed no ref, and when a call
returns, its results are on disk and survive a power cut.

What can be done, by topic; a topic with no state in common with the others is an attribute:

- capture: `checkpoint`, or `checkpoint_unless_changed` with `complete` or `abandon`;
  `scan_changes` and `fingerprint`
- other executions: `import_checkpoint`, `merge` with `commit_merge`, `clone`
- plan: `plan_restore`; of a plan, `obstacles`, `preview_diffs` and `preview_losses`
- restore: `restore`; `intent` makes a crash in the middle known to the next start
- read: `commits`, `facts`, `head` and `tip`; `tree`, `read_file`, `read_range`; `diff`
- gc: `housekeeping` measures, packs and chooses; `prune` removes, `repair` mends
- `pins` and `sessions`
- the watch of the work tree: `watch_state`, `prove_unchanging`, `verify_watch`
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby

from hankweave_protocol.ids import RunId, Sha, branch_of
from hankweave_server.checkpoints import repo_init
from hankweave_server.checkpoints.capture import Capture, CapturedChanges, PendingChanges, Recording
from hankweave_server.checkpoints.clone import ClonePlan, copy_repository, plan_clone
from hankweave_server.checkpoints.commit_message import facts_in, facts_of
from hankweave_server.checkpoints.contents import Contents, Verification
from hankweave_server.checkpoints.detach import QUARANTINE, DetachedRef, DetachedRefs, set_aside
from hankweave_server.checkpoints.diff import (
    Comparing,
    Fingerprint,
    Incomparable,
    LastCheckpoint,
    Ranges,
    fingerprint,
)
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointNotFound,
    PathNotInCheckpoint,
)
from hankweave_server.checkpoints.file_reader import CapturedFile, FileRefused
from hankweave_server.checkpoints.imports import ForeignCheckpoint, import_checkpoint
from hankweave_server.checkpoints.intent import IntentFile
from hankweave_server.checkpoints.manifest import Manifest, ManifestCorrupt
from hankweave_server.checkpoints.merge import TreeMerge, merge
from hankweave_server.checkpoints.model import (
    CheckpointMade,
    CheckpointRequest,
    ContentRange,
    Damage,
    FileContent,
    FileDiff,
    LostAttributes,
    PathEntry,
    RestorePlan,
    RestoreReport,
    Skipped,
    WorkTreeChange,
)
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pins import Pins
from hankweave_server.checkpoints.plan import Planning
from hankweave_server.checkpoints.pruning import Housekeeping, Pruned
from hankweave_server.checkpoints.repair import Repair, Repaired, Source, write_wanted
from hankweave_server.checkpoints.repo_init import StorePlace, refuse_links
from hankweave_server.checkpoints.restore import Restorer, TargetSnapshot, expected_losses
from hankweave_server.checkpoints.session_snapshots import SessionSnapshots
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.domain.path_merge import ConflictPolicy
from hankweave_server.domain.retention import CommitFacts, Pruning
from hankweave_server.fsutil import sync_directory, sync_filesystem
from hankweave_server.git.errors import (
    InsufficientSpace,
    ShadowRepositoryError,
    disk_faults,
    free_bytes,
)
from hankweave_server.git.line_merge import LineMerger
from hankweave_server.git.repo import BRANCHES, RawCommit, ShadowRepo
from hankweave_server.git.trees import Entry
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout
from hankweave_server.wal import WriteAheadLog
from hankweave_server.worktree.obstacles import Obstacles
from hankweave_server.worktree.stat_index import TrackedFile
from hankweave_server.worktree.tree_outline import Outline, outline
from hankweave_server.worktree.tree_writer import folder_for_new_files
from hankweave_server.worktree.watch import WatchState

SPACE_RESERVE = 8 << 20
"""Bytes that a restore leaves free: the journal must still be able to record the outcome."""

BLOCK = 4096
SAVE_CACHE_AFTER = 1000  # Number of files read in one checkpoint that justifies saving the cache.


class CheckpointEngine:
    """The checkpoints of a work tree: take, restore, compare and maintain them."""

    def __init__(
        self,
        layout: Layout,
        leftovers: tuple[str, ...],
        size_limit: int | None,
        place: StorePlace | None = None,
        wal: WriteAheadLog | None = None,
        *,
        watches: bool = False,
    ) -> None:
        self.leftovers = leftovers
        """Leftovers of a crash in the repository that were removed when it was opened."""
        self.recorded: frozenset[Sha] = frozenset()
        """Checkpoints that the journal lists: entry points into a history with gaps."""
        self.detached = DetachedRefs()
        """Refs that were moved because their targets are lost; may be taken in any thread."""
        self.layout = layout
        self._place = place
        self._wal = wal
        self._repo = ShadowRepo(
            layout.shadow_repository if place is None else place.repository, wal
        )
        self._notes = Notes(self._repo)
        self._memory = WorkTreeMemory(
            self._repo,
            self._notes,
            layout.work_tree,
            size_limit,
            in_place=layout.is_in_place,
            watches=watches,
        )
        folder = layout.state_directory if place is None else place.state_directory
        self.intent = IntentFile(folder / layout.rollback_intent.name, self._repo, wal)
        self._recording = Recording(
            self._repo,
            self._notes,
            self._memory,
            size_limit,
            self.intent,
            folder / layout.journal.relative_to(layout.state_directory),
        )
        self._comparing = Comparing(self._repo, self._memory)
        self._pending_changes = PendingChanges(self._repo, self._memory)
        self._verification = Verification(self._repo, self._notes)
        self._ranges = Ranges(Contents(self._repo))
        self.sessions = SessionSnapshots(self._repo)
        self._line_merger = LineMerger()
        self.pins = Pins(self._repo)
        self.housekeeping = Housekeeping(self._repo, self._notes, layout)
        self._memory.load(layout.scan_cache)

    @classmethod
    def open(
        cls, layout: Layout, *, size_limit: int | None = None, watches: bool = False
    ) -> CheckpointEngine:
        """Open the shadow repository, creating or repairing it first.

        Files of more than `size_limit` bytes are skipped. With `watches`, scans after the first
        compare only what may have changed (see `worktree.watch`). Only the holder of the runtime
        lock may call this. Raises ShadowRepositoryError when the repository cannot be used.
        """
        refuse_links(layout)
        with disk_faults(layout.root):
            leftovers = repo_init.make_ready(layout)
            place = StorePlace.of(layout)

        try:
            with disk_faults(layout.root):
                roots = {"repository": place.repository, "state": place.state_directory}
                path = place.state_directory / layout.wal.name
                wal, repaired = WriteAheadLog.open(path, roots)

            return cls(layout, (*leftovers, *repaired), size_limit, place, wal, watches=watches)
        except BaseException:
            place.close()
            raise

    def note_recorded(self, recorded: frozenset[Sha]) -> None:
        """Take the checkpoints that the journal names as further starting points of the history."""
        self.recorded = recorded

    @property
    def superseded(self) -> set[str]:
        """The names of files of the store whose objects other packs have now."""
        return self._repo.superseded

    def require_same_store(self) -> None:
        """Raise StoreMoved if the store is no longer the one that was opened."""
        if self._place is not None:
            self._place.require_same_store()

    @classmethod
    @contextmanager
    def for_reading(cls, layout: Layout) -> Iterator[CheckpointEngine]:
        """Open the shadow repository unchanged, next to a process that may be using it.

        Nothing is created, cleared, locked or saved; use the engine for read-only calls alone.
        Raises ShadowRepositoryError if there is no repository.
        """
        with disk_faults(layout.root):
            engine = cls(layout, (), None)

        try:
            yield engine
        finally:
            engine._release()

    def close(self) -> None:
        """Save the scan cache, if the disk has space, and release the work tree."""
        self._save_cache()
        self._release()

    def _save_cache(self) -> None:
        # Without the cache a checkpoint is merely slower: a full disk must neither fail a
        # checkpoint that is complete, nor replace an exception that is already propagating.
        with contextlib.suppress(OSError):
            self._memory.save(self.layout.scan_cache)

    def _release(self) -> None:
        self._ranges.close()
        self._memory.close()
        if self._wal is not None:
            # An error leaves the log, and the next start replays it.
            with contextlib.suppress(OSError):
                self._wal.close()

        self._repo.close()
        if self._place is not None:
            self._place.close()

    @contextmanager
    def quiesced(self) -> Iterator[None]:
        """Let no ref and no intent move while the block runs; for any thread.

        What the disk has then is what a crash could leave.
        """
        assert self._wal is not None, "an engine that only reads moves nothing"
        with self._wal.quiesced():
            yield

    # Checkpoints

    def checkpoint(self, request: CheckpointRequest, meter: Meter = UNWATCHED) -> CheckpointMade:
        """Capture the work tree as a commit on the run's branch, even if nothing changed.

        Its parent is the branch's last commit, or HEAD for a branch that does not exist yet. When
        this returns, the checkpoint survives a power cut. Raises InsufficientSpace, or
        ShadowRepositoryError when repository or work tree cannot be used at all.
        """
        with self._reset_on_failure():
            capture = self._recording.capture(request, self._parent_of(request), meter)

        return self.complete(capture, request, meter)

    def checkpoint_unless_changed(
        self, request: CheckpointRequest, digests_up_to: int, meter: Meter = UNWATCHED
    ) -> CheckpointMade | CapturedChanges:
        """Make a checkpoint, or return what changed since the last report or checkpoint.

        In that case the content is captured: report the changes, then call `complete` or `abandon`
        before anything else. Digests are noted of up to so many files. Raises as `checkpoint`.
        """
        with self._reset_on_failure():
            head, parent = self.head(), self._parent_of(request)
            capture = self._recording.capture(request, parent, meter, digests_up_to=digests_up_to)
            changes: tuple[WorkTreeChange, ...] = ()
            try:
                tree = None if parent is None else self._tree_of(parent)
                if head == parent:  # Changes since a lost commit cannot be determined.
                    changes = tuple(
                        self._pending_changes.of_capture(tree, request.patterns, capture)
                    )
                    capture.is_reported = True
            except BaseException:
                capture.staging.abandon()
                raise

        if changes:
            return CapturedChanges(changes, capture.digests or {}, capture)

        return self.complete(capture, request, meter)

    def complete(
        self, capture: Capture, request: CheckpointRequest, meter: Meter = UNWATCHED
    ) -> CheckpointMade:
        """Make a checkpoint of what was captured; raises as `checkpoint`."""
        with self._reset_on_failure():
            made = self._recording.commit(capture, request, meter)
            if capture.is_reported:
                self._pending_changes.follow_capture(request, capture, made)
            else:
                parent = capture.parent
                tree = None if parent is None else self._tree_of(parent)
                self._pending_changes.follow(request, tree, made)

            if len(capture.paths) > SAVE_CACHE_AFTER:
                self._save_cache()

        return made

    def import_checkpoint(
        self,
        foreign: ForeignCheckpoint,
        request: CheckpointRequest,
        parent: Sha,
        *,
        highest_epoch: int,
    ) -> tuple[CheckpointRequest, CheckpointMade]:
        """Import a checkpoint of another execution; HEAD and the work tree stay as they are.

        When this returns, it survives a power cut. Raises CheckpointNotFound, CheckpointDamaged,
        InsufficientSpace or ShadowRepositoryError.
        """
        with disk_faults(self.layout.root), self._reading(parent):
            try:
                return import_checkpoint(
                    self._repo,
                    self._notes,
                    self.sessions,
                    foreign,
                    request,
                    parent,
                    highest_epoch=highest_epoch,
                    journal=self._recording.journal,
                )
            except BaseException:
                if self._repo.drop_deferred():
                    self.sessions = SessionSnapshots(self._repo)

                raise

    def abandon(self, capture: Capture) -> None:
        """Give up what was captured, and what else was to be published with it."""
        capture.staging.abandon()
        self._memory.forget()
        if self._repo.drop_deferred():
            self.sessions = SessionSnapshots(self._repo)

    @property
    def has_log(self) -> bool:
        """Return whether there is a write-ahead log."""
        return self._wal is not None

    def scan_changes(
        self, patterns: Iterable[str], *, trusts_stat_data: bool = False
    ) -> tuple[WorkTreeChange, ...]:
        """Return what changed since the last checkpoint and was not returned by an earlier call.

        A scan that trusts stat data costs less, and may miss what open writers wrote.
        """
        with self._reset_on_failure():
            head, wanted = self.head(), tuple(patterns)
            pending = self._memory.refresh(head, wanted)
            if not trusts_stat_data:
                pending = self._memory.with_held(pending)

            return self._unreported(head, wanted, pending)

    def _unreported(
        self, head: Sha | None, patterns: tuple[str, ...], pending: list[TrackedFile]
    ) -> tuple[WorkTreeChange, ...]:
        if head is not None and not self.exists(head):
            return ()  # Changes since a lost commit cannot be determined.

        tree = None if head is None else self._tree_of(head)
        return tuple(self._pending_changes.detect(tree, patterns, pending))

    def fingerprint(self, patterns: Iterable[str]) -> Fingerprint | Incomparable:
        """Return what identifies the tracked files as they are now; store nothing."""
        with self._reset_on_failure():
            head = self.head()
            pending = self._memory.with_held(self._memory.refresh(head, tuple(patterns)))
            if self._memory.scan.unlistable:
                return Incomparable("some folders cannot be listed")

            base = LastCheckpoint(None, None, Manifest())
            if head is not None:
                snapshot = self._snapshot(head)
                base = LastCheckpoint(head, snapshot.tree, snapshot.manifest)

            suspects = self._pending_changes.suspects(file.path for file in pending)
            return fingerprint(
                base, self._memory.table, self._memory.observer, suspects, self._repo.recent_tree
            )

    @property
    def watch_state(self) -> WatchState:
        """Whether scans are watched, or why they are full."""
        return self._memory.scan.state

    def prove_unchanging(self, at_most: int) -> int:
        """Reduce what the next scan reads and compares; return by how many files.

        Call this when no reply waits: each file is opened, which takes about 10 us, and read if it
        was written a moment ago, as all files are that a rollback has restored. Those come first:
        until then, they would have to be passed over each time.
        """
        with self._reset_on_failure():
            return self._memory.settle_racy(at_most) or self._memory.scan.prove(at_most)

    def verify_watch(self) -> tuple[bytes, ...]:
        """Compare everything with the disk; return the paths whose change the watch has missed.

        If there are any, all further scans are full, and the next one reports these paths.
        """
        with self._reset_on_failure():
            missed = self._memory.missed_by_watch()
            if missed:
                self._memory.scan.require_full_scans()

            return missed

    def outline(self, most: int) -> Outline:
        """Return an overview of the tracked files as of the last scan."""
        return outline(self._memory.table.top, most)

    # Branches

    def head(self) -> Sha | None:
        return self._repo.head()

    def tip(self, run_id: RunId) -> Sha | None:
        return self._repo.tip(run_id)

    # Commits

    def commits(self, also: Iterable[Sha] = ()) -> Iterator[CommitFacts]:
        """Walk every checkpoint on our refs, newest first; skip commits of other programs.

        Git knows their order to the second; those of one second are ordered by their events. If a
        commit cannot be read, its ancestors are found as far as refs and `also` lead to them.
        """
        found = facts_in(self._repo.commits(also))
        for _, of_one_second in groupby(found, lambda facts: int(facts.timestamp.timestamp())):
            yield from sorted(
                of_one_second,
                key=lambda facts: (facts.event_seq or 0, facts.timestamp),
                reverse=True,
            )

    def facts(self, sha: Sha) -> CommitFacts:
        facts = facts_of(self._commit(sha))
        if facts is None:
            raise CheckpointNotFound(sha)

        return facts

    def skipped(self) -> dict[Sha, tuple[Skipped, ...]]:
        """Return the paths that each checkpoint skipped; checkpoints without any are left out."""
        try:
            return {
                sha: manifest.skipped for sha, manifest in self._notes.every() if manifest.skipped
            }
        except (KeyError, ValueError):
            return {}  # The notes themselves are damaged: fsck and each restore report it.

    def exists(self, sha: Sha) -> bool:
        try:
            return self._repo.commit(sha) is not None
        except KeyError:
            return False

    def verify(self, sha: Sha) -> list[Damage]:
        """Read a checkpoint down to each blob; return what cannot be read."""
        return Verification(self._repo, self._notes).unreadable(sha)

    def prune(
        self, pruning: Pruning, should_stop: Callable[[], bool], meter: Meter = UNWATCHED
    ) -> Pruned:
        """Remove checkpoints, and discard the knowledge about the work tree.

        That knowledge assumes that blobs are stored which may be gone now. The same is true of its
        cache on disk, which is therefore removed first. Raises as `Housekeeping.prune`.
        """
        with disk_faults(self.layout.root):
            self.layout.scan_cache.unlink(missing_ok=True)
            sync_directory(self.layout.checkpoints)

        try:
            return self.housekeeping.prune(pruning, should_stop, meter)
        finally:
            self._memory.forget()

    def repair(
        self,
        recorded: frozenset[Sha],
        patterns: Iterable[str],
        others: Iterable[Source],
        stamp: str,
        meter: Meter = UNWATCHED,
    ) -> Repaired:
        """Rewrite what can be found and detach what is lost (see `repair`).

        `recorded` are the checkpoints that should exist; `patterns` select the files of the work
        tree to read; `others` are further sources. Raises InsufficientSpace or
        ShadowRepositoryError; an interrupted repair can be repeated.
        """
        with disk_faults(self.layout.root):
            self.layout.scan_cache.unlink(missing_ok=True)
            self._memory.forget()
            wanted = tuple(patterns)

            def from_work_tree(lost: frozenset[bytes]) -> None:
                # First as the newest checkpoint tracked it, which yields its trees; then every
                # file.
                for parent, tracked in ((self._repo.head(), wanted), (None, ("**",))):
                    self._memory.forget()
                    write_wanted(self._repo, self._memory, parent, tracked, lost)

            try:
                repaired = Repair(self._repo, self._notes, stamp, meter).run(
                    recorded, from_work_tree, others
                )
            finally:
                self._memory.forget()

            self._verification = Verification(self._repo, self._notes)
            self.sessions = SessionSnapshots(self._repo)
            self._repo.mark_repaired()
            return repaired

    # Restore

    def plan_restore(
        self,
        target: Sha,
        patterns: Iterable[str],
        paths: frozenset[bytes] | None = None,
        meter: Meter = UNWATCHED,
        leftovers: frozenset[bytes] = frozenset(),
        *,
        reports: bool = False,
    ) -> RestorePlan:
        """Return exactly what a restore would do, without touching anything.

        `paths` are files or folders; None means all. Those of `leftovers` are removed with
        everything in them, tracked or not, unless the target has it. A plan that `reports` has what
        `scan_changes` would return, at the cost of one scan for both. Raises CheckpointNotFound,
        CheckpointDamaged, or InsufficientSpace: a restore would raise the same, but too late.
        """
        meter.begin("checking", "objects")
        snapshot = self._readable(target, meter)
        meter.begin("scanning", "files")
        with self._reset_on_failure(), self._pending_changes.unless_it_fails():
            wanted = tuple(patterns)
            head = self.head()
            pending = self._memory.with_held(self._memory.refresh(head, wanted))
            unreported: tuple[WorkTreeChange, ...] = ()
            with self._memory.descent.fresh() as descent:
                if reports:
                    unreported = self._unreported(head, wanted, pending)
                    pending = self._memory.unconfirmed(pending)

                plan = Planning(
                    snapshot,
                    self._memory.table,
                    self._memory.observer,
                    descent,
                    paths,
                    unconfirmed=frozenset(file.path for file in pending),
                    head=self._memory.tree,
                    leftovers=leftovers,
                ).plan()
                need = plan.bytes_to_write + BLOCK * len(plan.touched) + SPACE_RESERVE
                free = free_bytes(self.layout.work_tree)
                if free < need:
                    raise InsufficientSpace(need, free)

                plan = replace(plan, unreported=unreported)

            self._memory.has_planned(plan, wanted, pending)

        return plan

    def preview_losses(self, plan: RestorePlan) -> tuple[LostAttributes, ...]:
        """Return the attributes of files that a restore by this plan will not put back."""
        with disk_faults(self.layout.root), self._memory.descent.fresh() as descent:
            return expected_losses(plan, self._snapshot(plan.target), descent)

    def known_paths(self, sha: Sha, paths: Iterable[bytes]) -> frozenset[bytes]:
        """Return those of the paths that are files or folders of a checkpoint, or exist now."""
        snapshot = self._snapshot(sha)
        with self._reading(sha), self._memory.descent.fresh() as descent:
            return frozenset(
                path
                for path in paths
                if snapshot.entry(path) is not None
                or snapshot.has_folder(path)
                or descent.status(path) is not None
            )

    def paths_not_in(self, paths: Iterable[bytes], *shas: Sha) -> frozenset[bytes]:
        """Return those of the paths whose content is in none of the checkpoints at that path."""
        snapshots = tuple(map(self._snapshot, shas))

        def is_in_one(path: bytes) -> bool:
            seen = self._memory.observer.at(path)
            if isinstance(seen, FileRefused):
                return True

            now = Entry(seen.git_mode, seen.digest) if isinstance(seen, CapturedFile) else None
            return any(snapshot.entry(path) == now for snapshot in snapshots)

        with self._reading(*shas), self._memory.descent.fresh():
            return frozenset(path for path in paths if not is_in_one(path))

    def restore(
        self,
        target: Sha,
        safety: Sha,
        paths: frozenset[bytes] | None = None,
        keep: frozenset[bytes] = frozenset(),
        meter: Meter = UNWATCHED,
        *,
        detaches: bool = False,
    ) -> RestoreReport:
        """Take the work tree from the safety checkpoint to the target, and flush it.

        With `detaches`, HEAD is detached at the target by the same flush. May be repeated after a
        crash, with the same or a newer safety checkpoint. Paths that cannot be changed are in the
        report. Raises InsufficientSpace or ShadowRepositoryError when the disk failed; changes made
        by then stay.
        """
        goal, start = self._snapshot(target), self._snapshot(safety)
        with (
            self._reading(target, safety),
            self._reset_on_failure(),
            self._memory.descent.fresh() as descent,
            folder_for_new_files(self.layout.checkpoints) as new_files,
        ):
            restorer = Restorer(
                safety=start,
                target=goal,
                scan=self._memory.scan,
                observer=self._memory.observer,
                descent=descent,
                selection=paths,
                keep=keep,
                new_files=new_files,
                meter=meter,
            )
            restorer.apply(restorer.changes())
            report = restorer.report()
            self._pending_changes.leave(left.path for left in report.unrestored)
            meter.begin("flushing", "files")
            if detaches:
                self._repo.detach(target, flush_also=self.layout.work_tree)
            else:
                sync_filesystem(self.layout.work_tree)

        return report

    def obstacles(self, plan: RestorePlan) -> tuple[Skipped, ...]:
        """Return the paths that a restore by this plan will probably be unable to change."""
        with disk_faults(self.layout.root), self._memory.descent.fresh() as descent:
            obstacles = Obstacles(descent)
            found = ((path, obstacles.at(path)) for path in sorted(plan.touched))
            return tuple(
                Skipped(path, obstacle.kind, obstacle.errno)
                for path, obstacle in found
                if obstacle is not None
            )

    # Merges

    @contextmanager
    def merge(
        self,
        origin: Sha,
        ours: Sha,
        theirs: Sha,
        *,
        source: Layout | None = None,
        paths: frozenset[bytes] | None = None,
        policy: ConflictPolicy = ConflictPolicy.ASK,
    ) -> Iterator[TreeMerge]:
        """Merge into `ours` what `theirs` has changed since the origin; write nothing.

        `source` is the execution that has `theirs`, None for this one; its repository stays open
        in the block, and is not changed. `paths` are files or folders; None means all. Raises
        CheckpointNotFound, CheckpointDamaged, or ShadowRepositoryError.
        """
        with ExitStack() as ending:
            ending.enter_context(disk_faults(self.layout.root))
            repo = self._repo
            if source is not None:
                repo = ShadowRepo(source.shadow_repository)
                ending.callback(repo.close)

            sides = self._snapshot(origin), self._snapshot(ours), _snapshot_in(repo, theirs)
            try:
                merged = merge(*sides, self._line_merger, paths=paths, policy=policy)
            except KeyError as problem:
                for side in sides:
                    _refuse_damaged(side.repo, side.sha, problem)

                raise ShadowRepositoryError(f"cannot read {problem.args[0]}") from problem

            yield merged

    def commit_merge(self, request: CheckpointRequest, merged: TreeMerge) -> CheckpointMade:
        """Make a checkpoint of a merge without conflicts, durably; its parent is `ours`.

        A ref of its own protects it, as it does safety checkpoints. No file, branch or HEAD
        changes: a restore takes the work tree there. Call it within the block of `merge`. Raises
        InsufficientSpace or ShadowRepositoryError.
        """
        with disk_faults(self.layout.root):
            try:
                return self._recording.commit_merge(request, merged)
            except KeyError as problem:
                raise ShadowRepositoryError(f"cannot read {problem.args[0]}") from problem

    def clone(
        self,
        sha: Sha,
        copy: Layout,
        before_copy: Callable[[ClonePlan], None],
        should_stop: Callable[[], bool],
        meter: Meter = UNWATCHED,
    ) -> ClonePlan:
        """Copy a checkpoint and all its ancestors into a new repository; return what was copied.

        `before_copy` is called when the size is known; an error that it raises prevents the copy.
        """
        planned = plan_clone(self.layout, sha, meter)
        before_copy(planned)
        copy_repository(planned, copy, should_stop, meter)
        return planned

    # Read access

    def diff(
        self,
        a: Sha,
        b: Sha | None,
        patterns: Iterable[str] = (),
        paths: frozenset[bytes] | None = None,
        *,
        patch: bool = False,
    ) -> tuple[FileDiff, ...]:
        """Compare two checkpoints or, with `b` None, a checkpoint and the work tree."""
        old = self._tree_of(a)
        if b is not None:
            with self._reading(a, b):
                return self._comparing.trees(old, self._tree_of(b), paths, patch=patch)

        with self._reading(a), self._reset_on_failure():
            self._memory.refresh(self.head(), tuple(patterns))
            with self._memory.descent.fresh():
                return self._comparing.with_work_tree(old, paths, patch=patch)

    def new_content(self, sha: Sha) -> tuple[tuple[bytes, bytes], ...]:
        """Return the files with content that a checkpoint's parent lacks, and the blob of each."""
        commit = self._commit(sha)
        parent = self._whole_or_none(commit.parents[0]) if commit.parents else None
        with self._reading(sha):
            old = None if parent is None else self._tree_of(parent)
            return self._comparing.new_content(old, bytes.fromhex(commit.tree))

    def beginning(self, digest: bytes, size: int) -> bytes:
        """Return at most the first bytes of a blob; raise KeyError for a lost one."""
        content = bytearray()
        for piece in Contents(self._repo).pieces(digest):
            content += piece
            if len(content) >= size:
                break

        return bytes(content[:size])

    def preview_diffs(self, plan: RestorePlan) -> tuple[FileDiff, ...]:
        """Return, line by line, what a restore by this plan would do to the present files."""
        target = self._tree_of(plan.target)
        with self._reading(plan.target), self._memory.descent.fresh():
            return self._comparing.towards(target, plan.touched)

    def read_file(self, sha: Sha, path: bytes) -> FileContent:
        """Read one file, or a link's target, of a checkpoint."""
        snapshot = self._snapshot(sha)
        with self._reading(sha):
            entry = snapshot.entry(path)
            if entry is None:
                raise PathNotInCheckpoint(sha, path)

            data = b"".join(Contents(self._repo).pieces(entry.digest))
            return FileContent(data, snapshot.described(path, entry).mode)

    def read_range(self, sha: Sha, path: bytes, offset: int, length: int) -> ContentRange:
        """Read a range of a file; consecutive ranges of a large file cost one pass over it.

        Damage of a large file may show only in its last range. Raises as `read_file`.
        """
        snapshot = self._snapshot(sha)
        with self._reading(sha):
            entry = snapshot.entry(path)
            if entry is None:
                raise PathNotInCheckpoint(sha, path)

            found = snapshot.described(path, entry)
            data = self._ranges.read(entry.digest, found.size, offset, length)
            return ContentRange(data, found.size, found.mode)

    def read_first(
        self, sha: Sha, paths: Iterable[bytes], offset: int, length: int
    ) -> ContentRange | None:
        """Read a range of the first of the paths that the checkpoint has; None if it has none."""
        for path in paths:
            with contextlib.suppress(PathNotInCheckpoint):
                return self.read_range(sha, path, offset, length)

        return None

    def tree(self, sha: Sha) -> tuple[PathEntry, ...]:
        """Return the files of a checkpoint."""
        snapshot = self._snapshot(sha)
        with self._reading(sha):
            files = sorted(snapshot.files())
            return tuple(snapshot.described(path, entry) for path, entry in files)

    # Helpers

    @contextmanager
    def _reset_on_failure(self) -> Iterator[None]:
        """Reset the memory when a call fails: it may record something that never happened."""
        try:
            with disk_faults(self.layout.root):
                yield
        except BaseException:
            self._memory.forget()
            if self._repo.drop_deferred():
                self.sessions = SessionSnapshots(self._repo)

            raise

    @contextmanager
    def _reading(self, *shas: Sha) -> Iterator[None]:
        """Raise CheckpointDamaged when an object of these checkpoints cannot be read."""
        try:
            yield
        except KeyError as problem:
            for sha in shas:
                if damages := self.verify(sha):
                    self._mark_suspect()
                    raise CheckpointDamaged(sha, tuple(damages)) from problem

            raise ShadowRepositoryError(f"cannot read {problem.args[0]}") from problem

    def _parent_of(self, request: CheckpointRequest) -> Sha | None:
        """Return the parent of a checkpoint; leave HEAD and branches alone before a restore."""
        if request.before is None:
            return self._parent_of_next(request.run_id)

        tip = self._repo.tip(request.run_id)
        return tip if tip and self.exists(tip) else self._whole_or_none(self._repo.head())

    def _parent_of_next(self, run_id: RunId) -> Sha | None:
        """Return the parent of a run's next checkpoint.

        The checkpoint itself creates the branch, at HEAD (seed 000, "New branch"), and attaches
        HEAD to it.
        """
        tip = self._repo.tip(run_id)
        if tip is None:
            return self._whole_or_none(self._repo.head())

        return tip if self.exists(tip) else self._replaced_tip(run_id)

    def _whole_or_none(self, sha: Sha | None) -> Sha | None:
        """Return a commit or, if it cannot be read, the newest readable one; None without any."""
        if sha is None or self.exists(sha):
            return sha

        self._repo.mark_suspect()
        newest = next(self._repo.commits(self.recorded), None)
        return None if newest is None else newest.sha

    def _replaced_tip(self, run_id: RunId) -> Sha | None:
        """Let a branch whose tip is lost continue from its newest readable checkpoint.

        The lost ref is moved aside first, for `fsck --repair` and the journal to report.
        """
        self._repo.mark_suspect()
        lost = self._repo.tip(run_id)
        assert lost is not None, "there is a tip that cannot be read"
        on_run = (facts.sha for facts in self.commits(self.recorded) if facts.run_id == run_id)
        newest = next(on_run, None) or self._whole_or_none(self._repo.head())
        ref = BRANCHES + branch_of(run_id)
        set_aside(self._repo.path / QUARANTINE / lost, ref, lost)
        if newest is None:
            self._repo.drop(ref)
        else:
            self._repo.point_branch(run_id, newest)

        self.detached.add(DetachedRef(ref, lost, newest))
        return newest

    def _mark_suspect(self) -> None:
        """Make later checkpoints store content again that the repository turns out to lack."""
        self._repo.mark_suspect()
        self._memory.forget()

    def _commit(self, sha: Sha) -> RawCommit:
        try:
            commit = self._repo.commit(sha)
        except KeyError as problem:
            raise CheckpointDamaged(sha, (Damage(sha, "commit", b"", (sha,)),)) from problem

        if commit is None:
            raise CheckpointNotFound(sha)

        return commit

    def _tree_of(self, sha: Sha) -> bytes:
        return bytes.fromhex(self._commit(sha).tree)

    def _snapshot(self, sha: Sha) -> TargetSnapshot:
        tree = self._tree_of(sha)
        try:
            return TargetSnapshot(self._repo, sha, tree, self._notes.manifest(sha))
        except (KeyError, ManifestCorrupt) as problem:
            raise CheckpointDamaged(sha, tuple(self.verify(sha))) from problem

    def _readable(self, sha: Sha, meter: Meter) -> TargetSnapshot:
        """Open a checkpoint whose trees can be read and whose blobs exist."""
        self._commit(sha)
        damages = self._verification.missing(sha, meter)
        if damages:
            self._mark_suspect()
            raise CheckpointDamaged(sha, tuple(damages))

        return self._snapshot(sha)


def _snapshot_in(repo: ShadowRepo, sha: Sha) -> TargetSnapshot:
    """Open a checkpoint of any repository; raise CheckpointNotFound or CheckpointDamaged."""
    try:
        commit = repo.commit(sha)
        if commit is None:
            raise CheckpointNotFound(sha)

        return TargetSnapshot(repo, sha, bytes.fromhex(commit.tree), Notes(repo).manifest(sha))
    except (KeyError, ManifestCorrupt) as problem:
        raise CheckpointDamaged(sha, _damages(repo, sha)) from problem


def _refuse_damaged(repo: ShadowRepo, sha: Sha, problem: KeyError) -> None:
    """Raise CheckpointDamaged if an object of a checkpoint cannot be read."""
    if damages := _damages(repo, sha):
        raise CheckpointDamaged(sha, damages) from problem


def _damages(repo: ShadowRepo, sha: Sha) -> tuple[Damage, ...]:
    return tuple(Verification(repo, Notes(repo)).unreadable(sha))
