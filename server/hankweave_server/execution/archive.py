"""Archive what a codon or loop leaves behind, and bring it back when time goes back.

A hank can name files that are moved out of the work tree when a codon or loop ends (rigArchive). A
crash at any point must leave each file in exactly one of two places, so archiving uses an intent:

    choose     find the files the hank names, as they are now
    intent     write `archive.intent` durably: every single move
    move       one rename each; a file in the way in the archive gets another name
    manifest   write durably what the archive contains and where it came from
    record     `file.updated`, a checkpoint if tracked files left, `archive.completed`
    forget     remove the intent

A start that finds an intent does all of it again: moves that are already made stay made.

The checkpoint is a `safety` one. It saves no new work, but it removes the archived files from HEAD;
otherwise their absence would count as a deletion by a person.

archive-manifest.json lists what is in the rig archive and where it came from, as in Hankweave.

A rollback brings back what was archived after its target; an undo of it archives the files again.
This happens under the rollback's own intent. A move that is made stays made, and the manifest keeps
what each rollback has moved under that rollback's id, so that a repetition reports the same.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import anyio.to_thread
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import ArchiveCompleted, ArchivePartial, FailedPath
from hankweave_protocol.hank import RigCopy
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import (
    ArchiveEntry,
    ArchiveIntent,
    ArchiveManifest,
    ArchiveMove,
    ArchivePlace,
    ArchiveTravel,
    CheckpointRecord,
    RollbackIntent,
)
from hankweave_protocol.state import PlanEntry
from hankweave_server import fsutil
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.domain.execution_thread import plan_entry, thread
from hankweave_server.execution.codon.file_changes import FileChangeReporter
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.paths import Layout
from hankweave_server.worktree import archive
from hankweave_server.worktree.archive import ArchivePlaces
from hankweave_server.worktree.names import AT_THE_TOP, joined, meanings, shown
from hankweave_server.worktree.patterns import SelectedPaths, choose

VERSION = "1.0.0"
TRAVELS_KEPT = 100
"""Rollbacks whose undo archives files again: as many as can be undone."""


def read(layout: Layout) -> ArchiveManifest:
    """Read the manifest; an execution that never archived has an empty one.

    Raises Refused if it is damaged.
    """
    data = fsutil.content_of(layout.archive_manifest)
    if data is None:
        return ArchiveManifest(version=VERSION, entries=())

    return codec.decode_value(ArchiveManifest, data)


def write(layout: Layout, manifest: ArchiveManifest) -> None:
    """Write the manifest durably, indented for people."""
    content = msgspec.json.format(codec.encode(manifest), indent=2)
    fsutil.replace_durably(layout.archive_manifest, content + b"\n")


def with_archived(
    manifest: ArchiveManifest, intent: ArchiveIntent, done: Iterable[ArchiveMove], layout: Layout
) -> ArchiveManifest:
    """Return the manifest with what was archived; what was in its way has another name now.

    Idempotent.
    """
    prefix = _prefix(layout)
    names = {prefix + shown(m.source): prefix + shown(m.target) for m in intent.displaced}
    entries = [
        entry if entry.timestamp == intent.started_at else _renamed(entry, names)
        for entry in manifest.entries
    ]
    known = {(entry.archive_path, entry.timestamp) for entry in entries}
    added = (_entry(intent, move, layout) for move in done)
    entries += [each for each in added if (each.archive_path, each.timestamp) not in known]
    return msgspec.structs.replace(manifest, entries=tuple(entries))


def with_travel(
    manifest: ArchiveManifest, operation_id: str, travel: ArchiveTravel
) -> ArchiveManifest:
    """Return the manifest after a rollback's moves, and with them, for an undo."""
    gone = {entry.archive_path for entry in travel.restored}
    stays = tuple(entry for entry in manifest.entries if entry.archive_path not in gone)
    travels = {**manifest.travels, operation_id: travel}
    newest = list(travels)[-TRAVELS_KEPT:]
    return msgspec.structs.replace(
        manifest,
        entries=(*stays, *travel.archived),
        travels={name: travels[name] for name in newest},
    )


