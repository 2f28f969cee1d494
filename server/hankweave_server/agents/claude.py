"""Claude Code as an agent, through its command line and stream-json."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal
from uuid import uuid4

import msgspec

from hankweave_server.agents.base import (
    AgentAccount,
    AgentNeeds,
    AgentSession,
    AgentTask,
    McpServer,
    fingerprint,
    is_file_name,
)
from hankweave_server.agents.process.environment import common, data_directory
from hankweave_server.agents.process.program import run_prepared
from hankweave_server.agents.session import Program
from hankweave_server.agents.stream_json import ask_first, user_message
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.fsutil import make_private_directory

_OWN_PREFIXES = ("ANTHROPIC_", "CLAUDE_CODE_")

SANDBOX = "IS_SANDBOX"
"""The variable that allows Claude Code to bypass permissions as root."""

_BEDROCK = "CLAUDE_CODE_USE_BEDROCK"
_CLOUD_PREFIXES = {
    _BEDROCK: ("AWS_",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "GCLOUD_", "CLOUD_ML_", "VERTEX_REGION_"),
}
"""Prefixes of the variables it needs for a cloud, by the variable that selects the cloud."""

_CLOUD_FOLDERS = {_BEDROCK: ".aws", "CLAUDE_CODE_USE_VERTEX": ".config/gcloud"}
"""Folders of the user with a cloud's login."""

_KEY_FILES = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
"""Variables with the path of a login."""

# Without these the program talks to more hosts than the model's.
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}

_WATCHDOG = "CLAUDE_CODE_RETRY_WATCHDOG"
"""The variable that makes it sleep through a whole usage limit; the server waits instead."""

_FEW_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "3"}
"""It retries ten times by default; what still fails after three is waited for by the server."""

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")

_LONGEST_FOLDER = 200
"""Characters; Claude Code cuts a longer name here and adds a hash, which depends on its build."""


