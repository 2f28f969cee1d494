"""Who does the steps: the names of agents, and what stands behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hankweave_protocol.hank import ScriptedAgentSpec
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.pipelines.agent_kinds import agent_of
from hankweave_server.hank.pipelines.fields import Fields, fields_of
from hankweave_server.hank.pipelines.model import AgentChoice, ScriptedAgent
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, did_you_mean

BUILD = "build"
BUILDERS = (BUILD, "plan", "review", "resume")
"""Architect's own agents: here they are all done by the same program."""

_BUILT_IN: Mapping[str, AgentChoice] = {
    name: ScriptedAgent() if isinstance(spec, ScriptedAgentSpec) else spec
    for name, spec in BY_NAME.items()
}


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents that a step can name."""

    named: Mapping[str, AgentChoice]
    """Of the pipeline and of the configuration."""
    chosen: str | None = None
    """Whom the command line names for the steps that ask for nobody in particular."""

    def fault_of_chosen(self) -> Finding | None:
        """Tells of a name on the command line that is nobody's."""
        if self.chosen is None or self.chosen in self._known():
            return None

        return Finding(
            COMMAND_LINE, f"--agent: {self._unknown(self.chosen)}", self._hint(self.chosen)
        )

    def of(self, name: str, step: Fields) -> AgentChoice | None:
        """Gives the agent of a step; None for whoever is usual."""
        if name != BUILD and name in self.named:
            return self.named[name]

        if name in BUILDERS:
            return self._usual()

        if name in _BUILT_IN:
            return _BUILT_IN[name]

        step.found("agent", self._unknown(name), self._hint(name))
        return None

    def _usual(self) -> AgentChoice | None:
        known = self._known()
        if self.chosen in known and self.chosen is not None and self.chosen not in BUILDERS:
            return known[self.chosen]

        return self.named.get(BUILD)

    def _known(self) -> dict[str, AgentChoice]:
        return {**_BUILT_IN, **self.named}

    def _unknown(self, name: str) -> str:
        return f"There is no agent {name!r}."

    def _hint(self, name: str) -> str:
        known = dict.fromkeys((*BUILDERS, *self._known()))
        return did_you_mean(name, known) or f"There are {', '.join(known)}; 'agents' adds more."


def agents_of(owner: Fields, files: HankFiles) -> dict[str, AgentChoice]:
    """Reads an `agents` block; scripts are read below the directory of its file."""
    block = owner.mapping("agents")
    if block is None:
        return {}

    found: dict[str, AgentChoice] = {}
    for name, raw in block.raw.items():
        agent = fields_of(raw, (*block.path, name), "a mapping with a 'type'", owner.findings)
        if agent is None:
            continue

        choice = agent_of(agent, files)
        if choice is not None:
            found[name] = choice

    return found
