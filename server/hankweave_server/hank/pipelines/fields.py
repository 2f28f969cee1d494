"""Typed access to the fields of a YAML mapping; faults are collected.

`as_in_a_hank` reads blocks that mean the same in a hank, using the hank's own shape.
`permissions_of` reads the `permissions` of a pipeline or a step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from hankweave_protocol.hank import Permissions
from hankweave_server.domain.permissions import NEVER_ASK, can_ask, can_refuse
from hankweave_server.domain.variables import text_of
from hankweave_server.hank import check, shape
from hankweave_server.hank.pipelines.model import PlacedStep, ScriptedAgentSettings
from hankweave_server.hank.pipelines.yaml_text import Written
from hankweave_server.hank.problems import Finding, JsonPath, did_you_mean
from hankweave_server.hank.rules import JsonNode, Raw

Choice = TypeVar("Choice", bound=str)

_SHOWN = 40
_LONGEST_NUMBER = 30


class Fields:
    """The fields of one mapping; a missing or null field has its default."""

    def __init__(self, owner: JsonNode, findings: list[Finding]) -> None:
        self.path = owner.path
        self.raw: Raw = owner.raw
        self.findings = findings

    def found(self, key: str | None, message: str, suggestion: str | None = None) -> None:
        """Record a fault of a field, or of the mapping itself."""
        path = self.path if key is None else (*self.path, key)
        self.findings.append(Finding(path, message, suggestion))

    def has(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def refuse_others(self, known: Collection[str], meant: dict[str, str] | None = None) -> None:
        """Record each unknown key, with a suggestion of a known one."""
        for key in self.raw.keys() - set(known):
            near = (meant or {}).get(key)
            hint = did_you_mean(key, known) if near is None else f"Did you mean {near!r}?"
            known_keys = f"Known keys: {', '.join(known)}."
            self.found(key, f"The key {key!r} is not known here.", hint or known_keys)

    def text(self, key: str) -> str | None:
        """Return a text; numbers and dates count as texts, as written."""
        match self.raw.get(key):
            case None:
                return None
            case str(text):
                return text
            case Written(text):
                return text
            case bool() as value:
                hint = "Put it in quotes if it is meant to be a string."
                self.found(key, f"Expected a string; found {_shown(value)}.", hint)
            case value:
                self.found(key, f"Expected a string; found {_shown(value)}.")

        return None

    def filled_text(self, key: str) -> str | None:
        """Return a text that is not blank."""
        text = self.text(key)
        if text is not None and not text.strip():
            self.found(key, "The value must not be empty.")
            return None

        return text

    def yes_or_no(self, key: str) -> bool:
        """Return a boolean; a text is a fault, whatever it contains."""
        match self.raw.get(key):
            case None:
                return False
            case bool(value):
                return value
            case str(text) if text.strip().lower() in ("true", "false", "yes", "no"):
                message = f"Expected true or false; found the string {text!r}."
                self.found(key, message, "Remove the quotes.")
            case value:
                self.found(key, f"Expected true or false; found {_shown(value)}.")

        return False

    def whole(self, key: str, least: int, most: int) -> int | None:
        """Return a whole number within a range."""
        value = self.raw.get(key)
        if value is None:
            return None

        if isinstance(value, Written) and (number := _whole(value)) is not None:
            if least <= number <= most:
                return number

            self.found(key, f"Expected a number from {least} to {most}; found {_shown(value)}.")
        else:
            self.found(key, f"Expected a whole number; found {_shown(value)}.", _unquote(value))

        return None

    def seconds(self, key: str) -> float | None:
        """Return a positive number of seconds."""
        value = self.raw.get(key)
        if value is None:
            return None

        number = _number(value) if isinstance(value, Written) else None
        if number is None:
            self.found(
                key, f"Expected a number of seconds; found {_shown(value)}.", _unquote(value)
            )
        elif number <= 0:
            self.found(key, f"Expected more than 0 seconds; found {_shown(value)}.")
        else:
            return number

        return None

    def one_of(self, key: str, choices: tuple[Choice, ...], default: Choice) -> Choice:
        """Return one of several words."""
        text = self.text(key)
        if text is None or text in choices:
            return default if text is None else text

        listed = ", ".join(choices)
        self.found(key, f"Expected one of {listed}; found {text!r}.", did_you_mean(text, choices))
        return default

    def mapping(self, key: str) -> Fields | None:
        """Return the fields of a nested mapping."""
        match self.raw.get(key):
            case None:
                return None
            case dict(raw):
                return Fields(JsonNode(raw, (*self.path, key)), self.findings)
            case value:
                self.found(key, f"Expected a mapping; found {_shown(value)}.")
                return None

    def items(self, key: str) -> Iterator[tuple[Any, JsonPath]]:
        """Yield the items of a list with their paths."""
        match self.raw.get(key):
            case None:
                return
            case list(items):
                for index, item in enumerate(items):
                    yield item, (*self.path, key, index)
            case value:
                self.found(key, f"Expected a list; found {_shown(value)}.")

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield every key of the mapping with its scalar as a text."""
        for key, value in self.raw.items():
            if isinstance(value, dict | list):
                self.found(key, f"Expected a single value; found {_shown(value)}.")
            else:
                yield key, value.text if isinstance(value, Written) else text_of(value)


