"""Maintain the shadow repository: size, consolidation, retention, garbage, fsck.

Calls block like the engine's and must not run at the same time as another of its calls. After
`prune` the caller must discard its knowledge of the work tree and the scan cache: a blob that they
assume to be stored may be gone.

`Sweeping` finds what no ref needs and frees its space. A pack of garbage alone is removed; one
with enough garbage is repacked without it, a batch at a time; one with little is left alone. If
this is interrupted at any point, everything that a ref needs is still readable, and the next sweep
does the rest: it writes the same packs under the same names.

`Housekeeping.prunable` gathers the facts on which retention decides, and `PruningAct` carries out
the decision. It finds what stays without moving anything, then moves branches, notes and the index,
and only then removes objects. A crash leaves garbage, or notes of commits that are gone; the next
pruning removes both.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from hankweave_protocol.ids import Sha
from hankweave_server.checkpoints.commit_message import facts_of
from hankweave_server.checkpoints.contents import Verification
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.domain.retention import CommitFacts, Lineage, Pruning, RetentionPolicy, decide
from hankweave_server.fsutil import remove_durably
from hankweave_server.git.errors import ShadowRepositoryError, disk_faults
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.pack_merge import repacked
from hankweave_server.git.pack_reader import Record
from hankweave_server.git.repack import Consolidated, Pace, Repacking
from hankweave_server.git.repo import BRANCHES, KEPT, NOTES_REF, SAFETY, ShadowRepo
from hankweave_server.git.store_files import PackFile, StoreFiles, StoreSize
from hankweave_server.git.trees import FOLDER, parsed
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout

MUCH_GARBAGE = 1 / 2
SOME_GARBAGE = 1 / 8
"""Fraction of a pack that must be garbage before the rest is copied; small packs copy easily."""

STEP_BYTES = 1 << 20
"""Unpacked bytes that one step compares with one another: some 100 ms."""

STEP_OBJECTS = 160
SMALL_PACK = 4 << 20
STOP_CHECK_EVERY = 64
"""Number of objects read between two checks whether to stop."""


class Stopped(Exception):
    """The operation was asked to stop before the end."""


class UnreadableObjects(Exception):
    """A needed object cannot be read; the objects it names might be needed too."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} cannot be read, so nothing is removed")
        self.name = name


@dataclass(frozen=True, slots=True)
class Sweeping:
    """One sweep; raises Stopped, between steps, when it is asked to stop."""

    repo: ShadowRepo
    files: StoreFiles
    should_stop: Callable[[], bool]
    meter: Meter = UNWATCHED

    def live(self, roots: Iterable[Sha]) -> set[bytes]:
        """Return everything that is reachable from the roots.

        Raises Unreadable if something cannot be read: as long as damage hides what is needed,
        nothing may be removed.
        """
        self.meter.begin("tracing", "objects", self.files.count_objects())
        return self.reached_from(roots)

    def reached_from(self, roots: Iterable[Sha]) -> set[bytes]:
        """Return what is reachable from further roots; the meter continues its count."""
        found: set[bytes] = set()
        cut = self.repo.shallow()
        waiting = [bytes.fromhex(root) for root in roots]
        while waiting:
            digest = waiting.pop()
            if digest in found:
                continue

            found.add(digest)
            if len(found) % STOP_CHECK_EVERY == 0:
                self._stop_if_asked()

            try:
                kind, data = self.repo.read(digest)
                needed, leaves = named_in(kind, data, is_cut=digest.hex() in cut)
            except (KeyError, ValueError) as problem:
                raise UnreadableObjects(digest.hex()) from problem

            waiting += needed
            before = len(found)
            found.update(leaves)
            self.meter.advance(1 + len(found) - before)

        return found

    def run(self, live: set[bytes]) -> None:
        """Remove everything that is not in `live`."""
        self._remove_shortcuts()
        try:
            self._stop_if_asked()
            self.files.remove([file for file in self.files.loose() if file.digest not in live])

            packs = self.files.packs()
            self.meter.begin("sweeping", "files", len(packs))
            for pack in packs:
                self._stop_if_asked()
                self._sweep(pack, live)
                self.meter.advance()
        finally:
            self.repo.reopen()

    def _sweep(self, pack: PackFile, live: set[bytes]) -> None:
        try:
            records = pack.records()
        except ValueError as problem:
            raise ShadowRepositoryError(str(problem)) from problem

        needed = [record for record in records if record.digest in live]
        whole = sum(record.length for record in records)
        garbage = whole - sum(record.length for record in needed)
        if garbage <= whole * (SOME_GARBAGE if pack.size < SMALL_PACK else MUCH_GARBAGE):
            return

        for batch in self._batches(needed):
            self._stop_if_asked()
            repacked(self.repo, self.files.pack_folder, batch).adopt()

        self.files.remove([pack])

    def _batches(self, records: Iterable[Record]) -> Iterator[list[bytes]]:
        """Yield batches in pack order, in which similar objects are neighbours."""
        batch: list[bytes] = []
        room = STEP_BYTES
        for record in records:
            size = self.repo.size(record.digest)
            if batch and (size > room or len(batch) == STEP_OBJECTS):
                yield batch
                batch, room = [], STEP_BYTES

            batch.append(record.digest)
            room -= size

        if batch:
            yield batch

    def _remove_shortcuts(self) -> None:
        """Remove the commit graph of stock git, if any: it names commits to be removed."""
        information = self.files.objects / "info"
        (information / "commit-graph").unlink(missing_ok=True)
        if (information / "commit-graphs").is_dir():
            shutil.rmtree(information / "commit-graphs")

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise Stopped


