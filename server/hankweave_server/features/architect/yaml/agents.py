"""Agents of a pipeline: resolution of their names, the `agents` block, and whether they ask.

An agent of the block may have any type that a hank supports, with its settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping

from hankweave_protocol.hank import AgentSpec, Permissions, ScriptedAgentSpec
from hankweave_server.domain.permissions import NEVER_ASK, can_ask, can_refuse
from hankweave_server.features.architect.yaml.model import PlacedStep
from hankweave_server.features.architect.yaml.shapes import AGENT, ScriptedKeys, value_of
from hankweave_server.hank import check
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.hank.problems import COMMAND_LINE, Finding, JsonPath, did_you_mean
from hankweave_server.hank.prompts import HankFiles
from hankweave_server.hank.rules import JsonNode, object_at

BUILD = "build"
BUILDERS = (BUILD, "plan", "review", "resume")
"""Architect's own agents; here all are run by the same program."""


class Agents:
    """The agents that a step can name.

    `named` are those of the pipeline and of the configuration; `chosen` is the command line's
    agent, for steps that do not name one.
    """

    def __init__(self, named: Mapping[str, AgentSpec], chosen: str | None = None) -> None:
        self._named = named
        self._known = {**BY_NAME, **named}
        self._chosen = chosen

    def of(self, name: str) -> AgentSpec | None:
        """Return an agent; None for the default one, and for an unknown one."""
        if name in self._known and name != BUILD:
            return self._known[name]

        if name not in BUILDERS:
            return None

        if self._chosen in self._known and self._chosen != BUILD:
            return self._known[self._chosen]

        return self._named.get(BUILD)

    def fault_of(self, name: str, path: JsonPath) -> Iterator[Finding]:
        """Yield a finding if there is no agent of this name."""
        if name not in self._known and name not in BUILDERS:
            known = dict.fromkeys((*BUILDERS, *self._known))
            listed = f"Known agents: {', '.join(known)}; define more in 'agents'."
            option = "--agent: " if path == COMMAND_LINE else ""
            hint = did_you_mean(name, known) or listed
            yield Finding(path, f"{option}There is no agent {name!r}.", hint)


def agents_of(
    owner: JsonNode, files: HankFiles, findings: list[Finding], scripts: dict[str, bytes]
) -> dict[str, AgentSpec]:
    """Read an `agents` block; scripts are read below the directory of its file.

    `scripts` gets them, by their paths in a compiled hank.
    """
    found: dict[str, AgentSpec] = {}
    for name, raw in object_at(owner, "agents").raw.items():
        choice = value_of(raw, AGENT)
        path = (*owner.path, "agents", name)
        if isinstance(choice, ScriptedKeys):
            try:
                found[name] = _scripted(choice.script, files, scripts)
            except _ScriptFault as fault:
                findings.append(Finding((*path, "script"), *fault.args))
        elif choice is not None:
            findings += check.of_command_line(JsonNode(raw, path))
            found[name] = choice

    return found


class _ScriptFault(Exception):
    """A script cannot be used; its arguments are a message and a hint."""


def _scripted(script: object, files: HankFiles, scripts: dict[str, bytes]) -> ScriptedAgentSpec:
    if script is None:
        return ScriptedAgentSpec()

    if isinstance(script, str):
        script = _script_in(script, files)
    elif isinstance(script, list):
        script = {"steps": script}

    if not isinstance(script, dict) or not isinstance(script.get("steps"), list):
        hint = "For example {steps: [{say: Done}]}."
        raise _ScriptFault("A script is a mapping with a list of 'steps'.", hint)

    try:
        text = json.dumps(script, ensure_ascii=True, allow_nan=False, indent=2).encode() + b"\n"
    except (ValueError, RecursionError) as error:
        raise _ScriptFault(f"The script cannot be written: {error}.") from None

    # Named by its content, so that agents with the same script share it.
    reference = f"scripts/{hashlib.sha256(text).hexdigest()[:16]}.json"
    scripts[reference] = text
    return ScriptedAgentSpec(script=reference)


def _script_in(reference: str, files: HankFiles) -> object:
    fault = files.fault_of_file(reference)
    if fault is not None:
        raise _ScriptFault(fault.replace("the hank's", "its"), files.nearest(reference))

    try:
        return json.loads(files.text(reference))
    except OSError as error:
        raise _ScriptFault(f"{reference!r} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise _ScriptFault(f"{reference!r} is not JSON.") from None


_NEVER = "The agent never asks for permission, so these permissions cannot be enforced."
_PERHAPS = "The agent is not known to ask for permission, so the step would fail with these."
_HINT = "Use another agent, or say 'permissions: {otherwise: allow}' for this step."


def not_asking(
    steps: Iterable[PlacedStep], common: Permissions | None, *, is_certain: bool
) -> Iterator[Finding]:
    """Yield permissions of agents that never ask for them, or that may not ask."""
    for step, path in steps:
        agent, permissions = step.agent, step.keys.permissions or common
        if agent is not None and permissions is not None and can_refuse(permissions):
            if is_certain and isinstance(agent, NEVER_ASK):
                yield Finding((*path, "agent"), _NEVER, _HINT)
            elif not is_certain and not can_ask(agent):
                yield Finding((*path, "agent"), _PERHAPS, _HINT)
