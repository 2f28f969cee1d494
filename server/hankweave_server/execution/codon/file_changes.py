"""Tells which tracked files changed, who changed them, and what they hold now (seed 001)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import anyio.lowlevel
import anyio.to_thread

from hankweave_protocol.events import FileSource, FileUpdated
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.checkpoints.model import FileChange
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.rollback import user_edits
from hankweave_server.ledger.batch import Entry
from hankweave_server.worktree.dirfd import Descent

POSTED_AT_ONCE = 200
"""Changes that are decided in one turn of the event loop: some milliseconds."""

PERSON = FileSource(kind="person")


@dataclass(frozen=True, slots=True)
class News:
    """What a look at the tracked files has found."""

    any: bool
    moved: bool
    """Files came or went, so that the tree looks different."""


NO_NEWS = News(any=False, moved=False)


class FileNews:
    """Looks at the tracked files and tells what changed since the last look."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def tell(
        self, source: FileSource, run_id: RunId | None, codon_id: CodonId | None
    ) -> News:
        """Posts `file.updated` for each change, and whose edits they are; says what was new."""
        around = self._around
        changes = await around.checkpointer.changes(around.patterns())
        if not changes:
            return NO_NEWS

        updates = await anyio.to_thread.run_sync(self._described, changes, source, codon_id)
        entries: tuple[Entry, ...] = updates
        if source.kind == "person":
            entries += user_edits.by_people({update.path: update.sha256 for update in updates})
        else:
            entries += user_edits.by_agents(around.state, (update.path for update in updates))

        await self._post(entries, run_id, codon_id)
        return News(any=True, moved=any(change.kind != "modified" for change in changes))

    async def _post(
        self, entries: tuple[Entry, ...], run_id: RunId | None, codon_id: CodonId | None
    ) -> None:
        """Post a few at a time: thousands at once would hold the event loop for a second."""
        for at in range(0, len(entries), POSTED_AT_ONCE):
            some = entries[at : at + POSTED_AT_ONCE]
            await self._around.ledger.post(*some, run_id=run_id, codon_id=codon_id)
            await anyio.lowlevel.checkpoint()

    async def tell_of_archive(
        self, moved: frozenset[bytes], run_id: RunId, codon_id: CodonId
    ) -> bool:
        """Posts what left the work tree for the archive; what changed besides, a person did.

        Tells whether a tracked file left.
        """
        around = self._around
        changes = await around.checkpointer.changes(around.patterns())
        gone = tuple(each for each in changes if each.path in moved and each.kind == "deleted")
        others = tuple(each for each in changes if each not in gone)
        updates = self._described(gone, FileSource(kind="archive"), codon_id)
        edited = await anyio.to_thread.run_sync(self._described, others, PERSON, None)
        entries: tuple[Entry, ...] = (
            *updates,
            *user_edits.by_agents(around.state, (update.path for update in updates)),
            *edited,
            *user_edits.by_people({update.path: update.sha256 for update in edited}),
        )
        if entries:
            await self._post(entries, run_id, codon_id)

        return bool(gone)

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
                        ""
                        if change.kind == "deleted"
                        else user_edits.sha256_of(descent, change.path)
                    ),
                    bytes=change.size,
                    source=source,
                    codon_id=codon_id,
                )
                for change in changes
            )
        finally:
            descent.close()
