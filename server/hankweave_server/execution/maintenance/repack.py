"""Repack the store: in the background while checkpoints follow each other, and for a gc.

Packing changes no checkpoint, so it needs no intent and may stop at any moment. It runs beside the
engine, which waits for it only while the replaced files are removed: some milliseconds. In the
background it pauses for as long as it worked, and does not work while the engine does.

It waits for a pause after a checkpoint. An agent may make none: after `MANY` checkpoints a step is
taken all the same, and after `MORE` more it waits for nothing. So the number of packs is
bounded, whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import anyio
import anyio.from_thread

from hankweave_protocol.errors import ErrorCode
from hankweave_protocol.events import ErrorEvent, StoreConsolidated
from hankweave_server.execution.checkpointer import Checkpointer
from hankweave_server.execution.maintenance.quiet import Quiet
from hankweave_server.git.errors import code_of
from hankweave_server.git.repack import FRESH_PACKS, Consolidated, Pace, StepInterrupted
from hankweave_server.ledger.writer import Ledger, LedgerFailed
from hankweave_server.logs import logger
from hankweave_server.meter import UNWATCHED, Meter

QUIET_SECONDS = 0.5
"""Seconds without a checkpoint after which the background task checks whether there is work."""

MANY = FRESH_PACKS
"""Checkpoints that follow each other after which the background waits for no pause."""

MORE = FRESH_PACKS // 2
"""Checkpoints during a step after which it no longer waits for others."""

PACKED_WITHIN = 60.0
"""Seconds after which packing is reported as late."""

WORKED_SECONDS = 0.002
"""Seconds of work between two pauses."""

SHORT_PAUSE = 0.0005
"""Seconds that urgent work pauses, so that other threads get the interpreter at once."""

LONG_PAUSE = 0.05
"""Seconds that the background waits at most, each time, for the end of a call of the engine."""

YIELDINGS = 3
"""Times that a pruning yields to others before it runs to its end."""

StopCondition = Callable[[], bool]
"""Called in the worker thread between two steps: is it time to stop?"""

log = logger(__name__)


class Repacker:
    """The repacking of one execution's store."""

    def __init__(self, ledger: Ledger, checkpointer: Checkpointer, quiet: Quiet) -> None:
        self._quiet = quiet
        self._ledger = ledger
        self._checkpointer = checkpointer
        self._wake = anyio.Event()
        self._wake.set()
        self._is_due = anyio.Event()
        self._taken = 0
        """Checkpoints since the last check."""
        self._gave_up = False
        self.is_stopping = False
        self.alone = anyio.Lock()
        """Held by a task that packs, prunes, or reads the store beside the engine (fsck)."""
        checkpointer.when_taken(lambda _taken: self._note_checkpoint())

    def _note_checkpoint(self) -> None:
        self._taken += 1
        self.wake()
        if self._taken >= MANY:
            self._is_due.set()

    def wake(self) -> None:
        """Check soon whether there is something to pack."""
        self._wake.set()

    def stop(self) -> None:
        """Start nothing more, and stop what is running."""
        self.is_stopping = True

    async def run(self) -> None:
        """Pack when there is a pause after checkpoints, or many of them; until cancelled.

        An error is reported and ends the packing until the next gc or start; the run continues.
        """
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self._pause()
            self._is_due, self._taken = anyio.Event(), 0
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

                await self._ledger.record(_as_error_event(fault))

    async def _pause(self) -> None:
        """Wait until no checkpoint follows the last one soon, or until there are many."""
        taken = -1
        while taken != self._taken and not self._is_due.is_set():
            taken = self._taken
            with anyio.move_on_after(QUIET_SECONDS):
                await self._is_due.wait()

    async def _pack_if_needed(self) -> None:
        async with self.alone:
            is_needed = await self._checkpointer.call_concurrently(
                lambda engine: engine.housekeeping.needs_consolidation()
            )
            if not is_needed:
                return

            throttle = _Throttle(self._must_end, self.waits_for_others, self._is_in_the_way)
            with self._quiet.work("packing", within=PACKED_WITHIN):
                packed = await self._pack(
                    Pace(self._must_end, throttle.pause, fresh=FRESH_PACKS), ()
                )

        if not packed.finished:
            self._wake.set()

    def _must_end(self) -> bool:
        return self.is_stopping or self.alone.statistics().tasks_waiting > 0

    def _is_in_the_way(self) -> bool:
        return self._quiet.is_serving or self._checkpointer.is_in_use

    def waits_for_others(self) -> bool:
        """Return whether background work waits for others: the one place that decides it."""
        return self._taken < MORE

    async def pack(self, causes: tuple[int | str, ...], meter: Meter = UNWATCHED) -> Consolidated:
        """Pack to the end, or until the server stops; the caller holds `alone`."""
        throttle = _Throttle(lambda: self.is_stopping, lambda: False, lambda: False)
        packed = await self._pack(Pace(lambda: self.is_stopping, throttle.pause), causes, meter)
        self._gave_up = False
        return packed

    def stop_conditions(self) -> Iterator[StopCondition]:
        """Yield each attempt's stop condition: first for other callers, last for shutdown only."""
        yield from (self._must_yield for _ in range(YIELDINGS))
        yield lambda: self.is_stopping

    def _must_yield(self) -> bool:
        return self.is_stopping or self._checkpointer.is_waited_for

    async def _pack(
        self, pace: Pace, causes: tuple[int | str, ...], meter: Meter = UNWATCHED
    ) -> Consolidated:
        """Pack beside other calls, which wait for its last act alone, and report what has changed.

        `alone` sees to it that nothing else prunes, repairs or packs meanwhile.
        """

        def exclusively(act: Callable[[], None]) -> None:
            anyio.from_thread.run(self._checkpointer.call, lambda _engine: act())

        concurrent = replace(pace, exclusively=exclusively)
        done = await self._checkpointer.call_concurrently(
            lambda engine: engine.housekeeping.consolidate(concurrent, meter)
        )
        if (done.packs_before, done.loose_before) != (done.packs_after, done.loose_after):
            await self._ledger.record(
                StoreConsolidated(
                    packs_before=done.packs_before,
                    packs_after=done.packs_after,
                    loose_before=done.loose_before,
                    loose_after=done.loose_after,
                    bytes_before=done.bytes_before,
                    bytes_after=done.bytes_after,
                ),
                causes=causes,
            )

        return done


