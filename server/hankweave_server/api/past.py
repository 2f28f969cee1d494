"""Handle commands that read the past: `checkpoint.diff`, `checkpoint.readFile`, `replay.view`.

Nothing here changes files, repository or journal. Viewers may send these commands, also during a
rollback.

A diff compares two checkpoints, or one with the work tree. Which files differ, and by how many
lines, is computed for all of them at once, because each page reports the totals. Patches are made
only for the files of the page.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import anyio.to_thread
import msgspec

from hankweave_protocol.codec import encode
from hankweave_protocol.commands import (
    MAX_RANGE,
    CheckpointDiff,
    CheckpointReadFile,
    ReplayView,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import (
    DiffPage,
    DiffStats,
    EventSlice,
    FileDifference,
    FileRange,
    PastView,
)
from hankweave_server.api.caller import Request
from hankweave_server.api.checkpoint_list import (
    ANSWER_BYTES,
    NO_FILES,
    TreeListing,
    below,
    cursor_after,
    page_of,
)
from hankweave_server.api.dispatch import handles
from hankweave_server.api.lookup import (
    CheckpointLookup,
    Sources,
    faults_refused,
    no_such_path,
    the_path,
)
from hankweave_server.checkpoints.model import ContentRange, FileDiff
from hankweave_server.domain.checkpoints.titles import title_of
from hankweave_server.ledger.moments import Moment
from hankweave_server.worktree.names import shown

PATCHES = 200
"""Files of one page that are compared for their patches."""

KEPT_FILES = 125_000
"""Differing files kept for recent comparisons; each takes some 500 bytes.

A comparison of 100,000 files fits, so its pages do not repeat it. Two commits always
differ in the same way.
"""


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The two sides of a comparison; `new` None is the work tree."""

    old: CheckpointRecord
    new: CheckpointRecord | None


Selection = frozenset[bytes] | None


@dataclass(frozen=True, slots=True)
class DiffResult:
    """All differences, ordered by path, without patches."""

    paths: tuple[bytes, ...]
    files: tuple[FileDifference, ...]
    weights: tuple[int, ...]
    """Bytes in JSON up to each file: one more entry than there are files, and the first is 0."""
    stats: DiffStats


