"""Tells which tracked files changed, who changed them, and what they hold now (seed 001)."""

from __future__ import annotations

import os

import anyio.to_thread

from hankweave_protocol.events import FileSource, FileUpdated
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.checkpoints.model import FileChange
from hankweave_server.execution import edits
from hankweave_server.execution.surroundings import Surroundings
from hankweave_server.ledger.batch import Entry
from hankweave_server.workspace.descent import Descent

PERSON = FileSource(kind="person")


class FileNews:
    """Looks at the tracked files and tells what changed since the last look."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def tell(
        self, source: FileSource, run_id: RunId | None, codon_id: CodonId | None
    ) -> bool:
        """Posts `file.updated` for each change, and whose edits they are; tells whether any was."""
        around = self._around
        changes = await around.checkpointer.changes(around.patterns())
        if not changes:
            return False

        updates = await anyio.to_thread.run_sync(self._described, changes, source, codon_id)
        entries: tuple[Entry, ...] = updates
        if source.kind == "person":
            entries += edits.by_people({update.path: update.sha256 for update in updates})
        else:
            entries += edits.by_agents(around.state, (update.path for update in updates))

        await around.ledger.post(*entries, run_id=run_id, codon_id=codon_id)
        return True

    def _described(
        self, changes: tuple[FileChange, ...], source: FileSource, codon_id: CodonId | None
    ) -> tuple[FileUpdated, ...]:
        descent = Descent(self._around.layout.work_tree)
        try:
            return tuple(
                FileUpdated(
                    path=os.fsdecode(change.path),
                    filename=os.fsdecode(os.path.basename(change.path)),
                    action=change.kind,
                    sha256=(
                        "" if change.kind == "deleted" else edits.sha256_of(descent, change.path)
                    ),
                    bytes=change.size,
                    source=source,
                    codon_id=codon_id,
                )
                for change in changes
            )
        finally:
            descent.close()
