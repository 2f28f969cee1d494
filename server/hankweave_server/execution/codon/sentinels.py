"""Connect a codon's sentinels to the ledger, so that they see exactly what is on record.

Sentinels get an event when it is durable, like every client, and their own events go through the
ledger too. They receive events from the moment they are loaded, which is after the codon's rig was
set up (as in Hankweave).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc

from hankweave_protocol.events import FileSource, Info
from hankweave_protocol.state import (
    NO_SENTINELS,
    FailureReason,
    LoadedSentinels,
    RunningCodon,
    StartingCodon,
)
from hankweave_server.background_tasks import task_group
from hankweave_server.domain import lifecycle
from hankweave_server.execution.codon.record import CodonRecord
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.batch import Entry
from hankweave_server.ledger.writer import Published
from hankweave_server.sentinels.failures import UnloadReason

if TYPE_CHECKING:
    from hankweave_server.sentinels.engine import LoadReport, SentinelSetting, Watch

FINAL_DRAIN: Final = timedelta(seconds=30)
"""Time for sentinels to process the codon's end, while everything else waits."""

SHORT_DRAIN: Final = timedelta(seconds=2)
"""Time limit when a person or the server's end cuts the codon short."""


class SentinelsNotLoaded(Exception):
    """A codon must not run without a required sentinel that could not be loaded."""

    def __init__(self, report: LoadReport) -> None:
        names = tuple(failed.reference for failed in report.required)
        super().__init__(f"Required sentinels were not loaded: {', '.join(names)}.")
        self.reason = FailureReason(
            type="sentinel-load-failure", retriable=False, message=str(self), sentinel_refs=names
        )


class SentinelWatch:
    """The sentinels of one codon; every call is a no-op if there are none."""

    def __init__(
        self,
        ctx: ExecutionContext,
        record: CodonRecord,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._ctx = ctx
        self._record = record
        self._tasks = tasks
        self._watch: Watch | None = None
        self._is_short = False
        self._is_listening = False
        self._since = 0

    async def load(self) -> None:
        """Load the sentinels and start listening; raise SentinelsNotLoaded.

        The codon is `starting`.
        """
        if not self._record.entry.codon.sentinels:
            return

        # Imported late: templates and schemas take ten megabytes that a server without sentinels
        # saves.
        from hankweave_server.sentinels.engine import Watch

        self._watch = Watch(self._setting())
        report = await self._watch.load(self._tasks)
        if report.required:
            await self._watch.unload("fatal-error")
            raise SentinelsNotLoaded(report)

        self._since = self._ctx.ledger.state.last_event_seq
        self._is_listening = True

    def receive(self, published: Published) -> None:
        """Receive an event; runs in the ledger's writer, so it neither waits nor raises."""
        event = published.event
        if self._watch is None or not self._is_listening:
            return

        if event.run_id == self._record.run_id and event.seq > self._since:
            self._watch.observe(event, published.frame)

    async def drain(self, *, completing: bool) -> None:
        """Let the sentinels finish what they began.

        The agent has ended, the record is not terminal yet. A codon that is `completing` moves to
        `completing-sentinels`; one that failed or was skipped stays in the state in which that
        happened.
        """
        if self._watch is None or not self._watch.is_watching:
            return

        current = self._record.current
        if completing and isinstance(current, RunningCodon):
            await self._record.move(lifecycle.finish_sentinels(current))

        count = self._watch.active_count
        await self._post(Info(message=f"Completing work for {count} sentinel(s)..."))
        await self._drain()
        await self._post(Info(message=f"Sentinel work completed ({count} sentinel(s))"))

    async def finish(
        self,
        announce: Callable[[FileSource], Awaitable[None]],
        *,
        reason: UnloadReason = "codon-complete",
    ) -> None:
        """Show the sentinels the codon's end and unload them; the codon's record is terminal."""
        if self._watch is None:
            return

        if self._watch.is_watching:
            await self._drain(FINAL_DRAIN)

        self._is_listening = False
        await self._watch.unload(reason)
        if self.written:
            # Otherwise the next codon would take the files they wrote last for user edits.
            await announce(FileSource(kind="codon-end"))

    @property
    def written(self) -> frozenset[bytes]:
        """The paths in the work tree that sentinels write."""
        return frozenset() if self._watch is None else self._watch.written_in_the_work_tree

    def close(self) -> None:
        """Release what the sentinels hold, however the codon ended."""
        if self._watch is not None:
            self._watch.close()

    def shorten_drain(self) -> None:
        """Shorten present and future waits: the codon is cut short."""
        self._is_short = True
        if self._watch is not None:
            self._watch.cancel_drain()

    async def _drain(self, within: timedelta | None = None) -> None:
        """Wait until all events are durable, because sentinels see them only then, then drain."""
        assert self._watch is not None
        await self._ctx.ledger.flush()
        limit = SHORT_DRAIN if self._is_short else within
        await (self._watch.drain() if limit is None else self._watch.drain(limit))

    async def _post(self, *entries: Entry) -> None:
        await self._ctx.ledger.post(
            *entries, run_id=self._record.run_id, codon_id=self._record.entry.codon_id
        )

    def _before(self) -> LoadedSentinels:
        """Return what the sentinels have done in a codon that goes on under another server."""
        current = self._record.current
        return (
            current.sentinels if isinstance(current, StartingCodon | RunningCodon) else NO_SENTINELS
        )

    def _setting(self) -> SentinelSetting:
        ctx, record = self._ctx, self._record
        overrides = ctx.hank.hank.overrides
        sentinel = None if overrides is None else overrides.sentinel
        persists = ctx.sentinel_persistence
        if persists is None:
            persists = sentinel is None or sentinel.enable_persistence is not False

        from hankweave_server.sentinels.engine import SentinelSetting

        return SentinelSetting(
            run_id=record.run_id,
            entry=record.entry,
            start_time=record.current.start_time,
            hank_directory=ctx.hank.directory,
            layout=ctx.layout,
            clock=ctx.clock,
            models=ctx.models,
            price=ctx.price,
            publish=self._post,
            persists=persists,
            clean=ctx.ledger.redactor.text,
            before=self._before(),
        )


@asynccontextmanager
async def sentinels_of(ctx: ExecutionContext, record: CodonRecord) -> AsyncIterator[SentinelWatch]:
    """Provide a codon with its sentinels; their tasks end with the block, whatever ends it.

    An exception of the block is raised unchanged; one of a sentinel is raised in a group.
    """
    async with task_group() as tasks:
        watch = SentinelWatch(ctx, record, tasks)
        try:
            with ctx.ledger.subscribe(watch.receive):
                yield watch
        finally:
            watch.close()

        tasks.cancel_scope.cancel()
