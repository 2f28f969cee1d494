"""The examples of `protocol/README.md` and of docs/reference, parsed as their labels demand.

Every fenced ```json block there follows a comment that names its kind, for instance `<!-- example:
command -->`; `decoded` reads the block with the codec that a client would use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from codegen.catalogue import FILES
from documents import TOP, blocks
from hankweave_protocol import codec
from hankweave_protocol.commands import COMMANDS
from hankweave_protocol.errors import Refused
from hankweave_protocol.records import TrafficRecord
from hankweave_protocol.replies import (
    CommandFailed,
    CommandSucceeded,
    HandshakeResponse,
)
from hankweave_protocol.state import CodonExecution
from hankweave_server.domain.liveness import GuardOwner

REFERENCE = TOP / "docs" / "reference"
PAGES = (
    TOP / "protocol" / "README.md",
    *(REFERENCE / f"{name}.md" for name in ("wire", "events", "files")),
)

_LABEL = re.compile(r"<!-- example: (?P<kind>.+?) -->")
_SECTION = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """One block, with the kind that the comment above it names."""

    page: str
    line: int
    kind: str | None
    """None where there is no such comment."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}, {self.kind}"


class Wrong(Exception):
    """An example that does not match its comment."""


def all_examples() -> list[Example]:
    return [example for page in PAGES for example in examples(page)]


def examples(page: Path) -> list[Example]:
    """Return every JSON block of a page, in order."""
    return [
        Example(
            page.name,
            block.line,
            label["kind"] if (label := _LABEL.fullmatch(block.above)) else None,
            block.text.rstrip(),
        )
        for block in blocks(page)
        if block.language == "json"
    ]


def sections(name: str) -> Mapping[str, str]:
    """Return the text below each heading of a page of the reference."""
    _, *parts = _SECTION.split((REFERENCE / f"{name}.md").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def decoded(example: Example) -> object:
    """Read an example with the codec; raise Wrong if it does not match its comment."""
    if example.kind is None:
        raise Wrong("nothing says what this is")

    try:
        return _reader_of(example.kind)(example.text)
    except Refused as refused:
        raise Wrong(f"{refused.message} at {refused.path}") from None


_FILES: Mapping[str, type] = {**FILES, "runtime.lock.guard": GuardOwner}


def _reader_of(kind: str) -> Callable[[str], object]:
    match kind.split(" ", 1):
        case ["command"]:
            return codec.decode_command
        case ["event"]:
            return _event
        case ["handshake"]:
            return codec.decode_handshake
        case ["handshake.response"]:
            return partial(codec.decode_value, HandshakeResponse)
        case ["failure"]:
            return partial(codec.decode_value, CommandFailed)
        case ["state"]:
            return partial(codec.decode_value, CodonExecution)  # type: ignore[arg-type]
        case ["reply", command] if command in COMMANDS.names:
            return partial(_reply, command)
        case ["file", "events.jsonl"]:
            return _journal_line
        case ["file", "websocket.log"]:
            return _log_line
        case ["file", name] if name in _FILES:
            return partial(codec.decode_value, _FILES[name])
        case _:
            raise Wrong(f"there is no kind {kind!r}")


def _event(text: str) -> object:
    event = codec.decode_event(text)
    if isinstance(event.data, codec.UnknownEvent):
        raise Wrong(f"there is no event {event.type!r}")

    if event.seq and not event.data.JOURNALED:
        raise Wrong(f"{event.type} is not journaled and has no seq")

    return event


def _reply(command: str, text: str) -> object:
    reply = codec.decode_value(CommandSucceeded, text)
    shape: type = COMMANDS.members[command].REPLY or type(None)
    data: object = codec.decode_value(shape, bytes(reply.data))
    return CommandSucceeded(
        in_reply_to=reply.in_reply_to,
        timestamp=reply.timestamp,
        data=msgspec.Raw(codec.encode(data)),
    )


def _journal_line(text: str) -> object:
    if "\n" in text:
        raise Wrong("a journal line is one line")

    return _event(text)


def _log_line(text: str) -> object:
    record = codec.decode_value(TrafficRecord, text)
    message = bytes(record.message)
    seen = codec.decode_command(message) if record.direction == "in" else _event(message.decode())
    return TrafficRecord(
        logged_at=record.logged_at,
        direction=record.direction,
        message=msgspec.Raw(codec.encode(seen)),
        metadata=record.metadata,
    )
