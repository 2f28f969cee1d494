"""The files of checkpoints, as answers list them: made once for each commit, cut into pages.

A commit never changes, so a listing is never out of date; only room decides how many are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hankweave_protocol.codec import encode
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import TreeFile, TreeStats
from hankweave_server.checkpoints.model import PathEntry
from hankweave_server.worktree.names import shown

KEPT_FILES = 250_000
"""Files in all listings that are kept; each takes some 300 bytes."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a checkpoint holds, or a part of it, in the order of paths."""

    paths: tuple[bytes, ...]
    files: tuple[TreeFile, ...]
    weights: tuple[int, ...]
    """Bytes in JSON up to each file: one more entry than there are files, and 0 the first."""
    stats: TreeStats

    @classmethod
    def of(cls, entries: Iterable[PathEntry]) -> Listing:
        ordered = sorted(entries, key=lambda entry: entry.path)
        files = tuple(
            TreeFile(path=shown(entry.path), size=entry.size, mode=entry.mode) for entry in ordered
        )
        return _listing(tuple(entry.path for entry in ordered), files)

    def part(self, selection: Iterable[bytes]) -> Listing:
        """The files that are selected, or lie in a folder that is."""
        chosen = sorted({index for path in selection for index in below(self.paths, path)})
        paths = tuple(self.paths[index] for index in chosen)
        return _listing(paths, tuple(self.files[index] for index in chosen))


def below(paths: Sequence[bytes], path: bytes) -> range:
    """Where a file, or the files of a folder, stand in ordered paths; maybe nowhere."""
    first = bisect_left(paths, path)
    if first < len(paths) and paths[first] == path:
        return range(first, first + 1)

    # `0` is the byte after `/`: what is in a folder stands between the two.
    return range(bisect_left(paths, path + b"/"), bisect_left(paths, path + b"0"))


def _listing(paths: tuple[bytes, ...], files: tuple[TreeFile, ...]) -> Listing:
    weights = tuple(accumulate((len(encode(file)) + 1 for file in files), initial=0))
    stats = TreeStats(files=len(files), bytes=sum(file.size for file in files))
    return Listing(paths, files, weights, stats)


NO_FILES = _listing((), ())


class Listings:
    """The listings made lately."""

    def __init__(self, kept_files: int = KEPT_FILES) -> None:
        self._kept_files = kept_files
        self._files = 0
        self._listings: OrderedDict[Sha, Listing] = OrderedDict()

    def get(self, sha: Sha) -> Listing | None:
        found = self._listings.get(sha)
        if found is not None:
            self._listings.move_to_end(sha)

        return found

    def add(self, sha: Sha, listing: Listing) -> None:
        """Keeps a listing, and lets older ones go where there is no room; the newest stays."""
        if sha in self._listings:
            return

        self._listings[sha] = listing
        self._files += len(listing.files)
        while self._files > self._kept_files and len(self._listings) > 1:
            _, oldest = self._listings.popitem(last=False)
            self._files -= len(oldest.files)
