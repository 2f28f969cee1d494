"""One agent of an `agents` block: of any type that a hank knows, with its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import inspect

from hankweave_protocol.hank import AgentSpec
from hankweave_server.hank.hank_files import HankFiles
from hankweave_server.hank.nodes import is_blank
from hankweave_server.hank.pipelines.fields import Fields, plain
from hankweave_server.hank.pipelines.model import AgentChoice, ScriptedAgent
from hankweave_server.hank.pipelines.shaped import as_in_a_hank, keys_of, shape_of
from hankweave_server.hank.problems import did_you_mean

_KINDS: Mapping[str, inspect.StructType] = {
    str(kind.tag): kind for kind in map(shape_of, get_args(AgentSpec))
}


def agent_of(agent: Fields, files: HankFiles) -> AgentChoice | None:
    """Reads an agent by its `type`; None where a finding tells why not."""
    kind, known = agent.text("type"), ", ".join(_KINDS)
    if kind is None:
        if not agent.has("type"):
            agent.found(None, f"The agent has no 'type': one of {known}.")

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
        hint = "Such as ['my-agent', '--quiet']; it gets the prompt on its standard input."
        if kind == "acp":
            hint = "Such as ['opencode', 'acp']; it speaks the Agent Client Protocol."

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


def _scripted(agent: Fields, files: HankFiles) -> ScriptedAgent | None:
    match agent.raw.get("script"):
        case None:
            return ScriptedAgent()
        case str(reference):
            return _script_file(agent, reference, files)
        case list(steps):
            return _script(agent, {"steps": steps})
        case value:
            return _script(agent, value)


def _script_file(agent: Fields, reference: str, files: HankFiles) -> ScriptedAgent | None:
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


def _script(agent: Fields, value: Any) -> ScriptedAgent | None:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        hint = "Such as {steps: [{say: Done}]}."
        agent.found("script", "A script is a mapping with a list of 'steps'.", hint)
        return None

    try:
        text = json.dumps(plain(value), ensure_ascii=True, allow_nan=False, indent=2)
    except (ValueError, RecursionError) as error:
        agent.found("script", f"The script cannot be written: {error}.")
        return None

    return ScriptedAgent(text.encode() + b"\n")
