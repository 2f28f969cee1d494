"""A scripted model's actions, one turn for each request of an agent, in any dialect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]


class Trouble(Enum):
    """An error of a provider in place of an answer."""

    RATE_LIMIT = "rate-limit"
    OVERLOAD = "overload"
    BILLING = "billing"
    WRONG_KEY = "wrong-key"
    CONTEXT_FULL = "context-full"
    REFUSAL = "refusal"
    """The model refuses the request, in its provider's way."""
    DROPPED_STREAM = "dropped-stream"
    """Half of an answer, then a reset of the connection."""
    MALFORMED_STREAM = "malformed-stream"
    """An answer that violates its provider's protocol."""
    SILENCE = "silence"
    """The request is accepted and never answered."""


@dataclass(frozen=True)
class Usage:
    """The cost of an answer in tokens; those read from a cache are not part of `input`."""

    input: int = 100
    output: int = 20
    cached: int = 7


@dataclass(frozen=True)
class Says:
    """Words, and the end of the turn."""

    text: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Writes:
    """A call of the agent's tool that writes a file."""

    path: Path
    """Absolute, because most agents require it."""
    content: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Reads:
    """A call of the agent's tool that reads a file; of its shell, if it has no such tool."""

    path: Path
    """Absolute, because most agents require it."""
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Edits:
    """A call of the agent's tool that replaces a text in a file."""

    path: Path
    """Absolute, because most agents require it."""
    old: str
    """A whole line, without its newline."""
    new: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Runs:
    """A call of the agent's tool that runs a shell command."""

    command: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Calls:
    """A call of a tool by name; a prefix of the name (`mcp__server__`) does not matter."""

    tool: str
    arguments: Arguments | Callable[[str], Arguments] = field(default_factory=dict)
    """A function is called with all text that the model has received so far."""
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Fails:
    """Trouble for a number of requests; None: for every one from now on."""

    trouble: Trouble
    times: int | None = None


@dataclass(frozen=True)
class Refuses:
    """A refusal of every request until an epoch, as its provider would send it."""

    until: float
    status: int
    body: Callable[[], Mapping[str, Any]]
    """Called for each request: some bodies say how long the limit lasts."""
    headers: Mapping[str, str] = field(default_factory=dict)


Act: TypeAlias = Writes | Reads | Edits | Runs | Calls
Answer: TypeAlias = Says | Act


@dataclass(frozen=True)
class Held:
    """An answer that the model delays until the test releases it."""

    answer: Answer
    until: threading.Event


Turn: TypeAlias = Answer | Held | Fails | Refuses
