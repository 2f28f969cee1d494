"""JSON lines at both doors of the ACP bridge: what agents send is tamed, what we print is bounded.

The session above cuts a line of more than a mebibyte and then understands nothing of it. So long
texts are cut here, where it is known what can be spared, and no line is longer than that.

What the server tells the ACP bridge: one line of JSON on its stdin, before any answer.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias

Message: TypeAlias = dict[str, Any]

LONGEST_TEXT = 100_000
"""Characters of one text in one line: even as six bytes each they leave room for the rest."""

LONGEST_LINE = 900_000
"""Bytes; below the mebibyte that the session takes of a line."""

LONGEST_RAW = 64 * 1024
"""Bytes of a message that is kept as it came; of a longer one only its kind and length are."""

_TIGHTER = (LONGEST_TEXT, 5_000, 200)
_STREAMED = frozenset({"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"})
_ENDED = frozenset({"completed", "failed"})


class Voice(Protocol):
    """How the bridge is heard."""

    def say(self, line: Mapping[str, Any]) -> None:
        """Prints one line of stream-json."""

    def note(self, text: str) -> None:
        """Prints a remark for people."""


class StandardVoice:
    """Speaks on stdout and stderr; waits for a slow reader, as every program does."""

    def say(self, line: Mapping[str, Any]) -> None:
        _write(1, encoded(line))

    def note(self, text: str) -> None:
        _write(2, text.encode("utf-8", "replace") + b"\n")


def decoded(line: bytes) -> Message | None:
    """Reads a JSON object; None for what is none, or is one beyond all reason."""
    try:
        message = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None

    return message if isinstance(message, dict) else None


def encoded(line: Mapping[str, Any]) -> bytes:
    """Writes one line with its end; what is too long is cut, what nests too deep left out."""
    for longest in _TIGHTER:
        try:
            data = _dumped(line, longest)
        except RecursionError:
            break

        if len(data) <= LONGEST_LINE:
            return data

    return _dumped({"type": line.get("type"), "omitted": "too long or too deep"}, LONGEST_TEXT)


def whole(message: Mapping[str, Any]) -> bytes:
    """Writes a message for the agent, whatever its length."""
    return _dumped(message, sys.maxsize)


def is_whole(line: Mapping[str, Any]) -> bool:
    """Tells whether `encoded` leaves a line as it is."""
    try:
        data = whole(line)
        return data == _dumped(line, LONGEST_TEXT) and len(data) <= LONGEST_LINE
    except RecursionError:
        return False


def as_object(value: Any) -> Message:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    if len(text) <= longest:
        return text

    return f"{text[:longest]} … [{len(text) - longest} characters dropped]"


def well_formed(text: str) -> str:
    """The text with halves of a pair put together, and lone halves replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _dumped(line: Mapping[str, Any], longest: int) -> bytes:
    return json.dumps(_tamed(line, longest), ensure_ascii=False).encode() + b"\n"


def _tamed(value: Any, longest: int) -> Any:
    """A value that every reader of JSON takes: no lone surrogate, no number beyond all numbers."""
    match value:
        case str():
            return cut(well_formed(value), longest)
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {well_formed(str(key)): _tamed(each, longest) for key, each in value.items()}
        case list() | tuple():
            return [_tamed(each, longest) for each in value]
        case _:
            return value


class RawLog:
    """Keeps the messages of both directions in the agent's log, beside what they were told as.

    Pieces of a streamed text and of a tool that has not ended are not kept: the pieces come joined,
    and an update repeats all that came before it. They are counted instead, and the count is told
    now and then, because an agent that streams for long is not silent.
    """

    def __init__(self, say: Callable[[Message], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._pieces = 0
        self._told_at = clock()

    def keep(self, direction: str, message: Message, size: int) -> None:
        if _is_piece(message):
            self._count()
            return

        line: Message = {"type": "acp", "direction": direction}
        if size > LONGEST_RAW:
            self._say(line | {"method": message.get("method"), "bytes": size})
        else:
            self._say(line | {"message": _without_secrets(message)})

    def _count(self) -> None:
        self._pieces += 1
        now = self._clock()
        if now - self._told_at >= _BETWEEN_COUNTS:
            self._say({"type": "acp", "direction": "in", "pieces": self._pieces})
            self._pieces, self._told_at = 0, now


_BETWEEN_COUNTS = 10.0
"""Seconds; well below any sensible limit of silence."""


def _is_piece(message: Message) -> bool:
    match message:
        case {"method": "session/update", "params": {"update": {"sessionUpdate": str() as kind}}}:
            update = message["params"]["update"]
            is_going_on = kind == "tool_call_update" and as_text(update.get("status")) not in _ENDED
            return kind in _STREAMED or is_going_on
        case _:
            return False


def _without_secrets(message: Message) -> Message:
    """What a server of tools gets in its environment is for it alone, and for no log."""
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


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@dataclass(frozen=True, slots=True)
class Tools:
    """A server of tools that the agent is to start."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Order:
    """Not on the command line: that can be read by everybody on the machine."""

    command: tuple[str, ...]
    prompt: str
    work_tree: str
    model: str
    mode: str | None = None
    resume: str | None = None
    forks: bool = False
    """What follows is to be a session of its own that begins as the resumed one."""
    tools: tuple[Tools, ...] = ()
    memory: Literal["database", "lines"] | None = None
    """How the agent keeps its conversation, where that is known."""
    memory_folder: str = ""
    memory_variable: str = ""
    """Tells the agent where; one that the codon's env has set stands, and nothing is kept."""
    announces_writes: bool = False
    """It tells the client to write what it writes itself, whether the client offers that or not."""


def to_line(order: Order) -> str:
    return json.dumps(asdict(order)) + "\n"


def from_line(line: bytes) -> Order:
    """Raises ValueError, KeyError or TypeError for what `to_line` has not written."""
    fields: dict[str, Any] = json.loads(line)
    tools = tuple(
        Tools(each["name"], tuple(each["command"]), each["environment"]) for each in fields["tools"]
    )
    return Order(**fields | {"command": tuple(fields["command"]), "tools": tools})
