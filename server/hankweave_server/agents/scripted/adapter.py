"""Run the scripted agent, which plays a script deterministically; for the demo and for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hankweave_server.agents.base import (
    AgentAccount,
    AgentNeeds,
    AgentSession,
    AgentTask,
    is_file_name,
    named_account,
)
from hankweave_server.agents.process.program import run_program
from hankweave_server.agents.scripted import player
from hankweave_server.agents.session import Program
from hankweave_server.agents.stream_json import user_message
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.confinement.own_program import own_program
from hankweave_server.fsutil import make_private_directory


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """An agent that plays the prompt if it is a script, else a script file, else a default script.

    HANKWEAVE_SCRIPT, in the codon's `env` or the server's, names the file. `player` has the steps.
    """

    name: ClassVar[str] = "scripted"
    can_ask: ClassVar[bool] = True

    script: Path | None = None
    """The script to play if the prompt is none; overrides the one that the environment names."""

    sessions: Path | None = None
    """The folder of its sessions; without it, nothing is remembered."""

    asks_first: bool = False
    """If true, it waits for the server before each step that changes files."""

    clock: Clock = field(default_factory=SystemClock)

    @property
    def waits_before_tools(self) -> bool:
        return self.asks_first

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account that its `env` names; it has no provider."""
        return named_account("scripted", environment)

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        named = str(self.script) if self.script else os.environ.get(player.SCRIPT)
        extra = {player.SCRIPT: named} if named else {}
        if self.sessions is not None:
            make_private_directory(self.sessions)
            extra[player.SESSIONS] = str(self.sessions)

        if task.continues:
            extra[player.GOES_ON] = task.fork_at or ""

        if task.asks:
            extra[player.ASKS] = "1"

        if self.asks_first:
            extra[player.WAITS] = "1"

        program = Program(
            command=own_program(player.__name__),
            stdin=user_message(task.prompt),
            hint="The Python that runs this server no longer exists; reinstall it.",
            extra_environment=extra,
            takes_answers=True,
        )
        return run_program(program, task, self.clock)

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return its sessions and its script."""
        named = environment.get(player.SCRIPT) or os.environ.get(player.SCRIPT)
        scripts = [self.script] if self.script else [Path(named)] if named else []
        return AgentNeeds(home=self.sessions, read=tuple(scripts))

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return the session's file, with one line for each prompt and each step played."""
        if self.sessions is None or not is_file_name(session_id):
            return ()

        return (self.sessions / f"{session_id}.jsonl",)
