"""The interface between the endpoint and a provider's protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from support.models.offered import Call, Tool
from support.models.turns import Trouble, Usage

Body = dict[str, Any]

_numbers = itertools.count(1)


def new_id(prefix: str) -> str:
    """Return an id that no other answer of this process has."""
    return f"{prefix}{next(_numbers):08}"


@dataclass(frozen=True)
class Message:
    """One message of a conversation, with all text that is in it, whatever its form."""

    role: str
    text: str


@dataclass(frozen=True)
class Asked:
    """A request, reduced to the fields common to all dialects."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    streams: bool

    @property
    def shown(self) -> str:
        """Return all text of the conversation that the model gets."""
        return "\n".join(message.text for message in self.messages)


@dataclass(frozen=True)
class Reply:
    """An HTTP answer; the parts are sent one by one if it streams."""

    status: int
    parts: tuple[bytes, ...]
    headers: Mapping[str, str]

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


@dataclass(frozen=True)
class Spoken:
    """The model's output in one turn, with its tool already chosen."""

    text: str
    call: Call | None = None
    usage: Usage = field(default_factory=Usage)
    declines: bool = False


class Dialect(Protocol):
    name: str

    def accepts(self, path: str) -> bool:
        """Return True if a POST to this path, without its query, is a model request."""

    def read(self, path: str, body: Body) -> Asked: ...

    def answer(self, asked: Asked, spoken: Spoken) -> Reply: ...

    def trouble(self, asked: Asked, trouble: Trouble) -> Reply | None:
        """Return the provider's own error; None if there is no answer at all, or half of one."""


def halves(text: str) -> list[str]:
    """Split a text in two, because a stream sends it in pieces that an agent must join."""
    middle = (len(text) + 1) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def text_in(value: Any) -> str:
    """Return all text of a message, at any depth: words, arguments of tools and their results."""
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
