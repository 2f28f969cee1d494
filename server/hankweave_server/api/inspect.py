"""Handle commands that only read: lists, state, status, results of tools, the journal, pings.

A query of the journal runs in a worker thread, one at a time.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from hankweave_protocol.commands import (
    MAX_RANGE,
    CodonReadPrompt,
    CodonReadResult,
    EventsQuery,
    GetServerStatus,
    GetState,
    HistorySync,
    ListCheckpoints,
    Ping,
    PingBroadcast,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import CheckpointList, EventData, ListedCheckpoint, Pong, ToolResult
from hankweave_protocol.ids import ClientId, CodonId, RunId
from hankweave_protocol.records import CheckpointRecord
from hankweave_protocol.reference import LISTED_KINDS
from hankweave_protocol.replies import (
    CheckpointPage,
    EventsPage,
    PromptText,
    ServerStatus,
    ToolImage,
    ToolOutput,
)
from hankweave_protocol.state import State
from hankweave_server.agents.stream_json import (
    Object,
    as_object,
    as_objects,
    as_text,
    flattened,
    object_in,
)
from hankweave_server.api.caller import CommandAnswer, Request
from hankweave_server.api.checkpoint_list import page_of_checkpoints
from hankweave_server.api.dispatch import handles
from hankweave_server.clock import Clock
from hankweave_server.domain.budget.estimates import forecast
from hankweave_server.domain.event_filter import events_page
from hankweave_server.domain.execution_thread import newest_run, run_named
from hankweave_server.execution.codon import confinement
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.ledger.writer import Ledger
from hankweave_server.paths import Layout


class Inspect:
    """The handler of commands that read lists, the state and the status."""

    def __init__(self, ctx: ExecutionContext, status: Callable[[], ServerStatus]) -> None:
        """Create the handlers; `status` lacks what needs the disk or takes long to find out."""
        self._ctx = ctx
        self._status = status

    @handles(ListCheckpoints)
    async def checkpoints(
        self, command: ListCheckpoints, request: Request
    ) -> CheckpointPage | CommandAnswer:
        """List checkpoints, newest first; clients of Hankweave get the list as an event.

        The event goes to all clients, or to the sender alone if it is a viewer. These clients know
        four kinds of checkpoints, and get only those unless they ask for others by name.
        """
        caller = request.caller
        if caller.wants_replies:
            return self._page(command)

        if command.kinds is None:
            command = msgspec.structs.replace(command, kinds=LISTED_KINDS)

        page = self._page(command)
        event = listed(command, page, self._ctx.state)
        if caller.mode == "readonly" or self._ctx.ledger.space.is_short:
            return CommandAnswer(page, events=(event,))

        await self._ctx.ledger.record(event)
        return page

    def _page(self, command: ListCheckpoints) -> CheckpointPage:
        return page_of_checkpoints(
            command,
            self._ctx.state,
            reversed(self._ctx.checkpointer.known.values()),
            self._ctx.checkpointer.current_branch,
        )

    @handles(GetState)
    async def state(self, command: GetState) -> State:
        return self._ctx.ledger.durable_state

    @handles(CodonReadResult)
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

    @handles(CodonReadPrompt)
    async def prompt(self, command: CodonReadPrompt) -> PromptText:
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

    @handles(GetServerStatus)
    async def status(self, command: GetServerStatus) -> ServerStatus:
        size = await self._ctx.checkpointer.call(lambda engine: engine.housekeeping.size())
        probe = await anyio.to_thread.run_sync(self._ctx.confinement.probe)
        return msgspec.structs.replace(
            self._status(),
            store_bytes=size.bytes_on_disk,
            store_packs=size.packs,
            store_loose_objects=size.loose_objects,
            confinement=confinement.status(self._ctx, probe),
            forecast=forecast(
                self._ctx.ledger.durable_state, self._ctx.clock.now(), self._ctx.hank.hank
            ),
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


class Pings:
    """The handler of pings and of `history.sync`."""

    def __init__(self, now_text: Callable[[], str], broadcast: Callable[[EventData], None]) -> None:
        self._now_text = now_text
        self._broadcast = broadcast

    @handles(Ping)
    async def ping(self, command: Ping) -> CommandAnswer:
        return CommandAnswer(events=(self._pong(None),))

    @handles(PingBroadcast)
    async def ping_all(self, command: PingBroadcast, request: Request) -> None:
        self._broadcast(self._pong(request.caller.client_id))

    @handles(HistorySync)
    async def history(self, command: HistorySync) -> CommandAnswer:
        return CommandAnswer(history_since=command.since_seq)

    def _pong(self, client_id: ClientId | None) -> Pong:
        return Pong(message="pong", timestamp=self._now_text(), client_id=client_id)


QUERY_SECONDS = 20.0
"""Limit of one query, enough for some millions of events; other queries wait for it."""


class Queries:
    """A worker for journal queries, beside the ledger's writer and all clients."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        # One at a time: several would repeatedly take the interpreter away from the event loop.
        self._thread = anyio.CapacityLimiter(1)

    @handles(EventsQuery)
    async def answer(self, command: EventsQuery) -> EventsPage:
        """Return one page of the events recorded until now; raise Refused."""
        work = functools.partial(self._answer, command, self._ledger.last_seq)
        return await anyio.to_thread.run_sync(work, limiter=self._thread)

    def _answer(self, query: EventsQuery, last: int) -> EventsPage:
        deadline = self._clock.monotonic() + QUERY_SECONDS

        def read(since: int, limit: int) -> list[bytes]:
            anyio.from_thread.check_cancelled()
            if self._clock.monotonic() > deadline:
                raise Refused(
                    ErrorCode.RESULT_TOO_LARGE,
                    f"The query took longer than {QUERY_SECONDS:.0f} seconds.",
                    path="$.data",
                    hint="Narrow it with since and until.",
                )

            return self._ledger.read(since, limit)

        return events_page(query, read, last)


