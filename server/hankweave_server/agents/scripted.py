"""An agent that does what its script says, the same every time: for the demo and for tests."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hankweave_server.agents import script_player
from hankweave_server.agents.base import AgentSession, AgentTask
from hankweave_server.agents.own_program import own_program
from hankweave_server.agents.program import Program, run_program
from hankweave_server.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """Plays the prompt if it is a script, else the file HANKWEAVE_SCRIPT names, else a default.

    `script_player.py` has the steps. The file is named by the codon's `env` or the daemon's.
    """

    script: Path | None = None
    """Played where the prompt is none; wins over the file that the environment names."""

    clock: Clock = field(default_factory=SystemClock)

    @property
    def name(self) -> str:
        return "scripted"

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        named = str(self.script) if self.script else os.environ.get(script_player.SCRIPT)
        program = Program(
            command=own_program(script_player.__name__),
            stdin=task.prompt,
            hint="The Python that runs this server is gone; install it again.",
            extra_environment={script_player.SCRIPT: named} if named else {},
        )
        return run_program(program, task, self.clock)
