"""Bringing back what was archived when time goes back, and putting it away again with an undo.

All of it happens under the rollback's own intent: a move that is made stays made, and what one
rollback has moved stands in the manifest under its name, so that doing it again tells the same.
"""

from __future__ import annotations

import os

import anyio.to_thread

from hankweave_protocol.errors import Refused
from hankweave_protocol.hank import RigCopy
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import (
    ArchiveEntry,
    ArchiveManifest,
    ArchiveMove,
    ArchiveTravel,
    CheckpointRecord,
    RollbackIntent,
)
from hankweave_protocol.state import PlanEntry
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.domain.history import plan_entry
from hankweave_server.execution import archive_manifest as manifests
from hankweave_server.execution.archive import both_places, intended
from hankweave_server.execution.context import Surroundings
from hankweave_server.worktree import archive
from hankweave_server.worktree.archive import Places
from hankweave_server.worktree.names import shown


class ArchiveReturn:
    """The rig archive of one execution, as a rollback takes files from it."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def go_along(self, rollback: RollbackIntent) -> ArchiveTravel | None:
        """Brings back what was archived after the target's moment; the undo puts it away again.

        Asked when the target's files are restored. What stands there then stays, and what the
        checkpoints hold is theirs to bring back. Twice is as once. None where nothing is to move.
        """
        if rollback.to_run is None:
            return None

        try:
            manifest = await anyio.to_thread.run_sync(self._settled_manifest)
        except Refused as fault:
            return ArchiveTravel(failed={self._around.layout.archive_manifest.name: fault.message})

        if rollback.operation_id in manifest.travels:
            return manifest.travels[rollback.operation_id]

        wanted = await self._archived_after(rollback, manifest)
        undone = manifest.travels.get(rollback.undone or "")
        if undone is not None:
            wanted += undone.archived

        if not wanted and (undone is None or not undone.restored):
            return None

        return await anyio.to_thread.run_sync(
            self._travel, rollback.operation_id, manifest, wanted, undone or ArchiveTravel()
        )

    def _settled_manifest(self) -> ArchiveManifest:
        """The manifest, with what an archiving has moved that could not end."""
        layout = self._around.layout
        intent = intended(layout)
        if intent is None:
            return manifests.read(layout)

        with both_places(self._around.layout) as places:
            arrived = [m for m in intent.moves if places.archive.status(m.target) is not None]

        manifest = manifests.with_archived(manifests.read(layout), intent, arrived, layout)
        manifests.write(layout, manifest)
        fsutil.remove_durably(layout.archive_intent)
        return manifest

    async def _archived_after(
        self, rollback: RollbackIntent, manifest: ArchiveManifest
    ) -> tuple[ArchiveEntry, ...]:
        """What lay in the work tree at the target's moment, or came there later, in no checkpoint.

        Entries of checkpoints that nobody knows stay where they are; so does what a rig copied that
        will be set up anew.
        """
        known = self._around.checkpointer.known
        moment = (rollback.place or rollback.target.coordinate).event_seq
        after = [
            entry
            for entry in manifest.entries
            if (record := known.get(Sha(entry.checkpoint_sha))) is not None
            and record.coordinate.event_seq >= moment
            and not self._comes_with_its_rig(entry, record, moment)
        ]
        saved = {
            sha: await self._saved(Sha(sha)) for sha in {each.checkpoint_sha for each in after}
        }
        return tuple(
            each
            for each in after
            if (paths := saved[each.checkpoint_sha]) is not None and each.source_path not in paths
        )

    def _comes_with_its_rig(
        self, entry: ArchiveEntry, archived_at: CheckpointRecord, moment: int
    ) -> bool:
        """Tells of a file that the codon's own rig had copied, after the target's moment."""
        of_codon = archived_at.coordinate
        if of_codon.codon_id is None or not _is_copied(
            entry, plan_entry(self._around.state.execution_plan, of_codon.codon_id)
        ):
            return False

        others = (record.coordinate for record in self._around.checkpointer.known.values())
        own = (
            other.event_seq
            for other in others
            if (other.run_id, other.codon_id) == (of_codon.run_id, of_codon.codon_id)
        )
        return moment < min(own)

    async def _saved(self, sha: Sha) -> frozenset[str] | None:
        """The files of a checkpoint; None where they cannot be read, so that nobody knows."""
        checkpointer = self._around.checkpointer
        try:
            tree = await checkpointer.run(checkpointer.engine.tree, sha)
        except (CheckpointDamaged, CheckpointNotFound):
            return None

        return frozenset(shown(entry.path) for entry in tree)

    def _travel(
        self,
        operation_id: str,
        manifest: ArchiveManifest,
        wanted: tuple[ArchiveEntry, ...],
        undone: ArchiveTravel,
    ) -> ArchiveTravel:
        layout = self._around.layout
        with both_places(self._around.layout) as places:
            # Asked of either place: a crash may have been after the move.
            back = {self._way(places, entry): entry for entry in wanted}
            again = {_reversed(self._way(places, entry)): entry for entry in undone.restored}
            came = archive.bring_back(places, back)
            went = archive.put_away_again(places, again)
            for folder in sorted(map(os.fsencode, undone.folders), reverse=True):
                if places.tree.status(folder) is not None:
                    archive.remove_folder(places.tree, folder)

            restored = frozenset(back[move] for move in came.done)
            stays = (each for each in manifest.entries if each not in restored)
            kept = frozenset(name for each in stays for name in manifests.places_of(each, layout))
            archive.tidy(places.archive, (move.source for move in came.done), kept)
            places.sync()

        travel = ArchiveTravel(
            restored=tuple(entry for entry in back.values() if entry in restored),
            archived=tuple(again[move] for move in went.done),
            folders=tuple(shown(folder) for folder in came.made),
            failed={
                **{
                    entry.source_path: came.failed[move.source]
                    for move, entry in back.items()
                    if move.source in came.failed
                },
                **{shown(path): why for path, why in went.failed.items()},
            },
        )
        manifests.write(layout, manifests.with_travel(manifest, operation_id, travel))
        return travel

    def _way(self, places: Places, entry: ArchiveEntry) -> ArchiveMove:
        return manifests.way_back(
            entry, self._around.layout, lambda name: places.archive.status(name) is not None
        )


def _is_copied(entry: ArchiveEntry, planned: PlanEntry | None) -> bool:
    """Tells whether a codon's rig has copied a file; one that is not planned copies nothing."""
    items = () if planned is None else planned.codon.rig_setup
    targets = (item.copy.to.strip("/") for item in items if isinstance(item, RigCopy))
    path = entry.source_path
    return any(path == to or path.startswith(f"{to}/") for to in targets)


def _reversed(move: ArchiveMove) -> ArchiveMove:
    return ArchiveMove(source=move.target, target=move.source)
