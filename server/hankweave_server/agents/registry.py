"""Choose the agent of a codon: the command line's, else the hank's, else the model's.

The module also has `CommandAgent`, which runs any program as an agent.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, assert_never
from uuid import uuid4

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    Codon,
    CommandAgentSpec,
    ScriptedAgentSpec,
)
from hankweave_server.agents.acp.adapter import AcpAgent
from hankweave_server.agents.base import (
    Agent,
    AgentAccount,
    AgentNeeds,
    AgentSession,
    AgentTask,
    SessionStarted,
    named_account,
)
from hankweave_server.agents.claude import ClaudeAgent
from hankweave_server.agents.codex.adapter import CodexAgent
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.process.program import files_named_in, run_program
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from hankweave_server.agents.session import Program
from hankweave_server.clock import Clock, SystemClock
from hankweave_server.hank.agents import Selection, select


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """Any program as an agent; its output is Claude's stream-json or plain text.

    The program works in the work tree. It gets its parameters in the environment (`HANKWEAVE_…`,
    see `process/environment.py`) and on stdin the system prompt, if there is one, a blank line and
    the prompt.
    """

    name: ClassVar[str] = "command"
    can_ask: ClassVar[bool] = False
    waits_before_tools: ClassVar[bool] = False

    argv: tuple[str, ...]
    quiet_start: timedelta = timedelta(seconds=5)
    """A program that is silent for so long counts as plain and as started."""

    clock: Clock = field(default_factory=SystemClock)

    def account(self, model: str, environment: Mapping[str, str]) -> AgentAccount:
        """Return the account that its `env` names; otherwise it is unknown."""
        return named_account("command", environment)

    def start(self, task: AgentTask) -> AbstractAsyncContextManager[AgentSession]:
        prompts = [task.prompt] if task.system_prompt is None else [task.system_prompt, task.prompt]
        program = Program(
            command=self.argv,
            stdin="\n\n".join(prompts),
            hint="Install it, give its full path, or correct PATH.",
            default_session=SessionStarted(task.resume_session or str(uuid4()), task.model),
            quiet_start=self.quiet_start,
        )
        return run_program(program, task, self.clock)

    def needs(self, environment: Mapping[str, str]) -> AgentNeeds:
        """Return its program, and the files that its arguments name."""
        return AgentNeeds(read=files_named_in(self.argv), programs=self.argv[:1])

    def memory_of(
        self, session_id: str, work_tree: Path, environment: Mapping[str, str]
    ) -> tuple[Path, ...]:
        """Return no files: it is unknown where the program keeps its sessions."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSelector:
    """The agents of one execution."""

    chosen: str | None = None
    """The agent chosen on the command line, a key of `BY_NAME`; overrides the hank."""
    hank_directory: Path
    sessions: Path
    """The folder of scripted agents' sessions, inside the execution directory."""
    homes: Path
    """The folder of the agents' homes, inside the execution directory."""
    asks_first: bool = False
    """If true, agents that can do so wait for the server before a tool call that changes files."""
    model: str | None = None
    """The model chosen on the command line; overrides the hank."""

    def select(self, codon: Codon) -> Selection:
        """Choose the agent of a codon, and the model by that agent's name for it."""
        return select(codon, chosen=self.chosen, model=self.model, is_installed=_is_installed)

    def agent_for(self, codon: Codon) -> Agent:
        """Return the agent that runs a codon."""
        selection = self.select(codon)
        agent = self.agent_of(selection.spec)
        if isinstance(agent, ClaudeAgent) and selection.on_bedrock:
            return replace(agent, on_bedrock=True)

        return agent

    def model_for(self, codon: Codon) -> str:
        """Return the model of a codon by its agent's name for it; empty: the agent's default."""
        return self.select(codon).model

    def agent_of(self, spec: AgentSpec) -> Agent:
        match spec:
            case CommandAgentSpec(command=command):
                return CommandAgent(command)
            case ScriptedAgentSpec(script=script):
                named = None if script is None else self.hank_directory / script
                return ScriptedAgent(
                    script=named, sessions=self.sessions, asks_first=self.asks_first
                )
            case ClaudeAgentSpec(permission_mode=mode):
                return ClaudeAgent(
                    permission_mode=mode, home=self.homes / "claude", asks_first=self.asks_first
                )
            case CodexAgentSpec(sandbox=sandbox, config=config):
                return CodexAgent(
                    sandbox=sandbox,
                    config=config,
                    home=self.homes / "codex",
                    asks_first=self.asks_first,
                )
            case AcpAgentSpec(command=command, mode=mode, keys=keys):
                return AcpAgent(
                    command, mode=mode, keys=keys, homes=self.homes, asks_first=self.asks_first
                )
            case _:
                assert_never(spec)


def _is_installed(program: str) -> bool:
    return shutil.which(program, path=common(os.environ, {}).get("PATH")) is not None
