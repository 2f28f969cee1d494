"""Read the whole store and compare it with the journal (`fsck`), or single checkpoints meanwhile.

Both use a repository handle of their own that writes nothing: the engine continues beside it, and
without a server a store can be checked without being modified.

A rollback reads only the objects that it writes. `StoreVerifier` reads the rest of its target
afterwards, and the newest checkpoint after a start, while nothing is served (`quiet`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

import anyio
import anyio.to_thread

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent
from hankweave_protocol.ids import Sha
from hankweave_protocol.replies import DamagedCheckpoint, DamagedObject, FsckReport
from hankweave_server.checkpoints.contents import Verification, Verified
from hankweave_server.checkpoints.engine import CheckpointEngine
from hankweave_server.checkpoints.errors import CheckpointDamaged, CheckpointNotFound
from hankweave_server.checkpoints.model import Damage
from hankweave_server.checkpoints.notes import Notes
from hankweave_server.checkpoints.pruning import Housekeeping
from hankweave_server.domain.checkpoints.records import OnRecord
from hankweave_server.domain.execution_thread import restored_checkpoint
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.quiet import Quiet, Work
from hankweave_server.git.errors import ShadowRepositoryError
from hankweave_server.git.repo import ShadowRepo
from hankweave_server.ledger.writer import Ledger
from hankweave_server.logs import logger
from hankweave_server.meter import UNWATCHED, Meter
from hankweave_server.paths import Layout
from hankweave_server.plain_text import counted

START_SECONDS = 5.0
"""Seconds after a start before the newest checkpoint is read: the first commands come before."""

VERIFIED_WITHIN = 60.0
"""Seconds after a rollback was planned, or after a start, until reading is late."""

log = logger(__name__)


class GivenUp(Exception):
    """A check ended early because its caller no longer waits for it."""


class _Interruptible(ShadowRepo):
    """A repository whose reading can be interrupted: a large one takes minutes."""

    def __init__(
        self,
        layout: Layout,
        should_stop: Callable[[], bool],
        superseded: set[str] | None = None,
    ) -> None:
        super().__init__(layout.shadow_repository, superseded=superseded)
        self._should_stop = should_stop

    def read(self, digest: bytes) -> tuple[str, bytes]:
        if self._should_stop():
            raise GivenUp

        return super().read(digest)


def check_store(
    layout: Layout,
    recorded: OnRecord,
    should_stop: Callable[[], bool] = lambda: False,
    meter: Meter = UNWATCHED,
) -> FsckReport:
    """Read every checkpoint down to each blob; raise ShadowRepositoryError and GivenUp.

    Checkpoints that the journal says were made and not pruned are reported as missing if they are
    not in the store. The meter counts objects.
    """
    repo = _Interruptible(layout, should_stop)
    try:
        found = Housekeeping(repo, Notes(repo), layout).fsck(recorded.standing, meter)
    finally:
        repo.close()

    return FsckReport(
        checked=found.checked,
        damages=tuple(
            DamagedCheckpoint(checkpoint=sha, damages=_as_damaged_objects(damages))
            for sha, damages in found.damages.items()
        ),
        missing=tuple(sorted(found.missing)),
    )


def _as_damaged_objects(damages: Iterable[Damage]) -> tuple[DamagedObject, ...]:
    return tuple(
        DamagedObject(sha=Sha(each.sha), kind=each.kind, path=os.fsdecode(each.path))
        for each in damages
    )


class StoreVerifier:
    """A background task that reads checkpoints whole, and reports what is damaged."""

    def __init__(
        self, layout: Layout, ledger: Ledger, checkpointer: Checkpointer, quiet: Quiet
    ) -> None:
        self._layout = layout
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._quiet = quiet
        self._verified = Verified()
        self._waiting: dict[Sha, None] = {}
        self._noted = anyio.Event()
        self._reported: set[str] = set()
        checkpointer.when_planned(self.note)

    def note(self, sha: Sha) -> None:
        """Read a checkpoint soon."""
        self._waiting[sha] = None
        self._noted.set()

    async def run(self) -> None:
        """Read the checkpoint that the work tree began with, then each that is noted."""
        with anyio.move_on_after(START_SECONDS):
            await self._noted.wait()

        newest = next(reversed(self._checkpointer.known), None)
        current = restored_checkpoint(self._ledger.state) or newest
        if current is not None:
            self.note(current)

        while True:
            await self._noted.wait()
            self._noted = anyio.Event()
            with self._quiet.work("verification", within=VERIFIED_WITHIN) as work:
                while self._waiting:
                    await work.turn()
                    sha = next(iter(self._waiting))
                    del self._waiting[sha]
                    await self._verify(sha, work)

    async def _verify(self, sha: Sha, work: Work) -> None:
        is_given_up = threading.Event()
        try:
            superseded = await self._checkpointer.call_concurrently(
                lambda engine: engine.superseded
            )
            suspected = await anyio.to_thread.run_sync(
                self._read, sha, superseded, work, is_given_up, abandon_on_cancel=True
            )
            if suspected:
                # A gc may have removed objects meanwhile: the engine, which is alone, decides.
                found = await self._checkpointer.call(lambda engine: _damages_of(engine, sha))
                await self._report(sha, found)
        except (ShadowRepositoryError, OSError) as fault:
            log.warning("Checkpoint %s could not be verified: %s", sha, fault)
        finally:
            is_given_up.set()

    def _read(
        self, sha: Sha, superseded: set[str], work: Work, is_given_up: threading.Event
    ) -> list[Damage]:
        """Return what seems to be unreadable; called in a worker thread."""

        def must_stop() -> bool:
            work.turn_in_thread(is_given_up)
            return is_given_up.is_set()

        repo = _Interruptible(self._layout, must_stop, superseded)
        try:
            return Verification(repo, Notes(repo), self._verified).unreadable(sha)
        except GivenUp:
            return []
        finally:
            repo.close()

    async def _report(self, sha: Sha, damages: tuple[Damage, ...]) -> None:
        new = [each for each in damages if each.sha not in self._reported]
        self._reported.update(each.sha for each in new)
        if not new:
            return

        first = self._checkpointer.clean(os.fsdecode(new[0].path))
        how_much = counted(len(new), "object is damaged", "objects are damaged")
        await self._ledger.record(
            ErrorEvent(
                message=(
                    f"Checkpoint {sha[:12]} cannot be read completely: {how_much} "
                    f"(first: {new[0].kind} {new[0].sha} at {first!r}). "
                    "`hankweave fsck --repair` restores what can be found."
                ),
                fatal=False,
                severity="warning",
                context="store",
                code=ErrorCode.CHECKPOINT_DAMAGED,
            )
        )


def _damages_of(engine: CheckpointEngine, sha: Sha) -> tuple[Damage, ...]:
    """Return the damages of a checkpoint, after reading them as a client would.

    The engine then no longer trusts what it has stored: the next checkpoint stores files again
    whose content turns out to be damaged.
    """
    try:
        for damage in engine.verify(sha):
            if damage.kind == "blob" and damage.path:
                engine.read_file(sha, damage.path)

        engine.tree(sha)
    except CheckpointDamaged as error:
        return error.damages
    except CheckpointNotFound:
        return ()  # It was pruned.

    return ()
