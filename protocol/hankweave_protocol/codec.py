"""Encode values as frames and lines of JSON, and decode them.

Decoding raises `Refused` with the JSON path of the fault and never anything else, whatever the
bytes are (deep nesting, huge integers, NaN, bad UTF-8). Nesting is limited before parsing, because
a recursion error deep in a parser would not be a useful answer to a client.

A frame from a client is parsed once: `decode_envelope` reads its type and id, and `handshake_in` or
`command_in` decodes its data.
"""

from __future__ import annotations

import difflib
import re
import threading
from typing import Any, TypeVar

import msgspec

from hankweave_protocol.commands import (
    COMMANDS,
    Command,
    CommandData,
    EventsQuery,
)
from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.events import EVENTS, Event, EventData, StateTransition, TransitionBody
from hankweave_protocol.ids import CodonId, CommandId, EventSeq, RunId
from hankweave_protocol.replies import Handshake, HandshakeData
from hankweave_protocol.shapes import Value
from hankweave_protocol.transitions import TRANSITIONS, Transition

MAX_DEPTH = 64
"""The maximum nesting of a frame; no shape needs more than a dozen levels."""

T = TypeVar("T")
M = TypeVar("M", bound=Value)

_encoder = msgspec.json.Encoder()
_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")


def encode(value: object) -> bytes:
    """Return one line of JSON without a newline.

    JSON holds only Unicode, but file names are bytes: a byte that is not UTF-8 (a surrogate in a
    Python string) is written as `\\xff`, so that every event can be encoded.
    """
    if isinstance(value, Event) and isinstance(value.data, UnknownEvent):
        value = _raw_envelope(value, value.data)

    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_readable(msgspec.to_builtins(value, enc_hook=_parsed)))


class Envelope(msgspec.Struct, frozen=True):
    """A client's frame, its data still encoded."""

    type: str
    id: CommandId | None = None
    data: msgspec.Raw = msgspec.Raw()
    """Empty if the frame has none."""


class _EventEnvelope(Value, kw_only=True):
    id: str
    seq: EventSeq = EventSeq(0)
    timestamp: str
    type: str
    data: msgspec.Raw
    run_id: RunId | None = None
    codon_id: CodonId | None = None
    causes: tuple[int | str, ...] = ()


class UnknownEvent(EventData):
    """An event of a newer server, preserved unchanged."""

    TYPE = "unknown"
    raw: msgspec.Raw


