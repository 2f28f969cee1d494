"""Read and write the JSON lines of the ACP bridge, in both directions.

Messages of agents are sanitized, and printed lines are bounded: the server's session cuts a line of
more than a mebibyte and can then not parse it. So long texts are cut here, where it is known which
parts matter less.

`BridgeOrder` is the first line on the bridge's stdin, from the server: the task. Answers to
questions follow.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from hankweave_server.fsutil import write_all

Message: TypeAlias = dict[str, Any]

LONGEST_TEXT = 100_000
"""Characters of one text in a line; even with six bytes each, the line stays below its limit."""

LONGEST_LINE = 900_000
"""Bytes; less than the mebibyte that the session accepts for a line."""

LONGEST_RAW = 64 * 1024
"""Bytes of a message that is logged verbatim; of a longer one, only kind and length are logged."""

_TIGHTER = (LONGEST_TEXT, 5_000, 200)
_STREAMED = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_ENDED = frozenset({"completed", "failed"})


class BridgeOutput(Protocol):
    """The output of the bridge."""

    def emit(self, line: Mapping[str, Any]) -> None:
        """Print one line of stream-json."""

    def note(self, text: str) -> None:
        """Print a human-readable remark."""


class StandardOutput:
    """Output to stdout and stderr; blocks while the reader is slow."""

    def emit(self, line: Mapping[str, Any]) -> None:
        write_all(1, encoded(line))

    def note(self, text: str) -> None:
        write_all(2, text.encode("utf-8", "replace") + b"\n")


def decoded(line: bytes) -> Message | None:
    """Decode a JSON object; None if it is not one or nests too deeply."""
    try:
        message = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None

    return message if isinstance(message, dict) else None


def encoded(line: Mapping[str, Any]) -> bytes:
    """Encode one line with its line end; long texts are cut, deeply nested values left out."""
    for longest in _TIGHTER:
        try:
            data = _dumped(line, longest)
        except RecursionError:
            break

        if len(data) <= LONGEST_LINE:
            return data

    return _dumped({"type": line.get("type"), "omitted": "too long or too deep"}, LONGEST_TEXT)


def whole(message: Mapping[str, Any]) -> bytes:
    """Encode a message for the agent, without a limit on its length."""
    return _dumped(message, sys.maxsize)


def is_whole(line: Mapping[str, Any]) -> bool:
    """Return whether `encoded` leaves a line unchanged."""
    try:
        data = whole(line)
        return data == _dumped(line, LONGEST_TEXT) and len(data) <= LONGEST_LINE
    except RecursionError:
        return False


def as_object(value: Any) -> Message:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return the text, cut to `longest` characters and marked if it is longer."""
    if len(text) <= longest:
        return text

    return f"{text[:longest]} … [{len(text) - longest} characters dropped]"


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _dumped(line: Mapping[str, Any], longest: int) -> bytes:
    return json.dumps(_encodable(line, longest), ensure_ascii=False).encode() + b"\n"


def _encodable(value: Any, longest: int) -> Any:
    """Return a value that every JSON reader accepts: no lone surrogates, no infinite numbers."""
    match value:
        case str():
            return cut(well_formed(value), longest)
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {well_formed(str(key)): _encodable(each, longest) for key, each in value.items()}
        case list() | tuple():
            return [_encodable(each, longest) for each in value]
        case _:
            return value


class RawLog:
    """A log of the raw messages of both directions, next to their stream-json form.

    Pieces of a streamed text and updates of an unfinished tool call are not logged: the text is
    logged when it is complete, and an update repeats everything before it. They are counted
    instead, and the count is printed every 10 seconds or more, so that a streaming agent does not
    look idle.
    """

    def __init__(self, emit: Callable[[Message], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._pieces = 0
        self._reported_at = clock()

    def keep(self, direction: str, message: Message, size: int) -> None:
        if _is_piece(message):
            self._count()
            return

        line: Message = {"type": "acp", "direction": direction}
        if size > LONGEST_RAW:
            self._emit(line | {"method": message.get("method"), "bytes": size})
        else:
            self._emit(line | {"message": _without_secrets(message)})

    def _count(self) -> None:
        self._pieces += 1
        now = self._clock()
        if now - self._reported_at >= _BETWEEN_COUNTS:
            self._emit({"type": "acp", "direction": "in", "pieces": self._pieces})
            self._pieces, self._reported_at = 0, now


_BETWEEN_COUNTS = 10.0
"""Seconds; well below any sensible idle limit."""


def _is_piece(message: Message) -> bool:
    match message:
        case {"method": "session/update", "params": {"update": {"sessionUpdate": str() as kind}}}:
            update = message["params"]["update"]
            is_going_on = kind == "tool_call_update" and as_text(update.get("status")) not in _ENDED
            return kind in _STREAMED or is_going_on
        case _:
            return False


def _without_secrets(message: Message) -> Message:
    """Return the message without the values of MCP servers' variables, which may be secrets."""
    match message:
        case {"params": {"mcpServers": list() as servers} as params}:
            masked = [_masked(server) for server in servers]
            return message | {"params": params | {"mcpServers": masked}}
        case _:
            return message


def _masked(server: Any) -> Any:
    match server:
        case {"env": list() as variables}:
            names = [each.get("name") for each in variables if isinstance(each, dict)]
            return server | {"env": names}
        case _:
            return server


@dataclass(frozen=True, slots=True)
class BridgeTools:
    """An MCP server that the agent is to start."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BridgeOrder:
    """The bridge's task; not passed on the command line, which every local user can read."""

    command: tuple[str, ...]
    prompt: str
    work_tree: str
    model: str
    mode: str | None = None
    resume: str | None = None
    forks: bool = False
    """If true, the conversation becomes a new session that begins like the resumed one."""
    tools: tuple[BridgeTools, ...] = ()
    memory: Literal["database", "lines"] | None = None
    """The storage format of the agent's conversation, if it is known."""
    memory_folder: str = ""
    memory_variable: str = ""
    """The variable with the storage path; if the codon's `env` sets it, nothing is kept."""
    announces_writes: bool = False
    """True for an agent that sends write requests for files that it writes itself."""


def to_line(order: BridgeOrder) -> str:
    """Encode an order as one line."""
    return json.dumps(asdict(order)) + "\n"


def from_line(line: bytes) -> BridgeOrder:
    """Decode an order; raises ValueError or msgspec.ValidationError for any other line."""
    return msgspec.convert(json.loads(line), BridgeOrder)