def way_back(entry: ArchiveEntry, layout: Layout, exists: Callable[[bytes], bool]) -> ArchiveMove:
    """Return the move that brings an entry back; `exists` checks for a name in the archive."""
    places, homes = places_of(entry, layout), meanings(entry.source_path)
    place = next((name for name in places if exists(name)), places[0])
    # `\xff` stands for a raw byte in both paths or in neither.
    home = next((name for name in homes if place.endswith(b"/" + name)), homes[0])
    return ArchiveMove(source=place, target=home)


def places_of(entry: ArchiveEntry, layout: Layout) -> tuple[bytes, ...]:
    """Return the names below the rig archive that an entry may mean."""
    return meanings(entry.archive_path.removeprefix(_prefix(layout)))


def _entry(intent: ArchiveIntent, move: ArchiveMove, layout: Layout) -> ArchiveEntry:
    return ArchiveEntry(
        source_path=shown(move.source),
        archive_path=_prefix(layout) + shown(move.target),
        codon_id=intent.archived_for,
        checkpoint_sha=intent.checkpoint_sha,
        timestamp=intent.started_at,
        loop_context=intent.loop_context,
    )


def _renamed(entry: ArchiveEntry, names: Mapping[str, str]) -> ArchiveEntry:
    """Return an entry under its new name, if it or a folder above it was renamed."""
    old, rest = entry.archive_path, ""
    while old:
        if old in names:
            return msgspec.structs.replace(entry, archive_path=names[old] + rest)

        old, slash, name = old.rpartition("/")
        rest = slash + name + rest

    return entry


def _prefix(layout: Layout) -> str:
    return f"{os.fspath(layout.rig_archive.relative_to(layout.private_folder or layout.root))}/"


