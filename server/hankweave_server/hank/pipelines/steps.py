"""The steps and variables of a pipeline.

`Uses` follows the variables known at each step, and reports undefined names, which a typing mistake
in a condition or prompt would cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from hankweave_protocol.hank import Check
from hankweave_server.domain.conditions import RESERVED, ConditionError, parse
from hankweave_server.domain.variables import names_in
from hankweave_server.hank.check import ID_BYTES
from hankweave_server.hank.pipelines.agents import BUILD, Agents
from hankweave_server.hank.pipelines.fields import Fields, fields_of, permissions_of
from hankweave_server.hank.pipelines.model import OnFailure, PipelineStep, PlacedStep
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean, path_text
from hankweave_server.hank.prompts import cleaned
from hankweave_server.hank.references import fault_of_variable

KEYS = (
    "name",
    "agent",
    "prompt",
    "model",
    "checkpoint",
    "condition",
    "output_var",
    "checks",
    "timeout",
    "on_failure",
    "attempts",
    "system_prompt",
    "env",
    "permissions",
)
_MEANT = {"task": "prompt", "retries": "attempts", "if": "condition", "check": "checks"}
_ON_FAILURE: tuple[OnFailure, ...] = ("stop", "retry", "continue")
_MOST_ATTEMPTS = 10

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_A_NAME = re.compile(r"[\s/\\#\x00-\x1f\x7f]+")


def steps_of(root: Fields, agents: Agents) -> tuple[PipelineStep, ...]:
    """Read the steps, recording their faults as findings."""
    if not root.has("steps"):
        root.found("steps", "The pipeline has no steps.", "Add at least one with a prompt.")
        return ()

    steps: list[PipelineStep] = []
    first: dict[str, JsonPath] = {}
    for index, (raw, path) in enumerate(root.items("steps"), start=1):
        fields = fields_of(raw, path, "a step: a mapping with a prompt", root.findings)
        if fields is None:
            continue

        step = _step(fields, index, agents)
        if first.setdefault(step.name, path) is not path:
            message = (
                f"The name {step.name!r} is already used by a step: {path_text(first[step.name])}."
            )
            fields.found("name", message, "Use a different one for each.")

        steps.append(step)

    if root.raw["steps"] == []:
        root.found("steps", "The pipeline has no steps.", "Add at least one with a prompt.")

    return tuple(steps)


def fault_of_name(name: str) -> str | None:
    """Return why a variable cannot have a name, or None if it can."""
    if not _VARIABLE.fullmatch(name):
        return f"{name!r} is not a valid variable name."

    return f"{name!r} is a reserved word in conditions." if name.lower() in RESERVED else None


def usable_name(name: str) -> str:
    """Return a valid variable name similar to the given one."""
    better = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "value"
    better = f"_{better}" if better[0].isdigit() else better
    return f"{better}_" if better.lower() in RESERVED else better


def _step(fields: Fields, index: int, agents: Agents) -> PipelineStep:
    fields.refuse_others(KEYS, _MEANT)
    name = _name(fields, f"step-{index}")
    agent_name = fields.filled_text("agent") or BUILD
    on_failure = fields.one_of("on_failure", _ON_FAILURE, "stop")
    return PipelineStep(
        name=name,
        agent_name=agent_name,
        agent=agents.of(agent_name, fields),
        prompt=_prompt(fields),
        model=fields.filled_text("model"),
        checkpoint=fields.yes_or_no("checkpoint"),
        condition=_condition(fields),
        output_var=_output_var(fields),
        checks=tuple(_checks(fields)),
        timeout_seconds=fields.seconds("timeout"),
        on_failure=on_failure,
        attempts=_attempts(fields, on_failure),
        system_prompt=fields.filled_text("system_prompt"),
        env=dict(_env(fields)),
        permissions=permissions_of(fields),
    )


def _name(fields: Fields, default: str) -> str:
    name = fields.text("name")
    if name is None:
        return default

    better = _NOT_IN_A_NAME.sub("-", name).strip("-") or default
    if not name.strip():
        fields.found(
            "name", "The name is empty.", f"Without a name, the step is called {default!r}."
        )
    elif _NOT_IN_A_NAME.search(name):
        message = (
            f"The name {name!r} contains a space, a '/', a '\\', a '#' or a control character."
        )
        fields.found("name", message, f"Use {better!r} instead.")
    elif name in (".", ".."):
        fields.found("name", f"The name {name!r} refers to a folder.", "Choose another.")
    elif len(name.encode()) > ID_BYTES:
        fields.found("name", f"A name can have at most {ID_BYTES} bytes.")

    return name


def _prompt(fields: Fields) -> str:
    prompt = fields.text("prompt")
    if prompt is None:
        if not fields.has("prompt") and "task" not in fields.raw:
            fields.found(None, "The step has no prompt.")
    elif not cleaned(prompt).strip():
        fields.found("prompt", "The prompt is empty.")

    return prompt or ""


def _condition(fields: Fields) -> str | None:
    value = fields.raw.get("condition")
    text = ("true" if value else "false") if isinstance(value, bool) else fields.text("condition")
    if text is None:
        return None

    try:
        return parse(text).text
    except ConditionError as error:
        where = f"The condition cannot be read at character {error.offset + 1}: {error.message}"
        fields.found("condition", where, error.suggestion)
        return None


def _output_var(fields: Fields) -> str | None:
    name = fields.text("output_var")
    fault = None if name is None else fault_of_name(name)
    if name is None or fault is None:
        return name

    fields.found("output_var", fault, f"Use {usable_name(name)!r} instead.")
    return None


def _attempts(fields: Fields, on_failure: OnFailure) -> int | None:
    attempts = fields.whole("attempts", 1, _MOST_ATTEMPTS)
    if fields.has("attempts") and on_failure != "retry":
        hint = "Set 'on_failure: retry' or remove 'attempts'."
        fields.found("attempts", "'attempts' has no effect without 'on_failure: retry'.", hint)

    return attempts


def _checks(fields: Fields) -> Iterator[Check]:
    if isinstance(fields.raw.get("checks"), str):
        yield from _check(fields.raw["checks"], (*fields.path, "checks"), fields)
        return

    for item, path in fields.items("checks"):
        yield from _check(item, path, fields)


def _check(item: Any, path: JsonPath, fields: Fields) -> Iterator[Check]:
    if isinstance(item, str):
        if item.strip():
            yield Check(run=item)
        else:
            fields.findings.append(Finding(path, "The command is empty."))

        return

    check = fields_of(item, path, "a command, or a mapping with 'run'", fields.findings)
    if check is None:
        return

    check.refuse_others(("run", "timeout", "allow_failure"))
    run = check.filled_text("run")
    if not check.has("run"):
        check.found(None, "The check has no 'run'.")

    seconds, allowed = check.seconds("timeout"), check.yes_or_no("allow_failure")
    if run is not None:
        found = Check(run=run, allow_failure=allowed)
        yield found if seconds is None else structs.replace(found, timeout_seconds=seconds)


def _env(fields: Fields) -> Iterator[tuple[str, str]]:
    env = fields.mapping("env")
    if env is None:
        return

    for name, value in env.texts():
        fault = fault_of_variable(name)
        if fault is None:
            yield name, value
        else:
            env.found(name, fault, "Use letters, digits and '_', and do not begin with a digit.")


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

    if (fault := fault_of_name(name)) is not None:
        raise NotAVariable(f"--var: {fault}", f"Write --var {usable_name(name)}=value.")

    if fault_of_value(value) is not None:
        raise NotAVariable(f"--var {name}: {fault_of_value(value)}", "Encode it in UTF-8.")

    return name, value


def fault_of_value(value: str) -> str | None:
    """Return why a variable cannot hold a text, or None if it can."""
    if "\0" in value:
        return "The value contains a NUL character."

    is_text = not any("\ud800" <= character <= "\udfff" for character in value)
    return None if is_text else "The value is not valid text."


def variables_of(root: Fields) -> dict[str, str]:
    """Read the `variables` block: any scalar, converted to a text."""
    block = root.mapping("variables")
    if block is None:
        return {}

    found: dict[str, str] = {}
    for name, value in block.texts():
        if (fault := fault_of_name(name)) is not None:
            block.found(name, fault, f"Use {usable_name(name)!r} instead.")
        else:
            found[name] = value

    return found


def faults_of_given(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each `--var` that is not allowed."""
    for name, value in given.items():
        fault = fault_of_name(name) or fault_of_value(value)
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
            self._condition(step, (*path, "condition"))
            self._text(step.prompt, (*path, "prompt"))
            self._text(step.system_prompt or "", (*path, "system_prompt"))
            if step.output_var is not None:
                self._known.add(step.output_var)

    def _condition(self, step: PipelineStep, path: JsonPath) -> None:
        if step.condition is None:
            return

        condition = parse(step.condition)
        for name in sorted(condition.names - condition.asked - self._known):
            self.faults.append(self._too_late(name, path) or self._undefined(name, path))

    def _text(self, text: str, path: JsonPath) -> None:
        for name in sorted(names_in(text) - self._known):
            late = self._too_late(name, path)
            if late is not None:
                self.faults.append(late)
            else:
                self.warnings.append(self._literal(name, path))

    def _too_late(self, name: str, path: JsonPath) -> Finding | None:
        """Return a finding for a name that only this step or a later one captures."""
        step = self._captured_by.get(name)
        if step is None:
            return None

        message = f"The variable {name!r} is not set yet: the step {step!r} sets it."
        hint = "Move that step before this one, or set an initial value in 'variables'."
        return Finding(path, message, hint)

    def _undefined(self, name: str, path: JsonPath) -> Finding:
        hint = did_you_mean(name, self._known)
        otherwise = f"Define it in 'variables' or with --var, or test 'defined({name})'."
        return Finding(path, f"Nothing before this step defines {name!r}.", hint or otherwise)

    def _literal(self, name: str, path: JsonPath) -> Finding:
        message = f"Nothing defines {name!r}; the agent receives {{{{{name}}}}} unchanged."
        return Finding(path, message, did_you_mean(name, self._known))