class Diffs:
    def __init__(self, past: CheckpointLookup) -> None:
        self._past = past
        self._kept: OrderedDict[tuple[str, str, Selection], DiffResult] = OrderedDict()

    async def page(
        self,
        sides: ComparedSides,
        paths: Sequence[str] | None = None,
        *,
        patch: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DiffPage:
        selection = selected(paths)
        found = await self._comparison(sides, selection)
        await self._refuse_unknown(paths, found, sides)
        if patch:
            limit = min(limit or PATCHES, PATCHES)

        chosen, following = page_of(found.paths, found.weights, cursor, limit)
        files = found.files[chosen.start : chosen.stop]
        if patch and files:
            names = found.paths[chosen.start : chosen.stop]
            files, end = await self._with_patches(sides, names, files)
            if end < len(names):
                following = cursor_after(names[end - 1])

        return DiffPage(
            from_sha=sides.old.sha,
            to_sha=None if sides.new is None else sides.new.sha,
            from_title=title_of(sides.old),
            to_title=None if sides.new is None else title_of(sides.new),
            files=files,
            stats=found.stats,
            cursor=following,
        )

    async def _comparison(self, sides: ComparedSides, selection: Selection) -> DiffResult:
        """Compare the sides; results for two commits are kept because they never change."""
        if sides.new is None:
            return await self._compare(sides, selection)

        key = (sides.old.sha, sides.new.sha, selection)
        found = self._kept.pop(key, None)
        if found is None:
            found = await self._compare(sides, selection)

        self._kept[key] = found
        while sum(len(each.files) + 1 for each in self._kept.values()) > KEPT_FILES:
            self._kept.popitem(last=False)

        return found

    async def _compare(self, sides: ComparedSides, selection: Selection) -> DiffResult:
        return await anyio.to_thread.run_sync(_compared, await self._diff(sides, selection))

    async def _diff(
        self, sides: ComparedSides, selection: Selection, *, patch: bool = False
    ) -> tuple[FileDiff, ...]:
        sources = self._past.sources
        old, new = sides.old.sha, None if sides.new is None else sides.new.sha
        with faults_refused():
            return await sources.store.call(
                lambda engine: engine.diff(
                    old, new, sources.patterns() if new is None else (), selection, patch=patch
                )
            )

    async def _with_patches(
        self, sides: ComparedSides, names: Sequence[bytes], files: tuple[FileDifference, ...]
    ) -> tuple[tuple[FileDifference, ...], int]:
        """Add patches to a page; return how many of its files still fit into it."""
        found = await self._diff(sides, frozenset(names), patch=True)

        def patched() -> tuple[tuple[FileDifference, ...], tuple[int, ...]]:
            differences = {file.path: _light(_as_difference(file)) for file in found}
            items = tuple(
                differences.get(name, file) for name, file in zip(names, files, strict=True)
            )
            return items, _weights(items)

        items, weights = await anyio.to_thread.run_sync(patched)
        fitting, _ = page_of(names, weights, None, None)
        return items[: fitting.stop], fitting.stop

    async def _refuse_unknown(
        self, paths: Sequence[str] | None, found: DiffResult, sides: ComparedSides
    ) -> None:
        """Refuse a path that is on neither side: "no difference" would hide a misspelt name."""
        for index, text in enumerate(paths or ()):
            at = f"$.data.paths[{index}]"
            meanings = the_path(text, at=at)
            if any(below(found.paths, path) for path in meanings):
                continue

            listings = [await self._past.files_of(side) for side in (sides.old, sides.new) if side]
            if not any(below(listing.paths, path) for listing in listings for path in meanings):
                raise no_such_path(text, "on either side of the comparison", at=at)


def selected(paths: Sequence[str] | None) -> Selection:
    """Return the meanings of all paths; None selects everything. Refuse impossible paths."""
    if paths is None:
        return None

    meant = (the_path(text, at=f"$.data.paths[{i}]") for i, text in enumerate(paths))
    return frozenset(path for meanings in meant for path in meanings)


def _as_difference(file: FileDiff) -> FileDifference:
    return FileDifference(
        path=shown(file.path),
        status=file.status,
        added=file.added,
        removed=file.removed,
        patch=None if file.patch is None else file.patch.decode("utf-8", "backslashreplace"),
    )


def _light(file: FileDifference) -> FileDifference:
    """Remove a patch that alone exceeds an answer."""
    is_heavy = file.patch is not None and _weight(file) > ANSWER_BYTES
    return msgspec.structs.replace(file, patch=None) if is_heavy else file


def _compared(found: Sequence[FileDiff]) -> DiffResult:
    files = tuple(map(_as_difference, found))
    stats = DiffStats(
        files=len(files),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
    )
    return DiffResult(tuple(file.path for file in found), files, _weights(files), stats)


def _weights(files: Sequence[FileDifference]) -> tuple[int, ...]:
    return tuple(accumulate(map(_weight, files), initial=0))


def _weight(file: FileDifference) -> int:
    return len(encode(file)) + 1


@dataclass(frozen=True, slots=True)
class _Place:
    """A moment of the past."""

    seq: int
    moment: Moment | None
    """None before the beginning of the journal, which was lost once and began anew."""
    record: CheckpointRecord | None
    """The checkpoint whose files are shown; None if there was none yet."""


class PastReader:
    """The handler of commands that read checkpoints and past moments."""

    def __init__(self, sources: Sources) -> None:
        self._past = CheckpointLookup(sources)
        self._diffs = Diffs(self._past)

    @handles(CheckpointDiff)
    async def diff(self, command: CheckpointDiff) -> DiffPage:
        """Compare a checkpoint with another or with now; refuse paths that neither side knows."""
        old = self._past.named(command.from_sha, at="$.data.from")
        new = None if command.to_sha is None else self._past.named(command.to_sha, at="$.data.to")
        return await self._diffs.page(
            ComparedSides(old, new),
            command.paths,
            patch=command.patch,
            limit=command.limit,
            cursor=command.cursor,
        )

    # --- files --------------------------------------------------------------------------------

    @handles(CheckpointReadFile)
    async def read_file(self, command: CheckpointReadFile) -> FileRange:
        """Read a file or a range of it; never return a part of a file requested whole."""
        record = self._past.named(command.checkpoint_sha, at="$.data.checkpointSha")
        found = await self._range(record.sha, command)
        if command.offset > found.size:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The offset is beyond the end of the file, which has {found.size} bytes.",
                path="$.data.offset",
            )

        end = command.offset + len(found.data)
        if command.length is None and end < found.size:
            raise Refused(
                ErrorCode.FILE_TOO_LARGE,
                f"{command.path!r} has {found.size} bytes; one answer carries {MAX_RANGE}.",
                path="$.data.length",
                hint="Read it in ranges: give a length, and go on where each reply ends.",
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
        store, length = self._past.sources.store, command.length or MAX_RANGE
        meanings = the_path(command.path, at="$.data.path")
        with faults_refused():
            found = await store.call(
                lambda engine: engine.read_first(sha, meanings, command.offset, length)
            )

        if found is None:
            where = f"among the files of checkpoint {sha[:12]}"
            raise no_such_path(command.path, where, at="$.data.path")

        return found

    # --- moments ------------------------------------------------------------------------------

    @handles(ReplayView)
    async def replay(self, command: ReplayView, request: Request) -> PastView:
        """Return a past moment; agents do not get the plan, which has prompts of other codons."""
        past = await self.view(command)
        if past.state is None or not request.caller.is_agent:
            return past

        state = msgspec.structs.replace(past.state, execution_plan=())
        return msgspec.structs.replace(past, state=state)

    async def view(self, command: ReplayView) -> PastView:
        """Return files and state at a moment; later pages have more files and nothing else."""
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
                    "Name one moment: either a checkpoint or the seq of an event.",
                    path="$.data",
                )

    @property
    def _last_seq(self) -> int:
        return self._past.sources.last_seq()

    async def _moment(self, seq: int) -> Moment:
        if seq > self._last_seq:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The journal ends at event {self._last_seq}; event {seq} does not exist.",
                path="$.data.seq",
                hint=f"Use a seq from 0 to {self._last_seq}.",
            )

        return await self._past.sources.moment_at(seq)

    def _files_at(self, moment: Moment, command: ReplayView) -> CheckpointRecord | None:
        """Return the newest checkpoint at a moment; refuse if it is needed and gone."""
        if moment.files is None:
            return None

        record = self._past.sources.known().get(moment.files)
        if record is None and (command.limit != 0 or command.compare):
            raise Refused(
                ErrorCode.CHECKPOINT_NOT_FOUND,
                f"Checkpoint {moment.files[:12]}, the newest at that moment, was pruned.",
                path="$.data.seq",
                hint="To show only the state, use a limit of 0 and no comparison.",
            )

        return record

    async def _listing(self, place: _Place, command: ReplayView) -> TreeListing:
        listing = NO_FILES if place.record is None else await self._past.files_of(place.record)
        selection = selected(command.paths)
        if selection is None:
            return listing

        for index, text in enumerate(command.paths or ()):
            at = f"$.data.paths[{index}]"
            if not any(below(listing.paths, path) for path in the_path(text, at=at)):
                raise no_such_path(text, "among the files of that moment", at=at)

        return await anyio.to_thread.run_sync(listing.part, selection)

    async def _previous(self, place: _Place, command: ReplayView) -> DiffPage | None:
        """Return what the checkpoint changed; None for the first of all."""
        record = place.record
        if record is None or "previous" not in command.compare:
            return None

        with faults_refused():
            facts = await self._past.sources.store.call(lambda engine: engine.facts(record.sha))

        known = self._past.sources.known()
        before = next((known[sha] for sha in facts.parents if sha in known), None)
        if before is None:
            return None

        return await self._diffs.page(ComparedSides(before, record), command.paths)

    async def _now(self, place: _Place, command: ReplayView) -> DiffPage | None:
        """Return what has changed in the files since."""
        if place.record is None or "now" not in command.compare:
            return None

        return await self._diffs.page(ComparedSides(place.record, None), command.paths)


def _as_text(data: bytes) -> tuple[str, Literal["utf-8", "base64"]]:
    """Return text unchanged and anything else in base64; NUL marks binary data, as in git."""
    if b"\0" not in data:
        try:
            return data.decode(), "utf-8"
        except UnicodeDecodeError:
            pass

    return base64.b64encode(data).decode(), "base64"
