"""Claude Code as an agent, through its command line and stream-json."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from hankweave_server.agents.base import AgentSession, AgentTask, McpServer, is_file_name
from hankweave_server.agents.environment import common
from hankweave_server.agents.program import Program, run_program
from hankweave_server.agents.transcript import ask_first, user_message
from hankweave_server.clock import Clock, SystemClock

_OWN_PREFIXES = ("ANTHROPIC_", "CLAUDE_CODE_")

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
    """Runs `claude`; the only agent that sees ANTHROPIC_… and CLAUDE_CODE_… of our environment."""

    permission_mode: Literal["default", "acceptEdits", "bypassPermissions", "plan"] = "acceptEdits"
    """What it may do unasked: edit files in the work tree, say, or everything."""

    asks_first: bool = False
    """Waits for our word before each tool that can change files; what it may do stays the same."""

    program: str = "claude"
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "claude"

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        keys = {name: value for name, value in os.environ.items() if name.startswith(_OWN_PREFIXES)}
        program = Program(
            command=(self.program, *self._arguments(task)),
            stdin=ask_first() + user_message(task.prompt) if self.asks_first else task.prompt,
            hint="Install it with 'npm install -g @anthropic-ai/claude-code', then start again.",
            extra_environment=_QUIET | keys,
            takes_answers=self.asks_first,
        )
        return run_program(program, task, self.clock)

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Its transcript: `projects/<folder it worked in>/<session>.jsonl` of its configuration."""
        seen = {**common(os.environ, {}), **environment}
        home = seen.get("CLAUDE_CONFIG_DIR") or os.path.join(seen.get("HOME", "~"), ".claude")
        if not is_file_name(session_id):
            return ()

        projects, name = Path(home).expanduser() / "projects", f"{session_id}.jsonl"
        folder = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work_tree))
        if len(folder) > _LONGEST_FOLDER:
            return tuple(sorted(projects.glob(f"{folder[:_LONGEST_FOLDER]}-*/{name}"))[:1])

        return (projects / folder / name,)

    def _arguments(self, task: AgentTask) -> list[str]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        arguments += ["--model", task.model, "--permission-mode", self.permission_mode]
        if self.asks_first:
            arguments += ["--input-format", "stream-json"]

        if task.resume_session is not None:
            arguments += ["--resume", task.resume_session]

        if task.system_prompt is not None:
            arguments += ["--append-system-prompt", task.system_prompt]

        return [*arguments, *_offering(task.tools)]


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
