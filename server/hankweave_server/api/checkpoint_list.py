"""List checkpoints and the files of a checkpoint, one page at a time.

Used by a server and for the files of an execution without one. The listing of a commit's files is
made once, because a commit never changes; only memory limits how many listings are kept.

A page ends at the requested number of items, or at the largest size of an answer, so that no frame
outgrows what clients accept. A cursor names the last path of its page, so that the next page begins
right behind it even if files came or went meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hankweave_protocol.codec import encode
from hankweave_protocol.commands import ListCheckpoints
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import Sha
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import CheckpointPage, TreeFile, TreeStats
from hankweave_protocol.state import State
from hankweave_server.checkpoints.model import PathEntry
from hankweave_server.domain.execution_thread import run_named
from hankweave_server.worktree.names import shown

PAGE = 1000
"""Checkpoints in one answer, unless the command asks for fewer."""


def page_of_checkpoints(
    command: ListCheckpoints,
    state: State,
    known: Iterable[CheckpointRecord],
    current_branch: str | None,
) -> CheckpointPage:
    """Return the page of the known checkpoints that the command asks for; raise Refused."""
    if command.run_id is not None and run_named(state, command.run_id) is None:
        raise Refused(
            ErrorCode.UNKNOWN_RUN, f"There is no run {command.run_id}.", path="$.data.runId"
        )

    records = [
        record
        for record in known
        if (command.run_id is None or record.coordinate.run_id == command.run_id)
        and (command.kinds is None or record.kind in command.kinds)
    ]
    begin = _offset(records, command.cursor)
    end = begin + max(1, min(command.limit or PAGE, PAGE))
    return CheckpointPage(
        checkpoints=tuple(records[begin:end]),
        current_branch=current_branch,
        cursor=records[end - 1].sha if end < len(records) else None,
    )


def _offset(records: list[CheckpointRecord], cursor: str | None) -> int:
    """Return where the page after the cursor begins; the cursor is the last sha of a page."""
    if cursor is None:
        return 0

    position = next((i for i, record in enumerate(records) if record.sha == cursor), None)
    if position is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "The cursor does not match a checkpoint.",
            path="$.data.cursor",
        )

    return position + 1


KEPT_FILES = 250_000
"""Files in all kept listings together; each takes some 300 bytes."""


@dataclass(frozen=True, slots=True)
class TreeListing:
    """The files of a checkpoint, or a part of them, ordered by path."""

    paths: tuple[bytes, ...]
    files: tuple[TreeFile, ...]
    weights: tuple[int, ...]
    """Bytes in JSON up to each file: one more entry than there are files, and the first is 0."""
    stats: TreeStats

    @classmethod
    def of(cls, entries: Iterable[PathEntry]) -> TreeListing:
        ordered = sorted(entries, key=lambda entry: entry.path)
        files = tuple(
            TreeFile(path=shown(entry.path), size=entry.size, mode=entry.mode) for entry in ordered
        )
        return _listing(tuple(entry.path for entry in ordered), files)

    def part(self, selection: Iterable[bytes]) -> TreeListing:
        """Return the files that are selected or lie in a selected folder."""
        chosen = sorted({index for path in selection for index in below(self.paths, path)})
        paths = tuple(self.paths[index] for index in chosen)
        return _listing(paths, tuple(self.files[index] for index in chosen))


def below(paths: Sequence[bytes], path: bytes) -> range:
    """Return where a file, or the files of a folder, are in ordered paths; may be empty."""
    first = bisect_left(paths, path)
    if first < len(paths) and paths[first] == path:
        return range(first, first + 1)

    # `0` is the byte after `/`: the content of a folder lies between the two.
    return range(bisect_left(paths, path + b"/"), bisect_left(paths, path + b"0"))


def _listing(paths: tuple[bytes, ...], files: tuple[TreeFile, ...]) -> TreeListing:
    weights = tuple(accumulate((len(encode(file)) + 1 for file in files), initial=0))
    stats = TreeStats(files=len(files), bytes=sum(file.size for file in files))
    return TreeListing(paths, files, weights, stats)


NO_FILES = _listing((), ())


class Listings:
    """A cache of the most recent listings."""

    def __init__(self, kept_files: int = KEPT_FILES) -> None:
        self._kept_files = kept_files
        self._files = 0
        self._listings: OrderedDict[Sha, TreeListing] = OrderedDict()

    def get(self, sha: Sha) -> TreeListing | None:
        found = self._listings.get(sha)
        if found is not None:
            self._listings.move_to_end(sha)

        return found

    def add(self, sha: Sha, listing: TreeListing) -> None:
        """Keep a listing, and drop older ones beyond the limit; the newest always stays."""
        if sha in self._listings:
            return

        self._listings[sha] = listing
        self._files += len(listing.files)
        while self._files > self._kept_files and len(self._listings) > 1:
            _, oldest = self._listings.popitem(last=False)
            self._files -= len(oldest.files)


ANSWER_BYTES = 1024 * 1024
"""Bytes in JSON of the items of one page."""


def page_of(
    paths: Sequence[bytes], weights: Sequence[int], cursor: str | None, limit: int | None
) -> tuple[range, str | None]:
    """Return which items a page has, and the cursor of the next one if there is more.

    Paths are ordered; weights are sums: `weights[i]` is the weight of all items before `i`. A page
    has at least one item, however heavy it is, unless the limit is 0.
    """
    begin = 0 if cursor is None else bisect_right(paths, _path_in(cursor))
    last = len(paths) if limit is None else min(len(paths), begin + limit)
    fits = bisect_right(weights, weights[begin] + ANSWER_BYTES) - 1
    end = min(last, max(fits, begin + 1))
    more = begin < end < len(paths)
    return range(begin, end), cursor_after(paths[end - 1]) if more else None


def cursor_after(path: bytes) -> str:
    return base64.urlsafe_b64encode(path).decode()


def _path_in(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "The cursor is not valid.",
            path="$.data.cursor",
            hint="Use the cursor from the previous page, or omit it.",
        ) from None