def named_in(kind: str, data: bytes, *, is_cut: bool = False) -> tuple[list[bytes], list[bytes]]:
    """Return the objects that an object names: those to be read in turn, and blobs.

    A commit that `is_cut` is the beginning of its history, whatever parents it names.
    """
    match kind:
        case "tree":
            entries = [entry for _, entry in parsed(data)]
            folders = [entry.digest for entry in entries if entry.mode == FOLDER]
            return folders, [entry.digest for entry in entries if entry.mode != FOLDER]
        case "commit" | "tag":
            header, _, _ = data.partition(b"\n\n")
            lines = [line.split(b" ", 1) for line in header.split(b"\n")]
            wanted = (b"tree", b"object") if is_cut else (b"tree", b"parent", b"object")
            return [bytes.fromhex(line[1].decode()) for line in lines if line[0] in wanted], []
        case _:
            return [], []


_RUNS = BRANCHES + "run-"


class PruningOutdated(Exception):
    """The history changed since the pruning was planned: plan it again."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a pruning."""

    checkpoints: tuple[Sha, ...]
    """Checkpoints that are on no ref any more."""
    bytes_before: int
    bytes_after: int
    finished: bool
    """True if all garbage is gone; False if it was asked to stop: the next pruning continues."""
    unreadable: str | None = None
    """A lost object: it may hide what is needed, so no garbage was removed."""


