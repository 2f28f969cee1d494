"""Repack the store: in the background after checkpoints, and for a gc.

Packing changes no checkpoint, so it needs no intent and may stop between any two of its steps. It
yields to other callers of the engine: they wait for one step at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import anyio

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent, StoreConsolidated
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.git.errors import code_of
from hankweave_server.git.repack import Consolidated
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.logs import logger
from hankweave_server.meter import UNWATCHED, Meter

QUIET_SECONDS = 0.5
"""Seconds that the background waits after a checkpoint or after yielding to a caller."""

YIELDINGS = 3
"""Times that a requested repack yields to others before it runs to its end."""

Patience = Callable[[], bool]
"""Called in the worker thread between two steps: is it time to stop?"""

log = logger(__name__)


class Repacker:
    """The repacking of one execution's store."""

    def __init__(self, ledger: Ledger, checkpointer: Checkpointer) -> None:
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._wake = anyio.Event()
        self._wake.set()
        self._gave_up = False
        self.is_stopping = False
        self.alone = anyio.Lock()
        """Held by a task that packs, prunes, or reads the store beside the engine (fsck)."""
        checkpointer.when_taken(lambda _taken: self.wake())

    def wake(self) -> None:
        """Look soon whether there is something to pack."""
        self._wake.set()

    def stop(self) -> None:
        """Start nothing more, and stop what is running."""
        self.is_stopping = True

    async def run(self) -> None:
        """Pack after checkpoints, when the engine is free; until cancelled.

        An error is reported and ends the packing until the next gc or start; the run continues.
        """
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await anyio.sleep(QUIET_SECONDS)
            if self.is_stopping or self._gave_up:
                continue

            try:
                await self._pack_if_needed()
            except LedgerFailed:
                raise
            except Exception as fault:
                self._gave_up = True
                if code_of(fault) == ErrorCode.INTERNAL_ERROR:
                    log.exception("The store could not be packed")

                await self._ledger.record(_told(fault))

    async def _pack_if_needed(self) -> None:
        async with self.alone:
            if not await self._checkpointer.call(
                lambda engine: engine.housekeeping.needs_consolidation()
            ):
                return

            packed = await self._pack([self._makes_way], ())

        if not packed.finished:
            self._wake.set()

    async def pack(self, causes: tuple[int | str, ...], meter: Meter = UNWATCHED) -> Consolidated:
        """Pack to the end; the caller holds `alone`."""
        packed = await self._pack(self.patience(), causes, meter)
        self._gave_up = False
        return packed

    def patience(self) -> Iterator[Patience]:
        """Yield each attempt's stop condition: first for other callers, last for shutdown only."""
        yield from (self._makes_way for _ in range(YIELDINGS))
        yield lambda: self.is_stopping

    def _makes_way(self) -> bool:
        return self.is_stopping or self._checkpointer.is_waited_for

    async def _pack(
        self,
        patience: Iterable[Patience],
        causes: tuple[int | str, ...],
        meter: Meter = UNWATCHED,
    ) -> Consolidated:
        """Pack once for each stop condition until it is done; report what has changed."""
        attempts: list[Consolidated] = []
        for should_stop in patience:
            one = await self._step(should_stop, meter)
            attempts.append(one)
            if one.finished:
                break

        first, last = attempts[0], attempts[-1]
        whole = dataclasses.replace(
            last,
            packs_before=first.packs_before,
            loose_before=first.loose_before,
            bytes_before=first.bytes_before,
        )
        if (whole.packs_before, whole.loose_before) != (whole.packs_after, whole.loose_after):
            await self._ledger.record(
                StoreConsolidated(
                    packs_before=whole.packs_before,
                    packs_after=whole.packs_after,
                    loose_before=whole.loose_before,
                    loose_after=whole.loose_after,
                    bytes_before=whole.bytes_before,
                    bytes_after=whole.bytes_after,
                ),
                causes=causes,
            )

        return whole

    async def _step(self, should_stop: Patience, meter: Meter) -> Consolidated:
        return await self._checkpointer.call(
            lambda engine: engine.housekeeping.consolidate(should_stop, meter)
        )


def _told(fault: Exception) -> ErrorEvent:
    return ErrorEvent(
        message=f"The store could not be packed: {fault}. The checkpoints are unchanged.",
        fatal=False,
        severity="warning",
        context="store.consolidated",
        code=code_of(fault),
    )
