"""Commands that look at the past: `checkpoint.diff`, `checkpoint.readFile`, `replay.view`.

Nothing here changes files, repository or journal; a viewer may ask, and a rollback does not mind.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal

from hankweave_protocol.commands import (
    MAX_RANGE,
    CheckpointDiff,
    CheckpointReadFile,
    ReplayView,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import DiffPage, EventSlice, FileRange, PastView
from hankweave_server.api.diffs import Diffs, Sides, selected
from hankweave_server.api.listings import NO_FILES, Listing, below
from hankweave_server.api.lookup import Past, Sources
from hankweave_server.api.naming import no_such_path, the_path
from hankweave_server.api.pages import page_of
from hankweave_server.checkpoints.errors import PathNotInCheckpoint
from hankweave_server.checkpoints.model import ContentRange
from hankweave_server.ledger.history import Moment


@dataclass(frozen=True, slots=True)
class _Place:
    """A moment of the past."""

    seq: int
    moment: Moment | None
    """None where the journal does not reach: it was lost once, and began anew."""
    record: CheckpointRecord | None
    """Whose files are shown; None where there was no checkpoint yet."""


class Looks:
    def __init__(self, sources: Sources) -> None:
        self._past = Past(sources)
        self._diffs = Diffs(self._past)

    async def diff(self, command: CheckpointDiff) -> DiffPage:
        return await self._diffs.answer(command)

    # --- files --------------------------------------------------------------------------------

    async def read_file(self, command: CheckpointReadFile) -> FileRange:
        """Reads a file, or a range of one; never a part of a file that was asked for whole."""
        record = self._past.named(command.checkpoint_sha, at="$.data.checkpointSha")
        found = await self._range(record.sha, command)
        if command.offset > found.size:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The file ends at {found.size}.",
                path="$.data.offset",
            )

        end = command.offset + len(found.data)
        if command.length is None and end < found.size:
            raise Refused(
                ErrorCode.FILE_TOO_LARGE,
                f"{command.path!r} has {found.size} bytes; one answer carries {MAX_RANGE}.",
                path="$.data.length",
                hint="Read it in ranges: give a length, and each reply's nextOffset as offset.",
            )

        content, encoding = _as_text(found.data)
        return FileRange(
            content=content,
            encoding=encoding,
            size=found.size,
            mode=found.mode,
            offset=command.offset,
            next_offset=end if end < found.size else None,
        )

    async def _range(self, sha: Sha, command: CheckpointReadFile) -> ContentRange:
        engine = self._past.sources.engine
        meanings = the_path(command.path, at="$.data.path")

        def read() -> ContentRange | None:
            for path in meanings:
                try:
                    return engine.read_range(sha, path, command.offset, command.length or MAX_RANGE)
                except PathNotInCheckpoint:
                    continue

            return None

        found = await self._past.run(read)
        if found is None:
            where = f"among the files of checkpoint {sha[:12]}"
            raise no_such_path(command.path, where, at="$.data.path")

        return found

    # --- moments ------------------------------------------------------------------------------

    async def replay(self, command: ReplayView) -> PastView:
        """Shows files and state as they were; later pages bring more files and nothing else."""
        place = await self._place(command)
        listing = await self._listing(place, command)
        chosen, cursor = page_of(listing.paths, listing.weights, command.cursor, command.limit)
        is_first = command.cursor is None
        moment = place.moment if is_first else None
        began = 0 if moment is None else moment.run_began
        return PastView(
            coordinate=None if place.record is None else place.record.coordinate,
            tree=listing.files[chosen.start : chosen.stop],
            stats=listing.stats,
            state=None if moment is None else moment.state,
            events=None if moment is None else EventSlice(from_seq=began or 1, to_seq=place.seq),
            previous=await self._previous(place, command) if is_first else None,
            now=await self._now(place, command) if is_first else None,
            cursor=cursor,
        )

    async def _place(self, command: ReplayView) -> _Place:
        match command:
            case ReplayView(checkpoint_sha=str() as name, seq=None):
                record = self._past.named(name, at="$.data.checkpointSha")
                seq = record.coordinate.event_seq
                moment = await self._moment(seq) if seq <= self._last_seq else None
                return _Place(seq, moment, record)
            case ReplayView(checkpoint_sha=None, seq=int() as seq):
                moment = await self._moment(seq)
                return _Place(seq, moment, self._files_at(moment, command))
            case _:
                raise Refused(
                    ErrorCode.INVALID_COMMAND,
                    "A view is of one moment: checkpointSha, or seq.",
                    path="$.data",
                )

    @property
    def _last_seq(self) -> int:
        return self._past.sources.last_seq()

    async def _moment(self, seq: int) -> Moment:
        if seq > self._last_seq:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The journal ends at event {self._last_seq}; there is no {seq}.",
                path="$.data.seq",
                hint=f"Give 0 to {self._last_seq}.",
            )

        return await self._past.sources.moment_at(seq)

    def _files_at(self, moment: Moment, command: ReplayView) -> CheckpointRecord | None:
        """The checkpoint that was the newest one then; refuses where it is needed and gone."""
        if moment.files is None:
            return None

        record = self._past.sources.known().get(moment.files)
        if record is None and (command.limit != 0 or command.compare):
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {moment.files[:12]}, the newest at that moment, was pruned.",
                path="$.data.seq",
                hint="With a limit of 0 and nothing to compare, the state alone is shown.",
            )

        return record

    async def _listing(self, place: _Place, command: ReplayView) -> Listing:
        listing = NO_FILES if place.record is None else await self._past.files_of(place.record)
        selection = selected(command.paths)
        if selection is None:
            return listing

        for index, text in enumerate(command.paths or ()):
            at = f"$.data.paths[{index}]"
            if not any(below(listing.paths, path) for path in the_path(text, at=at)):
                raise no_such_path(text, "among the files of that moment", at=at)

        return await self._past.run(lambda: listing.part(selection))

    async def _previous(self, place: _Place, command: ReplayView) -> DiffPage | None:
        """What the checkpoint changed; None for the first of all."""
        record, engine = place.record, self._past.sources.engine
        if record is None or "previous" not in command.compare:
            return None

        facts = await self._past.run(lambda: engine.facts(record.sha))
        known = self._past.sources.known()
        before = next((known[sha] for sha in facts.parents if sha in known), None)
        if before is None:
            return None

        return await self._diffs.page(Sides(before, record), command.paths)

    async def _now(self, place: _Place, command: ReplayView) -> DiffPage | None:
        """What has become of the files since."""
        if place.record is None or "now" not in command.compare:
            return None

        return await self._diffs.page(Sides(place.record, None), command.paths)


def _as_text(data: bytes) -> tuple[str, Literal["utf-8", "base64"]]:
    """Gives text as it is, and all else in base64; a NUL means that it is no text (as in git)."""
    if b"\0" not in data:
        try:
            return data.decode(), "utf-8"
        except UnicodeDecodeError:
            pass

    return base64.b64encode(data).decode(), "base64"