SEARCHED_LINES = 200
"""Journal lines searched from the end for the last event of an archiving."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """A request to archive: which files, after which codon, into which folder."""

    run_id: RunId
    codon_id: CodonId
    """The codon that has ended."""
    archived_for: str
    """That codon, or the loop that ended with it."""
    checkpoint: Sha | None
    folder: str
    """Below the rig archive."""
    patterns: tuple[str, ...]
    loop_context: ArchivePlace | None = None


class Archives:
    """The archiver of one execution; used by one task at a time."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def archive(self, wanted: Archiving) -> None:
        """Move the requested files; return when the move is durable and recorded.

        If no file matches, nothing is recorded. Raises Refused if the manifest is damaged, with
        nothing moved; OSError for a broken disk.
        """
        await self.finish_interrupted()
        intent = await self._ctx.ledger.space.retry(
            lambda: anyio.to_thread.run_sync(self._prepare, wanted)
        )
        if intent is not None:
            await self._carry_out(intent)

    async def finish_interrupted(self) -> bool:
        """Finish the archiving that was cut short; return whether there was one."""
        intent = await anyio.to_thread.run_sync(intended, self._ctx.layout)
        if intent is None:
            return False

        if await self._is_recorded(intent):
            await self._forget()
        else:
            await self._carry_out(intent)

        return True

    def _prepare(self, wanted: Archiving) -> ArchiveIntent | None:
        read(self._ctx.layout)
        base = os.fsencode(wanted.folder)
        with both_places(self._ctx.layout) as places:
            chosen = choose(places.tree, wanted.patterns)
            if not (chosen.files or chosen.folders or chosen.failed):
                return None

            displaced, moves = archive.arranged(places.archive, base, chosen.files)

        intent = self._intent(wanted, chosen, displaced, moves)
        fsutil.replace_durably(self._ctx.layout.archive_intent, codec.encode(intent))
        return intent

    def _intent(
        self,
        wanted: Archiving,
        chosen: SelectedPaths,
        displaced: Iterable[ArchiveMove],
        moves: Iterable[ArchiveMove],
    ) -> ArchiveIntent:
        base = os.fsencode(wanted.folder)
        return ArchiveIntent(
            operation_id=uuid.uuid4().hex,
            run_id=wanted.run_id,
            codon_id=wanted.codon_id,
            archived_for=wanted.archived_for,
            checkpoint_sha=wanted.checkpoint or "orphan",
            started_at=self._ctx.now_text(),
            loop_context=wanted.loop_context,
            displaced=tuple(displaced),
            moves=tuple(moves),
            folders=tuple(
                ArchiveMove(source=folder, target=joined(base, folder)) for folder in chosen.folders
            ),
            empty=tuple(chosen.empty),
            failed={shown(path): reason for path, reason in chosen.failed.items()},
        )

    async def _carry_out(self, intent: ArchiveIntent) -> None:
        done, failed = await self._ctx.ledger.space.retry(
            lambda: anyio.to_thread.run_sync(self._move, intent)
        )
        await self._record_result(intent, done, failed)
        await self._forget()

    def _move(self, intent: ArchiveIntent) -> tuple[list[ArchiveMove], dict[str, str]]:
        """Make the missing moves, then the manifest; return what was archived and what failed."""
        with both_places(self._ctx.layout) as places:
            blocked = archive.displace(places.archive, intent.displaced).failed
            free = [move for move in intent.moves if not _is_blocked(move, blocked)]
            moved = archive.move_to_archive(places, free)
            followed = archive.follow(places, intent.folders)
            places.sync()

        empty = frozenset(intent.empty)
        done = moved.done + [move for move in followed.done if move.source in empty]
        layout = self._ctx.layout
        manifest = with_archived(read(layout), intent, done, layout)
        write(layout, manifest)
        in_the_way = {m.source: "In the way: " + shown(m.target) for m in intent.moves}
        failed = {
            **{path: in_the_way[path] for path in in_the_way.keys() - {m.source for m in free}},
            **moved.failed,
            **followed.failed,
        }
        return done, {**intent.failed, **{shown(path): why for path, why in failed.items()}}

    async def _record_result(
        self, intent: ArchiveIntent, done: list[ArchiveMove], failed: dict[str, str]
    ) -> None:
        ctx = self._ctx
        moved = frozenset(move.source for move in done)
        news = FileChangeReporter(ctx)
        if await news.post_archived(moved, intent.run_id, intent.codon_id):
            await self._checkpoint(intent)

        paths = tuple(sorted(shown(path) for path in moved))
        name = CodonId(intent.archived_for)
        event: ArchiveCompleted | ArchivePartial = (
            ArchivePartial(codon_id=name, archived_paths=paths, failed_paths=listed(failed))
            if failed
            else ArchiveCompleted(codon_id=name, archived_paths=paths)
        )
        await ctx.ledger.record(
            event,
            run_id=intent.run_id,
            codon_id=intent.codon_id,
            causes=(intent.operation_id,),
        )

    async def _checkpoint(self, intent: ArchiveIntent) -> None:
        ctx = self._ctx
        codons = (each.codon for each in reversed(thread(ctx.state)))
        codon = next((each for each in codons if each.codon_id == intent.codon_id), None)
        await ctx.checkpointer.take(
            "safety",
            run_id=intent.run_id,
            codon=codon,
            codon_name="After archiving",
            patterns=ctx.patterns(),
            label=f"after archiving for {intent.archived_for}",
        )

    async def _is_recorded(self, intent: ArchiveIntent) -> bool:
        mark = intent.operation_id.encode()
        lines = await anyio.to_thread.run_sync(self._ctx.ledger.tail, SEARCHED_LINES)
        return any(mark in line and b'"archive.' in line for line in lines)

    async def _forget(self) -> None:
        await anyio.to_thread.run_sync(fsutil.remove_durably, self._ctx.layout.archive_intent)


def intended(layout: Layout) -> ArchiveIntent | None:
    """Return the intent of an unfinished archiving; raise Refused if it is damaged."""
    data = fsutil.content_of(layout.archive_intent)
    return None if data is None else codec.decode_value(ArchiveIntent, data)


def both_places(layout: Layout) -> AbstractContextManager[ArchivePlaces]:
    """Open the work tree and the rig archive."""
    at_the_top = frozenset[bytes]() if layout.is_in_place else AT_THE_TOP
    return archive.both(layout.work_tree, layout.rig_archive, at_the_top)


def listed(failed: dict[str, str]) -> tuple[FailedPath, ...]:
    return tuple(FailedPath(path=path, error=failed[path]) for path in sorted(failed))


