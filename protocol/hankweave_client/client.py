"""A session with a server that survives lost connections.

The session remembers the last seq it has received. When a connection is lost it opens another one
with `sinceSeq`, and the stream of events continues without gap or duplicate. Unanswered commands
are sent again under their old ids, and the server executes each of them once. Only a restarted
server does not know the old ids: then a command that changes something may or may not have been
executed, and its caller gets ConnectionLost instead of a guess.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import anyio
import msgspec

from hankweave_client.calls import Calls
from hankweave_client.discovery import Address, discover
from hankweave_client.errors import CommandRefused, ConnectionLost, Unauthorized, Unreadable
from hankweave_client.link import Link
from hankweave_client.reconnect import Backoff
from hankweave_protocol.codec import (
    decode_envelope,
    decode_event,
    decode_reply,
    decode_value,
    encode_command,
)
from hankweave_protocol.commands import AnsweredCommand, CommandData, R
from hankweave_protocol.errors import Refused, reason_of
from hankweave_protocol.events import (
    Event,
    EventData,
    ServerReady,
    ServerStarted,
    StateSnapshot,
    StoreProgress,
)
from hankweave_protocol.ids import ClientId, CommandId
from hankweave_protocol.replies import CommandFailed, CommandSucceeded, Failure, Mode

__all__ = [
    "Client",
    "CommandRefused",
    "ConnectionLost",
    "Unauthorized",
    "connect",
    "connect_agent",
    "connect_to",
]


# --- the events that have arrived ----------------------------------------------------------------

CAPACITY = 10_000
"""Events that have arrived and were not taken yet."""


class Closed(Exception):
    """The inbox is empty and no more events will come."""


class Inbox:
    """A bounded queue of events with one cursor, shared by all readers.

    A client that only sends commands must not fill its memory with unread events. A full inbox
    lags: it accepts nothing more, and its owner fetches the missed events from the journal once
    there is space again. So no event is lost, however late it is read.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self._changed = anyio.Event()
        self._is_closed = False
        self.is_lagging = False

    def put(self, event: Event) -> bool:
        """Add an event; return False if the inbox lags and the event must be fetched later."""
        if self.is_lagging or len(self._events) >= self._capacity:
            self.is_lagging = True
            return False

        self._events.append(event)
        self._changed.set()
        return True

    def offer(self, event: Event) -> None:
        """Add an event that is only useful now; drop it if many events are waiting."""
        if not self.is_lagging and self.has_room():
            self.put(event)

    def has_room(self) -> bool:
        """Return whether the inbox has enough space to fetch missed events."""
        return len(self._events) * 2 <= self._capacity

    async def take(self) -> Event:
        """Wait for the next event; raise Closed."""
        while not self._events:
            if self._is_closed:
                raise Closed

            self._changed = anyio.Event()
            await self._changed.wait()

        return self._events.popleft()

    def close(self) -> None:
        """Close the inbox; events already in it can still be taken."""
        self._is_closed = True
        self._changed.set()


# --- the session ---------------------------------------------------------------------------------

_Answer = msgspec.Raw | Failure | ConnectionLost


@dataclass(slots=True)
class _PendingCommand:
    """One command; its frame is the same on every connection, so that it is executed once."""

    frame: bytes
    mutates: bool
    was_sent: bool = False
    _answered: anyio.Event = field(default_factory=anyio.Event)
    _answer: _Answer | None = None

    async def send(self, link: Link) -> None:
        if self._answered.is_set():
            return

        self.was_sent = True
        # The reader of the link notices a lost connection; the frame is sent again on the next one.
        with contextlib.suppress(ConnectionLost):
            await link.send(self.frame)

    def settle(self, answer: _Answer) -> None:
        if self._answer is None:
            self._answer = answer
            self._answered.set()

    async def answer(self) -> msgspec.Raw:
        """Wait for the reply's data; raise CommandRefused or ConnectionLost."""
        await self._answered.wait()
        match self._answer:
            case Failure() as failure:
                raise CommandRefused(failure)
            case ConnectionLost() as lost:
                raise lost
            case data:
                assert data is not None
                return data


