"""Agents known by name, and the choice of an agent for a codon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    Codon,
    ScriptedAgentSpec,
)
from hankweave_server.domain.model_routes import Route, known_as, routes_of
from hankweave_server.hank.problems import did_you_mean

BY_NAME: Mapping[str, AgentSpec] = {
    "claude": ClaudeAgentSpec(),
    "codex": CodexAgentSpec(),
    "gemini": AcpAgentSpec(command=("gemini", "--acp")),
    "opencode": AcpAgentSpec(command=("opencode", "acp")),
    "pi": AcpAgentSpec(command=("pi-acp",)),
    "scripted": ScriptedAgentSpec(),
}
"""Agents that the command line can name, for every codon (`--agent`)."""


def fault_of_name(name: str) -> tuple[str, str] | None:
    """Return a message and a hint if no agent has this name."""
    if name in BY_NAME:
        return None

    hint = did_you_mean(name, BY_NAME) or f"Known agents: {', '.join(sorted(BY_NAME))}."
    return f"There is no agent {name!r}.", hint


@dataclass(frozen=True, slots=True)
class Selection:
    """The agent of a codon, and its model."""

    spec: AgentSpec
    model: str
    """The agent's own name for it; empty for the agent's default."""

    on_bedrock: bool = False
    is_known: bool = True
    """False if no known agent runs the model, so Claude Code is used."""

    @property
    def name(self) -> str:
        """The agent's name, or its type if it has none."""
        return name_of(self.spec) or str(self.spec.__struct_config__.tag)


def name_of(spec: AgentSpec) -> str | None:
    """Return the name of a known agent, however the hank writes it."""
    match spec:
        case ClaudeAgentSpec():
            return "claude"
        case CodexAgentSpec():
            return "codex"
        case ScriptedAgentSpec():
            return "scripted"
        case AcpAgentSpec(command=command):
            return known_as(command)
        case _:
            return None


def select(
    codon: Codon,
    *,
    chosen: str | None,
    model: str | None,
    is_installed: Callable[[str], bool],
) -> Selection:
    """Choose the agent of a codon: the command line's, else the hank's, else its model's.

    `chosen` and `model` are those of the command line. If several agents can run the model, the
    first whose program is installed (`is_installed`) is used, else the first.
    """
    wanted = model or codon.model
    explicit = BY_NAME[chosen] if chosen is not None else codon.agent
    routes = routes_of(wanted)
    if explicit is not None:
        route = next((each for each in routes if each.agent == name_of(explicit)), None)
        return Selection(explicit, wanted) if route is None else _along(route, explicit)

    if not routes:
        return Selection(ClaudeAgentSpec(), wanted, is_known=False)

    route = routes[0]
    if len(routes) > 1:
        route = next((each for each in routes if is_installed(_program_of(each))), route)

    return _along(route, BY_NAME[route.agent])


def _program_of(route: Route) -> str:
    spec = BY_NAME[route.agent]
    return spec.command[0] if isinstance(spec, AcpAgentSpec) else route.agent


def _along(route: Route, spec: AgentSpec) -> Selection:
    if isinstance(spec, CodexAgentSpec) and route.effort is not None:
        config = {"model_reasoning_effort": f'"{route.effort}"', **spec.config}
        spec = msgspec.structs.replace(spec, config=config)

    return Selection(spec, route.model, on_bedrock=route.on_bedrock)
