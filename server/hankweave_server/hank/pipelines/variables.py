"""Which variables are known at which step: what a typing mistake would make of a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hankweave_server.domain.conditions import parse
from hankweave_server.domain.variables import names_in
from hankweave_server.hank.pipelines.fields import Fields
from hankweave_server.hank.pipelines.model import PipelineStep, PlacedStep
from hankweave_server.hank.pipelines.steps import fault_of_name, usable_name
from hankweave_server.hank.pipelines.yaml_text import COMMAND_LINE
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean


class NotAVariable(Exception):
    """A `--var` that sets nothing: the caller's fault."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def parse_var(text: str) -> tuple[str, str]:
    """Reads `name=value`; raises NotAVariable, since an entry that is passed over misleads."""
    name, sign, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not sign:
        raise NotAVariable(f"--var {text!r} has no '='.", f"Write --var {usable_name(text)}=value.")

    if (fault := fault_of_name(name)) is not None:
        raise NotAVariable(f"--var: {fault}", f"Write --var {usable_name(name)}=value.")

    if fault_of_value(value) is not None:
        raise NotAVariable(f"--var {name}: {fault_of_value(value)}", "Write it in UTF-8.")

    return name, value


def fault_of_value(value: str) -> str | None:
    """Says why no variable can hold a text."""
    if "\0" in value:
        return "The value holds a NUL."

    is_text = not any("\ud800" <= character <= "\udfff" for character in value)
    return None if is_text else "The value is no text."


def variables_of(root: Fields) -> dict[str, str]:
    """Reads the `variables` block: any scalar, which becomes a text."""
    block = root.mapping("variables")
    if block is None:
        return {}

    found: dict[str, str] = {}
    for name, value in block.texts():
        if (fault := fault_of_name(name)) is not None:
            block.found(name, fault, f"{usable_name(name)!r} is one.")
        else:
            found[name] = value

    return found


def faults_of_given(given: Mapping[str, str]) -> Iterator[Finding]:
    """Tells of variables that the caller must not set."""
    for name, value in given.items():
        fault = fault_of_name(name) or fault_of_value(value)
        if fault is not None:
            yield Finding(COMMAND_LINE, f"--var {name}: {fault}")


class Uses:
    """Goes through the steps in their order and tells of each name that nobody has defined."""

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
        """A name that only this step or a later one captures."""
        step = self._captured_by.get(name)
        if step is None:
            return None

        message = f"The variable {name!r} is not there yet: the step {step!r} captures it."
        hint = "Move that step before this one, or give 'variables' a value to begin with."
        return Finding(path, message, hint)

    def _undefined(self, name: str, path: JsonPath) -> Finding:
        hint = did_you_mean(name, self._known)
        otherwise = f"Define it in 'variables' or with --var, or ask 'defined({name})'."
        return Finding(path, f"Nothing before this step defines {name!r}.", hint or otherwise)

    def _literal(self, name: str, path: JsonPath) -> Finding:
        message = f"Nothing defines {name!r}; the agent is told {{{{{name}}}}} as it stands."
        return Finding(path, message, did_you_mean(name, self._known))