class _Unanswered:
    """All unanswered commands, by id."""

    def __init__(self, name: str | None = None) -> None:
        """Create an empty set; `name` begins every id, so that logs show who sent a command."""
        self._prefix = "" if name is None else f"{name}:"
        self._pending: dict[CommandId, _PendingCommand] = {}

    @contextmanager
    def added(self, command: CommandData) -> Iterator[_PendingCommand]:
        """Give the command an id and keep it until the block is left."""
        command_id = CommandId(f"{self._prefix}{uuid.uuid4()}")
        pending = _PendingCommand(encode_command(command, command_id), command.MUTATES)
        self._pending[command_id] = pending
        try:
            yield pending
        finally:
            del self._pending[command_id]

    def __contains__(self, command_id: CommandId | None) -> bool:
        return command_id in self._pending

    async def send_all(self, link: Link) -> None:
        for pending in tuple(self._pending.values()):
            await pending.send(link)

    def settle(self, command_id: CommandId | None, answer: msgspec.Raw | Failure) -> None:
        pending = None if command_id is None else self._pending.get(command_id)
        if pending is not None:
            pending.settle(answer)

    def settle_all(self, lost: ConnectionLost) -> None:
        for pending in self._pending.values():
            pending.settle(lost)

    def give_up_on_effects(self) -> None:
        """Fail sent commands with effects: a restarted server does not know their ids."""
        for pending in self._pending.values():
            if pending.mutates and pending.was_sent:
                pending.settle(
                    ConnectionLost("The server was restarted; the command may have been done.")
                )


