"""Who does a codon: the agents there are, by what the hank or the command line says of them."""

from __future__ import annotations

from dataclasses import dataclass
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
from hankweave_server.agents.acp import AcpAgent
from hankweave_server.agents.base import Agent
from hankweave_server.agents.claude import ClaudeAgent
from hankweave_server.agents.codex import CodexAgent
from hankweave_server.agents.command import CommandAgent
from hankweave_server.agents.scripted import ScriptedAgent
from hankweave_server.hanks.named_agents import BY_NAME


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

    def agent_for(self, codon: Codon) -> Agent:
        """The command line's choice, else the hank's, else Claude."""
        if self.chosen is not None:
            return self.agent_of(BY_NAME[self.chosen])

        return self.agent_of(codon.agent or ClaudeAgentSpec())

    def agent_of(self, spec: AgentSpec) -> Agent:
        match spec:
            case CommandAgentSpec(command=command):
                return CommandAgent(command)
            case ScriptedAgentSpec(script=script):
                named = None if script is None else self.hank_directory / script
                return ScriptedAgent(script=named, sessions=self.sessions)
            case ClaudeAgentSpec(permission_mode=mode):
                return ClaudeAgent(
                    permission_mode=mode, home=self.homes / "claude", asks_first=self.asks_first
                )
            case CodexAgentSpec(sandbox=sandbox, config=config):
                return CodexAgent(sandbox=sandbox, config=config, home=self.homes / "codex")
            case AcpAgentSpec(command=command, mode=mode, keys=keys):
                return AcpAgent(
                    command, mode=mode, keys=keys, homes=self.homes, asks_first=self.asks_first
                )
            case _:
                assert_never(spec)
