"""The server's side of one client: its handshake, then its commands, one at a time and in order.

A connection knows no socket. Frames arrive through `receive` and leave through an `Outlet`, so a
test can pass a list. Every frame gets an answer with a code, and the connection stays open after a
refusal. A refusal goes to this client alone and changes nothing else. `TokenBucket` limits the
rate of messages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import anyio
from anyio.lowlevel import checkpoint

from hankweave_protocol import reference
from hankweave_protocol.codec import (
    Envelope,
    command_in,
    decode_envelope,
    decode_value,
    handshake_in,
)
from hankweave_protocol.commands import Command
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, ServerDegraded
from hankweave_protocol.hints import Hint
from hankweave_protocol.ids import ClientId, CommandId
from hankweave_protocol.replies import HandshakeData, HandshakeResponse, HandshakeResponseData
from hankweave_protocol.shapes import Value
from hankweave_server.api.caller import Caller, CommandAnswer
from hankweave_server.clock import Clock
from hankweave_server.transport.auth import Gate, Role
from hankweave_server.transport.frames import (
    JournalPages,
    Message,
    PageRead,
    error_frame,
    event_frame,
    failure_frame,
    handshake_response,
    history_batches,
    journal_events,
    settled,
    single_batches,
    success_frame,
)
from hankweave_server.transport.idempotency import RecentAnswers
from hankweave_server.transport.outbox import ClientGone
from hankweave_server.transport.server_api import ServerApi

MESSAGES_PER_SECOND = 200.0
BURST = 400.0


class TokenBucket:
    """A rate limiter that allows a burst, then a steady rate; times are arguments, in seconds."""

    def __init__(self, now: float, rate: float = MESSAGES_PER_SECOND, burst: float = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._seen = now

    def take(self, now: float) -> bool:
        """Return whether one more message is allowed now, and count it."""
        self._left = min(self._burst, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1.0:
            return False

        self._left -= 1.0
        return True


MAX_FRAME = 1024 * 1024  # Bytes; commands are small, and prompts are not sent over the wire.
HISTORY_SHOWN = 50  # Hankweave's handshakeHistoryLimit.
BATCH = 200
"""Events in one `history.batch`."""
SNAPSHOT_SECONDS = 1.0  # How long connecting clients share the same `state.snapshot`.
POLICY_VIOLATION = 1008

_log = logging.getLogger("hankweave.transport")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The outgoing side of a connection, as callables."""

    send: Callable[[bytes], None]
    stream: Callable[[Iterable[Message | PageRead], JournalPages], Awaitable[None]]
    """Send messages as the client takes them; raise ClientGone."""
    room: Callable[[], Awaitable[None]]
    """Wait until there is space for more; raise ClientGone."""
    join: Callable[[int], bool]
    """Make the client live after a seq; return False if the journal has later events."""
    close: Callable[[int, str], None]
    address: Callable[[bool], None]
    """Choose whether the client gets Hankweave's events (True) or those of this protocol."""
    show_progress: Callable[[bool], None]
    """Choose whether the client gets progress reports."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The objects that all connections of a server share."""

    api: ServerApi
    gate: Gate
    answers: RecentAnswers
    clock: Clock
    pages: tuple[JournalPages, JournalPages]
    """The journal as stored, and as projected for clients of Hankweave."""
    snapshots: Snapshots


