"""Claude Code as an agent, through its command line and stream-json."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec

from hankweave_server.agents.base import AgentSession, AgentTask, McpServer, is_file_name
from hankweave_server.agents.process.environment import common, data_directory
from hankweave_server.agents.process.program import Program, run_prepared
from hankweave_server.agents.stream_json import ask_first, user_message
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.fsutil import make_private_directory

_OWN_PREFIXES = ("ANTHROPIC_", "CLAUDE_CODE_")

SANDBOX = "IS_SANDBOX"
"""Tells it that it may bypass permissions as root."""

_BEDROCK = "CLAUDE_CODE_USE_BEDROCK"
_CLOUD_PREFIXES = {
    _BEDROCK: ("AWS_",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "GCLOUD_", "CLOUD_ML_", "VERTEX_REGION_"),
}
"""What it needs besides where it asks a cloud, by the variable that tells it to."""

# Without these the program talks to more hosts than the model's.
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}

_LONGEST_FOLDER = 200
"""Characters; of a longer name Claude Code adds a hash to the beginning, by its build another."""


@dataclass(frozen=True, slots=True)
class ClaudeAgent:
    """Runs `claude`, which sees ANTHROPIC_… and CLAUDE_CODE_… of our environment."""

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = (
        "bypassPermissions"
    )
    """What it may do without asking: everything, or only edit files in the work tree."""

    home: Path | None = None
    """Where it keeps its conversations; None: where it does for the person. Its login is the
    person's in any case."""

    on_bedrock: bool = False
    """Asks Amazon Bedrock for its model instead of Anthropic."""

    asks_first: bool = False
    """Waits for us before each call of a tool, by a hook; what it may do stays the same."""

    program: str = "claude"
    clock: Clock = field(default_factory=SystemClock)
    new_session: Callable[[], str] = lambda: str(uuid4())
    """Names the sessions that it begins."""

    @property
    def name(self) -> str:
        return "claude"

    @property
    def can_ask(self) -> bool:
        return True

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first

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
            | keys
            | self._home_of(os.environ)
            | _sandbox_marker(self._mode(task)),
            takes_answers=waits,
        )

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Its transcript: `projects/<folder it worked in>/<session>.jsonl` of its configuration."""
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
        """Return the permission mode; a codon with `permissions` is always asked about."""
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
        """It refuses to fork at a message that its transcript does not have; then its end is it."""
        assert task.resume_session is not None
        files = self.memory_of(task.resume_session, task.work_tree, task.environment)
        return any(path.is_file() and message.encode() in path.read_bytes() for path in files)

    def _keys(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return what of the server's environment is for Claude Code, keys of a cloud among it."""
        told = {_BEDROCK: "1"} if self.on_bedrock else {}
        clouds = [cloud for cloud in _CLOUD_PREFIXES if cloud in told or host.get(cloud)]
        prefixes = (*_OWN_PREFIXES, *(each for cloud in clouds for each in _CLOUD_PREFIXES[cloud]))
        return {name: value for name, value in host.items() if name.startswith(prefixes)} | told

    def _home_of(self, host: Mapping[str, str]) -> dict[str, str]:
        """The variables that part its conversations from the person's, but not its login."""
        if self.home is None:
            return {}

        persons = host.get("CLAUDE_CONFIG_DIR") or os.path.join(host.get("HOME", "~"), ".claude")
        return {
            "CLAUDE_CONFIG_DIR": str(self.home),
            "CLAUDE_SECURESTORAGE_CONFIG_DIR": host.get("CLAUDE_SECURESTORAGE_CONFIG_DIR", persons),
        }


def _added_directory(task: AgentTask) -> list[str]:
    """Let its file tools read the data, which lies outside of its working directory."""
    data = data_directory(task)
    return [] if data is None else ["--add-dir", data]


def _sandbox_marker(mode: str) -> dict[str, str]:
    """Return what Claude Code needs to accept `bypassPermissions` as root.

    It exits with "cannot be used with root/sudo privileges" unless IS_SANDBOX is 1 (2.1.329). A
    container usually runs as root, so the variable is set there, and only there.
    HANKWEAVE_IS_SANDBOX=unset removes it, and with it the mode.
    """
    return {SANDBOX: "1"} if mode == "bypassPermissions" and os.getuid() == 0 else {}


def _offering(tools: Sequence[McpServer]) -> list[str]:
    """Tells of servers of tools, which may be used unasked; none of a work tree's own is started.

    They are put before its first turn (`alwaysLoad`): otherwise their tools have to be searched
    for, and may still be missing from a short conversation.
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
