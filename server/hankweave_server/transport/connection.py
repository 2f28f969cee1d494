"""One client: its handshake, then its commands, one at a time and in order.

Knows no socket. Frames come in through `receive`; what goes out leaves through an `Outlet`, so that
a test can be a list. Whatever a client sends, it gets an answer with a code and the connection goes
on: a refusal is for this client alone and leaves no trace anywhere else (DESIGN 9, "Bad input").
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from hankweave_protocol import reference
from hankweave_protocol.codec import (
    decode_command,
    decode_envelope,
    decode_handshake,
    decode_value,
    encode,
)
from hankweave_protocol.commands import Command
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EventData, ServerDegraded
from hankweave_protocol.ids import ClientId, CommandId
from hankweave_protocol.replies import HandshakeData, HandshakeResponse, HandshakeResponseData
from hankweave_protocol.shapes import Value
from hankweave_server.clock import Clock
from hankweave_server.transport.answers import AnswerBook, Frames
from hankweave_server.transport.auth import Gate, Role
from hankweave_server.transport.doors import Answer, Caller, Doors
from hankweave_server.transport.frames import (
    error_frame,
    event_frame,
    failure_frame,
    success_frame,
)
from hankweave_server.transport.outbox import ClientGone
from hankweave_server.transport.rate import TokenBucket

MAX_FRAME = 1024 * 1024  # Bytes; commands are small, and a prompt is not sent over the wire.
HISTORY_SHOWN = 50  # Hankweave's handshakeHistoryLimit.
HISTORY_PAGE = 200  # Lines read at once for a late joiner: some hundred kilobytes.
POLICY_VIOLATION = 1008

_log = logging.getLogger("hankweave.transport")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The way out to one client."""

    send: Callable[[bytes], None]
    room: Callable[[], Awaitable[None]]
    """Waits until much more can be sent; raises ClientGone."""
    join: Callable[[int], bool]
    """Makes the client live after a seq; False where the journal has gone on since."""
    close: Callable[[int, str], None]
    address: Callable[[bool], None]
    """Says whether the client gets the events of Hankweave (True), or ours."""
    show_progress: Callable[[bool], None]
    """Says whether the client is to be told how far long work is."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a server have in common."""

    doors: Doors
    gate: Gate
    answers: AnswerBook
    clock: Clock


class _Labels(Value):
    """What can be told of a frame that could not be taken."""

    id: CommandId | None = None
    type: str | None = None


