"""Handle commands that maintain the store: pin, gc, fsck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio.to_thread
import msgspec

from hankweave_protocol.commands import CheckpointPin, StoreFsck, StoreGc
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.hints import Hint
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import FsckReport, GcReport
from hankweave_server.api.caller import Request
from hankweave_server.api.dispatch import handles
from hankweave_server.api.lookup import target_named
from hankweave_server.checkpoints.repair import NoRepository, Source, repository_source
from hankweave_server.domain.retention import RetentionPolicy
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.fsck import GivenUp, check_store
from hankweave_server.execution.maintenance.garbage_collection import Causes, GarbageCollector
from hankweave_server.execution.maintenance.repack import Repacker
from hankweave_server.git.errors import (
    InsufficientSpace,
    ShadowRepositoryError,
    disk_faults,
    refusal_of,
)
from hankweave_server.ledger.writer import Ledger
from hankweave_server.meter import Meter
from hankweave_server.paths import Layout


class StoreMaintenance:
    """The handler of pins and of `store.*`."""

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        checkpointer: Checkpointer,
        housekeeper: GarbageCollector,
        packing: Repacker,
    ) -> None:
        self._layout = layout
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._housekeeper = housekeeper
        self._packing = packing

    @handles(CheckpointPin)
    async def pin(self, command: CheckpointPin, request: Request) -> CheckpointRecord:
        """Pin the named checkpoint, or remove its pin."""
        if command.name is not None and not (command.name.isprintable() and command.name.strip()):
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "A name must be one line of printable characters.",
                path="$.data.name",
                hint="Leave out line breaks and other control characters.",
            )

        target = target_named(command.checkpoint_sha, self._ledger.state, self._checkpointer)
        name = None if command.name is None else self._checkpointer.clean(command.name)
        with self._refusing("changed", "no pin was changed"):
            return await self._housekeeper.pin(
                target.checkpoint, name, pinned=command.pinned, causes=request.causes
            )

    @handles(StoreGc)
    async def gc(self, command: StoreGc, request: Request) -> GcReport:
        """Prune and pack, or report what that would do."""
        policy = policy_of(command)
        with self._refusing("packed", "what was pruned is recorded"):
            if command.dry_run:
                return await self._housekeeper.preview(policy)

            return await self._housekeeper.collect(policy, request.causes)

    @handles(StoreFsck)
    async def fsck(self, command: StoreFsck, request: Request) -> FsckReport:
        return await self.check(command, request.causes)

    async def check(self, command: StoreFsck, causes: Causes) -> FsckReport:
        """Check the store, after a repair if the command asks for one."""
        if not command.repair:
            _refuse_mirror(command)
            return await self._checked(causes)

        sources = () if command.mirror is None else (_mirror(command.mirror),)
        with self._refusing("repaired", "the repair continues from there"):
            repair = await self._housekeeper.repair(sources, causes)

        return msgspec.structs.replace(await self._checked(causes), repair=repair)

    async def _checked(self, causes: Causes) -> FsckReport:
        """Read the store beside the engine, so that no checkpoint has to wait."""
        is_given_up = threading.Event()

        def check(meter: Meter) -> FsckReport:
            recorded = self._ledger.digest.checkpoints()
            return check_store(
                self._layout,
                recorded,
                should_stop=lambda: is_given_up.is_set() or self._packing.is_stopping,
                meter=meter,
            )

        async with self._packing.alone:
            try:
                with self._checkpointer.progress.watching("fsck", causes) as meter:
                    return await anyio.to_thread.run_sync(check, meter, abandon_on_cancel=True)
            except ShadowRepositoryError as error:
                raise refusal_of(error, self._layout.root) from None
            except GivenUp:
                raise Refused(ErrorCode.SHUTTING_DOWN, "The server is stopping.") from None
            finally:
                is_given_up.set()

    @contextmanager
    def _refusing(self, done: str, afterwards: str) -> Iterator[None]:
        """Refuse with a code and a next step if the disk or the store fails."""
        try:
            with disk_faults(self._layout.root):
                yield
        except InsufficientSpace as error:
            raise Refused(
                ErrorCode.INSUFFICIENT_SPACE,
                f"The store cannot be {done}: {error}.",
                hint=f"Free some space and try again; {afterwards}.",
            ) from None
        except ShadowRepositoryError as error:
            raise refusal_of(error, self._layout.root) from None


def _refuse_mirror(command: StoreFsck) -> None:
    if command.mirror is not None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "A mirror can only be used for a repair.",
            path="$.data.mirror",
            hint="Add repair: true (`hankweave fsck --repair --mirror PATH`).",
        )


def _mirror(place: str) -> Source:
    try:
        return repository_source(Path(place))
    except (NoRepository, OSError, ValueError) as error:
        raise Refused(
            ErrorCode.INVALID_PATH,
            f"The mirror cannot be used: {error}.",
            path="$.data.mirror",
            hint="Name a git repository, a clone of the checkpoints, or an execution directory.",
        ) from None


def policy_of(command: StoreGc) -> RetentionPolicy:
    """Return the limits that a command sets; refuse limits that mean nothing."""
    limits = (command.max_age_seconds, command.max_count, command.max_bytes)
    if command.kinds is not None and limits == (None, None, None):
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "Kinds without a limit prune nothing.",
            path="$.data.kinds",
            hint=Hint.LIMITS_OF_GC,
        )

    if command.kinds is not None and "completed" in command.kinds:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            "Completed checkpoints are never pruned.",
            path=f"$.data.kinds[{command.kinds.index('completed')}]",
            hint="Leave it out.",
        )

    age = command.max_age_seconds
    return RetentionPolicy(
        kinds=None if command.kinds is None else frozenset(command.kinds),
        max_age=None if age is None else timedelta(seconds=age),
        max_count=command.max_count,
        max_bytes=command.max_bytes,
    )
