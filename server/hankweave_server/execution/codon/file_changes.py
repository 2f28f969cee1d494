"""Report which tracked files changed, who changed them, and what they hold now.

Also here: the pace of the scans while an agent works without waiting for us, and the file tree that
clients are shown (`filetree.updated`).

A scan that finds a change is followed by a checkpoint, so a high pace saves more moments and costs
more time and disk. Three bounds apply. Scans never take more than a twentieth of the time. The
pauses grow with the age of the conversation, so that a program that writes without end makes about
200 checkpoints in its first minute and some 3,000 in eight hours. And pauses never exceed ten
seconds, because what a person edits must be saved before the agent comes to the same file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import anyio.lowlevel
import anyio.to_thread

from hankweave_protocol import instants
from hankweave_protocol.events import FileNode, FileSource, FiletreeUpdated, FileUpdated
from hankweave_protocol.ids import CodonId, RunId
from hankweave_server.checkpoints.model import FileChange
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits
from hankweave_server.ledger.batch import Entry
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import joined
from hankweave_server.worktree.tree_outline import Branch

POSTED_AT_ONCE = 200
"""Changes posted in one turn of the event loop: this takes some milliseconds."""

PERSON = FileSource(kind="person")


@dataclass(frozen=True, slots=True)
class News:
    """The result of a scan of the tracked files."""

    any: bool
    moved: bool
    """Files were added or removed, so that the tree looks different."""


NO_NEWS = News(any=False, moved=False)


class FileChangeReporter:
    """A scanner that reports what changed in the tracked files since its last scan."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def tell(
        self, source: FileSource, run_id: RunId | None, codon_id: CodonId | None
    ) -> News:
        """Post `file.updated` and the owner of each change; return what was found."""
        ctx = self._ctx
        changes = await ctx.checkpointer.changes(ctx.patterns())
        if not changes:
            return NO_NEWS

        updates = await anyio.to_thread.run_sync(self._described, changes, source, codon_id)
        entries: tuple[Entry, ...] = updates
        if source.kind == "person":
            entries += user_edits.by_people({update.path: update.sha256 for update in updates})
        else:
            entries += user_edits.by_agents(ctx.state, (update.path for update in updates))

        await self._post(entries, run_id, codon_id)
        return News(any=True, moved=any(change.kind != "modified" for change in changes))

    async def _post(
        self, entries: tuple[Entry, ...], run_id: RunId | None, codon_id: CodonId | None
    ) -> None:
        """Post a few at a time: thousands at once would hold the event loop for a second."""
        for at in range(0, len(entries), POSTED_AT_ONCE):
            some = entries[at : at + POSTED_AT_ONCE]
            await self._ctx.ledger.post(*some, run_id=run_id, codon_id=codon_id)
            await anyio.lowlevel.checkpoint()

    async def tell_of_archive(
        self, moved: frozenset[bytes], run_id: RunId, codon_id: CodonId
    ) -> bool:
        """Post what left the work tree for the archive; other changes are user edits.

        Returns whether a tracked file left.
        """
        ctx = self._ctx
        changes = await ctx.checkpointer.changes(ctx.patterns())
        gone = tuple(each for each in changes if each.path in moved and each.kind == "deleted")
        others = tuple(each for each in changes if each not in gone)
        updates = self._described(gone, FileSource(kind="archive"), codon_id)
        edited = await anyio.to_thread.run_sync(self._described, others, PERSON, None)
        entries: tuple[Entry, ...] = (
            *updates,
            *user_edits.by_agents(ctx.state, (update.path for update in updates)),
            *edited,
            *user_edits.by_people({update.path: update.sha256 for update in edited}),
        )
        if entries:
            await self._post(entries, run_id, codon_id)

        return bool(gone)

    def _described(
        self, changes: tuple[FileChange, ...], source: FileSource, codon_id: CodonId | None
    ) -> tuple[FileUpdated, ...]:
        descent = Descent(self._ctx.layout.work_tree)
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


SHORTEST = 0.25
"""Seconds between two scans of the work tree of an agent that never waits."""

SHORTEST_IN_A_CALL = 1.0
"""Seconds between two scans during a call of an agent that waits before its calls."""

SHORTEST_BETWEEN_LINES = 0.05
"""Seconds between two scans when the agent prints a line: often it has just written a file."""

LONGEST = 10.0

_SHARE = 20
_GROWTH = 200


class LookPace:
    """The schedule of scans; pure, times are seconds on any monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._ended = began
        self._cost = 0.0

    def looked(self, now: float, cost: float) -> None:
        """Note a scan that took `cost` seconds, without the checkpoint that followed it."""
        self._ended = now
        self._cost = cost

    def due_in(self, now: float, shortest: float) -> float:
        """Return the seconds until a scan is due; zero or less if it is due now."""
        grown = min((now - self._began) / _GROWTH, LONGEST)
        pause = max(shortest, grown, self._cost * _SHARE)
        return self._ended + pause - now


MOST = 500
"""Files and folders in one event: more would fill the journal without being read."""


async def picture(ctx: ExecutionContext) -> FiletreeUpdated:
    """Return the file tree as the last scan found it."""
    drawn = await ctx.checkpointer.outline(MOST)
    tree = _nodes(drawn.top, ctx.now_text())
    return FiletreeUpdated(tree=tree, omitted=drawn.omitted)


def _nodes(branch: Branch, now: str) -> tuple[FileNode, ...]:
    """Return the nodes of a folder; a file without a known date has only just been written."""
    folders = (
        FileNode(
            name=os.fsdecode(folder.name),
            path=os.fsdecode(folder.path),
            is_directory=True,
            children=_nodes(folder, now),
        )
        for folder in branch.folders
    )
    files = (
        FileNode(
            name=os.fsdecode(name),
            path=os.fsdecode(joined(branch.path, name)),
            is_directory=False,
            children=(),
            last_modified=now if modified is None else _moment(modified),
        )
        for name, modified in branch.files.items()
    )
    return (*folders, *files)


def _moment(nanoseconds: int) -> str:
    since = timedelta(microseconds=nanoseconds // 1000)
    return instants.to_text(datetime(1970, 1, 1, tzinfo=UTC) + since)