_envelope_decoder = msgspec.json.Decoder(Envelope)
_NO_DATA = msgspec.Raw(b"{}")
_event_decoder = msgspec.json.Decoder(_EventEnvelope)
_decoders: dict[object, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


def decode_envelope(frame: str | bytes) -> Envelope:
    """Decode the type and id of a frame; raise Refused if it has no type."""
    return _decode(_envelope_decoder, frame, prefix="$")


def decode_handshake(frame: str | bytes) -> Handshake:
    """Decode a frame that holds a handshake; raise Refused."""
    return handshake_in(decode_envelope(frame))


def handshake_in(envelope: Envelope) -> Handshake:
    """Decode the data of a handshake; raise Refused."""
    if not envelope.data:
        raise Refused(ErrorCode.INVALID_COMMAND, "Object missing required field `data`", path="$")

    return Handshake(data=_decode_data(HandshakeData, envelope.data, prefix="$.data"))


def decode_command(frame: str | bytes) -> Command:
    """Decode a frame that holds a command; raise Refused."""
    return command_in(decode_envelope(frame))


def command_in(envelope: Envelope) -> Command:
    """Decode the data of a command; raise Refused, with the nearest known type as a hint."""
    member = COMMANDS.get(envelope.type)
    if member is None:
        raise Refused(
            ErrorCode.UNKNOWN_COMMAND,
            f"There is no command {envelope.type!r}.",
            path="$.type",
            hint=_nearest(envelope.type, COMMANDS.names),
        )

    if envelope.id is None:
        raise Refused(ErrorCode.INVALID_COMMAND, "A command needs an id.", path="$.id")

    data = _decode_data(member, envelope.data or _NO_DATA, prefix="$.data")
    return Command(id=envelope.id, type=envelope.type, data=data)


def encode_command(command: CommandData, command_id: CommandId) -> bytes:
    return encode(Command(id=command_id, type=command.TYPE, data=command))


def decode_reply(command: CommandData, data: bytes) -> object:
    """Return the data of a command's reply, None if it has none; raise Refused."""
    return None if command.REPLY is None else decode_value(command.REPLY, data)


def decode_event(line: str | bytes) -> Event:
    """Decode a journal line or an event frame; an unknown type becomes `UnknownEvent`."""
    envelope = _decode(_event_decoder, line, prefix="$")
    member = EVENTS.get(envelope.type)
    data: EventData
    if member is None:
        data = UnknownEvent(raw=msgspec.Raw(bytes(envelope.data)))
    else:
        data = _decode_data(member, envelope.data, prefix="$.data")

    return Event(
        id=envelope.id,
        seq=envelope.seq,
        timestamp=envelope.timestamp,
        type=envelope.type,
        data=data,
        run_id=envelope.run_id,
        codon_id=envelope.codon_id,
        causes=envelope.causes,
    )


def transition_body(transition: Transition) -> TransitionBody:
    return TransitionBody(type=transition.TYPE, data=msgspec.Raw(encode(transition)))


def decode_transition(event: StateTransition) -> Transition:
    """Decode the transition in an event; raise Refused if this version does not know it."""
    return decode_transition_body(event.transition)


def decode_transition_body(body: TransitionBody) -> Transition:
    member = TRANSITIONS.get(body.type)
    if member is None:
        raise Refused(
            ErrorCode.INVALID_COMMAND,
            f"There is no transition {body.type!r}; a newer version wrote it.",
            path="$.data.transition.type",
        )

    return _decode_data(member, body.data, prefix="$.data.transition.data")


def decode_value(shape: type[T], data: bytes | str) -> T:
    """Decode one value; raise Refused with the JSON path of the fault."""
    return _decode(decoder_of(shape), data, prefix="$")


def decoder_of(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a type, which is made once. Thread-safe.

    msgspec examines a type when its first decoder is made. A second thread that needs the type
    meanwhile finds it half examined, and the process crashes.
    """
    decoder = _decoders.get(shape)
    if decoder is None:
        with _making:
            decoder = _decoders.get(shape)
            if decoder is None:
                decoder = _decoders[shape] = msgspec.json.Decoder(shape)

    return decoder


def _decode_data(member: type[M], raw: msgspec.Raw, *, prefix: str) -> M:
    value = _decode(decoder_of(member), bytes(raw), prefix=prefix)
    assert isinstance(value, member)
    return value


def _decode(decoder: msgspec.json.Decoder[T], text: str | bytes, *, prefix: str) -> T:
    _refuse_deep_nesting(text)
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        message, path = _split(str(error), prefix)
        hint = _key_meant(message, decoder.type)
        raise Refused(ErrorCode.INVALID_COMMAND, message, path=path, hint=hint) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise Refused(ErrorCode.MALFORMED_JSON, f"This is not JSON: {error}", path=prefix) from None


def _split(message: str, prefix: str) -> tuple[str, str]:
    """Split msgspec's message into text and path, and prefix the path."""
    found = _PATH.search(message)
    if found is None:
        return message, prefix

    return message[: found.start()], prefix + found["path"].removeprefix("$")


def _refuse_deep_nesting(text: str | bytes) -> None:
    openers = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if text.count(openers[0]) + text.count(openers[1]) <= MAX_DEPTH:  # type: ignore[arg-type]
        return

    if _depth(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text) > MAX_DEPTH:
        raise Refused(
            ErrorCode.MALFORMED_JSON, f"The frame nests deeper than {MAX_DEPTH} levels.", path="$"
        )


_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))


def _depth(text: bytes) -> int:
    """Return the nesting depth, by removing level after level; a megabyte takes milliseconds."""
    # Without escapes, every other part between quotes is a string.
    outside = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    left = b"".join(outside).translate(_SQUARE, _NO_BRACKETS)
    levels = 0
    while b"[]" in left and levels <= MAX_DEPTH:
        left = left.replace(b"[]", b"")
        levels += 1

    return levels + left.count(b"[")


def _nearest(name: str, names: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known types: {', '.join(names)}."


_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]*)`")
_LANGUAGE_OF_QUERIES = frozenset({"where", "select", "orderBy", "reduce"})
"""Keys of `events.query` that were removed."""


def _key_meant(message: str, shape: object) -> str | None:
    """Return a hint for an unknown key of a command that refuses them."""
    found = _UNKNOWN_KEY.search(message)
    if found is None or shape is not EventsQuery:
        return None

    if found["key"] in _LANGUAGE_OF_QUERIES:
        return "Filter with types, codonId, runId, text, since and until."

    close = difflib.get_close_matches(found["key"], EventsQuery.__struct_encode_fields__, n=1)
    return f"Did you mean {close[0]!r}?" if close else None


# --- what JSON cannot hold ------------------------------------------------------------------------

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _raw_envelope(event: Event, unknown: UnknownEvent) -> _EventEnvelope:
    return _EventEnvelope(
        id=event.id,
        seq=event.seq,
        timestamp=event.timestamp,
        type=event.type,
        data=unknown.raw,
        run_id=event.run_id,
        codon_id=event.codon_id,
        causes=event.causes,
    )


def _parsed(value: object) -> object:
    """Decode values that are already encoded, for `to_builtins`."""
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)

    raise TypeError(f"{type(value).__name__} is no value of the protocol")


def _readable(value: object) -> object:
    match value:
        case str():
            return _LONE_SURROGATE.sub(_shown, value)
        case list() | tuple():
            return [_readable(item) for item in value]
        case dict():
            return {_readable(key): _readable(item) for key, item in value.items()}
        case _:
            return value


def _shown(surrogate: re.Match[str]) -> str:
    code = ord(surrogate[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "\ufffd"
