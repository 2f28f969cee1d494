"""What is known of single ACP agents: the keys they need, and where they keep a conversation.

Found by running them, as what `domain.acp_agents` tells. Of any other agent nothing is known: it
gets the keys that the hank names, and its conversations lie wherever it puts them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hankweave_server.agents.base import is_file_name
from hankweave_server.domain.acp_agents import known_as
from hankweave_server.fsutil import make_private_directory, replace

_CLAUDE = ("ANTHROPIC_", "CLAUDE_CODE_")
_CODEX = ("OPENAI_", "CODEX_")
_GEMINI = ("GEMINI_", "GOOGLE_")

_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "amazon-bedrock": ("AWS_",),
    "azure": ("AZURE_",),
    "google": _GEMINI,
    "google-vertex": ("GOOGLE_",),
    "google-vertex-anthropic": ("GOOGLE_",),
    "zai": ("ZAI_", "ZHIPU_"),
}
"""Providers of OpenCode and Pi whose keys are not called after them."""

_ANY_PROVIDER = ("ANTHROPIC_", "OPENAI_", *_GEMINI, "OPENROUTER_")

_GEMINI_FOLDER = ".gemini"
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_GEMINI_OF_A_WORK_TREE = frozenset({"tmp", "history", "projects.json", "settings.json"})
"""What Gemini CLI writes for what it works on, and the settings, which it changes."""


def keys_of(command: Sequence[str], model: str) -> tuple[str, ...]:
    """The variables of the server's environment that a known agent gets, or their prefixes."""
    match known_as(command):
        case "gemini":
            return _GEMINI
        case "opencode" | "pi" as agent:
            provider, named, _ = model.partition("/")
            own = (f"{provider.upper().replace('-', '_')}_",)
            its_own = f"{agent.upper()}_"
            return (its_own, *(_PROVIDERS.get(provider, own) if named else _ANY_PROVIDER))
        case "claude":
            return _CLAUDE
        case "codex":
            return _CODEX
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Home:
    """Where a known agent keeps its conversations, inside the execution directory.

    OpenCode is told its database: login and settings stay where they are. Gemini CLI keeps all it
    has below one home, so it gets a home of its own that shows the person's.
    """

    folder: Path
    memory: Literal["database", "lines"]
    variable: str
    """Tells the agent its place; where the codon's env has it, nothing is kept here."""

    def settle(
        self, person: Mapping[str, str], *, asks: bool = False, data: str | None = None
    ) -> None:
        """Prepares the folder; what is added to it is the execution's, what is found the person's.

        Login, memory and extensions are links: a login that is renewed is renewed for the person.
        Settings are a copy, as they are now, for Gemini CLI writes into them how it logged in.
        For an agent that has to ask (`asks`) they let no tool pass. `data` is a directory outside
        of the work tree that its file tools may read.
        """
        make_private_directory(self.folder)
        if self.memory == "database":
            return

        ours = self.folder / _GEMINI_FOLDER
        make_private_directory(ours)
        theirs = Path(person.get(self.variable) or person.get("HOME") or "/") / _GEMINI_FOLDER
        if theirs.is_dir() and not theirs.samefile(ours):
            for entry in theirs.iterdir():
                link = ours / entry.name
                if entry.name not in _GEMINI_OF_A_WORK_TREE and not os.path.lexists(link):
                    link.symlink_to(entry.absolute())

        replace(ours / "settings.json", _settings(theirs / "settings.json", asks, data))

    def memory_of(self, session_id: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The session's file, which the bridge keeps; none where the codon names a place itself."""
        if self.variable in environment or not is_file_name(session_id):
            return ()

        suffix = "db" if self.memory == "database" else "jsonl"
        return (self.folder / f"{session_id}.{suffix}",)


def _settings(person: Path, asks: bool, data: str | None) -> bytes:
    """A person's settings, but that Gemini CLI cleans no sessions up, nor lets tools pass unasked.

    It takes the empty files that it leaves itself for broken ones, and with them removes every file
    of the same session; and what a rollback brings back may be old.
    """
    try:
        text = person.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""

    try:
        settings = json.loads(_COMMENT.sub(lambda found: found[1] or "", text) or "{}")
        general = settings.setdefault("general", {})
        general["sessionRetention"] = {"enabled": False}
        if data is not None:
            context = settings.setdefault("context", {})
            context["includeDirectories"] = [*context.get("includeDirectories", []), data]

        if asks:
            settings.get("tools", {}).pop("allowed", None)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return text.encode()  # Gemini CLI says itself what is wrong with them.

    return json.dumps(settings, indent=2).encode()


def home_of(command: Sequence[str], homes: Path | None) -> Home | None:
    """Where a known agent keeps its conversations, below the homes of one execution."""
    match known_as(command):
        case "gemini" if homes is not None:
            return Home(homes / "gemini", "lines", "GEMINI_CLI_HOME")
        case "opencode" if homes is not None:
            return Home(homes / "opencode", "database", "OPENCODE_DB")
        case _:
            return None
