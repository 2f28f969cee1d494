"""Makes the shadow repository and the work tree of a branch, from an `Offshoot`.

Objects are copied, never linked: the files of two repositories that share inodes would be damaged,
packed and given permissions together, and whoever writes to the one (an agent can) would write to
the other. Where the file system can share blocks between files, a copy costs nothing all the same.
Nothing of the source is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from hankweave_protocol.ids import Sha, branch_of
from hankweave_server.checkpoints import repo_init
from hankweave_server.checkpoints.clone import Offshoot, epochs_of, facts_in, notes_tree
from hankweave_server.checkpoints.errors import RestoreIncomplete, disk_faults
from hankweave_server.checkpoints.manifest import Manifest
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pins import Pins
from hankweave_server.checkpoints.restore import Materialising
from hankweave_server.checkpoints.snapshot import Snapshot
from hankweave_server.checkpoints.worktree_index import WorkTreeMemory
from hankweave_server.fsutil import replace_durably
from hankweave_server.git.objects import ObjectStaging, digest_of
from hankweave_server.git.repo import (
    BRANCHES,
    MEMORY_REF,
    NOTES_REF,
    RawCommit,
    ShadowRepo,
    shallow_in,
)
from hankweave_server.git.trees import FOLDER, Entry, encoded
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout
from hankweave_server.worktree.spare import folder_for_spares

EMPTY_TREE = digest_of("tree", b"")
_COPIED_AT_ONCE = 64 << 20


class Interrupted(Exception):
    """A copy that was told to stop; what there is of it is of no use."""


def copy_repository(
    plan: Offshoot,
    layout: Layout,
    should_stop: Callable[[], bool],
    meter: Meter = UNWATCHED,
) -> None:
    """Makes the new shadow repository: objects, notes, branches, pins, and HEAD at the checkpoint.

    Objects are not flushed. Raises Interrupted where it was to stop, InsufficientSpace and
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

        # Histories begin where the source's do, or where it has lost what came before.
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
    """Brings the checkpoint into an empty work tree, and remembers that it is there.

    Raises RestoreIncomplete, InsufficientSpace and ShadowRepositoryError.
    """
    with disk_faults(layout.root):
        repo = ShadowRepo(layout.shadow_repository)
        notes = Notes(repo)
        memory = WorkTreeMemory(repo, notes, layout.work_tree, None)
        try:
            memory.follow(target)
            with folder_for_spares(layout) as spares:
                _materialise(repo, notes, memory, target, spares, meter)

            memory.save(layout.scan_cache)
        finally:
            memory.descent.close()
            repo.close()


def _materialise(
    repo: ShadowRepo,
    notes: Notes,
    memory: WorkTreeMemory,
    target: Sha,
    spares: int,
    meter: Meter,
) -> None:
    commit = repo.commit(target)
    assert commit is not None, "the checkpoint was copied"
    with memory.descent.fresh() as descent:
        materialising = Materialising(
            safety=Snapshot(repo, target, EMPTY_TREE, Manifest()),
            target=Snapshot(repo, target, bytes.fromhex(commit.tree), notes.manifest(target)),
            scan=memory.scan,
            observer=memory.observer,
            descent=descent,
            selection=None,
            keep=frozenset(),
            spares=spares,
            meter=meter,
        )
        report = materialising.run()

    if materialising.unfinished:
        raise RestoreIncomplete(report, materialising.unfinished)


def _copy(source: Path, copy: Path) -> None:
    """Copies a file; where the file system can, both share their blocks from then on."""
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
    """Writes those trees anew that would lead to other checkpoints, and the empty one.

    All that is in them was copied. The work tree is filled from the empty tree.
    """
    top, epochs = notes_tree(source), epochs_of(source, commits)
    staging = ObjectStaging(copy.path / "objects", copy.stored())
    try:
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
    except BaseException:
        staging.abandon()
        raise

    if top is not None:
        copy.point(NOTES_REF, notes or top.hex())

    if epochs:
        copy.point(MEMORY_REF, memory.hex())


def _copy_branches(copy: ShadowRepo, plan: Offshoot) -> None:
    """Gives each run of the history its branch back, up to where the history has it."""
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
