"""Agents of a pipeline: resolution of their names, and the `agents` block.

An agent of the block may have any type that a hank supports, with its settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
from msgspec import inspect

from hankweave_protocol.hank import AgentSpec, ScriptedAgentSpec
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.pipelines.fields import (
    Fields,
    as_in_a_hank,
    fields_of,
    keys_of,
    plain,
    shape_of,
)
from hankweave_server.hank.pipelines.model import AgentChoice, ScriptedAgentSettings
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, did_you_mean
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.hank.rules import is_blank

_KINDS: Mapping[str, inspect.StructType] = {
    str(kind.tag): kind for kind in map(shape_of, get_args(AgentSpec))
}


def agent_of(agent: Fields, files: HankFiles) -> AgentChoice | None:
    """Read an agent according to its `type`; return None, with a finding, if it is invalid."""
    kind, known = agent.text("type"), ", ".join(_KINDS)
    if kind is None:
        if not agent.has("type"):
            agent.found(None, f"The agent has no 'type': use one of {known}.")

        return None

    if kind not in _KINDS:
        hint = did_you_mean(kind, _KINDS)
        agent.found("type", f"Expected one of {known}; found {kind!r}.", hint)
        return None

    keys = keys_of(_KINDS[kind])
    agent.refuse_others(("type", *keys))
    if kind == "scripted":
        return _scripted(agent, files)

    if "command" in keys and _lacks_a_program(agent.raw.get("command")):
        hint = "For example ['my-agent', '--quiet']; it receives the prompt on standard input."
        if kind == "acp":
            hint = "For example ['opencode', 'acp']; it must speak the Agent Client Protocol."

        agent.found("command" if agent.has("command") else None, "The agent has no command.", hint)
        return None

    given = as_in_a_hank(agent, _KINDS[kind])
    if given is None:
        return None

    choice: AgentChoice = msgspec.convert({"type": kind, **given}, AgentSpec)
    return choice


def _lacks_a_program(command: Any) -> bool:
    match command:
        case None | []:
            return True
        case [first, *_]:
            return is_blank(first)
        case _:
            return False


# --- the scripted one --------------------------------------------------------------------------


def _scripted(agent: Fields, files: HankFiles) -> ScriptedAgentSettings | None:
    match agent.raw.get("script"):
        case None:
            return ScriptedAgentSettings()
        case str(reference):
            return _script_file(agent, reference, files)
        case list(steps):
            return _script(agent, {"steps": steps})
        case value:
            return _script(agent, value)


def _script_file(agent: Fields, reference: str, files: HankFiles) -> ScriptedAgentSettings | None:
    fault = files.fault_of_file(reference)
    if fault is not None:
        agent.found("script", fault.replace("the hank's", "its"), files.nearest(reference))
        return None

    try:
        return _script(agent, json.loads(files.text(reference)))
    except OSError as error:
        agent.found("script", f"{reference!r} cannot be read: {error.strerror}.")
    except (ValueError, RecursionError):
        agent.found("script", f"{reference!r} is not JSON.")

    return None


def _script(agent: Fields, value: Any) -> ScriptedAgentSettings | None:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        hint = "For example {steps: [{say: Done}]}."
        agent.found("script", "A script is a mapping with a list of 'steps'.", hint)
        return None

    try:
        text = json.dumps(plain(value), ensure_ascii=True, allow_nan=False, indent=2)
    except (ValueError, RecursionError) as error:
        agent.found("script", f"The script cannot be written: {error}.")
        return None

    return ScriptedAgentSettings(text.encode() + b"\n")


BUILD = "build"
BUILDERS = (BUILD, "plan", "review", "resume")
"""Architect's own agents; here all are run by the same program."""

_BUILT_IN: Mapping[str, AgentChoice] = {
    name: ScriptedAgentSettings() if isinstance(spec, ScriptedAgentSpec) else spec
    for name, spec in BY_NAME.items()
}


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents that a step can name."""

    named: Mapping[str, AgentChoice]
    """The agents of the pipeline and of the configuration."""
    chosen: str | None = None
    """The command line's agent, for steps that do not name one."""

    def fault_of_chosen(self) -> Finding | None:
        """Return a finding if the command line names an unknown agent."""
        if self.chosen is None or self.chosen in self._known():
            return None

        return Finding(
            COMMAND_LINE, f"--agent: {self._unknown(self.chosen)}", self._hint(self.chosen)
        )

    def of(self, name: str, step: Fields) -> AgentChoice | None:
        """Return the agent of a step; None for the default."""
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
        return (
            did_you_mean(name, known)
            or f"Known agents: {', '.join(known)}; define more in 'agents'."
        )


def agents_of(owner: Fields, files: HankFiles) -> dict[str, AgentChoice]:
    """Read an `agents` block; scripts are read below the directory of its file."""
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
