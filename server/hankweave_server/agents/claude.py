"""Claude Code as an agent, through its command line and stream-json."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal

from hankweave_server.agents.base import AgentSession, AgentTask
from hankweave_server.agents.program import Program, run_program
from hankweave_server.clock import Clock, SystemClock

_OWN_PREFIXES = ("ANTHROPIC_", "CLAUDE_CODE_")

# Without these the program talks to more hosts than the model's.
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


@dataclass(frozen=True, slots=True)
class ClaudeAgent:
    """Runs `claude`; the only agent that sees ANTHROPIC_… and CLAUDE_CODE_… of our environment."""

    permission_mode: Literal["acceptEdits", "bypassPermissions"] = "acceptEdits"
    """What it may do unasked: edit files in the work tree, or everything, commands included."""

    program: str = "claude"
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "claude"

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        keys = {name: value for name, value in os.environ.items() if name.startswith(_OWN_PREFIXES)}
        program = Program(
            command=(self.program, *self._arguments(task)),
            stdin=task.prompt,
            hint="Install it with 'npm install -g @anthropic-ai/claude-code', then start again.",
            extra_environment=_QUIET | keys,
        )
        return run_program(program, task, self.clock)

    def _arguments(self, task: AgentTask) -> list[str]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        arguments += ["--model", task.model, "--permission-mode", self.permission_mode]
        if task.resume_session is not None:
            arguments += ["--resume", task.resume_session]

        if task.system_prompt is not None:
            arguments += ["--append-system-prompt", task.system_prompt]

        return arguments