def _is_blocked(move: ArchiveMove, blocked: Iterable[bytes]) -> bool:
    return any(move.target == path or move.target.startswith(path + b"/") for path in blocked)


class ArchiveReturn:
    """The moves between rig archive and work tree that belong to a rollback."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx

    async def follow_rollback(self, rollback: RollbackIntent) -> ArchiveTravel | None:
        """Bring back what was archived after the target's moment; an undo archives it again.

        Called after the target's files are restored. Files that are there then stay, and files that
        the checkpoints hold are restored from them. Idempotent. Returns None if nothing is to be
        moved.
        """
        if rollback.to_run is None:
            return None

        try:
            manifest = await anyio.to_thread.run_sync(self._settled_manifest)
        except Refused as fault:
            return ArchiveTravel(failed={self._ctx.layout.archive_manifest.name: fault.message})

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
        """Return the manifest, including the moves of an archiving that was cut short."""
        layout = self._ctx.layout
        intent = intended(layout)
        if intent is None:
            return read(layout)

        with both_places(self._ctx.layout) as places:
            arrived = [m for m in intent.moves if places.archive.status(m.target) is not None]

        manifest = with_archived(read(layout), intent, arrived, layout)
        write(layout, manifest)
        fsutil.remove_durably(layout.archive_intent)
        return manifest

    async def _archived_after(
        self, rollback: RollbackIntent, manifest: ArchiveManifest
    ) -> tuple[ArchiveEntry, ...]:
        """Return archived files that lay in the work tree at the target's moment, or came later.

        Only files that are in no checkpoint. Entries of unknown checkpoints stay in the archive; so
        does what a rig copied that will be set up again.
        """
        known = self._ctx.checkpointer.known
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
        """Return whether the codon's own rig copied the file, after the target's moment."""
        of_codon = archived_at.coordinate
        if of_codon.codon_id is None or not _is_copied(
            entry, plan_entry(self._ctx.state.execution_plan, of_codon.codon_id)
        ):
            return False

        others = (record.coordinate for record in self._ctx.checkpointer.known.values())
        own = (
            other.event_seq
            for other in others
            if (other.run_id, other.codon_id) == (of_codon.run_id, of_codon.codon_id)
        )
        return moment < min(own)

    async def _saved(self, sha: Sha) -> frozenset[str] | None:
        """Return the files of a checkpoint; None if they cannot be read."""
        try:
            tree = await self._ctx.checkpointer.call(lambda engine: engine.tree(sha))
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
        layout = self._ctx.layout
        with both_places(self._ctx.layout) as places:
            # Check both places: a crash may have come after the move.
            back = {self._way(places, entry): entry for entry in wanted}
            again = {_reversed(self._way(places, entry)): entry for entry in undone.restored}
            came = archive.move_back(places, back)
            went = archive.move_to_archive_again(places, again)
            for folder in sorted(map(os.fsencode, undone.folders), reverse=True):
                if places.tree.status(folder) is not None:
                    archive.remove_folder(places.tree, folder)

            restored = frozenset(back[move] for move in came.done)
            stays = (each for each in manifest.entries if each not in restored)
            kept = frozenset(name for each in stays for name in places_of(each, layout))
            archive.clean_up(places.archive, (move.source for move in came.done), kept)
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
        write(layout, with_travel(manifest, operation_id, travel))
        return travel

    def _way(self, places: ArchivePlaces, entry: ArchiveEntry) -> ArchiveMove:
        return way_back(
            entry, self._ctx.layout, lambda name: places.archive.status(name) is not None
        )


def _is_copied(entry: ArchiveEntry, planned: PlanEntry | None) -> bool:
    """Return whether a codon's rig copies a file; a codon that is not planned copies nothing."""
    items = () if planned is None else planned.codon.rig_setup
    targets = (item.copy.to.strip("/") for item in items if isinstance(item, RigCopy))
    path = entry.source_path
    return any(path == to or path.startswith(f"{to}/") for to in targets)


def _reversed(move: ArchiveMove) -> ArchiveMove:
    return ArchiveMove(source=move.target, target=move.source)
