"""What a scripted model does, one turn for each request of an agent; the same in every dialect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]


class Trouble(Enum):
    """What a provider does instead of answering."""

    RATE_LIMIT = "rate-limit"
    OVERLOAD = "overload"
    BILLING = "billing"
    WRONG_KEY = "wrong-key"
    CONTEXT_FULL = "context-full"
    REFUSAL = "refusal"
    """The model will not do what it was asked, and says so in its provider's way."""
    DROPPED_STREAM = "dropped-stream"
    """Half of an answer, then a reset of the connection."""
    MALFORMED_STREAM = "malformed-stream"
    """An answer that is not what its provider's protocol says."""
    SILENCE = "silence"
    """The request is taken and never answered."""


@dataclass(frozen=True)
class Usage:
    """What an answer cost, in tokens; those read from a cache are not part of `input`."""

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
    """A call of whatever tool of the agent writes a file."""

    path: Path
    """Absolute, for most agents want it so."""
    content: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Reads:
    """A call of whatever tool of the agent reads a file; its shell, where it has no such tool."""

    path: Path
    """Absolute, for most agents want it so."""
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Edits:
    """A call of whatever tool of the agent replaces a text in a file."""

    path: Path
    """Absolute, for most agents want it so."""
    old: str
    """A whole line, without its end."""
    new: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Runs:
    """A call of whatever tool of the agent runs a shell command."""

    command: str
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Calls:
    """A call of a tool by name; what stands before the name (`mcp__server__`) does not matter."""

    tool: str
    arguments: Arguments | Callable[[str], Arguments] = field(default_factory=dict)
    """Or they are made of all text that the model was shown until then."""
    saying: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Fails:
    """Trouble for so many requests; None: for each one from now on."""

    trouble: Trouble
    times: int | None = None


Act: TypeAlias = Writes | Reads | Edits | Runs | Calls
Answer: TypeAlias = Says | Act


@dataclass(frozen=True)
class Held:
    """An answer that the model thinks about until the test lets it go."""

    answer: Answer
    until: threading.Event


Turn: TypeAlias = Answer | Held | Fails
