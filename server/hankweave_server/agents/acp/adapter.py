"""Run any agent that speaks the Agent Client Protocol, through the program `acp.bridge`.

The module also has the facts about single agents that were found by running them: the keys they
need and where they keep a conversation (`domain.model_routes` has others). Any other agent gets the
keys that the hank names, and keeps its conversations wherever it does.
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
from typing import ClassVar, Literal

from hankweave_server.agents.acp import json_lines
from hankweave_server.agents.acp.json_lines import BridgeOrder, BridgeTools
from hankweave_server.agents.base import (
    AgentAccount,
    AgentNeeds,
    AgentNotFound,
    AgentSession,
    AgentTask,
    fingerprint,
    is_file_name,
    named_account,
)
from hankweave_server.agents.process.environment import common, data_directory
from hankweave_server.agents.process.program import files_named_in, run_prepared
from hankweave_server.agents.session import Program
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.confinement.own_program import own_program_with
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
"""Variables of OpenCode's and Pi's providers whose keys are not named after them."""

_ANY_PROVIDER = ("ANTHROPIC_", "OPENAI_", *_GEMINI, "OPENROUTER_")

_GEMINI_FOLDER = ".gemini"
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_GEMINI_OF_A_WORK_TREE = frozenset({"tmp", "history", "projects.json", "settings.json"})
"""Entries that Gemini CLI writes for its work tree, and the settings, which it changes."""

_GEMINI_LOGINS = ("oauth_creds.json", "google_accounts.json", "mcp-oauth-tokens.json")
"""Entries that Gemini CLI writes when it renews a login."""


def keys_of(command: Sequence[str], model: str) -> tuple[str, ...]:
    """Return the variables, or prefixes of variables, of the server that a known agent gets."""
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
    """The folder of a known agent's conversations, inside the execution directory.

    OpenCode gets the path of its database; its login and settings stay where they are. Gemini CLI
    keeps everything below one home, so it gets its own home with links to the user's.
    """

    folder: Path
    memory: Literal["database", "lines"]
    variable: str
    """The variable with the storage path; if the codon's `env` sets it, nothing is kept here."""

    def settle(
        self, person: Mapping[str, str], *, asks: bool = False, data: str | None = None
    ) -> None:
        """Prepare the folder.

        Login, memory and extensions are links, so a renewed login is renewed for the user. Settings
        are a copy, because Gemini CLI writes its login method into them; for an agent that has to
        ask (`asks`), the copy allows no tool. `data` is a directory outside of the work tree that
        the agent's file tools may read.
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
        """Return the session's file, kept by the bridge; none if the codon's `env` sets a path."""
        if self.variable in environment or not is_file_name(session_id):
            return ()

        suffix = "db" if self.memory == "database" else "jsonl"
        return (self.folder / f"{session_id}.{suffix}",)


ATTEMPTS = 1
"""Requests that Gemini CLI makes for one answer. By default it makes ten, and sleeps up to five
minutes before each; the server waits instead."""


def _settings(person: Path, asks: bool, data: str | None) -> bytes:
    """Return the user's settings, without cleanup of sessions and (`asks`) without allowed tools.

    Gemini CLI mistakes the empty files that it leaves behind for broken ones, and then removes
    every file of the same session. Also, a rollback may restore sessions that it considers too old.
    """
    try:
        text = person.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""

    try:
        settings = json.loads(_COMMENT.sub(lambda found: found[1] or "", text) or "{}")
        general = settings.setdefault("general", {})
        general["sessionRetention"] = {"enabled": False}
        general.setdefault("maxAttempts", ATTEMPTS)
        if data is not None:
            context = settings.setdefault("context", {})
            context["includeDirectories"] = [*context.get("includeDirectories", []), data]

        if asks:
            settings.get("tools", {}).pop("allowed", None)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return text.encode()  # Gemini CLI itself reports invalid settings.

    return json.dumps(settings, indent=2).encode()


def home_of(command: Sequence[str], homes: Path | None) -> Home | None:
    """Return the home of a known agent below the homes of one execution; None for others."""
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
_OPENCODE_LOGIN = ".local/share/opencode/auth.json"
_WRITTEN_BY_OPENCODE = frozenset(
    {".gitignore", "bun.lock", "bun.lockb", "node_modules", "package.json", "package-lock.json"}
)
"""Entries of its settings' folder that it writes itself."""