@dataclass(frozen=True, slots=True)
class PruningAct:
    """The execution of a pruning decision."""

    repo: ShadowRepo
    notes: Notes
    files: StoreFiles
    sweeping: Sweeping

    def run(self, pruning: Pruning) -> Pruned:
        self.repo.settle()
        before = self.files.size().bytes_on_disk
        retained = self._retained(pruning)
        unreadable: str | None = None
        live: set[bytes] = set()
        try:
            live = self.sweeping.live(self._roots(pruning))
        except Stopped:
            return Pruned((), before, before, finished=False)
        except UnreadableObjects as problem:
            unreadable = problem.name

        notes = self._written_notes(retained)
        self._move(pruning)
        if notes is not None:
            self.repo.point(NOTES_REF, notes)

        self._refresh_index()
        gone = tuple(commit.sha for commit in pruning.checkpoints)
        if unreadable is None:
            try:
                finished = self._sweep(live)
            except UnreadableObjects as problem:
                unreadable, finished = problem.name, True
        else:
            finished = True

        after = self.files.size().bytes_on_disk
        return Pruned(gone, before, after, finished, unreadable)

    def _retained(self, pruning: Pruning) -> set[Sha]:
        """Return the commits that stay; raise PruningOutdated if the decision is outdated."""
        branches = movable_refs(self.repo)
        moved = frozenset(move.ref for move in pruning.moves)
        held = _needed(self.repo, moved) | pruning.keep
        held |= {move.new for move in pruning.moves if move.new is not None}
        retained = set(_history(self.repo, held))
        going = {facts.sha for facts in pruning.checkpoints}
        if any(branches.get(move.ref) != move.old for move in pruning.moves) or going & retained:
            raise PruningOutdated("the history has changed since the request")

        return retained

    def _roots(self, pruning: Pruning) -> set[Sha]:
        """Return the roots of everything that must stay, notes excepted."""
        references = self.repo.references()
        references.pop(NOTES_REF, None)
        for move in pruning.moves:
            references.pop(move.ref)

        is_stored = self.repo.stored()
        kept = {sha for sha in pruning.keep if is_stored(bytes.fromhex(sha))}
        moved = {move.new for move in pruning.moves if move.new is not None}
        head = self.repo.head()
        return {*references.values(), *kept, *moved, *([] if head is None else [head])}

    def _written_notes(self, retained: set[Sha]) -> Sha | None:
        with ObjectStaging(self.files.objects, self.repo.stored()) as staging:
            try:
                notes = self.notes.only_of(retained, staging.add)
                staging.settle()
            except (KeyError, ValueError):
                return None  # They stay as they are: a repair gathers what is readable.

        return notes

    def _move(self, pruning: Pruning) -> None:
        for move in pruning.moves:
            if move.new is None:
                self.repo.drop(move.ref)
            else:
                self.repo.point(move.ref, move.new)

    def _refresh_index(self) -> None:
        """Rewrite the index so that it names nothing that is removed."""
        head = self.repo.head()
        try:
            commit = None if head is None else self.repo.commit(head)
        except KeyError:
            commit = None

        index = self.repo.path / "index"
        if not index.exists():
            return

        try:
            if commit is not None:
                self.repo.write_index(commit.tree)
                return
        except ShadowRepositoryError:
            pass  # Damage: no index is better than one that names removed objects.

        remove_durably(index)

    def _sweep(self, live: set[bytes]) -> bool:
        notes = self.repo.target(NOTES_REF)
        try:
            self.sweeping.run(live | self.sweeping.reached_from([] if notes is None else [notes]))
        except Stopped:
            return False

        return True


def movable_refs(repo: ShadowRepo) -> dict[str, Sha]:
    """Return the refs that keep a checkpoint until a policy releases it."""
    return {
        ref: sha for prefix in (_RUNS, SAFETY, KEPT) for ref, sha in repo.references(prefix).items()
    }


def _needed(repo: ShadowRepo, movable: frozenset[str]) -> frozenset[Sha]:
    """Return the commits that HEAD and all other refs name."""
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
    return {sha: Lineage(sha, commit.parents, facts_of(commit)) for sha, commit in found.items()}


def _after_gaps(history: Mapping[Sha, Lineage]) -> frozenset[Sha]:
    """Return the commits whose parents cannot be read: their earlier history is unknown."""
    return frozenset(
        sha
        for sha, commit in history.items()
        if any(parent not in history for parent in commit.parents)
    )


