"""Says what is at a path now, reading it only when stat data cannot tell."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable

from hankweave_server.checkpoints.file_reader import Capture, Captured, Observation, Vanished
from hankweave_server.git.objects import HashOnly
from hankweave_server.worktree.dirfd import Descent
from hankweave_server.worktree.scan import RACY_WINDOW_NS, WorkTreeScan
from hankweave_server.worktree.slots import signature_of


class Observer:
    """Looks at paths without storing anything."""

    def __init__(
        self,
        descent: Descent,
        scan: WorkTreeScan,
        size_limit: int | None,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._descent = descent
        self._scan = scan
        self._capture = Capture(descent, HashOnly(), size_limit)
        self._now_ns = now_ns
        self._seen: dict[bytes, Captured] = {}

    def at(self, path: bytes) -> Observation:
        """Observes one path; raises OSError only for faults of the disk."""
        try:
            status = self._descent.status(path)
        except PermissionError:
            return self._capture.read(path)

        if status is None or stat.S_ISDIR(status.st_mode):
            return Vanished()

        file = self._scan.table.files.get(path)
        if file is not None and self._scan.is_settled(file, status):
            git_mode, permissions, digest = file.captured
            if git_mode:
                return Captured(digest, git_mode, signature_of(status), permissions, status.st_size)

        seen = self._seen.get(path)
        if seen is not None and seen.signature == signature_of(status):
            return seen

        return self._read(path)

    def forget(self) -> None:
        self._seen.clear()

    def _read(self, path: bytes) -> Observation:
        seen = self._capture.read(path)
        if not isinstance(seen, Captured) or seen.signature is None:
            return seen

        # A reading in the same tick as the last write may not be the last word.
        if seen.signature.ctime_ns < self._now_ns() - RACY_WINDOW_NS:
            self._seen[path] = seen

        return seen
