"""Handle commands that only read: checkpoint lists, state, server status, `events.query`.

A query of the journal runs in a worker thread, one at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from hankweave_protocol.commands import (
    MAX_RANGE,
    CodonReadPrompt,
    CodonReadResult,
    EventsQuery,
    ListCheckpoints,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CheckpointList, ListedCheckpoint
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.replies import (
    CheckpointPage,
    EventsPage,
    PromptText,
    ServerStatus,
    ToolOutput,
)
from hankweave_protocol.state import State
from hankweave_server.api.agent_texts import whole_result
from hankweave_server.api.checkpoint_list import page_of_checkpoints
from hankweave_server.clock import Clock
from hankweave_server.domain.budget.estimates import forecast
from hankweave_server.domain.event_filter import events_page
from hankweave_server.domain.execution_thread import newest_run, run_named
from hankweave_server.execution.codon import confinement
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.writer import Ledger


class Inspect:
    def __init__(self, ctx: ExecutionContext, status: Callable[[], ServerStatus]) -> None:
        """Create the handlers; `status` lacks what needs the disk or takes long to find out."""
        self._ctx = ctx
        self._status = status

    async def checkpoints(self, command: ListCheckpoints, *, tell_all: bool) -> CheckpointPage:
        """List checkpoints, newest first; `tell_all` sends the list to all clients as an event."""
        page = page_of_checkpoints(
            command,
            self._ctx.state,
            reversed(self._ctx.checkpointer.known.values()),
            self._ctx.checkpointer.current_branch,
        )
        if tell_all:
            await self._ctx.ledger.record(listed(command, page, self._ctx.state))

        return page

    def state(self) -> State:
        return self._ctx.ledger.durable_state

    async def result(self, command: CodonReadResult) -> ToolOutput:
        """Return a range of a tool's whole result; raise Refused."""
        ledger, seq = self._ctx.ledger, command.seq
        if seq > ledger.last_seq:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The journal ends at event {ledger.last_seq}; event {seq} does not exist.",
                path="$.data.seq",
            )

        def read() -> ToolOutput:
            [line] = ledger.read(seq - 1, 1)
            return whole_result(self._ctx.layout, line, command)

        return await anyio.to_thread.run_sync(read)

    def prompt(self, command: CodonReadPrompt) -> PromptText:
        """Return the prompt of an entry of the plan; raise Refused."""
        plan = self._ctx.state.execution_plan
        entry = next((each for each in plan if each.codon_id == command.codon_id), None)
        prompt = None if entry is None else self._ctx.hank.prompts.get(entry.codon.id)
        if prompt is None:
            raise Refused(
                ErrorCode.UNKNOWN_CODON,
                f"The hank has no prompt of codon {command.codon_id!r}.",
                path="$.data.codonId",
                hint="The state has the plan, with the ids of its codons.",
            )

        clean = self._ctx.ledger.redactor.text
        system = prompt.system_prompt
        return PromptText(
            text=clean(prompt.text)[:MAX_RANGE],
            size=len(prompt.text),
            system_prompt=None if system is None else clean(system)[:MAX_RANGE],
        )

    async def status(self) -> ServerStatus:
        size = await self._ctx.checkpointer.call(lambda engine: engine.housekeeping.size())
        probe = await anyio.to_thread.run_sync(self._ctx.confinement.probe)
        return msgspec.structs.replace(
            self._status(),
            store_bytes=size.bytes_on_disk,
            store_packs=size.packs,
            store_loose_objects=size.loose_objects,
            confinement=confinement.status(self._ctx, probe),
            forecast=forecast(self.state(), self._ctx.clock.now(), self._ctx.hank.hank),
        )


def listed(command: ListCheckpoints, page: CheckpointPage, state: State) -> CheckpointList:
    """Return a page as Hankweave's event, which always names a run and its branch.

    If the command names no run, these are of the current one, as in Hankweave, and the checkpoints
    are of all runs.
    """
    run = run_named(state, command.run_id or state.current_run_id) or newest_run(state)
    return CheckpointList(
        run_id=None if run is None else run.run_id,
        checkpoints=tuple(_listed(record) for record in page.checkpoints),
        current_branch=None if run is None else run.git_branch,
    )


def _listed(record: CheckpointRecord) -> ListedCheckpoint:
    return ListedCheckpoint(
        codon_id=record.coordinate.codon_id,
        codon_name=record.codon_name,
        checkpoint_type=record.kind,
        sha=record.sha,
        status=record.coordinate.codon_state,
        timestamp=record.timestamp,
        label=record.label,
        summary=record.summary,
        partial=record.partial,
        coordinate=record.coordinate,
    )


PATIENCE_SECONDS = 20.0
"""Limit of one query, enough for some millions of events; other queries wait for it."""


class Queries:
    """A worker for journal queries, beside the ledger's writer and all clients."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        # One at a time: several would repeatedly take the interpreter away from the event loop.
        self._thread = anyio.CapacityLimiter(1)

    async def answer(self, command: EventsQuery) -> EventsPage:
        """Return one page of the events recorded until now; raise Refused."""
        work = functools.partial(self._answer, command, self._ledger.last_seq)
        return await anyio.to_thread.run_sync(work, limiter=self._thread)

    def _answer(self, query: EventsQuery, last: int) -> EventsPage:
        deadline = self._clock.monotonic() + PATIENCE_SECONDS

        def read(since: int, limit: int) -> list[bytes]:
            anyio.from_thread.check_cancelled()
            if self._clock.monotonic() > deadline:
                raise Refused(
                    ErrorCode.RESULT_TOO_LARGE,
                    f"The query took longer than {PATIENCE_SECONDS:.0f} seconds.",
                    path="$.data",
                    hint="Narrow it with since and until.",
                )

            return self._ledger.read(since, limit)

        return events_page(query, read, last)