@dataclass(frozen=True, slots=True)
class ClaudeAgent:
    """Claude Code; it sees ANTHROPIC_… and CLAUDE_CODE_… of the server's environment."""

    name: ClassVar[str] = "claude"
    can_ask: ClassVar[bool] = True

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = (
        "bypassPermissions"
    )
    """Claude Code's permission mode: the actions it may take without asking."""

    home: Path | None = None
    """The folder of its conversations; None: the user's. The login is the user's in any case."""

    on_bedrock: bool = False
    """If true, it uses a model on Amazon Bedrock instead of Anthropic."""

    asks_first: bool = False
    """If true, a hook waits for the server before each tool call; permissions are unchanged."""

    program: str = "claude"
    clock: Clock = field(default_factory=SystemClock)
    new_session: Callable[[], str] = lambda: str(uuid4())
    """Names the sessions that it begins."""

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account of the key in the environment, else of the user's login."""
        home = self._home_of(os.environ)
        seen = {**common(os.environ, self._keys(os.environ) | home), **environment}
        login = seen.get("CLAUDE_SECURESTORAGE_CONFIG_DIR") or seen.get("CLAUDE_CONFIG_DIR")
        key = next(filter(None, map(seen.get, _KEYS)), None)
        cloud = next(filter(None, map(seen.get, _CLOUD_PREFIXES)), "")
        where = (cloud, seen.get("AWS_PROFILE", ""), seen.get("ANTHROPIC_BASE_URL", ""))
        identity = key or os.path.realpath(os.path.expanduser(login or "~/.claude"))
        return AgentAccount("claude", fingerprint("claude", *where, identity))

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        return run_prepared(self._prepared, task, self.clock)

    def _prepared(self, task: AgentTask) -> Program:
        if self.home is not None:
            make_private_directory(self.home)

        keys = self._keys(os.environ)
        waits = self.asks_first or task.asks
        hook = ask_first()
        return Program(
            command=(self.program, *self._arguments(task)),
            stdin=hook + user_message(task.message) if waits else task.message,
            hint="Install it with 'npm install -g @anthropic-ai/claude-code', then start again.",
            extra_environment=_QUIET
            | _FEW_RETRIES
            | keys
            | self._home_of(os.environ)
            | _sandbox_marker(self._mode(task)),
            takes_answers=waits,
        )

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return its home, its login, which it renews in place, and the keys of a cloud."""
        seen = {**common(os.environ, self._home_of(os.environ)), **environment}
        person = Path(seen.get("HOME", "/"))
        home = Path(os.path.expanduser(seen.get("CLAUDE_CONFIG_DIR") or person / ".claude"))
        login = Path(os.path.expanduser(seen.get("CLAUDE_SECURESTORAGE_CONFIG_DIR") or home))
        keys = {**self._keys(os.environ), **environment}
        files = [Path(keys[name]) for name in _KEY_FILES if keys.get(name)]
        clouds = [cloud for cloud in _CLOUD_FOLDERS if keys.get(cloud)]
        return AgentNeeds(
            home=home,
            read=(*files, *(person / _CLOUD_FOLDERS[cloud] for cloud in clouds)),
            write=(login / ".credentials.json",),
            programs=(self.program,),
        )

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return its transcript, `projects/<work tree>/<session>.jsonl` below CLAUDE_CONFIG_DIR."""
        seen = {**common(os.environ, self._home_of(os.environ)), **environment}
        home = seen.get("CLAUDE_CONFIG_DIR") or os.path.join(seen.get("HOME", "~"), ".claude")
        if not is_file_name(session_id):
            return ()

        projects, name = Path(os.path.expanduser(home)) / "projects", f"{session_id}.jsonl"
        folder = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work_tree))
        if len(folder) > _LONGEST_FOLDER:
            return tuple(sorted(projects.glob(f"{folder[:_LONGEST_FOLDER]}-*/{name}"))[:1])

        return (projects / folder / name,)

    def _arguments(self, task: AgentTask) -> list[str]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        arguments += ["--model", task.model, "--permission-mode", self._mode(task)]
        arguments += _added_directory(task)
        if self.asks_first or task.asks:
            arguments += ["--input-format", "stream-json"]

        if task.asks:
            arguments += ["--permission-prompt-tool", "stdio"]

        arguments += self._session(task)
        if task.budget_usd is not None:
            arguments += ["--max-budget-usd", f"{task.budget_usd:.6f}"]

        if task.system_prompt is not None:
            arguments += ["--append-system-prompt", task.system_prompt]

        return [*arguments, *_offering(task.tools)]

    def _mode(self, task: AgentTask) -> str:
        """Return the permission mode; a codon with `permissions` needs the mode that asks."""
        return "default" if task.asks else self.permission_mode

    def _session(self, task: AgentTask) -> list[str]:
        if task.resume_session is None:
            return ["--session-id", self.new_session()]

        resumed = ["--resume", task.resume_session]
        if not task.forks:
            return resumed

        if task.fork_at is not None and self._knows(task, task.fork_at):
            resumed += ["--resume-session-at", task.fork_at]

        return [*resumed, "--fork-session", "--session-id", self.new_session()]

    def _knows(self, task: AgentTask, message: str) -> bool:
        """Return whether the transcript has the message.

        Claude Code refuses to fork at an unknown message; the fork is then at the end.
        """
        assert task.resume_session is not None
        files = self.memory_of(task.resume_session, task.work_tree, task.environment)
        return any(path.is_file() and message.encode() in path.read_bytes() for path in files)

    def _keys(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the server that are for Claude Code, including cloud keys."""
        bedrock = {_BEDROCK: "1"} if self.on_bedrock else {}
        clouds = [cloud for cloud in _CLOUD_PREFIXES if cloud in bedrock or host.get(cloud)]
        prefixes = (*_OWN_PREFIXES, *(each for cloud in clouds for each in _CLOUD_PREFIXES[cloud]))
        given = {name: value for name, value in host.items() if name.startswith(prefixes)}
        given.pop(_WATCHDOG, None)
        return given | bedrock

    def _home_of(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return variables that separate its conversations, but not its login, from the user's."""
        if self.home is None:
            return {}

        persons = host.get("CLAUDE_CONFIG_DIR") or os.path.join(host.get("HOME", "~"), ".claude")
        return {
            "CLAUDE_CONFIG_DIR": str(self.home),
            "CLAUDE_SECURESTORAGE_CONFIG_DIR": host.get("CLAUDE_SECURESTORAGE_CONFIG_DIR", persons),
        }


def _added_directory(task: AgentTask) -> list[str]:
    """Return the option that lets its file tools read the data, outside of the work tree."""
    data = data_directory(task)
    return [] if data is None else ["--add-dir", data]


def _sandbox_marker(mode: str) -> dict[str, str]:
    """Return the variable that Claude Code needs to accept `bypassPermissions` as root.

    It exits with "cannot be used with root/sudo privileges" unless IS_SANDBOX is 1 (2.1.329). A
    container usually runs as root, so the variable is set there, and only there.
    HANKWEAVE_IS_SANDBOX=unset removes it, and with it the mode.
    """
    return {SANDBOX: "1"} if mode == "bypassPermissions" and os.getuid() == 0 else {}


def _offering(tools: Sequence[McpServer]) -> list[str]:
    """Return the options that offer MCP servers, whose tools may be used without asking.

    Servers that the work tree configures are not started. The tools are loaded before the first
    turn (`alwaysLoad`); otherwise the model has to search for them and may miss them in a short
    conversation.
    """
    if not tools:
        return []

    servers = {
        tool.name: {
            "type": "stdio",
            "command": tool.command[0],
            "args": tool.command[1:],
            "env": dict(tool.environment),
            "alwaysLoad": True,
        }
        for tool in tools
    }
    config = msgspec.json.encode({"mcpServers": servers}).decode()
    allowed = ",".join(f"mcp__{tool.name}__*" for tool in tools)
    return ["--mcp-config", config, "--strict-mcp-config", "--allowedTools", allowed]
