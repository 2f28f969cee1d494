"""The ACP agents that are known by name, and which of them ask before they change something.

Found by running them (OpenCode 1.18, Gemini CLI 0.61). What any other does unasked, nobody here can
tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

KnownAgent: TypeAlias = Literal["gemini", "opencode", "claude", "codex", "pi"]

_ALIASES: Mapping[str, KnownAgent] = {
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "opencode-ai": "opencode",
    "claude-agent-acp": "claude",
    "claude-code-acp": "claude",
    "codex-acp": "codex",
    "pi-acp": "pi",
}

_BOLD = frozenset({"autoEdit", "yolo"})
"""Modes of Gemini CLI in which it asks for less than what changes something."""


def known_as(command: Sequence[str]) -> KnownAgent | None:
    """Finds a known agent in a command line, whatever starts it: a name, a path, npx or node."""
    names = (word.rpartition("/")[2] for word in command if not word.startswith("-"))
    found = (_ALIASES.get(name.partition("@")[0]) for name in names)
    return next(filter(None, found), None)


def is_known_to_ask(command: Sequence[str], mode: str | None) -> bool:
    """Tells whether an agent asks in this mode before each tool that changes something."""
    known = known_as(command)
    return known == "opencode" or (known == "gemini" and mode not in _BOLD)