class Connection:
    """The server's side of one client."""

    def __init__(
        self, client_id: ClientId, peer: str, role: Role | None, outlet: Outlet, shared: Shared
    ) -> None:
        """`role` is what the request's token stood for; None: the handshake must bring one."""
        self._client_id = client_id
        self._peer = peer
        self._role = role
        self._outlet = outlet
        self._doors = shared.doors
        self._gate = shared.gate
        self._answers = shared.answers
        self._clock = shared.clock
        self._bucket = TokenBucket(shared.clock.monotonic())
        self._caller: Caller | None = None
        self._wants_replies = False
        self.greeted = anyio.Event()
        """Set when a handshake was accepted."""

    async def receive(self, frame: str | bytes) -> None:
        """Does what one frame asks for; raises ClientGone where nobody is left to answer.

        A text frame comes as str, a binary one as bytes.
        """
        try:
            self._refuse_form(frame)
            await self._take(frame)
        except Refused as refusal:
            self._refuse(refusal, frame)
        except ClientGone:
            raise
        except Exception:
            _log.exception("A frame of %s could not be served.", self._client_id)
            self._refuse(_internal_error(), frame)

    # --- what is refused ------------------------------------------------------------------------

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
                "Binary frames are not understood.",
                path="$",
                hint="Send one JSON object in a text frame.",
            )

        if len(frame) > MAX_FRAME or len(frame.encode()) > MAX_FRAME:
            raise Refused(
                ErrorCode.FRAME_TOO_LARGE, f"A frame may have {MAX_FRAME} bytes.", path="$"
            )

    def _refuse(self, refusal: Refused, frame: str | bytes) -> None:
        labels = _labels_of(frame)
        self._outlet.send(self._refusal_frame(refusal, labels.id, labels.type))

    def _refusal_frame(
        self, refusal: Refused, command_id: CommandId | None, context: str | None
    ) -> bytes:
        if self._wants_replies:
            return failure_frame(refusal, command_id, self._clock)

        return error_frame(refusal, context, self._clock)

    # --- handshake ------------------------------------------------------------------------------

    async def _take(self, frame: str | bytes) -> None:
        kind, _ = decode_envelope(frame)
        if kind == "handshake":
            await self._greet(decode_handshake(frame).data)
        elif self._caller is None:
            raise Refused(
                ErrorCode.HANDSHAKE_REQUIRED,
                "Handshake required before sending commands.",
                hint='Send {"type": "handshake", "data": {"mode": "readonly"}} first.',
            )
        else:
            await self._obey(decode_command(frame), frame, self._caller)

    async def _greet(self, hello: HandshakeData) -> None:
        """Grants a mode, and the first time makes the client live; a second one may change mode."""
        self._wants_replies = hello.protocol_version is not None
        role = self._gate.role_for(hello.token, self._role)
        if role is None:
            self._turn_away()
            return

        last = self._doors.last_seq()
        since = last if hello.since_seq is None else hello.since_seq
        if not 0 <= since <= last:
            raise Refused(
                ErrorCode.INVALID_COMMAND,
                f"The journal ends at {last}; {since} is not in it.",
                path="$.data.sinceSeq",
                hint="This is another execution's journal: connect without sinceSeq.",
            )

        self._role = role
        caller = Caller(
            client_id=self._client_id,
            mode=role.grants(hello.mode),
            peer=self._peer,
            wants_replies=self._wants_replies,
        )
        self._introduce(caller, last, hello)
        self._outlet.address(not caller.wants_replies)
        self._outlet.show_progress(hello.progress)
        self.greeted.set()
        if self._caller is None:
            await self._catch_up(since)

        self._caller = caller
        for event in self._doors.greeted(caller):
            self._send_event(event)

    def _turn_away(self) -> None:
        refusal = Refused(
            ErrorCode.UNAUTHORIZED,
            "This needs a token that holds.",
            path="$.data.token",
            hint="It stands in .hankweave/server.token of the execution directory.",
        )
        self._outlet.send(self._refusal_frame(refusal, None, "handshake"))
        self._outlet.close(POLICY_VIOLATION, "unauthorized")

    def _introduce(self, caller: Caller, last: int, hello: HandshakeData) -> None:
        lines, total = self._newest(last) if hello.send_previous_events else ([], last)
        response = HandshakeResponseData(
            client_id=caller.client_id,
            mode=caller.mode,
            event_history=tuple(msgspec.Raw(line) for line in reversed(lines)),
            total_events=total,
        )
        self._outlet.send(encode(HandshakeResponse(data=response)))
        self._send_event(self._doors.ready())
        if caller.wants_replies:
            self._send_event(self._doors.snapshot())

        for problem in self._doors.health().problems:
            self._send_event(
                ServerDegraded(code=problem.code, message=problem.message, since=problem.since)
            )

    def _newest(self, last: int) -> tuple[list[bytes], int]:
        """Return the newest events for this client, oldest first, and how many there are in all.

        A client of Hankweave compares the two numbers to know whether there is more. How many of
        the journal's events are for it is known where the journal is read to its beginning; else
        the journal's own number is at least more than what is shown.
        """
        if self._wants_replies:
            return self._doors.history(max(0, last - HISTORY_SHOWN), HISTORY_SHOWN), last

        found: list[bytes] = []
        begin = last
        while begin and len(found) < HISTORY_SHOWN:
            end, begin = begin, max(0, begin - HISTORY_PAGE)
            found[:0] = reference.project_all(self._doors.history(begin, end - begin))

        total = last if begin or len(found) > HISTORY_SHOWN else len(found)
        return found[-HISTORY_SHOWN:], total

    def _send_event(self, data: EventData) -> None:
        """Send an event to this client alone, in the words of its protocol, if it has any."""
        frame = self._in_its_words(event_frame(data, self._clock))
        if frame is not None:
            self._outlet.send(frame)

    def _in_its_words(self, frame: bytes) -> bytes | None:
        return frame if self._wants_replies else reference.project(frame)

    async def _catch_up(self, since: int) -> None:
        """Sends what the client lacks from the journal, then hands it over to the live stream."""
        sent = since
        while not self._outlet.join(sent):
            lines = self._doors.history(sent, HISTORY_PAGE)
            if not lines:
                raise RuntimeError(f"the journal gives nothing after {sent}, and there is more")

            for line in lines:
                sent += 1  # Seqs have no gap (DESIGN 5), so counting is knowing.
                frame = self._in_its_words(line)
                if frame is not None:
                    await self._outlet.room()
                    self._outlet.send(frame)

            await checkpoint()

    # --- commands -------------------------------------------------------------------------------

    async def _obey(self, command: Command, frame: str | bytes, caller: Caller) -> None:
        mutates = command.data.MUTATES
        if mutates and caller.mode == "readonly":
            raise Refused(
                ErrorCode.INSUFFICIENT_PERMISSIONS,
                f"A readonly client may not send {command.type}.",
                path="$.type",
                hint="Handshake as readandwrite, with the token of .hankweave/server.token.",
            )

        if mutates and caller.wants_replies:
            frames: Iterable[bytes] = await self._once(command, frame, caller)
        else:
            frames = await self._do(command, caller)

        for answer in frames:
            await self._outlet.room()
            self._outlet.send(answer)

    async def _once(self, command: Command, frame: str | bytes, caller: Caller) -> Frames:
        async def do() -> Frames:
            return tuple(await self._do(command, caller))

        text = frame.encode() if isinstance(frame, str) else frame
        return await self._answers.once(command.id, text, do)

    async def _do(self, command: Command, caller: Caller) -> Iterable[bytes]:
        try:
            answer = await self._doors.handle(command, caller)
        except Refused as refusal:
            return (self._refusal_frame(refusal, command.id, command.type),)
        except Exception:
            return (self._failed(command),)

        return self._frames_of(answer, command, caller)

    def _frames_of(self, answer: Answer, command: Command, caller: Caller) -> Iterator[bytes]:
        """Encodes one frame at a time: the answer to `history.sync` is the whole journal."""
        try:
            for event in answer.targeted:
                frame = self._in_its_words(event_frame(event, self._clock))
                if frame is not None:
                    yield frame

            if caller.wants_replies:
                yield success_frame(command.id, answer.data, self._clock)
        except Exception:
            yield self._failed(command)

    def _failed(self, command: Command) -> bytes:
        """Answers for an exception that nobody foresaw: details for the log, none for the peer."""
        _log.exception("%s of %s failed", command.type, self._client_id)
        return self._refusal_frame(_internal_error(), command.id, command.type)


def _internal_error() -> Refused:
    return Refused(
        ErrorCode.INTERNAL_ERROR,
        "The server failed to do this.",
        hint="Its log, .hankweave/logs/server.log, says why.",
    )


def _labels_of(frame: str | bytes) -> _Labels:
    """Reads what can be read of a bad frame, so that its sender knows which one it was."""
    try:
        return decode_value(_Labels, frame)
    except Refused:
        return _Labels()
