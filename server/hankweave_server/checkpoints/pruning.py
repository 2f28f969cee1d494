"""Gathers the facts that retention decides on, and carries its decision out.

Order: find what stays, moving nothing; branches; notes; the index; and only then objects. A crash
leaves garbage, or notes of commits that are gone: the next pruning takes both away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.commit_message import NotACheckpoint, read_back
from hankweave_server.checkpoints.errors import ShadowRepositoryError
from hankweave_server.checkpoints.model import CommitFacts
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.sweeping import Stopped, Sweeping, Unreadable
from hankweave_server.domain.retention import Lineage, Pruning, RetentionPolicy, decide
from hankweave_server.fsutil import remove_durably
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.repo import BRANCHES, KEPT, NOTES_REF, SAFETY, RawCommit, ShadowRepo
from hankweave_server.git.store_files import StoreFiles
from hankweave_server.git.trees import FOLDER, parsed
from hankweave_server.meter import UNWATCHED, Meter

_RUNS = BRANCHES + "run-"


class PruningOutdated(Exception):
    """What was to be pruned is needed by now, or a branch has moved: ask again what may go."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning came to."""

    checkpoints: tuple[Sha, ...]
    """Those that are on no ref any more."""
    bytes_before: int
    bytes_after: int
    finished: bool
    """All garbage is gone; False when it was asked to stop: the next pruning goes on."""
    unreadable: str | None = None
    """An object that is lost: it may hide what is needed, so that no garbage was removed."""


def pruning_now(
    repo: ShadowRepo,
    files: StoreFiles,
    policy: RetentionPolicy,
    now: datetime,
    keep: frozenset[Sha],
) -> Pruning:
    """Applies a policy to the history as it is."""
    branches = movable_refs(repo)
    held = _needed(repo, frozenset(branches)) | keep
    history = _history(repo, held | frozenset(branches.values()))
    return decide(
        history=history.values(),
        branches={ref: sha for ref, sha in branches.items() if sha in history},
        held=held | _after_gaps(history),
        policy=policy,
        now=now,
        bytes_now=files.size().bytes_on_disk,
        cost=_Costs(repo, files).of,
    )


class PruningAct:
    """Carries a decision out."""

    def __init__(
        self,
        repo: ShadowRepo,
        notes: Notes,
        files: StoreFiles,
        should_stop: Callable[[], bool],
        meter: Meter = UNWATCHED,
    ) -> None:
        self._repo = repo
        self._notes = notes
        self._files = files
        self._sweeping = Sweeping(repo, files, should_stop, meter)

    def run(self, pruning: Pruning) -> Pruned:
        before = self._files.size().bytes_on_disk
        staying = self._staying(pruning)
        unreadable: str | None = None
        live: set[bytes] = set()
        try:
            live = self._sweeping.live(self._roots(pruning))
        except Stopped:
            return Pruned((), before, before, finished=False)
        except Unreadable as problem:
            unreadable = problem.name

        notes = self._written_notes(staying)
        self._move(pruning)
        if notes is not None:
            self._repo.point(NOTES_REF, notes)

        self._refresh_index()
        gone = tuple(commit.sha for commit in pruning.checkpoints)
        if unreadable is None:
            try:
                finished = self._sweep(live)
            except Unreadable as problem:
                unreadable, finished = problem.name, True
        else:
            finished = True

        after = self._files.size().bytes_on_disk
        return Pruned(gone, before, after, finished, unreadable)

    def _staying(self, pruning: Pruning) -> set[Sha]:
        """Gives the commits that stay; raises PruningOutdated unless what goes may still go."""
        branches = movable_refs(self._repo)
        moved = frozenset(move.ref for move in pruning.moves)
        held = _needed(self._repo, moved) | pruning.keep
        held |= {move.new for move in pruning.moves if move.new is not None}
        staying = set(_history(self._repo, held))
        going = {facts.sha for facts in pruning.checkpoints}
        if any(branches.get(move.ref) != move.old for move in pruning.moves) or going & staying:
            raise PruningOutdated("the history has changed since this was asked")

        return staying

    def _roots(self, pruning: Pruning) -> set[Sha]:
        """Gives everything that must stay, notes excepted."""
        references = self._repo.references()
        references.pop(NOTES_REF, None)
        for move in pruning.moves:
            references.pop(move.ref)

        is_stored = self._repo.stored()
        kept = {sha for sha in pruning.keep if is_stored(bytes.fromhex(sha))}
        moved = {move.new for move in pruning.moves if move.new is not None}
        head = self._repo.head()
        return {*references.values(), *kept, *moved, *([] if head is None else [head])}

    def _written_notes(self, staying: set[Sha]) -> Sha | None:
        staging = ObjectStaging(self._files.objects, self._repo.stored())
        try:
            notes = self._notes.only_of(staying, staging.add)
            staging.settle()
        except (KeyError, ValueError):
            return None  # They stay as they are: a repair gathers what there is of them.
        finally:
            staging.abandon()

        return notes

    def _move(self, pruning: Pruning) -> None:
        for move in pruning.moves:
            if move.new is None:
                self._repo.drop(move.ref)
            else:
                self._repo.point(move.ref, move.new)

    def _refresh_index(self) -> None:
        """Lets the index name nothing that goes: it may be that of a checkpoint that does."""
        head = self._repo.head()
        try:
            commit = None if head is None else self._repo.commit(head)
        except KeyError:
            commit = None

        index = self._repo.path / "index"
        if not index.exists():
            return

        try:
            if commit is not None:
                self._repo.write_index(commit.tree)
                return
        except ShadowRepositoryError:
            pass  # Damage: no index is better than one that names what is gone.

        remove_durably(index)

    def _sweep(self, live: set[bytes]) -> bool:
        notes = self._repo.target(NOTES_REF)
        try:
            self._sweeping.run(live | self._sweeping.reached_from([] if notes is None else [notes]))
        except Stopped:
            return False

        return True


