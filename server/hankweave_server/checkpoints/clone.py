"""Create the shadow repository and the work tree of a branch from a checkpoint of another.

A `ClonePlan` lists what is needed: one checkpoint and all its ancestors. Whole files are copied,
loose objects and packs, if they hold something needed: this is as fast as the disk. A pack may
contain objects that the branch does not need; the first `gc` of the new execution removes them.

Objects are copied, never linked. Two repositories that share inodes would be damaged, packed and
have their permissions changed together, and a program that writes to one (an agent can) would
write to the other. If the file system can share blocks between files, a copy costs nothing anyway.
The source is never written.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import repo_init
from hankweave_server.checkpoints.commit_message import facts_in
from hankweave_server.checkpoints.contents import Verification
from hankweave_server.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointNotFound,
    RestoreIncomplete,
)
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.notes import Notes, notes_tree
from hankweave_server.checkpoints.pins import Pins
from hankweave_server.checkpoints.restore import Restorer, TargetSnapshot
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.fsutil import replace_durably
from hankweave_server.git.errors import ShadowRepositoryError, disk_faults
from hankweave_server.git.objects import ObjectStaging
from hankweave_server.git.pack_reader import read_index
from hankweave_server.git.repo import (
    BRANCHES,
    MEMORY_REF,
    NOTES_REF,
    RawCommit,
    ShadowRepo,
    shallow_in,
)
from hankweave_server.git.trees import EMPTY_TREE, FOLDER, Entry, encoded, files_below, parsed
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout
from hankweave_server.worktree.scan import RACY_WINDOW_NS
from hankweave_server.worktree.tree_writer import folder_for_new_files

_BESIDE_AN_INDEX = (".pack", ".idx")


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """A plan of what to copy for one checkpoint; the source must not change until it is done."""

    source: Path
    target: Sha
    commits: dict[Sha, RawCommit]
    """The checkpoint and all its ancestors, as far as they can be read."""
    files: tuple[Path, ...]
    """Paths relative to the repository."""
    bytes: int
    """Total size of the files, and of the work tree."""

    @property
    def beginnings(self) -> frozenset[Sha]:
        """The commits whose parents are not copied, because they are lost."""
        return frozenset(
            sha
            for sha, commit in self.commits.items()
            if any(parent not in self.commits for parent in commit.parents)
        )


def plan_clone(layout: Layout, target: Sha, meter: Meter = UNWATCHED) -> ClonePlan:
    """Read the whole checkpoint, and find the files that hold its history; write nothing.

    Raises CheckpointNotFound, CheckpointDamaged and ShadowRepositoryError.
    """
    with disk_faults(layout.root):
        source = ShadowRepo(layout.shadow_repository)
        try:
            return _planned(source, target, meter)
        except (KeyError, ValueError) as problem:
            raise ShadowRepositoryError(f"Notes or packs cannot be read: {problem}") from problem
        finally:
            source.close()


def _planned(source: ShadowRepo, target: Sha, meter: Meter) -> ClonePlan:
    notes = Notes(source)
    commit = source.commit(target)
    if commit is None:
        raise CheckpointNotFound(target)

    meter.begin("checking", "objects")
    if damages := Verification(source, notes).unreadable(target, meter):
        raise CheckpointDamaged(target, tuple(damages))

    commits, _ = source.reachable([target])
    needed = _objects_of(source, commits)
    files = tuple(_files_with(source.path, needed))
    copied = sum((source.path / file).stat().st_size for file in files)
    restored_files = files_below(source.read_tree, bytes.fromhex(commit.tree))
    restored = sum(source.size(entry.digest) for _, entry in restored_files)
    return ClonePlan(source.path, target, commits, files, copied + restored)


def _objects_of(source: ShadowRepo, commits: dict[Sha, RawCommit]) -> set[bytes]:
    """Return every object of these commits; an unreadable tree hides what is below it.

    That is damage of an older checkpoint, which the branch shares with its source.
    """
    found = {bytes.fromhex(sha) for sha in commits}
    found.update(_objects_of_notes(source, commits))
    waiting = [bytes.fromhex(commit.tree) for commit in commits.values()]
    waiting += [tree.digest for fan in epochs_of(source, commits).values() for tree in fan.values()]
    while waiting:
        tree = waiting.pop()
        if tree in found:
            continue

        found.add(tree)
        try:
            entries = list(parsed(source.read_tree(tree)))
        except (KeyError, ValueError):
            continue

        waiting += [entry.digest for _, entry in entries if entry.mode == FOLDER]
        found.update(entry.digest for _, entry in entries if entry.mode != FOLDER)

    return found


def _objects_of_notes(source: ShadowRepo, commits: dict[Sha, RawCommit]) -> Iterator[bytes]:
    """Yield the notes of these commits, and the trees that contain any note."""
    top = notes_tree(source)
    waiting = [] if top is None else [(b"", top)]
    while waiting:
        prefix, tree = waiting.pop()
        try:
            entries = list(parsed(source.read_tree(tree)))
        except (KeyError, ValueError):
            continue  # Damage of other checkpoints: the target's own manifest was read.

        yield tree
        for name, entry in entries:
            if entry.mode == FOLDER:
                waiting.append((prefix + name, entry.digest))
            elif (prefix + name).decode("latin-1") in commits:
                yield entry.digest


def epochs_of(
    source: ShadowRepo, commits: Mapping[Sha, RawCommit]
) -> dict[bytes, dict[bytes, Entry]]:
    """Return the session snapshots that these checkpoints name: trees, fanned out by epoch.

    If they cannot be read, they are lost to the branch as they are to its source.
    """
    named = {facts.memory_epoch for facts in facts_in(commits.values())}
    found: dict[bytes, dict[bytes, Entry]] = {}
    try:
        for fan, below in _fans(source):
            kept = {name: tree for name, tree in below.items() if int(fan + name) in named}
            if kept:
                found[fan] = kept
    except (KeyError, ValueError):
        return {}

    return found


def _fans(source: ShadowRepo) -> Iterator[tuple[bytes, dict[bytes, Entry]]]:
    top = source.target(MEMORY_REF)
    if top is not None:
        for fan, entry in parsed(source.read_tree(bytes.fromhex(top))):
            yield fan, dict(parsed(source.read_tree(entry.digest)))


def _files_with(repository: Path, needed: set[bytes]) -> Iterator[Path]:
    """Yield the packs and loose objects that hold any of the objects."""
    objects = repository / "objects"
    for index in sorted((objects / "pack").glob("*.idx")):
        if any(record.digest in needed for record in read_index(index)):
            for suffix in _BESIDE_AN_INDEX:
                yield index.with_suffix(suffix).relative_to(repository)

    for folder in sorted(objects.glob("[0-9a-f][0-9a-f]")):
        for name in sorted(os.listdir(folder)):
            if len(name) == 38 and bytes.fromhex(folder.name + name) in needed:
                yield (folder / name).relative_to(repository)


_COPIED_AT_ONCE = 64 << 20


class Interrupted(Exception):
    """A copy was asked to stop; the partial result is unusable."""


def copy_repository(
    plan: ClonePlan,
    layout: Layout,
    should_stop: Callable[[], bool],
    meter: Meter = UNWATCHED,
) -> None:
    """Create the shadow repository: objects, notes, branches, pins, and HEAD at the checkpoint.

    Objects are not flushed. Raises Interrupted when asked to stop, InsufficientSpace and
    ShadowRepositoryError.
    """
    with disk_faults(layout.root):
        repo_init.make_ready(layout)
        sizes = {file: (plan.source / file).stat().st_size for file in plan.files}
        meter.begin("copying", "bytes", sum(sizes.values()))
        for file, size in sizes.items():
            if should_stop():
                raise Interrupted

            _copy(plan.source / file, layout.shadow_repository / file)
            meter.advance(size)

        # Histories begin where the source's do, or where the source has lost earlier commits.
        begun = plan.beginnings | shallow_in(plan.source) & plan.commits.keys()
        if begun:
            lines = "".join(f"{sha}\n" for sha in sorted(begun))
            replace_durably(layout.shadow_repository / "shallow", lines.encode())

        source, copy = ShadowRepo(plan.source), ShadowRepo(layout.shadow_repository)
        try:
            _copy_notes_and_memory(source, copy, plan.commits)
            _copy_branches(copy, plan)
            _copy_pins(source, copy, plan.commits)
            copy.detach(plan.target)
        finally:
            source.close()
            copy.close()


def fill_work_tree(target: Sha, layout: Layout, meter: Meter = UNWATCHED) -> None:
    """Restore the checkpoint into an empty work tree, and save the scan cache.

    Raises RestoreIncomplete, InsufficientSpace and ShadowRepositoryError.
    """
    with disk_faults(layout.root):
        repo = ShadowRepo(layout.shadow_repository)
        notes = Notes(repo)
        memory = WorkTreeMemory(repo, notes, layout.work_tree, None)
        try:
            memory.follow(target)
            with folder_for_new_files(layout.checkpoints) as new_files:
                _materialise(repo, notes, memory, target, new_files, meter)

            # From now on, every change gets a later time than the files have.
            time.sleep(RACY_WINDOW_NS / 1e9)
            memory.scan.settle()
            memory.save(layout.scan_cache)
        finally:
            memory.descent.close()
            repo.close()


def _materialise(
    repo: ShadowRepo,
    notes: Notes,
    memory: WorkTreeMemory,
    target: Sha,
    new_files: int,
    meter: Meter,
) -> None:
    commit = repo.commit(target)
    assert commit is not None, "the checkpoint was copied"
    with memory.descent.fresh() as descent:
        restorer = Restorer(
            safety=TargetSnapshot(repo, target, EMPTY_TREE, Manifest()),
            target=TargetSnapshot(repo, target, bytes.fromhex(commit.tree), notes.manifest(target)),
            scan=memory.scan,
            observer=memory.observer,
            descent=descent,
            selection=None,
            keep=frozenset(),
            new_files=new_files,
            meter=meter,
            is_verified=True,
        )
        restorer.apply(restorer.changes())
        report = restorer.report()

    if report.unrestored:
        raise RestoreIncomplete(report.unrestored)


def _copy(source: Path, copy: Path) -> None:
    """Copy a file; both share their blocks from then on if the file system supports it."""
    copy.parent.mkdir(mode=0o700, exist_ok=True)
    with source.open("rb", buffering=0) as reader, copy.open("xb", buffering=0) as writer:
        mode = os.fstat(reader.fileno()).st_mode
        try:
            while os.copy_file_range(reader.fileno(), writer.fileno(), _COPIED_AT_ONCE):
                pass
        except OSError:
            # Two file systems that cannot copy between each other, or a kernel without the call.
            reader.seek(0)
            writer.seek(0)
            shutil.copyfileobj(reader, writer)

        os.fchmod(writer.fileno(), mode & 0o600)


def _copy_notes_and_memory(
    source: ShadowRepo, copy: ShadowRepo, commits: Mapping[Sha, RawCommit]
) -> None:
    """Write the trees again that would lead to other checkpoints, and the empty tree.

    Everything they name was copied. The work tree is filled starting from the empty tree.
    """
    top, epochs = notes_tree(source), epochs_of(source, commits)
    with ObjectStaging(copy.path / "objects", copy.stored()) as staging:
        staging.add("tree", b"")
        notes = (
            None
            if top is None
            else (Notes(source).only_of(commits.keys(), staging.add, past_damage=True))
        )
        fans = {
            fan: Entry(FOLDER, staging.add("tree", encoded(below))) for fan, below in epochs.items()
        }
        memory = staging.add("tree", encoded(fans))
        staging.settle()

    if top is not None:
        copy.point(NOTES_REF, notes or top.hex())

    if epochs:
        copy.point(MEMORY_REF, memory.hex())


def _copy_branches(copy: ShadowRepo, plan: ClonePlan) -> None:
    """Recreate the branch of each run in the history, at its newest commit there."""
    tips: dict[str, Sha] = {}
    waiting, seen = [plan.target], set[Sha]()
    while waiting:
        sha = waiting.pop(0)
        if sha in seen or sha not in plan.commits:
            continue

        seen.add(sha)
        commit = plan.commits[sha]
        waiting += commit.parents
        for facts in facts_in((commit,)):
            tips.setdefault(branch_of(facts.run_id), sha)

    for name, tip in tips.items():
        copy.point(BRANCHES + name, tip)


def _copy_pins(source: ShadowRepo, copy: ShadowRepo, commits: dict[Sha, RawCommit]) -> None:
    pins = Pins(copy)
    for sha, name in Pins(source).all().items():
        if sha in commits:
            pins.pin(sha, name)
