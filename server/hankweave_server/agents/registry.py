"""Who does a codon: the command line's choice, else the hank's, else its model's agent."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

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
from hankweave_server.agents.base import Agent
from hankweave_server.agents.claude import ClaudeAgent
from hankweave_server.agents.codex.adapter import CodexAgent
from hankweave_server.agents.command import CommandAgent
from hankweave_server.agents.process.environment import common
from hankweave_server.agents.scripted.adapter import ScriptedAgent
from hankweave_server.hank.agents import Selection, select


@dataclass(frozen=True, slots=True)
class Roster:
    """The agents of one execution."""

    chosen: str | None
    """One of `BY_NAME`; it does every codon, whatever the hank says."""
    hank_directory: Path
    sessions: Path
    """What scripted agents remember, inside the execution directory."""
    homes: Path
    """Below this each kind of agent keeps its conversations, inside the execution directory."""
    asks_first: bool
    """Agents that can are to wait for our word before a tool that changes files."""
    model: str | None = None
    """The command line's; every codon has it, whatever the hank says."""

    def select(self, codon: Codon) -> Selection:
        """Choose who does a codon, and the model as that agent calls it."""
        return select(codon, chosen=self.chosen, model=self.model, is_installed=_is_installed)

    def agent_for(self, codon: Codon) -> Agent:
        """Return the agent that does a codon."""
        selection = self.select(codon)
        agent = self.agent_of(selection.spec)
        if isinstance(agent, ClaudeAgent) and selection.on_bedrock:
            return replace(agent, on_bedrock=True)

        return agent

    def model_for(self, codon: Codon) -> str:
        """Return the model of a codon as its agent calls it; empty leaves it to the agent."""
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