_READS = ("read", "list", "glob", "grep", "webfetch", "websearch", "todowrite", "todoread")
_ASKS_FOR_CHANGES = json.dumps({"*": "ask"} | dict.fromkeys(_READS, "allow"))
_ASKS_FOR_ALL = '{"*":"ask"}'
"""OpenCode's setting `permission`: ask for tools that may change files, including those of MCP
servers, or for all tools. The last matching rule applies."""

_ASKING = "default"
"""The mode in which Gemini CLI asks."""


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """A program that speaks ACP; of the server's environment it only sees the keys meant for it."""

    name: ClassVar[str] = "acp"

    command: tuple[str, ...]
    mode: str | None = None
    """The session mode, by the agent's own name for it."""

    keys: tuple[str, ...] | None = None
    """Names of variables of the server, or prefixes that end in `_`; None: those of `keys_of`."""

    homes: Path | None = None
    """The folder of known agents' conversations; None: the agents' usual places."""

    asks_first: bool = False
    """If true, it asks before each tool that can change files, and waits. OpenCode needs a setting
    for this; Gemini CLI does it in its mode `default`, which is used if the hank names none."""

    clock: Clock = field(default_factory=SystemClock)

    @property
    def can_ask(self) -> bool:
        return is_known_to_ask(self.command, self.mode)

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first and self.can_ask

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account of the keys that it gets; without any, of the user's login."""
        known = known_as(self.command)
        if known is None:
            return named_account("acp", environment)

        seen = {**common(os.environ, self._given(model)), **environment}
        secrets = (f"{n}={v}" for n, v in sorted(seen.items()) if n.endswith(("_KEY", "_TOKEN")))
        provider = model.partition("/")[0] if "/" in model else ""
        home = seen.get("HOME", "~")
        return AgentAccount(known, fingerprint(known, provider, home, *secrets))

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        return run_prepared(self._prepared, task, self.clock)

    def _prepared(self, task: AgentTask) -> Program:
        if (missing := missing_library()) is not None:
            raise missing

        return Program(
            command=own_program_with(_LIBRARIES, _BRIDGE),
            stdin=json_lines.to_line(self._order(task)),
            hint="Install it, give its full path, or correct PATH.",
            extra_environment=self._environment(task),
            takes_answers=True,
            needs=self.command[0],
        )

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return its home and login if it is a known agent, else its program alone."""
        seen = {**common(os.environ, {}), **environment}
        person = Path(seen.get("HOME", "/"))
        home = home_of(self.command, self.homes)
        read, write = _logins(known_as(self.command), person)
        if home is not None and home.memory == "lines":
            gemini = Path(os.environ.get(home.variable) or person) / _GEMINI_FOLDER
            read = tuple(gemini / name for name in _names_in(gemini, _GEMINI_OF_A_WORK_TREE))
            write = tuple(gemini / name for name in _GEMINI_LOGINS)

        return AgentNeeds(
            home=None if home is None else home.folder,
            read=(*read, *files_named_in(self.command)),
            write=write,
            programs=self.command[:1],
        )

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return the session files of a known agent; none for any other."""
        home = home_of(self.command, self.homes)
        seen = {**common(os.environ, {}), **environment}
        return () if home is None else home.memory_of(session_id, seen)

    def _order(self, task: AgentTask) -> BridgeOrder:
        home = home_of(self.command, self.homes)
        prompts = [each for each in (task.system_prompt, task.message) if each is not None]
        return BridgeOrder(
            command=self.command,
            prompt="\n\n".join(prompts),
            work_tree=str(task.work_tree),
            model=task.model,
            mode=self._mode(task),
            resume=task.resume_session,
            forks=task.forks,
            tools=tuple(
                BridgeTools(each.name, each.command, each.environment) for each in task.tools
            ),
            memory=None if home is None else home.memory,
            memory_folder="" if home is None else str(home.folder),
            memory_variable="" if home is None else home.variable,
            announces_writes=known_as(self.command) == _OPENCODE,
        )

    def _mode(self, task: AgentTask) -> str | None:
        """Return the session mode.

        Gemini CLI needs one where it must ask: the settings of the user or of the work tree could
        make it start in a mode that does not.
        """
        asks = self._is_to_ask(task) and known_as(self.command) == _GEMINI_CLI
        return _ASKING if asks and self.mode is None else self.mode

    def _is_to_ask(self, task: AgentTask) -> bool:
        return task.asks or self.asks_first

    def _environment(self, task: AgentTask) -> dict[str, str]:
        given = self._given(task.model)
        if home := home_of(self.command, self.homes):
            home.settle(os.environ, asks=self._is_to_ask(task), data=data_directory(task))
            given.pop(home.variable, None)  # The server's value is not for this execution.

        if known_as(self.command) != _OPENCODE:
            return given

        if home is not None and task.fence is not None:
            given |= _settle_opencode(home.folder, Path(os.environ.get("HOME", "/")))

        return given | self._for_opencode(task)

    def _given(self, model: str) -> dict[str, str]:
        """Return the server's variables that are keys for this agent."""
        wanted = self.keys if self.keys is not None else keys_of(self.command, model)
        return {name: value for name, value in os.environ.items() if _is_among(name, wanted)}

    def _for_opencode(self, task: AgentTask) -> dict[str, str]:
        """Return OpenCode's variables; permissions given here override the user's settings."""
        asks = _ASKS_FOR_ALL if task.asks else _ASKS_FOR_CHANGES if self.asks_first else None
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}
        return quiet if asks is None else quiet | {"OPENCODE_PERMISSION": asks}


