"""Any program as an agent: it reads its prompt on stdin and works in the work tree."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from hankweave_server.agents.base import AgentSession, AgentTask, SessionStarted
from hankweave_server.agents.process.program import Program, run_program
from hankweave_server.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """Runs a command line; one that prints Claude's stream-json is understood, any other is plain.

    What the program is told comes in its environment (`HANKWEAVE_…`, see `environment.py`) and on
    stdin: the system prompt, if there is one, a blank line, the prompt.
    """

    argv: tuple[str, ...]
    quiet_start: timedelta = timedelta(seconds=5)
    """A program silent for so long counts as plain; its start limit is met then."""

    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "command"

    @property
    def can_ask(self) -> bool:
        return False

    @property
    def waits_before_tools(self) -> bool:
        return False

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        prompts = [task.prompt] if task.system_prompt is None else [task.system_prompt, task.prompt]
        program = Program(
            command=self.argv,
            stdin="\n\n".join(prompts),
            hint="Install it, or name it with its full path, or correct PATH.",
            presumed_session=SessionStarted(task.resume_session or str(uuid4()), task.model),
            quiet_start=self.quiet_start,
        )
        return run_program(program, task, self.clock)

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Nothing: what a program remembers by, only it knows."""
        return ()