class _Throttle:
    """The pauses of one piece of work in a worker thread, which must not slow down others."""

    def __init__(
        self,
        must_end: Callable[[], bool],
        waits_for_others: Callable[[], bool],
        is_in_use: Callable[[], bool],
    ) -> None:
        """Background work pauses as long as it worked, and then until the engine is not in use."""
        self._must_end = must_end
        self._waits_for_others = waits_for_others
        self._is_in_use = is_in_use
        self._paused_at = 0.0
        """Processor time of this thread at the last rest."""

    def pause(self) -> None:
        """Pause if it is time; raise StepInterrupted if the work must end."""
        now = time.thread_time()
        worked = now - self._paused_at
        if worked < WORKED_SECONDS:
            return

        self._paused_at = now
        if self._must_end():
            raise StepInterrupted

        time.sleep(min(worked, LONG_PAUSE) if self._waits_for_others() else SHORT_PAUSE)
        until = time.monotonic() + LONG_PAUSE
        while self._waits_for_others() and self._is_in_use() and time.monotonic() < until:
            time.sleep(WORKED_SECONDS)


def _as_error_event(fault: Exception) -> ErrorEvent:
    return ErrorEvent(
        message=f"The store could not be packed: {fault}. The checkpoints are unchanged.",
        fatal=False,
        severity="warning",
        context="store.consolidated",
        code=code_of(fault),
    )