def _logins(agent: str | None, person: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return what a known agent reads, and writes, in the user's home.

    It may not write its settings there: what an agent leaves in them would run outside the fence
    the next time that the user starts it.
    """
    match agent:
        case "opencode":
            return (person / ".config" / agent,), (person / _OPENCODE_LOGIN,)
        case "pi":
            own = person / ".pi"
            return (own,), (own / "agent" / "auth.json", own / "agent" / "sessions")
        case "claude":
            own = person / ".claude"
            return (own, person / ".claude.json"), (own / ".credentials.json", own / "projects")
        case "codex":
            own = person / ".codex"
            return (own,), (own / "auth.json", own / "sessions")
        case _:
            return (), ()


def _settle_opencode(folder: Path, person: Path) -> dict[str, str]:
    """Prepare OpenCode's folders in the execution; return the variables that name them.

    It writes to all of them at each start, and its usual ones cannot be changed inside a fence. The
    user's settings and login are links.
    """
    config, data = folder / "config" / _OPENCODE, folder / "data" / _OPENCODE
    for each in (config, data, folder / "state"):
        make_private_directory(each)

    theirs = person / ".config" / _OPENCODE
    names = _names_in(theirs, _WRITTEN_BY_OPENCODE)
    links = {config / name: theirs / name for name in names}
    for link, target in (links | {data / "auth.json": person / _OPENCODE_LOGIN}).items():
        if not os.path.lexists(link):
            link.symlink_to(target)

    return {
        "XDG_CONFIG_HOME": str(config.parent),
        "XDG_DATA_HOME": str(data.parent),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def _names_in(folder: Path, but: frozenset[str]) -> list[str]:
    """Return the names in a folder of the user's, without some; none if it cannot be read."""
    try:
        return sorted({entry.name for entry in folder.iterdir()} - but)
    except OSError:
        return []


def _is_among(name: str, wanted: Sequence[str]) -> bool:
    """Return whether an agent gets a variable; never one of the server's own (HANKWEAVE_…)."""
    if name.startswith(_NEVER):
        return False

    return any(name.startswith(each) if each.endswith("_") else name == each for each in wanted)


def missing_library() -> AgentNotFound | None:
    """Return the error that keeps ACP agents from starting here, or None."""
    try:
        own_program_with(_LIBRARIES, _BRIDGE)
    except PackageNotFoundError:
        return AgentNotFound(
            "Agents that speak ACP need a library that is not installed.",
            hint="Install it with: pip install 'hankweave[acp]'",
        )

    return None
