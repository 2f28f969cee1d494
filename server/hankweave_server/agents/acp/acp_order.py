"""What the server tells the ACP bridge: one line of JSON on its stdin, before any answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


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
