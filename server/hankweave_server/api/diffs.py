"""`checkpoint.diff`: what differs between two checkpoints, or between one and the work tree.

Which files differ, and by how many lines, is found out for all of them at once, because the page
says what the whole comes to. Patches are made for the files of the page alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from hankweave_protocol.codec import encode
from hankweave_protocol.commands import CheckpointDiff
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import DiffPage, DiffStats, FileDifference
from hankweave_server.api.listings import below
from hankweave_server.api.lookup import Past
from hankweave_server.api.naming import no_such_path, the_path
from hankweave_server.api.pages import ANSWER_BYTES, cursor_after, page_of
from hankweave_server.checkpoints.model import FileDiff
from hankweave_server.worktree.names import shown

PATCHES = 200
"""Files of one page that are compared for their patches."""

KEPT_FILES = 100_000
"""Two commits always differ by the same: so many differing files are kept, of what was lately asked
for; each takes some 500 bytes."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared; `new` None is the work tree."""

    old: CheckpointRecord
    new: CheckpointRecord | None


Selection = frozenset[bytes] | None


@dataclass(frozen=True, slots=True)
class Differences:
    """All that differs, in the order of paths, without patches."""

    paths: tuple[bytes, ...]
    files: tuple[FileDifference, ...]
    weights: tuple[int, ...]
    """Bytes in JSON up to each file: one more entry than there are files, and 0 the first."""
    stats: DiffStats


class Diffs:
    def __init__(self, past: Past) -> None:
        self._past = past
        self._kept: OrderedDict[tuple[str, str, Selection], Differences] = OrderedDict()

    async def answer(self, command: CheckpointDiff) -> DiffPage:
        """Answers the command; refuses paths that neither side knows."""
        old = self._past.named(command.from_sha, at="$.data.from")
        new = None if command.to_sha is None else self._past.named(command.to_sha, at="$.data.to")
        return await self.page(
            Sides(old, new),
            command.paths,
            patch=command.patch,
            limit=command.limit,
            cursor=command.cursor,
        )

    async def page(
        self,
        sides: Sides,
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
            files=files,
            stats=found.stats,
            cursor=following,
        )

    async def _comparison(self, sides: Sides, selection: Selection) -> Differences:
        """Compares; commits with one another once, because they never change."""
        if sides.new is None:
            return await self._past.run(lambda: _compared(self._diff(sides, selection)))

        key = (sides.old.sha, sides.new.sha, selection)
        found = self._kept.pop(key, None)
        if found is None:
            found = await self._past.run(lambda: _compared(self._diff(sides, selection)))

        self._kept[key] = found
        while sum(len(each.files) + 1 for each in self._kept.values()) > KEPT_FILES:
            self._kept.popitem(last=False)

        return found

    def _diff(
        self, sides: Sides, selection: Selection, *, patch: bool = False
    ) -> tuple[FileDiff, ...]:
        """Blocks: what the engine says."""
        sources = self._past.sources
        old, new = sides.old.sha, None if sides.new is None else sides.new.sha
        patterns = sources.patterns() if new is None else ()
        return sources.engine.diff(old, new, patterns, selection, patch=patch)

    async def _with_patches(
        self, sides: Sides, names: Sequence[bytes], files: tuple[FileDifference, ...]
    ) -> tuple[tuple[FileDifference, ...], int]:
        """Adds patches to a page, and says how many of its files still fit into it."""

        def patched() -> tuple[tuple[FileDifference, ...], tuple[int, ...]]:
            found = self._diff(sides, frozenset(names), patch=True)
            told = {file.path: _light(_told(file)) for file in found}
            items = tuple(told.get(name, file) for name, file in zip(names, files, strict=True))
            return items, _weights(items)

        items, weights = await self._past.run(patched)
        fitting, _ = page_of(names, weights, None, None)
        return items[: fitting.stop], fitting.stop

    async def _refuse_unknown(
        self, paths: Sequence[str] | None, found: Differences, sides: Sides
    ) -> None:
        """Refuses a path where nothing is: no difference is no answer about a misspelt name."""
        for index, text in enumerate(paths or ()):
            at = f"$.data.paths[{index}]"
            meanings = the_path(text, at=at)
            if any(below(found.paths, path) for path in meanings):
                continue

            listings = [await self._past.files_of(side) for side in (sides.old, sides.new) if side]
            if not any(below(listing.paths, path) for listing in listings for path in meanings):
                raise no_such_path(text, "on either side of the comparison", at=at)


def selected(paths: Sequence[str] | None) -> Selection:
    """What paths mean together; None selects everything. Refuses what is in no work tree."""
    if paths is None:
        return None

    meant = (the_path(text, at=f"$.data.paths[{i}]") for i, text in enumerate(paths))
    return frozenset(path for meanings in meant for path in meanings)


def _told(file: FileDiff) -> FileDifference:
    return FileDifference(
        path=shown(file.path),
        status=file.status,
        added=file.added,
        removed=file.removed,
        patch=None if file.patch is None else file.patch.decode("utf-8", "backslashreplace"),
    )


def _light(file: FileDifference) -> FileDifference:
    """Leaves out a patch that alone would be more than an answer."""
    is_heavy = file.patch is not None and _weight(file) > ANSWER_BYTES
    return msgspec.structs.replace(file, patch=None) if is_heavy else file


def _compared(found: Sequence[FileDiff]) -> Differences:
    files = tuple(map(_told, found))
    stats = DiffStats(
        files=len(files),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
    )
    return Differences(tuple(file.path for file in found), files, _weights(files), stats)


def _weights(files: Sequence[FileDifference]) -> tuple[int, ...]:
    return tuple(accumulate(map(_weight, files), initial=0))


def _weight(file: FileDifference) -> int:
    return len(encode(file)) + 1
