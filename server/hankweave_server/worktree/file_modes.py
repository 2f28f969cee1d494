"""Count the permissions of captured files, and keep the unusual ones by path.

A checkpoint records the usual permissions of each kind once, and the others by path. Nearly all
files have the usual ones, so both can be kept up to date as files come and go, without a walk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

Kind = tuple[int, int]
"""Git mode and permissions; git mode 0 means that nothing was captured."""

USUAL: Mapping[int, int] = {0o100644: 0o644, 0o100755: 0o755, 0o120000: 0o777}
"""The permissions with which git restores a file, an executable and a link."""


class FileModes:
    """The permissions of all captured files of an index."""

    def __init__(self) -> None:
        self._usual = dict(USUAL)
        self._counts: Counter[Kind] = Counter()
        self._unusual: dict[bytes, Kind] = {}

    @property
    def files(self) -> int:
        """The number of captured files."""
        return self._counts.total()

    def change(self, path: Callable[[], bytes], before: Kind, after: Kind) -> None:
        """Record that the file at a path changed from one kind to another."""
        if before == after:
            return

        if before[0]:
            self._counts[before] -= 1
            if self._is_unusual(before):
                del self._unusual[path()]

        if after[0]:
            self._counts[after] += 1
            if self._is_unusual(after):
                self._unusual[path()] = after

    def settled(
        self, everything: Callable[[], Iterable[tuple[bytes, Kind]]]
    ) -> tuple[Mapping[int, int], Mapping[bytes, int]]:
        """Return the commonest permissions of each git mode, and all others by path.

        `everything` returns the captured files; it is called only when the commonest permissions
        changed.
        """
        usual = {git_mode: self._commonest(git_mode) for git_mode in USUAL}
        if usual != self._usual:
            self._usual = usual
            self._unusual = {path: kind for path, kind in everything() if self._is_unusual(kind)}

        return usual, {path: permissions for path, (_, permissions) in self._unusual.items()}

    def _is_unusual(self, kind: Kind) -> bool:
        git_mode, permissions = kind
        return self._usual[git_mode] != permissions

    def _commonest(self, git_mode: int) -> int:
        """Return the commonest permissions; git's own win a tie."""
        best = USUAL[git_mode]
        for (mode, permissions), count in self._counts.items():
            if mode == git_mode and count > self._counts[(git_mode, best)]:
                best = permissions

        return best
