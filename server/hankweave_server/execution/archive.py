"""Archiving what a codon or loop leaves behind.

    choose     which files the hank means, as they lie there now
    intent     `archive.intent` durable: every single move
    move       one rename each; what is in the way in the archive gets another name
    manifest   durable: what lies in the archive, and where it came from
    tell       `file.updated`, a checkpoint if tracked files left, `archive.completed`
    forget     the intent is removed

A start that finds an intent does all of it again: moves that are made already stay made (seed 001,
rigArchive; Hankweave, archives).

The checkpoint is a `safety` one: it saves no new work, but what stands there now, so that HEAD has
no file that the archive took, and nobody takes that for a person's deletion.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import anyio.to_thread

from hankweave_protocol import codec
from hankweave_protocol.events import ArchiveCompleted, ArchivePartial, FailedPath
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.records import (
    ArchiveIntent,
    ArchiveMove,
    ArchivePlace,
)
from hankweave_server import fsutil
from hankweave_server.domain.history import thread
from hankweave_server.execution import archive_manifest as manifests
from hankweave_server.execution.codon.file_changes import FileNews
from hankweave_server.execution.context import Surroundings
from hankweave_server.paths import Layout
from hankweave_server.worktree import archive
from hankweave_server.worktree.archive import Places
from hankweave_server.worktree.names import AT_THE_TOP, joined, shown
from hankweave_server.worktree.selection import Chosen, choose

TOLD_WITHIN = 200
"""How far back in the journal the end of an archiving is looked for."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """What is to be archived, after what, and to where."""

    run_id: RunId
    codon_id: CodonId
    """The codon that has ended."""
    archived_for: str
    """It, or the loop that ended with it."""
    checkpoint: Sha | None
    folder: str
    """Below the rig archive."""
    patterns: tuple[str, ...]
    loop_context: ArchivePlace | None = None


class Archives:
    """The rig archive of one execution; used by one task at a time."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def archive(self, wanted: Archiving) -> None:
        """Moves what is meant; returns when it is durable and told. Nothing found, nothing told.

        Raises Refused where the manifest is damaged, with nothing moved; OSError for a broken disk.
        """
        await self.finish_interrupted()
        intent = await self._around.ledger.space.insist(
            lambda: anyio.to_thread.run_sync(self._prepare, wanted)
        )
        if intent is not None:
            await self._carry_out(intent)

    async def finish_interrupted(self) -> bool:
        """Finishes the archiving that was cut short; tells whether there was one."""
        intent = await anyio.to_thread.run_sync(intended, self._around.layout)
        if intent is None:
            return False

        if self._is_told(intent):
            await self._forget()
        else:
            await self._carry_out(intent)

        return True

    def _prepare(self, wanted: Archiving) -> ArchiveIntent | None:
        manifests.read(self._around.layout)
        base = os.fsencode(wanted.folder)
        with both_places(self._around.layout) as places:
            chosen = choose(places.tree, wanted.patterns)
            if not (chosen.files or chosen.folders or chosen.failed):
                return None

            displaced, moves = archive.arranged(places.archive, base, chosen.files)

        intent = self._intent(wanted, chosen, displaced, moves)
        fsutil.replace_durably(self._around.layout.archive_intent, codec.encode(intent))
        return intent

    def _intent(
        self,
        wanted: Archiving,
        chosen: Chosen,
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
            started_at=self._around.now_text(),
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
        done, failed = await self._around.ledger.space.insist(
            lambda: anyio.to_thread.run_sync(self._move, intent)
        )
        await self._tell(intent, done, failed)
        await self._forget()

    def _move(self, intent: ArchiveIntent) -> tuple[list[ArchiveMove], dict[str, str]]:
        """Makes the moves that are missing, then the manifest; gives what lies in the archive."""
        with both_places(self._around.layout) as places:
            blocked = archive.displace(places.archive, intent.displaced).failed
            free = [move for move in intent.moves if not _is_blocked(move, blocked)]
            moved = archive.put_away(places, free)
            followed = archive.follow(places, intent.folders)
            places.sync()

        empty = frozenset(intent.empty)
        done = moved.done + [move for move in followed.done if move.source in empty]
        layout = self._around.layout
        manifest = manifests.with_archived(manifests.read(layout), intent, done, layout)
        manifests.write(layout, manifest)
        in_the_way = {m.source: "In the way: " + shown(m.target) for m in intent.moves}
        failed = {
            **{path: in_the_way[path] for path in in_the_way.keys() - {m.source for m in free}},
            **moved.failed,
            **followed.failed,
        }
        return done, {**intent.failed, **{shown(path): why for path, why in failed.items()}}

    async def _tell(
        self, intent: ArchiveIntent, done: list[ArchiveMove], failed: dict[str, str]
    ) -> None:
        around = self._around
        moved = frozenset(move.source for move in done)
        news = FileNews(around)
        if await news.tell_of_archive(moved, intent.run_id, intent.codon_id):
            await self._checkpoint(intent)

        paths = tuple(sorted(shown(path) for path in moved))
        name = CodonId(intent.archived_for)
        event: ArchiveCompleted | ArchivePartial = (
            ArchivePartial(codon_id=name, archived_paths=paths, failed_paths=listed(failed))
            if failed
            else ArchiveCompleted(codon_id=name, archived_paths=paths)
        )
        await around.ledger.record(
            event,
            run_id=intent.run_id,
            codon_id=intent.codon_id,
            causes=(intent.operation_id,),
        )

    async def _checkpoint(self, intent: ArchiveIntent) -> None:
        around = self._around
        codons = (each.codon for each in reversed(thread(around.state)))
        codon = next((each for each in codons if each.codon_id == intent.codon_id), None)
        await around.checkpointer.take(
            "safety",
            run_id=intent.run_id,
            codon=codon,
            codon_name="After archiving",
            patterns=around.patterns(),
            label=f"after archiving for {intent.archived_for}",
        )

    def _is_told(self, intent: ArchiveIntent) -> bool:
        mark = intent.operation_id.encode()
        lines = self._around.ledger.tail(TOLD_WITHIN)
        return any(mark in line and b'"archive.' in line for line in lines)

    async def _forget(self) -> None:
        await anyio.to_thread.run_sync(fsutil.remove_durably, self._around.layout.archive_intent)


def intended(layout: Layout) -> ArchiveIntent | None:
    """What an archiving has begun and not ended; raises Refused where that is damaged."""
    try:
        data = layout.archive_intent.read_bytes()
    except FileNotFoundError:
        return None

    return codec.decode_value(ArchiveIntent, data)


def both_places(layout: Layout) -> AbstractContextManager[Places]:
    """Opens work tree and rig archive."""
    at_the_top = frozenset[bytes]() if layout.is_in_place else AT_THE_TOP
    return archive.both(layout.work_tree, layout.rig_archive, at_the_top)


def listed(failed: dict[str, str]) -> tuple[FailedPath, ...]:
    return tuple(FailedPath(path=path, error=failed[path]) for path in sorted(failed))


def _is_blocked(move: ArchiveMove, blocked: Iterable[bytes]) -> bool:
    return any(move.target == path or move.target.startswith(path + b"/") for path in blocked)
