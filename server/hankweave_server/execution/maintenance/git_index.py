"""Keep the shadow repository's index at HEAD, so that stock `git status` is clean.

Hankweave itself never reads it. Writing it takes time for each file, so no checkpoint or rollback
waits for it: it is written in a pause after HEAD has moved (`quiet`), through a repository handle
beside the engine, and once more when the server ends. It contains no stat data: git compares
contents once, and then maintains the stat data itself. A crash in between leaves an older index,
which the next start brings up to date.

A write that is cancelled ends before its next step, and whoever cancels it waits for that: when the
server gives up its lock, none of its threads can write to the store any more.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.to_thread

from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.fsutil import replace
from hankweave_server.git.errors import InsufficientSpace, ShadowRepositoryError, disk_faults
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.logs import logger
from hankweave_server.paths import Layout

MARKER = "hankweave-index"
"""Contains the tree that the index was last written for."""


def bring_up_to_date(layout: Layout, check: Callable[[], None]) -> bool:
    """Write the index for HEAD unless it was written for the same tree; return whether it was.

    Raises InsufficientSpace, ShadowRepositoryError, OSError, and what `check` raises between two
    steps, with the index unchanged.
    """
    marker, index = layout.shadow_repository / MARKER, layout.shadow_repository / "index"
    with disk_faults(layout.root):
        repo = ShadowRepo(layout.shadow_repository)
        try:
            head = repo.head()
            commit = None if head is None else repo.commit(head)
            if commit is None:
                return False

            tree = f"{commit.tree}\n".encode()
            if index.exists() and marker.exists() and marker.read_bytes() == tree:
                return False

            marker.unlink(missing_ok=True)
            repo.write_index(commit.tree, check)
            replace(marker, tree)
            return True
        except KeyError:
            return False  # HEAD is damaged: a repair comes first.
        finally:
            repo.close()


WRITTEN_WITHIN = 10.0
"""Seconds after HEAD has moved until the index is late."""

RETRY_PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Seconds between attempts: a `git status` of the user may hold git's lock on the index."""

log = logger(__name__)


class GitIndex:
    """The index of one execution's shadow repository, kept at HEAD."""

    def __init__(self, layout: Layout, require_lock: Callable[[], None], quiet: Quiet) -> None:
        """`require_lock` ends the process if the execution's lock is lost."""
        self._layout = layout
        self._quiet = quiet
        self._require_lock = require_lock
        self._alone = anyio.Lock()
        self._moved = anyio.Event()
        self._moved.set()

    def note(self) -> None:
        """Note that HEAD has moved."""
        self._moved.set()

    async def run(self) -> None:
        """Follow HEAD until cancelled."""
        while True:
            await self._moved.wait()
            with self._quiet.work("index", within=WRITTEN_WITHIN) as work:
                await work.turn()
                self._moved = anyio.Event()
                await self.write()

    async def write(self) -> None:
        """Bring the index up to date if possible; a failure does not end the server.

        An attempt that fails is repeated after each of RETRY_PAUSES.
        """
        async with self._alone:
            failure = await self._attempt()
            for pause in RETRY_PAUSES:
                if failure is None:
                    return

                await anyio.sleep(pause)
                failure = await self._attempt()

            if failure is not None:
                log.info("The index of the shadow repository was not updated: %s", failure)

    async def _attempt(self) -> Exception | None:
        try:
            await anyio.to_thread.run_sync(self._write)
        except (InsufficientSpace, ShadowRepositoryError, OSError) as error:
            return error

        return None

    def _write(self) -> None:
        self._require_lock()
        bring_up_to_date(self._layout, anyio.from_thread.check_cancelled)