class Client(Calls):
    """A session, created by `connect` or `connect_to`."""

    def __init__(
        self,
        locate: Callable[[], Address],
        mode: Mode,
        since_seq: int | None,
        backoff: Backoff | None,
        *,
        moves: bool,
        name: str | None,
        progress: bool,
    ) -> None:
        self._locate = locate
        self._mode: Mode = mode
        self._seq = since_seq
        self._backoff = backoff
        self._moves = moves
        """True if `locate` may return another address and token after a restart."""
        self._inbox = Inbox()
        self._name = name
        self._progress = progress
        self._unanswered = _Unanswered(name)
        self._link: Link | None = None
        self._is_live = False
        """False without a link, and while a new link has not yet delivered missed events."""
        self._live_at = 0
        """The seq at which a new link is live and commands may be sent again."""
        self._end: Exception | None = None
        self._opened: Link | None = None

    @property
    def client_id(self) -> ClientId:
        return self._latest.response.client_id

    @property
    def mode(self) -> Mode:
        """The granted mode, which may be less than was requested."""
        return self._latest.response.mode

    @property
    def is_connected(self) -> bool:
        """False while the connection is lost and another one is being opened."""
        return self._link is not None

    @property
    def ready(self) -> ServerReady:
        """The server's `server.ready` at the last connection of this session."""
        return self._latest.ready

    @property
    def snapshot(self) -> StateSnapshot:
        """The state at the last connection of this session; `events` yields later changes.

        Not for sessions of `connect_agent`, which get no state.
        """
        snapshot = self._latest.snapshot
        assert snapshot is not None, "the server sends no state to agents"
        return snapshot

    @property
    def last_seq(self) -> int:
        """The seq of the newest event received, 0 if none."""
        return self._seq or 0

    @property
    def _latest(self) -> Link:
        assert self._opened is not None, "connect() hands out no client that is not connected"
        return self._opened

    # --- public operations ----------------------------------------------------------------------

    @overload
    async def send(self, command: AnsweredCommand[R]) -> R: ...

    @overload
    async def send(self, command: CommandData) -> object: ...

    async def send(self, command: CommandData) -> object:
        return decode_reply(command, bytes(await self._exchange(command)))

    def waits_for(self, command_id: CommandId | None) -> bool:
        """Return whether a command is one of this session's and has no answer yet."""
        return command_id in self._unanswered

    async def events(self) -> AsyncIterator[Event]:
        """Yield events in journal order, starting where the session began.

        All readers of a session share one cursor. Ends with the session; raises ConnectionLost (or
        the error that ended reconnecting) if that was not orderly.
        """
        while (event := await self._take()) is not None:
            yield event

    async def until(
        self,
        event_type: type[EventData],
        predicate: Callable[[Event], bool] | None = None,
        timeout: float | None = None,
    ) -> Event:
        """Take events until one matches the type and the predicate, and return it.

        Raises TimeoutError after `timeout` seconds, ConnectionLost if the session ends first.
        """
        with anyio.move_on_after(timeout) as scope:
            while (event := await self._take()) is not None:
                if isinstance(event.data, event_type) and (predicate is None or predicate(event)):
                    return event

        if scope.cancelled_caught:
            raise TimeoutError(f"No {event_type.TYPE} came within {timeout:g} seconds.")

        raise ConnectionLost(f"The session ended before {event_type.TYPE}.")

    async def _take(self) -> Event | None:
        """Return the next event; None if the session ended in order."""
        try:
            event = await self._inbox.take()
        except Closed:
            if self._end is None or _is_orderly(self._end):
                return None

            raise self._end from None

        if self._inbox.is_lagging and self._inbox.has_room() and self._link is not None:
            self._link.abort()  # The next connection delivers the missed events.

        return event

    async def _exchange(self, command: CommandData) -> msgspec.Raw:
        if self._end is not None:
            raise ConnectionLost("The session has ended.") from self._end

        with self._unanswered.added(command) as pending:
            if self._link is not None and self._is_live:
                await pending.send(self._link)

            return await pending.answer()

    # --- the connection -------------------------------------------------------------------------

    async def open(self) -> Link:
        """Open the first connection; raise the errors of `Link.open`."""
        link = await self._new_link()
        self._opened = link
        if self._seq is None:
            self._seq = link.response.total_events

        return link

    async def _new_link(self) -> Link:
        return await Link.open(
            self._locate(), self._mode, self._seq, self._name, progress=self._progress
        )

    async def keep(self, link: Link) -> None:
        """Serve the session until it is cancelled or cannot be continued."""
        try:
            self._live_at = self.last_seq
            while True:
                await self._serve(link)
                link = await self._reopen()
        except (ConnectionError, CommandRefused, TimeoutError, OSError) as error:
            self.end(error)

    def end(self, error: Exception | None) -> None:
        """End the session: fail unanswered commands; events already received can still be read."""
        self._end = error or ConnectionLost("The session was closed.", orderly=True)
        self._unanswered.settle_all(ConnectionLost(f"No answer came: {reason_of(self._end)}"))
        self._inbox.close()

    async def _serve(self, link: Link) -> None:
        """Process frames until the connection is lost; raise if it is not to be replaced."""
        self._link = link
        try:
            if self.last_seq >= self._live_at:
                await self._allow_commands(link)

            while True:
                await self._receive(await link.receive(), link)
        except ConnectionLost:
            if self._backoff is None:
                raise
        finally:
            self._link, self._is_live = None, False
            await link.aclose()

    async def _reopen(self) -> Link:
        assert self._backoff is not None
        last: Exception = ConnectionLost("The connection was lost.")
        for delay in self._backoff.delays():
            await anyio.sleep(delay)
            try:
                link = await self._new_link()
            except Unauthorized as error:
                if not self._moves:
                    raise

                last = error  # A restarted server writes its new token in a moment.
            except Unreadable:
                raise
            except (ConnectionError, TimeoutError, OSError) as error:
                last = error
            else:
                self._opened = link
                self._live_at = link.response.total_events
                self._inbox.is_lagging = False
                return link

        raise last

    async def _allow_commands(self, link: Link) -> None:
        """Allow commands, starting with those waiting since the last connection."""
        self._is_live = True
        await self._unanswered.send_all(link)

    # --- frames ---------------------------------------------------------------------------------

    async def _receive(self, frame: str, link: Link) -> None:
        try:
            match decode_envelope(frame).type:
                case "command.succeeded":
                    reply = decode_value(CommandSucceeded, frame)
                    self._unanswered.settle(reply.in_reply_to, reply.data)
                case "command.failed":
                    failed = decode_value(CommandFailed, frame)
                    self._unanswered.settle(failed.in_reply_to, failed.data)
                case "handshake.response":
                    pass
                case _:
                    await self._take_in(decode_event(frame), link)
        except Refused as fault:
            raise Unreadable(fault) from None

    async def _take_in(self, event: Event, link: Link) -> None:
        if isinstance(event.data, StoreProgress):
            self._inbox.offer(event)
            return

        if event.seq == 0:
            self._inbox.put(event)
            return

        if event.seq <= self.last_seq:
            return

        if not self._inbox.is_lagging and event.seq != self.last_seq + 1:
            raise ConnectionLost(f"After event {self.last_seq} came {event.seq}.")

        if self._inbox.put(event):
            self._seq = event.seq

        if not self._is_live:
            await self._catch_up(event, link)

    async def _catch_up(self, event: Event, link: Link) -> None:
        if isinstance(event.data, ServerStarted):
            self._unanswered.give_up_on_effects()

        if event.seq >= self._live_at:
            await self._allow_commands(link)


