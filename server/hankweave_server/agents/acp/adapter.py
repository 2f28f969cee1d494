"""Any agent that speaks the Agent Client Protocol, through a bridge of ours (`acp_bridge`).

What is known of single ACP agents: the keys they need, and where they keep a conversation.

Found by running them, as what `domain.acp_agents` tells. Of any other agent nothing is known: it
gets the keys that the hank names, and its conversations lie wherever it puts them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Literal

from hankweave_server.agents.acp import json_lines
from hankweave_server.agents.acp.json_lines import Order, Tools
from hankweave_server.agents.base import AgentNotFound, AgentSession, AgentTask, is_file_name
from hankweave_server.agents.process.environment import common, data_directory
from hankweave_server.agents.process.own_program import own_program_with
from hankweave_server.agents.process.program import Program, run_prepared
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.domain.model_routes import is_known_to_ask, known_as
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


_LIBRARIES = ("agent-client-protocol", "pydantic")
_BRIDGE = "hankweave_server.agents.acp.bridge"
_NEVER = "HANKWEAVE_"
_GEMINI_CLI = "gemini"
_OPENCODE = "opencode"
_READS = ("read", "list", "glob", "grep", "webfetch", "websearch", "todowrite", "todoread")
_ASKS_FOR_CHANGES = json.dumps({"*": "ask"} | dict.fromkeys(_READS, "allow"))
_ASKS_FOR_ALL = '{"*":"ask"}'
"""OpenCode's setting `permission`: what may change files, those of tool servers included, or all;
of several rules that fit, the last counts."""

_ASKING = "default"
"""The mode of Gemini CLI in which it asks."""


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """Runs a program that speaks ACP; of our environment it sees only the keys meant for it."""

    command: tuple[str, ...]
    mode: str | None = None
    """The session mode to work in, by the agent's own name for it."""

    keys: tuple[str, ...] | None = None
    """Names of variables of our environment, or prefixes that end in `_`; None: what is known."""

    homes: Path | None = None
    """Below this a known agent keeps its conversations; without, where it always does."""

    asks_first: bool = False
    """Asks before each tool that can change files, and waits. OpenCode has to be told; Gemini CLI
    does in its mode `default`, and works in that one where the hank names none."""

    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "acp"

    @property
    def can_ask(self) -> bool:
        return is_known_to_ask(self.command, self.mode)

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first and self.can_ask

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        return run_prepared(self._prepared, task, self.clock)

    def _prepared(self, task: AgentTask) -> Program:
        return Program(
            command=_bridge(),
            stdin=json_lines.to_line(self._order(task)),
            hint="Install it, or name it with its full path, or correct PATH.",
            extra_environment=self._environment(task),
            takes_answers=True,
            needs=self.command[0],
        )

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """The files of an agent that is known; nothing for any other."""
        home = home_of(self.command, self.homes)
        seen = {**common(os.environ, {}), **environment}
        return () if home is None else home.memory_of(session_id, seen)

    def _order(self, task: AgentTask) -> Order:
        home = home_of(self.command, self.homes)
        prompts = [each for each in (task.system_prompt, task.message) if each is not None]
        return Order(
            command=self.command,
            prompt="\n\n".join(prompts),
            work_tree=str(task.work_tree),
            model=task.model,
            mode=self._mode(task),
            resume=task.resume_session,
            forks=task.forks,
            tools=tuple(Tools(each.name, each.command, each.environment) for each in task.tools),
            memory=None if home is None else home.memory,
            memory_folder="" if home is None else str(home.folder),
            memory_variable="" if home is None else home.variable,
            announces_writes=known_as(self.command) == _OPENCODE,
        )

    def _mode(self, task: AgentTask) -> str | None:
        """Gemini CLI could begin in a bold mode, by a person's settings or those of a work tree."""
        asks = self._is_to_ask(task) and known_as(self.command) == _GEMINI_CLI
        return _ASKING if asks and self.mode is None else self.mode

    def _is_to_ask(self, task: AgentTask) -> bool:
        return task.asks or self.asks_first

    def _environment(self, task: AgentTask) -> dict[str, str]:
        wanted = self.keys if self.keys is not None else keys_of(self.command, task.model)
        given = {name: value for name, value in os.environ.items() if _is_among(name, wanted)}
        if home := home_of(self.command, self.homes):
            home.settle(os.environ, asks=self._is_to_ask(task), data=data_directory(task))
            given.pop(home.variable, None)  # The server's own is not this execution's.

        return given if known_as(self.command) != _OPENCODE else given | self._for_opencode(task)

    def _for_opencode(self, task: AgentTask) -> dict[str, str]:
        """What it asks about stands above a person's own settings: the hank's permissions do."""
        asks = _ASKS_FOR_ALL if task.asks else _ASKS_FOR_CHANGES if self.asks_first else None
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
        return quiet if asks is None else quiet | {"OPENCODE_PERMISSION": asks}


def _is_among(name: str, wanted: Sequence[str]) -> bool:
    """What is the server's own reaches no agent this way, whatever a hank asks for."""
    if name.startswith(_NEVER):
        return False

    return any(name.startswith(each) if each.endswith("_") else name == each for each in wanted)


def missing_library() -> AgentNotFound | None:
    """Return why no ACP agent can be started here, if none can."""
    try:
        _bridge()
    except AgentNotFound as missing:
        return missing

    return None


def _bridge() -> tuple[str, ...]:
    try:
        return own_program_with(_LIBRARIES, _BRIDGE)
    except PackageNotFoundError as error:
        raise AgentNotFound(
            "Agents that speak ACP need a library that is not installed.",
            hint="Install it with: pip install 'hankweave[acp]'",
        ) from error
