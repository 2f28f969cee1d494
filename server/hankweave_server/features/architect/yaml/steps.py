"""The steps and variables of a pipeline.

`Uses` follows the variables known at each step, and reports undefined names, which a typing mistake
in a condition or prompt would cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set

from msgspec import structs

from hankweave_protocol.hank import Check
from hankweave_server.domain.conditions import RESERVED, parse
from hankweave_server.domain.variables import names_in, text_of
from hankweave_server.features.architect.yaml.agents import Agents
from hankweave_server.features.architect.yaml.model import PipelineStep, PlacedStep
from hankweave_server.features.architect.yaml.shapes import CheckKeys, StepKeys, readable
from hankweave_server.hank import check
from hankweave_server.hank.problems import (
    COMMAND_LINE,
    Finding,
    JsonPath,
    did_you_mean,
    has_surrogate,
    path_text,
)
from hankweave_server.hank.prompts import cleaned
from hankweave_server.hank.references import fault_of_variable
from hankweave_server.hank.rules import JsonNode, faults, object_at, objects

_NOT_IN_A_NAME = re.compile(r"[\s/\\#\x00-\x1f\x7f]+")


def steps_of(root: JsonNode, agents: Agents, findings: list[Finding]) -> list[PlacedStep]:
    """Read the steps, recording their faults as findings."""
    placed: list[PlacedStep] = []
    first: dict[str, JsonPath] = {}
    for node in objects(root, "steps"):
        step = _step(node, agents, findings)
        placed.append((step, node.path))
        known = first.setdefault(step.name, node.path)
        if known is not node.path:
            message = f"The name {step.name!r} is already used by a step: {path_text(known)}."
            hint = "Use a different one for each."
            findings.append(Finding((*node.path, "name"), message, hint))

    if not root.raw.get("steps"):
        hint = "Add at least one with a prompt."
        findings.append(Finding((*root.path, "steps"), "The pipeline has no steps.", hint))

    return placed


def _step(node: JsonNode, agents: Agents, findings: list[Finding]) -> PipelineStep:
    keys = readable(node.raw, StepKeys)
    default = f"step-{int(node.path[-1]) + 1}"
    text = None if keys.condition is None else text_of(keys.condition)
    found = list(_faults(node, keys, default))
    findings += [*found, *agents.fault_of(keys.agent, (*node.path, "agent"))]
    faulty = {each.path[-1] for each in found}
    return PipelineStep(
        keys=keys,
        name=default if keys.name is None else keys.name,
        agent=agents.of(keys.agent),
        condition=None if "condition" in faulty else text,
        output_var=None if "output_var" in faulty else keys.output_var,
        checks=tuple(_checks(keys.checks)),
    )


def _faults(step: JsonNode, keys: StepKeys, default: str) -> Iterator[Finding]:
    """Yield the faults of a step beyond its shape."""
    yield from faults(step, "name", lambda name: _fault_of_step_name(name, default))
    if step.raw.keys().isdisjoint({"prompt", "task"}):
        yield Finding(step.path, "The step has no prompt.")
    elif isinstance(step.raw.get("prompt"), str) and not cleaned(keys.prompt).strip():
        yield Finding((*step.path, "prompt"), "The prompt is empty.")

    yield from faults(step, "condition", check.fault_of_condition)
    yield from faults(step, "output_var", fault_of_name)
    if "attempts" in step.raw and keys.on_failure != "retry":
        message = "'attempts' has no effect without 'on_failure: retry'."
        hint = "Set 'on_failure: retry' or remove 'attempts'."
        yield Finding((*step.path, "attempts"), message, hint)

    yield from faults(step, "checks", check.fault_of_shell)
    yield from check.of_variables(object_at(step, "env"))
    yield from check.of_patterns(object_at(step, "permissions"))


def _fault_of_step_name(name: str, default: str) -> tuple[str, str | None] | None:
    """Return why a step cannot have a name, and a hint; None if it can."""
    if not name.strip():
        return "The name is empty.", f"Without a name, the step is called {default!r}."

    if _NOT_IN_A_NAME.search(name):
        better = _NOT_IN_A_NAME.sub("-", name).strip("-") or default
        forbidden = "a space, a '/', a '\\', a '#' or a control character"
        return f"The name {name!r} contains {forbidden}.", f"Use {better!r} instead."

    if name in (".", ".."):
        return f"The name {name!r} refers to a folder.", "Choose another."

    if len(name.encode()) > check.ID_BYTES:
        return f"A name can have at most {check.ID_BYTES} bytes.", None

    return None


def _checks(written: str | tuple[str | CheckKeys, ...]) -> Iterator[Check]:
    for each in (written,) if isinstance(written, str) else written:
        if isinstance(each, str):
            yield Check(run=each)
        else:
            found = Check(run=each.run, allow_failure=each.allow_failure)
            seconds = each.timeout
            yield found if seconds is None else structs.replace(found, timeout_seconds=seconds)


def fault_of_name(name: str) -> tuple[str, str] | None:
    """Return why a variable cannot have a name, and a hint; None if it can."""
    if fault_of_variable(name) is not None:
        message = f"{name!r} is not a valid variable name."
    elif name.lower() in RESERVED:
        message = f"{name!r} is a reserved word in conditions."
    else:
        return None

    return message, f"Use {usable_name(name)!r} instead."


def usable_name(name: str) -> str:
    """Return a valid variable name similar to the given one."""
    better = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "value"
    better = f"_{better}" if better[0].isdigit() else better
    return f"{better}_" if better.lower() in RESERVED else better


class NotAVariable(Exception):
    """An invalid `--var` on the command line."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def parse_var(text: str) -> tuple[str, str]:
    """Parse `name=value`; raise NotAVariable, because ignoring an entry would mislead."""
    name, sign, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not sign:
        raise NotAVariable(f"--var {text!r} has no '='.", f"Write --var {usable_name(text)}=value.")

    if (found := fault_of_name(name)) is not None:
        raise NotAVariable(f"--var: {found[0]}", f"Write --var {usable_name(name)}=value.")

    if (fault := fault_of_value(value)) is not None:
        raise NotAVariable(f"--var {name}: {fault}", "Encode it in UTF-8.")

    return name, value