def movable_refs(repo: ShadowRepo) -> dict[str, Sha]:
    """Return the refs that keep a checkpoint until a policy lets it go."""
    return {
        ref: sha for prefix in (_RUNS, SAFETY, KEPT) for ref, sha in repo.references(prefix).items()
    }


def _needed(repo: ShadowRepo, movable: frozenset[str]) -> frozenset[Sha]:
    """Gives the commits that HEAD and all other refs name."""
    targets = [
        target
        for ref, target in repo.references().items()
        if ref not in movable and ref != NOTES_REF
    ]
    head = repo.head()
    named = [repo.commit_named_by(target) for target in targets]
    return frozenset(sha for sha in (head, *named) if sha is not None)


def _history(repo: ShadowRepo, tips: Iterable[Sha]) -> dict[Sha, Lineage]:
    found, _ = repo.reachable(tips)
    return {sha: _lineage(commit) for sha, commit in found.items()}


def _after_gaps(history: Mapping[Sha, Lineage]) -> frozenset[Sha]:
    """Return the commits whose parents cannot be read: what lies behind them is not known."""
    return frozenset(
        sha
        for sha, commit in history.items()
        if any(parent not in history for parent in commit.parents)
    )


def is_checkpoint(commit: RawCommit) -> bool:
    return _lineage(commit).facts is not None


def _lineage(commit: RawCommit) -> Lineage:
    try:
        facts = read_back(commit.sha, commit.tree, commit.parents, commit.committed, commit.message)
    except NotACheckpoint:
        facts = None

    return Lineage(commit.sha, commit.parents, facts)


class _Costs:
    """Tells what checkpoints take on the disk beyond their parents."""

    def __init__(self, repo: ShadowRepo, files: StoreFiles) -> None:
        self._repo = repo
        self._stored = {file.digest: file.size for file in files.loose()}
        for pack in files.packs():
            with contextlib.suppress(ValueError, OSError):  # Damaged: an estimate is enough.
                self._stored |= {record.digest: record.length for record in pack.records()}

    def of(self, facts: CommitFacts) -> int:
        try:
            return self._of(facts)
        except (KeyError, ValueError):
            return self._size(bytes.fromhex(facts.sha))  # Damaged: an estimate is enough.

    def _of(self, facts: CommitFacts) -> int:
        parent = self._repo.commit(facts.parents[0]) if facts.parents else None
        before = None if parent is None else bytes.fromhex(parent.tree)
        return self._size(bytes.fromhex(facts.sha)) + self._below(before, bytes.fromhex(facts.tree))

    def _below(self, before: bytes | None, after: bytes) -> int:
        """Adds up a tree and what it has that another has not."""
        if before == after:
            return 0

        known = dict(parsed(self._repo.read_tree(before))) if before else {}
        size = self._size(after)
        for name, entry in parsed(self._repo.read_tree(after)):
            old = known.get(name)
            if entry == old:
                continue

            if entry.mode == FOLDER:
                is_folder = old is not None and old.mode == FOLDER
                size += self._below(old.digest if old and is_folder else None, entry.digest)
            else:
                size += self._size(entry.digest)

        return size

    def _size(self, digest: bytes) -> int:
        return self._stored.get(digest, 0)