def connect(
    url: str,
    *,
    token: str | None = None,
    mode: Mode = "readandwrite",
    since_seq: int | None = None,
    reconnect: bool | Backoff = True,
    name: str | None = None,
    progress: bool = False,
) -> AbstractAsyncContextManager[Client]:
    """Open a session with the server at a WebSocket address.

    With `since_seq` the events start after that seq, otherwise with the next one. `name` identifies
    the client in the server's logs: in its handshake and in the ids of its commands. With
    `progress` the events include progress reports of long checkpoint operations.

    Raises NotRunning, Unauthorized, ConnectionLost or TimeoutError if the first connection fails,
    CommandRefused if the journal has no such seq.
    """
    address = Address(url, token)
    return _session(
        lambda: address, mode, since_seq, reconnect, moves=False, name=name, progress=progress
    )


def connect_to(
    execution: Path,
    *,
    mode: Mode = "readandwrite",
    since_seq: int | None = None,
    reconnect: bool | Backoff = True,
    name: str | None = None,
    progress: bool = False,
) -> AbstractAsyncContextManager[Client]:
    """Open a session with the server of an execution, and find it again after a restart."""
    return _session(
        lambda: discover(execution),
        mode,
        since_seq,
        reconnect,
        moves=True,
        name=name,
        progress=progress,
    )


def connect_agent(
    socket: Path, *, reconnect: bool | Backoff = True, name: str | None = None
) -> AbstractAsyncContextManager[Client]:
    """Open a session on the socket of an agent that the server runs.

    It can send the commands that the hank's `agentTools` allow, and gets no events. It ends with
    the agent's codon. Raises as `connect` does.
    """
    address = Address("ws://localhost/ws", socket=socket)
    return _session(lambda: address, "readandwrite", None, reconnect, moves=False, name=name)


@asynccontextmanager
async def _session(
    locate: Callable[[], Address],
    mode: Mode,
    since_seq: int | None,
    reconnect: bool | Backoff,
    *,
    moves: bool,
    name: str | None = None,
    progress: bool = False,
) -> AsyncIterator[Client]:
    backoff = reconnect if isinstance(reconnect, Backoff) else Backoff() if reconnect else None
    client = Client(
        locate,
        mode,
        since_seq,
        backoff,
        moves=moves,
        name=name,
        progress=progress,
    )
    link = await client.open()
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(client.keep, link)
        try:
            yield client
        except Exception as error:
            # Raised again below: a task group would wrap the caller's own exception.
            failure = error
        finally:
            client.end(None)
            group.cancel_scope.cancel()
            await link.aclose()

    if failure is not None:
        raise failure


def _is_orderly(error: Exception) -> bool:
    return isinstance(error, ConnectionLost) and error.orderly
