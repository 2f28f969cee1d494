"""A connection of `hankweave attach`, and the state that follows from its events.

Everything comes over the public protocol. The state is requested once and then folded from the
events, as the server folds it; the client library delivers every event, even if the connection is
lost and reopened. In a pipe, `print_log` prints lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path

from hankweave_client.client import Client, connect_to
from hankweave_client.reconnect import Backoff
from hankweave_protocol import codec, events
from hankweave_protocol.commands import EventsQuery, GetServerStatus, GetState
from hankweave_protocol.events import BudgetFigures, Event, ServerReady, StoreProgress
from hankweave_protocol.executions import ListedExecution
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import PendingPermission
from hankweave_protocol.replies import ServerStatus
from hankweave_protocol.state import EMPTY_STATE
from hankweave_server.cli.live.model import NOTHING, observe
from hankweave_server.cli.output.event_lines import RunLines, asking_line
from hankweave_server.cli.output.progress_bar import line_of_progress
from hankweave_server.cli.status.standing import StatusFacts
from hankweave_server.cli.status.summary import heading_of
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.domain.reducer import apply

RECENT = 200
"""Maximum number of past events that are read first."""

NAME = "attach"
"""The client name in the server's logs."""

_TRIES_IN_A_PIPE = 8
"""About five seconds: in a pipe, output should end when the server has ended."""

_MOVING = (
    events.CodonStartedEvent,
    events.CodonCompletedEvent,
    events.CodonWaiting,
    events.CodonResumed,
    events.PermissionRequested,
    events.PermissionResolved,
    events.RollbackStarted,
    events.RollbackCompleted,
    events.CheckpointRollback,
    events.ServerStarted,
    events.ServerIdle,
    events.ServerDegraded,
    events.ServerRecovered,
)
"""Events after which the server's status is another one."""


class AttachSession:
    """A connection, and what is known of the execution."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self.client = client
        self.clock = clock or SystemClock()
        self.state = EMPTY_STATE
        self.facts = NOTHING
        self.status: ServerStatus | None = None
        """What only the server knows: budgets, the forecast, pending requests."""
        self.is_stale = False
        """Whether something has happened since `status` was requested."""
        self.story = RunLines()
        self._known = 0
        """Sequence number of the requested state, which includes all earlier events."""
        self._progress: dict[str, tuple[ServerReady, StoreProgress]] = {}
        """Long operations by id, with their connection; those of a lost one are ignored."""

    async def begin(self) -> tuple[str, ...]:
        """Request the state, the last events and the status; return the lines of the events."""
        self.state = await self.client.send(GetState())
        self._known = self.state.last_event_seq
        since = max(0, self._known - RECENT)
        page = await self.client.send(EventsQuery(since=since, until=self._known, limit=RECENT))
        recent = [codec.decode_event(bytes(line)) for line in page.events or ()]
        await self.renew_status()
        asking = {each.request_id: asking_line(each) for each in self._pending}
        self.facts = replace(reduce(observe, recent, NOTHING), asking=asking)
        return tuple(line for event in recent for line in self.story.lines(event))

    async def renew_status(self) -> None:
        self.is_stale = False
        self.status = await self.client.send(GetServerStatus())

    async def news(self) -> AsyncIterator[Event]:
        """Yield the events after `begin`, and update the state with each."""
        async for event in self.client.events():
            if 0 < event.seq <= self._known:
                continue

            match event.data:
                case events.StateTransition() as changed:
                    self.state = apply(self.state, codec.decode_transition(changed), event.seq)
                case StoreProgress() as progress:
                    self._note_progress(progress)
                case data if isinstance(data, _MOVING):
                    self.is_stale = True
                case _:
                    pass

            self.facts = observe(self.facts, event)
            yield event

    def _note_progress(self, progress: StoreProgress) -> None:
        self._progress.pop(progress.operation_id, None)
        if not progress.ended:
            self._progress[progress.operation_id] = (self.client.ready, progress)

    # --- what is shown -----------------------------------------------------------------------

    @property
    def may_change(self) -> bool:
        return self.client.mode == "readandwrite"

    @property
    def root(self) -> Path:
        return Path(self.client.ready.execution_path)

    @property
    def _pending(self) -> tuple[PendingPermission, ...]:
        return () if self.status is None else self.status.pending_permissions

    @property
    def asked(self) -> tuple[PendingPermission, ...]:
        """The tool calls that wait for an answer, the oldest first."""
        return tuple(each for each in self._pending if each.request_id in self.facts.asking)

    def heading(self) -> str:
        """Return which hank it is, how far it is and what it has cost, as `status` says it."""
        listed = ListedExecution(path=str(self.root), state="running")
        now = self.clock.now()
        return heading_of(StatusFacts(self.root, self.state, listed, now, self.status))

    def progress(self) -> tuple[str, ...]:
        """Return a line for each operation that takes long."""
        latest = self.client.ready
        under_way = self._progress.values()
        return tuple(line_of_progress(progress) for link, progress in under_way if link is latest)

    def allowed(self, codon_id: CodonId) -> BudgetFigures:
        """Return the budget of the running codon; only the server knows the budgets of the hank."""
        status = self.status
        if status is None or status.active_codon_id != codon_id or not status.active_allowance:
            return BudgetFigures()

        return status.active_allowance


async def print_log(root: Path, write: Callable[[str], None]) -> None:
    """Print the last lines of the log, then new ones, until the server ends."""
    backoff = Backoff(attempts=_TRIES_IN_A_PIPE)
    async with connect_to(root, mode="readonly", reconnect=backoff, name=NAME) as client:
        session = AttachSession(client)
        for line in await session.begin():
            write(line)

        try:
            async for event in session.news():
                for line in session.story.lines(event):
                    write(line)
        except (ConnectionError, TimeoutError):
            return  # The server has ended.
