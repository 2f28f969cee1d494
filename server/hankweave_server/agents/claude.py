"""Claude Code as an agent, through its command line and stream-json."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hankweave_server.agents.base import AgentSession, AgentTask, is_file_name
from hankweave_server.agents.environment import common
from hankweave_server.agents.program import Program, run_program
from hankweave_server.agents.transcript import EVERY_TOOL, FILE_TOOLS, ask_first, user_message
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
        waits = self.asks_first or task.asks
        hook = ask_first(EVERY_TOOL if task.asks else FILE_TOOLS)
        program = Program(
            command=(self.program, *self._arguments(task)),
            stdin=hook + user_message(task.prompt) if waits else task.prompt,
            hint="Install it with 'npm install -g @anthropic-ai/claude-code', then start again.",
            extra_environment=_QUIET | keys,
            takes_answers=waits,
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
        mode = "default" if task.asks else self.permission_mode
        arguments += ["--model", task.model, "--permission-mode", mode]
        if self.asks_first or task.asks:
            arguments += ["--input-format", "stream-json"]

        if task.asks:
            arguments += ["--permission-prompt-tool", "stdio"]

        if task.resume_session is not None:
            arguments += ["--resume", task.resume_session]

        if task.system_prompt is not None:
            arguments += ["--append-system-prompt", task.system_prompt]

        return arguments