class Snapshots:
    """The `state.snapshot` sent at a handshake, encoded once for many clients."""

    def __init__(self, api: ServerApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._frame = b""
        self._last_seq = -1
        self._made_at = 0.0

    def frame(self) -> bytes:
        now, last = self._clock.monotonic(), self._api.last_seq()
        if last != self._last_seq or now - self._made_at > SNAPSHOT_SECONDS:
            self._frame = event_frame(self._api.snapshot(), self._clock)
            self._last_seq, self._made_at = last, now

        return self._frame


class _Labels(Value):
    """The fields of a malformed frame that can still be decoded."""

    id: CommandId | None = None
    type: str | None = None


class Connection:
    """The state and command loop of one client."""

    def __init__(
        self, client_id: ClientId, role: Role | None, outlet: Outlet, shared: Shared
    ) -> None:
        """Create a connection; `role` is that of the request's token, None if it had none.

        Without a role, the handshake must bring a token.
        """
        self._client_id = client_id
        self._role = role
        self._outlet = outlet
        self._api = shared.api
        self._gate = shared.gate
        self._answers = shared.answers
        self._clock = shared.clock
        self._all_pages = shared.pages
        self._snapshots = shared.snapshots
        self._bucket = TokenBucket(shared.clock.monotonic())
        self._caller: Caller | None = None
        self._wants_replies = False
        self.handshake_done = anyio.Event()
        """Set when a handshake was accepted."""

    async def receive(self, frame: str | bytes) -> None:
        """Execute what one frame asks for; raise ClientGone when the client has left.

        A text frame is a str, a binary one bytes.
        """
        envelope: Envelope | None = None
        try:
            self._refuse_form(frame)
            envelope = decode_envelope(frame)
            if envelope.type == "handshake":
                await self._accept_handshake(handshake_in(envelope).data)
            elif self._caller is None:
                raise Refused(
                    ErrorCode.HANDSHAKE_REQUIRED,
                    "Handshake required before sending commands.",
                    hint='Send {"type": "handshake", "data": {"mode": "readonly"}} first.',
                )
            else:
                await self._execute(command_in(envelope), frame, self._caller)
        except Refused as refusal:
            self._refuse(refusal, envelope or _labels_of(frame))
        except ClientGone:
            raise
        except Exception:
            _log.exception("A frame of %s could not be served.", self._client_id)
            self._refuse(_internal_error(), envelope or _labels_of(frame))

    # --- refusals -------------------------------------------------------------------------------

    def _refuse_form(self, frame: str | bytes) -> None:
        if not self._bucket.take(self._clock.monotonic()):
            raise Refused(
                ErrorCode.RATE_LIMITED,
                "Too many messages.",
                hint="At most 200 a second, 400 in a burst.",
            )

        if isinstance(frame, bytes):
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                "Binary frames are not supported.",
                path="$",
                hint="Send one JSON object in a text frame.",
            )

        if len(frame) > MAX_FRAME or len(frame.encode()) > MAX_FRAME:
            raise Refused(
                ErrorCode.FRAME_TOO_LARGE,
                (f"The frame exceeds the limit of {MAX_FRAME} bytes."),
                path="$",
            )

    def _refuse(self, refusal: Refused, labels: Envelope | _Labels) -> None:
        self._outlet.send(self._refusal_frame(refusal, labels.id, labels.type))

    def _refusal_frame(
        self, refusal: Refused, command_id: CommandId | None, context: str | None
    ) -> bytes:
        if self._wants_replies:
            return failure_frame(refusal, command_id, self._clock)

        return error_frame(refusal, context, self._clock)

    # --- handshake ------------------------------------------------------------------------------

    async def _accept_handshake(self, hello: HandshakeData) -> None:
        """Grant a mode; the first handshake makes the client live, a later one may change mode."""
        role = self._gate.role_for(hello.token, self._role)
        self._wants_replies = hello.protocol_version is not None or role is Role.AGENT
        if role is None:
            self._reject_token()
            return

        if role is Role.AGENT:
            await self._accept_agent(hello)
            return

        last = self._api.last_seq()
        since = last if hello.since_seq is None else hello.since_seq
        if not 0 <= since <= last:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The journal ends at event {last}; event {since} is not in it.",
                path="$.data.sinceSeq",
                hint=Hint.OTHER_JOURNAL,
            )

        self._role = role
        caller = Caller(
            client_id=self._client_id,
            mode=role.grants(hello.mode),
            wants_replies=self._wants_replies,
        )
        await self._introduce(caller, last, hello)
        self._outlet.address(not caller.wants_replies)
        self._outlet.show_progress(hello.progress)
        self.handshake_done.set()
        if self._caller is None:
            await self._catch_up(since)

        self._caller = caller
        for event in self._api.initial_events(caller):
            self._send_event(event)

    async def _accept_agent(self, hello: HandshakeData) -> None:
        """Let an agent send commands; it gets replies alone, no state, history or events."""
        mode = Role.AGENT.grants(hello.mode)
        response = HandshakeResponseData(
            client_id=self._client_id, mode=mode, event_history=(), total_events=0
        )
        ready = event_frame(self._api.ready(), self._clock)
        await self._outlet.stream(
            chain([handshake_response(HandshakeResponse(data=response), ())], [(ready,)]),
            self._pages,
        )
        self._caller = Caller(self._client_id, mode, wants_replies=True, is_agent=True)
        self.handshake_done.set()

    def _reject_token(self) -> None:
        refusal = Refused(
            ErrorCode.UNAUTHORIZED,
            "A valid token is required.",
            path="$.data.token",
            hint="The token is in .hankweave/server.token in the execution directory.",
        )
        self._outlet.send(self._refusal_frame(refusal, None, "handshake"))
        self._outlet.close(POLICY_VIOLATION, "unauthorized")

    async def _introduce(self, caller: Caller, last: int, hello: HandshakeData) -> None:
        newest_first: tuple[int, ...] = ()
        total = last
        if hello.send_previous_events:
            newest_first, total = await self._newest(last)

        response = HandshakeResponse(
            data=HandshakeResponseData(
                client_id=caller.client_id, mode=caller.mode, event_history=(), total_events=total
            )
        )
        frames = [self._projected(event_frame(self._api.ready(), self._clock))]
        if caller.wants_replies:
            frames.append(self._snapshots.frame())

        for problem in self._api.health().problems:
            degraded = ServerDegraded(
                code=problem.code, message=problem.message, since=problem.since
            )
            frames.append(self._projected(event_frame(degraded, self._clock)))

        initial = ((frame,) for frame in frames if frame is not None)
        await self._outlet.stream(
            chain([handshake_response(response, newest_first)], initial), self._pages
        )

    async def _newest(self, last: int) -> tuple[tuple[int, ...], int]:
        """Return the seqs of the newest events for this client, and the total number of events.

        A client of Hankweave compares the two numbers to find out whether there is more. If the
        journal was read back to its beginning, the total counts this client's events exactly;
        otherwise it is the journal's last seq, which is at least greater than the number of events
        returned.
        """
        found: list[int] = []
        begin = last
        while begin and len(found) < HISTORY_SHOWN:
            end, begin = begin, max(0, begin - HISTORY_SHOWN)
            sizes = {seq: await settled(self._pages.size(seq)) for seq in range(begin + 1, end + 1)}
            found[:0] = [seq for seq, size in sizes.items() if size]
            await checkpoint()

        total = last if begin or len(found) > HISTORY_SHOWN else len(found)
        return tuple(reversed(found[-HISTORY_SHOWN:])), total

    def _send_event(self, data: EventData) -> None:
        """Send an event to this client alone, projected to its protocol; skip it if it has none."""
        frame = self._projected(event_frame(data, self._clock))
        if frame is not None:
            self._outlet.send(frame)

    def _projected(self, frame: bytes) -> bytes | None:
        return frame if self._wants_replies else reference.project(frame)

    @property
    def _pages(self) -> JournalPages:
        """The journal as this client is sent it."""
        return self._all_pages[not self._wants_replies]

    async def _catch_up(self, since: int) -> None:
        """Send the journal's events after `since`, then switch to the live stream."""
        while not self._outlet.join(since):
            last = self._api.last_seq()
            if last <= since:
                raise RuntimeError(f"an event after {since} is told that the journal does not have")

            await self._outlet.stream(journal_events(self._pages, since, last), self._pages)
            since = last

    # --- commands -------------------------------------------------------------------------------

    async def _execute(self, command: Command, frame: str | bytes, caller: Caller) -> None:
        mutates = command.data.MUTATES
        if (mutates or command.data.BEYOND) and caller.mode == "readonly":
            raise Refused(
                ErrorCode.INSUFFICIENT_PERMISSIONS,
                f"A readonly client may not send {command.type}.",
                path="$.type",
                hint=(
                    "Send a handshake with mode readandwrite and the token in "
                    ".hankweave/server.token."
                ),
            )

        frames: Iterable[bytes]
        if mutates and caller.wants_replies:
            text = frame.encode() if isinstance(frame, str) else frame
            async with self._answers.answer_to(command.id, text) as stored:
                if stored.frames is None:
                    stored.frames = tuple(await self._answer(command, caller))

                frames = stored.frames
        else:
            frames = await self._answer(command, caller)

        for answer in frames:
            await self._outlet.room()
            self._outlet.send(answer)

    async def _answer(self, command: Command, caller: Caller) -> Iterable[bytes]:
        try:
            answer = await self._api.handle(command, caller)
        except Refused as refusal:
            return (self._refusal_frame(refusal, command.id, command.type),)
        except Exception:
            return (self._failed(command),)

        if answer.history_since is not None:
            await self._outlet.stream(self._history_after(answer.history_since), self._pages)

        return self._frames_of(answer, command, caller)

    def _history_after(self, since: int) -> Iterator[Message | PageRead]:
        last = self._api.last_seq()
        if self._wants_replies:
            return history_batches(self._pages, since, last, BATCH, self._clock)

        return single_batches(self._pages, since, last, self._clock)

    def _frames_of(
        self, answer: CommandAnswer, command: Command, caller: Caller
    ) -> Iterator[bytes]:
        """Encode one frame at a time, so that only the frame being sent is in memory."""
        try:
            for event in answer.events:
                frame = self._projected(event_frame(event, self._clock))
                if frame is not None:
                    yield frame

            if caller.wants_replies:
                yield success_frame(command.id, answer.data, self._clock)
        except Exception:
            yield self._failed(command)

    def _failed(self, command: Command) -> bytes:
        """Answer for an unexpected exception: details go to the log, none to the client."""
        _log.exception("%s of %s failed", command.type, self._client_id)
        return self._refusal_frame(_internal_error(), command.id, command.type)


def _internal_error() -> Refused:
    return Refused(
        ErrorCode.INTERNAL_ERROR,
        "The server failed with an internal error.",
        hint="See its log, .hankweave/logs/server.log.",
    )


def _labels_of(frame: str | bytes) -> _Labels:
    """Decode the id and type of a frame that could not be decoded, to label its refusal."""
    try:
        return decode_value(_Labels, frame)
    except Refused:
        return _Labels()
