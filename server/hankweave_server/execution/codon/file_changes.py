"""Report which tracked files changed, who changed them, and what they hold now.

A scan that finds more than 200 changes is a burst: an agent has unpacked an archive, or installed
packages. It is one `files.changed` event with counts and the first paths, because an event for each
of 100,000 files would fill the journal with 40 MB that clients cannot read in time. The files of a
burst are not hashed. User edits are recorded one by one all the same, without digests, so that
the conflicts of a rollback stay exact.

Also here: the pace of the scans while an agent works without waiting for us, and the file tree that
clients are shown (`filetree.updated`).

A scan that finds a change is followed by a checkpoint, so a high pace saves more moments and costs
more time and disk. Three bounds apply. Scans never take more than a twentieth of the time. The
pauses grow with the age of the conversation, so that a program that writes without end makes about
200 checkpoints in its first minute and some 3,000 in eight hours. And pauses never exceed ten
seconds, because what a person edits must be saved before the agent comes to the same file.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

import anyio
import anyio.to_thread

from hankweave_protocol import codec, instants
from hankweave_protocol.events import (
    ChangedFolder,
    ChangedPath,
    FileNode,
    FilesChanged,
    FileSource,
    FiletreeUpdated,
    FileUpdated,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.transitions import EditsNoticed, EditsOvertaken
from hankweave_server.checkpoints.capture import CapturedChanges
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.model import WorkTreeChange
from hankweave_server.execution.checkpointer import MOST_REPORTED
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.execution.rollback import user_edits
from hankweave_server.ledger.batch import Entry
from hankweave_server.listing import first_of
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.names import joined
from hankweave_server.worktree.tree_outline import Branch

FOLDERS_LISTED = 20
FOLDER_BYTES = 8 * 1024
"""Maximum size of the encoded folders of a `files.changed`."""

LARGE_PAUSE = 0.05
"""Seconds between two entries about edits of about 256 KiB each: a client reads that much."""

_LARGE = (EditsNoticed, EditsOvertaken)

PERSON = FileSource(kind="person")

ByPeople: TypeAlias = Callable[[Iterable[bytes]], Awaitable[frozenset[bytes]]]


@dataclass(frozen=True, slots=True)
class News:
    """The result of a scan of the tracked files."""

    any: bool
    moved: bool
    """Files were added or removed, so that the tree looks different."""
    people: frozenset[bytes] = frozenset()
    """The changes that were credited to people although an agent was at work."""
    agents: bool = False
    """Others than those were found."""


class FileChangeReporter:
    """A scanner that reports what changed in the tracked files since its last scan."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def scan_and_report(
        self,
        source: FileSource,
        run_id: RunId | None,
        codon_id: CodonId | None,
        *,
        first: tuple[Entry, ...] = (),
        by_people: ByPeople | None = None,
        is_frequent: bool = False,
    ) -> News:
        """Post the changes and the owner of each; return what was found.

        `by_people` is called after a scan that found something, and returns which paths people
        changed. `first` is posted before the changes. A frequent scan leaves to a later one what
        only the content of files shows.
        """
        changes = await self._changes(trusts_stat_data=is_frequent)
        people = frozenset[bytes]()
        if changes and by_people is not None:
            people = await by_people(change.path for change in changes)

        own = tuple(change for change in changes if change.path not in people)
        others = tuple(change for change in changes if change.path in people)
        entries = (
            *first,
            *await self._entries(own, source, codon_id),
            *await self._entries(others, PERSON, None),
        )
        if entries:
            await self._post(entries, run_id, codon_id)

        return News(
            any=bool(changes),
            moved=any(change.kind != "modified" for change in changes),
            people=people,
            agents=bool(own),
        )

    async def report_people(self, run_id: RunId, by_people: ByPeople) -> frozenset[bytes]:
        """Post the changes that people made, and no others; return their paths.

        They are written with the checkpoint that the caller takes next.
        """
        changes = await self._changes()
        people = await by_people(change.path for change in changes)
        entries = await self._entries(
            tuple(change for change in changes if change.path in people), PERSON, None
        )
        if entries:
            await self._post(entries, run_id, None, urgent=False)

        return people

    async def report_captured(self, captured: CapturedChanges, run_id: RunId) -> None:
        """Post the edits of people that a checkpoint has found; they are written with it."""
        await self.report_edits(captured.changes, run_id, captured.digests)

    async def report_edits(
        self,
        changes: tuple[WorkTreeChange, ...],
        run_id: RunId | None,
        digests: Mapping[bytes, str] = MappingProxyType({}),
    ) -> None:
        """Post edits of people, written with the checkpoint that comes next.

        `digests` are those of some of the files.
        """
        if changes:
            entries = await self._entries(changes, PERSON, None, digests)
            await self._post(entries, run_id, None, urgent=False)

    async def _changes(self, *, trusts_stat_data: bool = False) -> tuple[WorkTreeChange, ...]:
        """Return what changed in the tracked files since the last scan (`scan_changes`)."""
        patterns = self._ctx.patterns()
        return await self._ctx.checkpointer.call(
            lambda engine: engine.scan_changes(patterns, trusts_stat_data=trusts_stat_data)
        )

    async def _entries(
        self,
        changes: tuple[WorkTreeChange, ...],
        source: FileSource,
        codon_id: CodonId | None,
        known: Mapping[bytes, str] = MappingProxyType({}),
    ) -> tuple[Entry, ...]:
        """Return the events about changes of one source, and the entry about their owner.

        `known` are digests of some of the files.
        """
        digests: dict[bytes, str] = {}
        updates: tuple[FileUpdated | FilesChanged, ...] = ()
        if len(changes) > MOST_REPORTED:
            updates = (await anyio.to_thread.run_sync(burst_of, changes, source, codon_id),)
        elif changes:
            digests.update(known)
            others = tuple(each for each in changes if each.path not in known)
            if others:
                digests |= await anyio.to_thread.run_sync(self._digests, others)

            updates = tuple(
                _update_of(change, digests[change.path], source, codon_id) for change in changes
            )

        paths = (change.path for change in changes)
        if source.kind == "person":
            return (
                *updates,
                *user_edits.by_people({path: digests.get(path, "") for path in paths}),
            )

        return (*updates, *user_edits.by_agents(self._ctx.state, paths))

    async def _post(
        self,
        entries: tuple[Entry, ...],
        run_id: RunId | None,
        codon_id: CodonId | None,
        *,
        urgent: bool = True,
    ) -> None:
        """Post the entries; pause after large ones, so that clients can keep up."""
        post = functools.partial(self._ctx.ledger.post, run_id=run_id, codon_id=codon_id)
        small = tuple(entry for entry in entries if not isinstance(entry, _LARGE))
        large = tuple(entry for entry in entries if isinstance(entry, _LARGE))
        await post(*small, *large[:1], urgent=urgent or len(large) > 1)
        for entry in large[1:]:
            await anyio.sleep(LARGE_PAUSE)
            await post(entry)

    async def post_archived(
        self, moved: frozenset[bytes], run_id: RunId, codon_id: CodonId
    ) -> bool:
        """Post what left the work tree for the archive; other changes are user edits.

        Returns whether a tracked file left.
        """
        changes = await self._changes()
        gone = tuple(each for each in changes if each.path in moved and each.kind == "deleted")
        archived = frozenset(each.path for each in gone)
        others = tuple(each for each in changes if each.path not in archived)
        entries = (
            *await self._entries(gone, FileSource(kind="archive"), codon_id),
            *await self._entries(others, PERSON, None),
        )
        if entries:
            await self._post(entries, run_id, codon_id)

        return bool(gone)

    def _digests(self, changes: tuple[WorkTreeChange, ...]) -> dict[bytes, str]:
        """Return the SHA-256 of each file; empty for a deleted one."""
        descent = Descent(self._ctx.layout.work_tree)
        try:
            return {
                change.path: (
                    "" if change.kind == "deleted" else user_edits.sha256_of(descent, change.path)
                )
                for change in changes
            }
        finally:
            descent.close()