class _Costs:
    """The bytes that checkpoints take on disk beyond their parents."""

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
        """Return the size of a tree and everything in it that another tree lacks."""
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


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The result of a full check of the store."""

    checked: int
    """Number of checkpoints read down to each blob, successfully or not."""
    damages: dict[Sha, tuple[Damage, ...]]
    """Damages by checkpoint."""
    missing: tuple[Sha, ...]
    """Recorded checkpoints that are not in the store at all."""

    @property
    def is_sound(self) -> bool:
        return not self.damages and not self.missing


class Housekeeping:
    """Maintenance of the shadow repository: measure, consolidate, prune and check."""

    def __init__(self, repo: ShadowRepo, notes: Notes, layout: Layout) -> None:
        self._repo = repo
        self._notes = notes
        self._layout = layout
        self._files = StoreFiles(repo.path)
        self._consolidation = Repacking(repo)

    def size(self) -> StoreSize:
        """Return the size of the repository on disk; unchanged folders are not listed again."""
        return self._files.size()

    # Consolidation

    def needs_consolidation(self) -> bool:
        """Return, from file names alone, whether small packs or loose objects have accumulated.

        It may be called beside another call of the engine, but for `consolidate`.
        """
        return self._consolidation.is_needed()

    def consolidate(self, pace: Pace, meter: Meter = UNWATCHED) -> Consolidated:
        """Combine many packs into few.

        It may run beside other calls of the engine that neither remove objects nor depend on the
        files that hold them; `pace` has what must not. Raises InsufficientSpace or
        ShadowRepositoryError with every object still readable.
        """
        with disk_faults(self._layout.root):
            return self._consolidation.run(pace, meter)

    # Retention

    def prunable(
        self,
        policy: RetentionPolicy,
        now: datetime,
        keep: frozenset[Sha],
        unwanted: frozenset[Sha] = frozenset(),
    ) -> Pruning:
        """Return what a policy would prune, without touching anything.

        `keep` are commits that the caller still needs, on a ref or not: the target of an undo, an
        intent. Of `unwanted` ones, any kind may go. Raises ShadowRepositoryError when the history
        cannot be read.
        """
        branches = movable_refs(self._repo)
        held = _needed(self._repo, frozenset(branches)) | keep
        history = _history(self._repo, held | frozenset(branches.values()))
        return decide(
            history=history.values(),
            branches={ref: sha for ref, sha in branches.items() if sha in history},
            held=held | _after_gaps(history),
            policy=policy,
            now=now,
            bytes_now=self.size().bytes_on_disk,
            cost=_Costs(self._repo, self._files).of,
            unwanted=unwanted,
        )

    def prune(
        self, pruning: Pruning, should_stop: Callable[[], bool], meter: Meter = UNWATCHED
    ) -> Pruned:
        """Move the branches back, remove the notes, and remove what no ref needs any more.

        An empty pruning removes leftovers of crashes. If it is interrupted or stopped, every
        checkpoint that stays is complete, and the next call does the rest. Raises PruningOutdated,
        before anything moved, when a checkpoint to be removed is needed by now;
        ShadowRepositoryError, too, for a store whose damage hides what is needed.
        """
        with disk_faults(self._layout.root):
            sweeping = Sweeping(self._repo, self._files, should_stop, meter)
            return PruningAct(self._repo, self._notes, self._files, sweeping).run(pruning)

    # Integrity

    def fsck(self, recorded: Iterable[Sha] = (), meter: Meter = UNWATCHED) -> StoreCheck:
        """Read every checkpoint on our refs, and every recorded one, down to each blob.

        The meter's total is the number of stored objects; those that no checkpoint needs are not
        read.
        """
        meter.begin("checking", "objects", self._files.count_objects())
        found, lost = self._repo.reached_from_refs()
        ours = [sha for sha, commit in found.items() if facts_of(commit) is not None]
        asked = dict.fromkeys(recorded)
        is_stored = self._repo.stored()
        missing = tuple(sha for sha in asked if not is_stored(bytes.fromhex(sha)))
        verification = Verification(self._repo, self._notes)
        shas = [sha for sha in dict.fromkeys([*ours, *lost, *asked]) if sha not in missing]
        damages: dict[Sha, tuple[Damage, ...]] = {}
        for sha in shas:
            meter.advance()
            damages[sha] = tuple(verification.unreadable(sha, meter))

        return StoreCheck(
            checked=len(shas) + len(missing),
            damages={sha: broken for sha, broken in damages.items() if broken},
            missing=missing,
        )