def fault_of_value(value: str) -> str | None:
    """Return why a variable cannot hold a text, or None if it can."""
    if "\0" in value:
        return "The value contains a NUL character."

    return "The value is not valid text." if has_surrogate(value) else None


def variables_of(root: JsonNode, findings: list[Finding]) -> dict[str, str]:
    """Read the `variables` block: any scalar, converted to a text."""
    block = object_at(root, "variables")
    found = ((name, fault_of_name(name)) for name in block.raw)
    findings += (Finding((*block.path, name), *fault) for name, fault in found if fault)

    return {name: value for name, value in block.raw.items() if isinstance(value, str)}


def faults_of_given(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each `--var` that is not allowed."""
    for name, value in given.items():
        fault, _ = fault_of_name(name) or (fault_of_value(value), None)
        if fault is not None:
            yield Finding(COMMAND_LINE, f"--var {name}: {fault}")


class Uses:
    """A walk through the steps in order that records every undefined name."""

    def __init__(self, variables: Mapping[str, str], steps: Sequence[PlacedStep]) -> None:
        self.faults: list[Finding] = []
        self.warnings: list[Finding] = []
        self._known = set(variables)
        self._captured_by = {
            step.output_var: step.name for step, _ in reversed(steps) if step.output_var
        }
        for step, path in steps:
            if step.condition is not None:
                condition = parse(step.condition)
                self._read(condition.names - condition.asked, (*path, "condition"))

            for key, text in (
                ("prompt", step.keys.prompt),
                ("system_prompt", step.keys.system_prompt or ""),
            ):
                self._read(names_in(text), (*path, key), is_literal=True)

            if step.output_var is not None:
                self._known.add(step.output_var)

    def _read(self, names: Set[str], path: JsonPath, *, is_literal: bool = False) -> None:
        """Record the undefined ones of these names; a text keeps its unknown names."""
        for name in sorted(names - self._known):
            near = did_you_mean(name, self._known)
            step = self._captured_by.get(name)
            if step is not None:  # Only this step or a later one sets it.
                message = f"The variable {name!r} is not set yet: the step {step!r} sets it."
                hint = "Move that step before this one, or set an initial value in 'variables'."
                self.faults.append(Finding(path, message, hint))
            elif is_literal:
                message = f"Nothing defines {name!r}; the agent receives {{{{{name}}}}} unchanged."
                self.warnings.append(Finding(path, message, near))
            else:
                hint = f"Define it in 'variables' or with --var, or test 'defined({name})'."
                message = f"Nothing before this step defines {name!r}."
                self.faults.append(Finding(path, message, near or hint))