def fields_of(value: Any, path: JsonPath, what: str, findings: list[Finding]) -> Fields | None:
    """Return the fields of a value that must be a mapping."""
    if isinstance(value, dict):
        return Fields(JsonNode(value, path), findings)

    findings.append(Finding(path, f"Expected {what}; found {_shown(value)}."))
    return None


def plain(value: Any) -> Any:
    """Return a value as in JSON; raise ValueError for a number that JSON cannot express."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case Written(text, "number"):
            number = _whole(value)
            found = _number(value) if number is None else number
            if found is None:
                raise ValueError(f"{text[:_SHOWN]!r} is not a JSON number")

            return found
        case Written(text):
            return text
        case _:
            return value


def _whole(value: Written) -> int | None:
    try:
        return int(value.text) if len(value.text) <= _LONGEST_NUMBER else None
    except ValueError:
        return None


def _number(value: Written) -> float | None:
    try:
        number = float(value.text) if len(value.text) <= _LONGEST_NUMBER else math.nan
    except ValueError:
        return None

    return number if math.isfinite(number) else None


def _unquote(value: Any) -> str | None:
    if not isinstance(value, str):
        return None

    looks_so = _number(Written(value.strip(), "number")) is not None
    return "Remove the quotes." if looks_so else None


def _shown(value: Any) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return text_of(value)
        case Written(text):
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        case _:
            return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def shape_of(kind: type[msgspec.Struct]) -> inspect.StructType:
    """Return the shape of a type of the protocol."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found


def keys_of(kind: inspect.StructType) -> dict[str, inspect.Field]:
    """Return a shape's fields by their YAML keys, such as `timeout` for `timeoutSeconds`."""
    return {field.name.removesuffix("_seconds"): field for field in kind.fields}


def as_in_a_hank(fields: Fields, kind: inspect.StructType) -> dict[str, Any] | None:
    """Return the fields in the form of hank.json; None, with a finding, if they are invalid.

    The caller checks beforehand which keys are allowed and required.
    """
    before, given = len(fields.findings), {}
    for key, field in keys_of(kind).items():
        if fields.has(key):
            value = _as_json(fields.raw[key], field.type)
            fields.findings += shape.findings(value, field.type, (*fields.path, key))
            given[field.encode_name] = value

    return given if len(fields.findings) == before else None


def _as_json(value: Any, wanted: inspect.Type) -> Any:
    """Convert scalars to texts, as written, except where the shape requires a number."""
    if isinstance(wanted, inspect.IntType | inspect.FloatType):
        with suppress(ValueError):
            return plain(value)

    match value:
        case Written(text):
            return text
        case list(items):
            return [item.text if isinstance(item, Written) else item for item in items]
        case dict(items):
            return {key: _as_text(item) for key, item in items.items()}
        case _:
            return value


def _as_text(item: Any) -> Any:
    match item:
        case Written(text):
            return text
        case bool():
            return text_of(item)
        case _:
            return item


_SHAPE = shape_of(Permissions)
_HINT = "Use another agent, or say 'permissions: {otherwise: allow}' for this step."


def permissions_of(owner: Fields) -> Permissions | None:
    """Read a `permissions` block; return None if there is none or it is invalid."""
    block = owner.mapping("permissions")
    if block is None:
        return None

    block.refuse_others(tuple(keys_of(_SHAPE)))
    given = as_in_a_hank(block, _SHAPE)
    if given is None:
        return None

    block.findings += check.of_patterns(JsonNode(given, block.path))
    return msgspec.convert(given, Permissions)


def faults(steps: Iterable[PlacedStep], common: Permissions | None) -> Iterator[Finding]:
    """Yield permissions that refuse something to an agent that never asks for them."""
    message = "The agent never asks for permission, so these permissions cannot be enforced."
    for step, path in steps:
        if isinstance(step.agent, NEVER_ASK) and _could_refuse(step.permissions or common):
            yield Finding((*path, "agent"), message, _HINT)


def warnings(steps: Iterable[PlacedStep], common: Permissions | None) -> Iterator[Finding]:
    """Yield permissions of agents that may not ask for them: such a step fails."""
    message = "The agent is not known to ask for permission, so the step would fail with these."
    for step, path in steps:
        asks = (
            step.agent is None
            or isinstance(step.agent, ScriptedAgentSettings)
            or can_ask(step.agent)
        )
        if not asks and _could_refuse(step.permissions or common):
            yield Finding((*path, "agent"), message, _HINT)


def _could_refuse(permissions: Permissions | None) -> bool:
    return permissions is not None and can_refuse(permissions)