def _update_of(
    change: WorkTreeChange, digest: str, source: FileSource, codon_id: CodonId | None
) -> FileUpdated:
    return FileUpdated(
        path=os.fsdecode(change.path),
        filename=os.fsdecode(os.path.basename(change.path)),
        action=change.kind,
        sha256=digest,
        bytes=change.size,
        source=source,
        codon_id=codon_id,
    )


def burst_of(
    changes: tuple[WorkTreeChange, ...], source: FileSource, codon_id: CodonId | None
) -> FilesChanged:
    """Return the one event about many changes; its size has a limit, whatever the paths are."""
    kinds = Counter(change.kind for change in changes)
    by_folder = Counter(os.path.dirname(change.path) for change in changes)
    largest = sorted(by_folder.items(), key=lambda item: (-item[1], item[0]))
    folders = first_of(
        (ChangedFolder(folder=os.fsdecode(name), files=files) for name, files in largest),
        count=FOLDERS_LISTED,
        size=FOLDER_BYTES,
    )
    ordered = sorted(changes, key=lambda change: change.path)
    return FilesChanged(
        total=len(changes),
        created=kinds["created"],
        modified=kinds["modified"],
        deleted=kinds["deleted"],
        folders=folders,
        other_folders=len(by_folder) - len(folders),
        in_other_folders=len(changes) - sum(folder.files for folder in folders),
        paths=first_of(
            ChangedPath(path=os.fsdecode(change.path), action=change.kind) for change in ordered
        ),
        source=source,
        codon_id=codon_id,
    )


SHORTEST = 0.25
"""Seconds between two scans of the work tree of an agent that never waits."""

SHORTEST_IN_A_CALL = 1.0
"""Seconds between two scans during a call of an agent that waits before its calls."""

SHORTEST_BETWEEN_LINES = 0.05
"""Seconds between two scans when the agent prints a line: often it has just written a file."""

LONGEST = 10.0

_SHARE = 20
_GROWTH = 200


class ScanSchedule:
    """The schedule of scans; pure, times are seconds on any monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._ended = began
        self._cost = 0.0

    def note_scan(self, now: float, cost: float) -> None:
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

TREE_BYTES = 30 * 1024
"""Maximum size of the encoded tree: with long paths, it has fewer files."""


async def picture(ctx: ExecutionContext) -> FiletreeUpdated:
    """Return the file tree as the last scan found it."""
    most = MOST
    while True:
        drawn = await ctx.checkpointer.call(functools.partial(CheckpointEngine.outline, most=most))
        tree = _nodes(drawn.top, ctx.now_text())
        size = len(codec.encode(tree))
        if size <= TREE_BYTES or most == 1:
            return FiletreeUpdated(tree=tree, omitted=drawn.omitted)

        most = max(1, min(most - 1, most * TREE_BYTES // size))


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
