"""Any agent that speaks the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_server.agents.base import AgentSession, AgentTask
from hankweave_server.agents.program import Program, run_program
from hankweave_server.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """Runs a program that speaks ACP."""

    command: tuple[str, ...]
    mode: str | None = None
    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "acp"

    @property
    def can_ask(self) -> bool:
        return True

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        program = Program(command=self.command, stdin=task.prompt, hint="Install it.")
        return run_program(program, task, self.clock)

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        return ()
