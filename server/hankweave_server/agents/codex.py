"""Codex as an agent, through `codex exec --json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hankweave_server.agents.base import AgentSession, AgentTask
from hankweave_server.agents.program import Program, run_program
from hankweave_server.clock import Clock, SystemClock

_OWN_PREFIXES = ("OPENAI_", "CODEX_")


@dataclass(frozen=True, slots=True)
class CodexAgent:
    """Runs `codex`; the only agent that sees OPENAI_… and CODEX_… of our environment."""

    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "workspace-write"
    config: Mapping[str, str] = field(default_factory=dict)
    program: str = "codex"
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "codex"

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        keys = {name: value for name, value in os.environ.items() if name.startswith(_OWN_PREFIXES)}
        program = Program(
            command=(self.program, "exec", "--json", "--sandbox", self.sandbox, "-"),
            stdin=task.prompt,
            hint="Install it with 'npm install -g @openai/codex', then start again.",
            extra_environment=keys,
        )
        return run_program(program, task, self.clock)

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        return ()