# --- whole results of tools ----------------------------------------------------------------------
#
# The journal has only the beginning of a long result. The whole one stands in the log of its agent
# as a block of a `user` message, below the id of its call. An agent may use an id again in its next
# conversation, so of several the one is taken that begins as the journal says.

_AT = "$.data.seq"


class _ResultLine(msgspec.Struct, rename="camel"):
    """The fields of a journal line that say where a result is."""

    type: str
    data: msgspec.Raw
    run_id: RunId | None = None
    codon_id: CodonId | None = None


def whole_result(layout: Layout, line: bytes, command: CodonReadResult) -> ToolOutput:
    """Return a range of the result that a journal line reports; raise Refused."""
    entry = msgspec.json.decode(line, type=_ResultLine)
    if entry.type != ToolResult.TYPE or entry.run_id is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"Event {command.seq} is no result of a tool; it is a {entry.type}.",
            path=_AT,
            hint="Name the event that has the result of a tool.",
        )

    result = msgspec.json.decode(entry.data, type=ToolResult)
    content = _content(layout.agent_log(entry.run_id, result.codon_id), result)
    if content is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"The agent's log does not have the whole result of event {command.seq}.",
            path=_AT,
            hint="The event has the beginning of it.",
        )

    images = tuple(_images(content))
    text = flattened(_without_images(content))
    end = command.offset + command.length
    return ToolOutput(
        content=text[command.offset : end],
        size=len(text),
        offset=command.offset,
        next_offset=end if end < len(text) else None,
        images=images if command.offset == 0 else (),
    )


def _content(log: Path, result: ToolResult) -> object:
    """Return the content of the block; None if the log has none."""
    beginning = result.result.removesuffix("...") if result.truncated else result.result
    found: object = None
    try:
        for content in _contents(log, result.tool_use_id):
            found = content
            if flattened(content).startswith(beginning):
                break
    except FileNotFoundError:
        return None  # A branch has the events of its parent, and not the logs.

    return found


def _contents(log: Path, tool_use_id: str) -> Iterator[object]:
    """Yield the contents of all results of calls with this id, in the order of the log."""
    needle = msgspec.json.encode(tool_use_id)
    descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        for line in file:
            if needle in line:
                yield from _results(object_in(line), tool_use_id)


def _results(entry: Object, tool_use_id: str) -> Iterator[object]:
    blocks = entry.get("content") or as_object(entry.get("message")).get("content")
    for block in as_objects(blocks):
        if block.get("type") == "tool_result" and block.get("tool_use_id") == tool_use_id:
            yield block.get("content")


def _is_image(block: Object) -> bool:
    return block.get("type") == "image"


def _without_images(content: object) -> object:
    if not isinstance(content, list):
        return content

    return [each for each in content if not _is_image(as_object(each))]


def _images(content: object) -> Iterable[ToolImage]:
    for block in as_objects(content):
        source = as_object(block.get("source"))
        if _is_image(block) and source.get("type") == "base64":
            yield ToolImage(
                media_type=as_text(source.get("media_type")), data=as_text(source.get("data"))
            )
